"""Downloads from plain addresses over a real connection, and the file that grows."""

import contextlib
import threading
from pathlib import Path

import pytest

from services.models.downloads import part as parts
from services.models.downloads.fetch import Fetch
from tests.support.downloads import (
    CONTENT,
    FILE,
    NO_WAITS,
    OTHER,
    REPO,
    SPLIT,
    a_cache,
    a_hub,
    fetch,
    refuse,
    source,
)
from tests.support.hub import Fault, Hub, oid_of

__all__ = ["a_cache", "a_hub"]


def test_an_address_becomes_a_file_and_remembers_its_etag(hub: Hub, cache: Path) -> None:
    url = f"{hub.url}/files/plain.gguf?signature=secret#x"
    path, receipts = fetch(source(hub, cache, url=url))
    assert path == cache / "plain.gguf"
    assert path.read_bytes() == CONTENT
    assert (cache / "plain.gguf.etag").read_text() == f'"{oid_of(CONTENT)}"'
    assert receipts[0].url == f"{hub.url}/files/plain.gguf"
    hub.asked.clear()
    assert fetch(source(hub, cache, url=url)) == (path, [])
    assert hub.asked[0].headers["if-none-match"] == f'"{oid_of(CONTENT)}"'


def test_what_has_changed_is_fetched_anew(hub: Hub, cache: Path) -> None:
    url = f"{hub.url}/files/plain.gguf"
    fetch(source(hub, cache, url=url))
    hub.files["plain.gguf"] = OTHER
    path, receipts = fetch(source(hub, cache, url=url))
    assert path.read_bytes() == OTHER
    assert len(receipts) == 1


def test_a_change_in_the_middle_is_noticed(hub: Hub, cache: Path) -> None:
    url = f"{hub.url}/files/plain.gguf"
    hub.faults = [Fault(cut_at=100_000), *(Fault(status=503) for _ in range(4))]
    refuse(source(hub, cache, url=url))
    hub.files["plain.gguf"] = OTHER
    assert fetch(source(hub, cache, url=url)).path.read_bytes() == OTHER


def test_a_server_that_ignores_if_range_is_found_out(hub: Hub, cache: Path) -> None:
    url = f"{hub.url}/files/plain.gguf"
    hub.faults = [Fault(cut_at=100_000, headers={"ETag": '"old"'})]
    hub.faults += [Fault(headers={"ETag": '"old"'}, status=503)] * 4
    refuse(source(hub, cache, url=url))
    part = cache / f"plain.gguf{parts.SUFFIX}"
    (cache / f"plain.gguf{parts.SUFFIX}.etag").write_text('W/"old"')
    assert part.stat().st_size == 100_000
    assert fetch(source(hub, cache, url=url)).path.read_bytes() == CONTENT


@pytest.mark.parametrize("fault", [Fault(status=503), Fault(status=404)])
def test_with_the_server_away_the_old_file_will_do(hub: Hub, cache: Path, fault: Fault) -> None:
    url = f"{hub.url}/files/plain.gguf"
    first = fetch(source(hub, cache, url=url))
    hub.faults = [fault]
    assert fetch(source(hub, cache, url=url)) == (first.path, [])


def test_without_etags_the_old_file_stays(hub: Hub, cache: Path) -> None:
    hub.has_etags = False
    url = f"{hub.url}/files/plain.gguf"
    first = fetch(source(hub, cache, url=url))
    hub.files["plain.gguf"] = OTHER
    assert fetch(source(hub, cache, url=url)) == (first.path, [])


def test_the_user_says_where_the_file_goes(hub: Hub, cache: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "models" / "mine.gguf"
    url = f"{hub.url}/files/plain.gguf"
    assert fetch(source(hub, cache, url=url, path=str(wanted))).path == wanted
    assert wanted.read_bytes() == CONTENT
    hub.asked.clear()
    offline = source(hub, cache, url=url, path=str(wanted), is_offline=True)
    assert fetch(offline).path == wanted
    assert hub.asked == []


def test_parts_of_an_address_follow_the_first(hub: Hub, cache: Path) -> None:
    names = [path.rpartition("/")[2] for path in SPLIT]
    hub.files |= {name: name.encode() for name in names}
    path, receipts = fetch(source(hub, cache, url=f"{hub.url}/files/{names[0]}"))
    assert path == cache / names[0]
    assert [Path(item.path).name for item in receipts] == names


def test_the_token_goes_to_the_hub_only(hub: Hub, cache: Path) -> None:
    fetch(source(hub, cache, url=f"{hub.url}/files/plain.gguf", token="hf_secret"))
    assert hub.asked[0].headers["authorization"] == "Bearer hf_secret"
    with Hub().running() as elsewhere:
        elsewhere.files["y.gguf"] = CONTENT
        fetch(source(hub, cache, url=f"{elsewhere.url}/files/y.gguf", token="hf_secret"))
        assert "authorization" not in elsewhere.asked[0].headers


def test_user_and_password_of_an_address_are_sent_and_not_told(hub: Hub, cache: Path) -> None:
    url = f"{hub.url}/files/plain.gguf".replace("http://", "http://me:pass@")
    _, receipts = fetch(source(hub, cache, url=url))
    assert hub.asked[0].headers["authorization"] == "Basic bWU6cGFzcw=="
    assert "pass" not in receipts[0].url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{hub}/files/none.gguf", "/files/none.gguf: 404 Repository not found"),
        ("{hub}/", "names no file"),
        ("ftp://127.0.0.1/x.gguf", "is no http or https address"),
        ("file:///etc/passwd", "is no http or https address"),
        ("http://[::1/x.gguf", "is no http or https address"),
        ("http://127.0.0.1:x/x.gguf", "is no http or https address"),
        ("http://127.0.0.1:1/x.gguf", "cannot download x.gguf: http://127.0.0.1:1/x.gguf: "),
    ],
)
def test_bad_addresses_are_said(hub: Hub, cache: Path, url: str, message: str) -> None:
    assert message in refuse(source(hub, cache, url=url.format(hub=hub.url)))


def test_a_redirect_to_another_scheme_is_not_followed(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(status=302, location="file:///etc/passwd")]
    assert "302" in refuse(source(hub, cache, url=f"{hub.url}/files/plain.gguf"))


def test_progress_is_told(hub: Hub, cache: Path) -> None:
    told: list[tuple[str, int, int]] = []
    Fetch(source(hub, cache, repo=REPO), lambda *step: told.append(step), NO_WAITS).run()
    assert told[0] == (FILE, 0, len(CONTENT))
    assert told[-1] == (FILE, len(CONTENT), len(CONTENT))


def test_a_waiter_sees_what_the_holder_did(tmp_path: Path) -> None:
    path, began = tmp_path / "x", threading.Event()
    seen: list[bool] = []

    def wait() -> None:
        began.set()
        with parts.part_of(path):
            seen.append(path.exists())

    with contextlib.ExitStack() as stack:
        part = stack.enter_context(parts.part_of(path))
        waiter = threading.Thread(target=wait)
        waiter.start()
        began.wait()
        part.begin("")
        part.write(b"x")
        part.finish()
    waiter.join()
    assert seen == [True]
