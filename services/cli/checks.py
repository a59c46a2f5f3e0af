"""What must be true before anything is started. Each failure is one StartError that says what to do."""

import fcntl
import os
import time
from pathlib import Path

from services.cli.errors import StartError

GGUF_MAGIC = b"GGUF"
LOCK_NAME = "lock"
LOCK_WAIT_S = 3.0
_LOCK_POLL_S = 0.05


def check_model(path: str, *, is_needed: bool = True) -> None:
    """`path` is a readable GGUF file, or empty where none is needed. Raises StartError."""
    if not path and not is_needed:
        return
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise StartError(f"model {path} is not a file")
        with open(path, "rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise StartError(f"model {path} cannot be read: {error.strerror}") from None
    if magic != GGUF_MAGIC:
        raise StartError(f"model {path} is not a GGUF file")


def prepare_data_dir(folder: Path) -> None:
    """Make the folders; they are its owner's alone. Raises StartError."""
    try:
        for path in (folder, folder / "broker", folder / "logs"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise StartError(
                    f"data directory {path} is not writable: choose another, --data-dir"
                )
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(folder: Path, error: OSError) -> StartError:
    return StartError(
        f"data directory {folder} cannot be used: {error.strerror}; choose another with --data-dir"
    )


class DataLock:
    """One launcher at a time works on a data directory.

    The lock belongs to the open file: children that inherit `fd` keep it until the last of them is
    gone, so after a SIGKILL nobody starts a second broker on a store that is still in use.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, folder: Path) -> "DataLock":
        """Waits up to 3 s for the children of a dead launcher. Raises StartError."""
        try:
            fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from None
        _lock(fd, folder)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        return cls(fd)

    def release(self) -> None:
        os.close(self.fd)


def _lock(fd: int, folder: Path) -> None:
    deadline = time.monotonic() + LOCK_WAIT_S
    while not _try_lock(fd):
        holder = os.pread(fd, 20, 0).decode("ascii", "replace")
        if _is_alive(holder) or time.monotonic() > deadline:
            os.close(fd)
            raise StartError(
                f"data directory {folder} is used by another launcher (process {holder}): "
                "stop it or choose another with --data-dir"
            )
        time.sleep(_LOCK_POLL_S)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
