"""What is looked at before anything starts, and the sockets."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.cli import checks, listen
from services.cli.errors import StartError

HOLD = "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX)"


def test_models(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF\3\0\0\0")
    checks.check_model(str(model))
    for content in (b"", b"GG", b"FUGG"):
        model.write_bytes(content)
        with pytest.raises(StartError, match="is not a GGUF file"):
            checks.check_model(str(model))
    with pytest.raises(StartError, match="is not a file"):
        checks.check_model(str(tmp_path))
    with pytest.raises(StartError, match="cannot be read: No such file"):
        checks.check_model(str(tmp_path / "none"))


def test_the_data_directory_is_its_owners_alone(tmp_path: Path) -> None:
    checks.prepare_data_dir(tmp_path / "a" / "b")
    for name in ("", "broker", "logs"):
        assert (tmp_path / "a" / "b" / name).stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_place_of_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(StartError, match="cannot be used: File exists; choose another"):
        checks.prepare_data_dir(tmp_path / "f")


def test_a_lock_is_taken_once(tmp_path: Path) -> None:
    lock = checks.DataLock.take(tmp_path)
    with pytest.raises(StartError, match=rf"another launcher \(process {os.getpid()}\)"):
        checks.DataLock.take(tmp_path)
    lock.release()
    checks.DataLock.take(tmp_path).release()


def test_children_of_a_dead_launcher_are_waited_for(tmp_path: Path) -> None:
    file = tmp_path / checks.LOCK_NAME
    file.touch()
    hold = f"{HOLD}; print('held', flush=True); sys.stdin.read(1)"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        child.stdin.close()  # it ends now, while take() is waiting or before
        checks.DataLock.take(tmp_path).release()


def test_a_port_that_is_taken() -> None:
    (first,) = listen.open_sockets(["127.0.0.1"], 0)
    port = first.getsockname()[1]
    with pytest.raises(StartError, match=rf"127.0.0.1:{port} is taken by another process"):
        listen.open_sockets(["127.0.0.1"], port)
    listen.close_sockets([first])
    listen.close_sockets(listen.open_sockets(["127.0.0.1"], port))


def test_several_hosts_share_a_port(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    sockets = listen.open_sockets(["127.0.0.1", path, "127.0.0.2"], 0)
    ports = {sock.getsockname()[1] for sock in sockets if sock.family == socket.AF_INET}
    assert len(ports) == 1
    assert listen.url_of(sockets[1]) == f"unix:{path}"
    with pytest.raises(StartError, match="is taken"):
        listen.open_sockets([path], 0)
    listen.close_sockets(sockets)
    assert not os.path.exists(path)


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    listen.open_sockets([path], 0)[0].close()
    assert os.path.exists(path)
    listen.close_sockets(listen.open_sockets([path], 0))


def test_all_addresses_are_shown_as_one_that_a_client_can_use() -> None:
    sockets = listen.open_sockets(["0.0.0.0"], 0)
    assert listen.url_of(sockets[0]).startswith("http://127.0.0.1:")
    listen.close_sockets(sockets)


def test_a_host_that_is_none() -> None:
    with pytest.raises(StartError, match="is no address of this machine"):
        listen.open_sockets(["no such host"], 0)
    with pytest.raises(StartError, match=r"cannot listen on 192\.0\.2\.1:"):
        listen.open_sockets(["192.0.2.1"], 0)
