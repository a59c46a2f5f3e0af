"""Downloads from a hub over a real connection, with faults."""

import errno
import shutil
import threading
from pathlib import Path

import pytest

from services.models.downloads import part as parts
from services.models.downloads.cache import cached_models
from services.models.downloads.fetch import Fetch
from services.models.errors import DownloadFailed
from tests.support.downloads import (
    CONTENT,
    FILE,
    NO_WAITS,
    OTHER,
    REPO,
    SPLIT,
    Fetched,
    a_cache,
    a_hub,
    blob,
    fetch,
    leftovers,
    refuse,
    source,
)
from tests.support.hub import COMMIT, Fault, Hub, oid_of

__all__ = ["a_cache", "a_hub"]

# ---- a hub


def test_a_repository_becomes_a_file_in_the_hubs_layout(hub: Hub, cache: Path) -> None:
    path, receipts = fetch(source(hub, cache, repo=REPO))
    folder = cache / "models--user--model-GGUF"
    assert path == folder / "snapshots" / COMMIT / FILE
    assert path.read_bytes() == CONTENT
    assert path.resolve() == blob(cache)
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert leftovers(cache) == []
    (receipt,) = receipts
    assert (receipt.repo, receipt.revision, receipt.file) == (REPO, COMMIT, FILE)
    assert (receipt.outcome, receipt.size_bytes) == ("downloaded", len(CONTENT))
    assert receipt.digest == oid_of(CONTENT)
    assert receipt.started_at_ms <= receipt.ended_at_ms


def test_the_second_time_nothing_is_downloaded(hub: Hub, cache: Path) -> None:
    first = fetch(source(hub, cache, repo=REPO))
    hub.asked.clear()
    second = fetch(source(hub, cache, repo=REPO))
    assert second == (first.path, [])
    assert hub.asked_for("resolve") == []


def test_a_split_model_is_fetched_whole(hub: Hub, cache: Path) -> None:
    path, receipts = fetch(source(hub, cache, repo=f"{REPO}:q8_0"))
    assert path.name == "model-Q8_0-00001-of-00003.gguf"
    assert [item.file for item in receipts] == SPLIT
    assert sorted(item.name for item in path.parent.iterdir()) == [p[4:] for p in SPLIT]


def test_a_file_wins_over_the_quant(hub: Hub, cache: Path) -> None:
    assert fetch(source(hub, cache, repo=f"{REPO}:Q8_0", file=FILE)).path.name == FILE


def test_offline_takes_what_is_there(hub: Hub, cache: Path) -> None:
    first = fetch(source(hub, cache, repo=REPO))
    hub.asked.clear()
    assert fetch(source(hub, cache, repo=REPO, is_offline=True)) == (first.path, [])
    assert hub.asked == []
    assert [model.name for model in cached_models(cache)] == [f"{REPO}:Q4_K_M"]


def test_a_hub_out_of_reach_is_replaced_by_the_cache(hub: Hub, cache: Path) -> None:
    first = fetch(source(hub, cache, repo=REPO))
    del hub.repos[REPO]
    assert fetch(source(hub, cache, repo=REPO)).path == first.path


def test_a_token_opens_the_hub(hub: Hub, cache: Path) -> None:
    hub.token = "hf_secret"
    message = refuse(source(hub, cache, repo=REPO))
    assert "401 Invalid credentials; it may be private or gated: --hf-token" in message
    assert fetch(source(hub, cache, repo=REPO, token="hf_secret")).path.exists()


@pytest.mark.parametrize(
    ("repo", "file", "message"),
    [
        ("user/none", "", "cannot find user/none at "),
        (f"{REPO}:Q5_0", "", "has no GGUF file of quant Q5_0; it has Q4_K_M, Q8_0"),
        (REPO, "x.gguf", "has no file x.gguf; it has Q4_K_M, Q8_0"),
        ("nonsense", "", "'nonsense' is no repository: expected user/model[:quant]"),
        ("../x", "", "is no repository"),
    ],
)
def test_what_is_not_there_is_said(
    hub: Hub, cache: Path, repo: str, file: str, message: str
) -> None:
    assert message in refuse(source(hub, cache, repo=repo, file=file))


def test_offline_and_not_cached(hub: Hub, cache: Path) -> None:
    message = refuse(source(hub, cache, repo=REPO, is_offline=True))
    assert message == f"{REPO} is not in the cache {cache} (--offline)"


def test_a_lost_part_of_a_split_is_named(hub: Hub, cache: Path) -> None:
    del hub.repos[REPO][SPLIT[1]]
    assert f"lacks {SPLIT[1]}" in refuse(source(hub, cache, repo=f"{REPO}:Q8_0"))


def test_a_preset_is_not_a_model(hub: Hub, cache: Path) -> None:
    hub.repos[REPO]["preset.ini"] = b"[x]"
    assert "preset for several models" in refuse(source(hub, cache, repo=REPO))


def test_paths_that_leave_the_folder_are_left_out(hub: Hub, cache: Path) -> None:
    hub.repos[REPO] = {"../evil-Q4_K_M.gguf": CONTENT, "/etc/evil-Q4_K_M.gguf": CONTENT}
    assert "has no files" in refuse(source(hub, cache, repo=REPO))


# ---- faults


def test_a_cut_connection_is_resumed(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(cut_at=300_000), Fault(cut_at=200_000)]
    assert fetch(source(hub, cache, repo=REPO)).path.read_bytes() == CONTENT
    asked = hub.asked_for("resolve")
    assert [a.headers.get("range") for a in asked] == [None, "bytes=300000-", "bytes=500000-"]
    assert asked[1].headers["if-range"] == f'"{oid_of(CONTENT)}"'


def test_another_start_resumes_too(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(cut_at=400_000), *(Fault(status=503) for _ in range(4))]
    message = refuse(source(hub, cache, repo=REPO))
    assert "cannot download model-Q4_K_M.gguf: " in message
    assert "503" in message
    assert leftovers(cache)
    hub.asked.clear()
    assert fetch(source(hub, cache, repo=REPO)).path.read_bytes() == CONTENT
    assert hub.asked_for("resolve")[0].headers["range"] == "bytes=400000-"
    assert leftovers(cache) == []


def test_what_failed_has_a_receipt(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(status=410)]
    work = Fetch(source(hub, cache, repo=REPO), lambda *_: None, NO_WAITS)
    with pytest.raises(DownloadFailed, match="410"):
        work.run()
    (receipt,) = work.receipts
    assert (receipt.outcome, receipt.size_bytes, receipt.file) == ("failed", 0, FILE)
    assert "410" in receipt.error


def test_an_overloaded_server_is_asked_again(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(status=503), Fault(status=429), Fault(status=500)]
    assert fetch(source(hub, cache, repo=REPO)).path.read_bytes() == CONTENT


def test_a_wrong_length_is_not_taken(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(body=CONTENT[:-1]) for _ in range(4)]
    message = refuse(source(hub, cache, repo=REPO))
    assert f"{len(CONTENT) - 1} bytes offered, {len(CONTENT)} expected" in message


def test_a_damaged_file_is_fetched_anew(hub: Hub, cache: Path) -> None:
    hub.faults = [Fault(body=OTHER)]
    assert fetch(source(hub, cache, repo=REPO)).path.read_bytes() == CONTENT
    hub.repos[REPO][FILE] = OTHER + b"x"
    hub.faults = [Fault(body=OTHER + b"y") for _ in range(4)]
    shutil.rmtree(cache)
    assert "damaged: its sha256 is not" in refuse(source(hub, cache, repo=REPO))
    assert leftovers(cache) == []


def test_a_beginning_that_is_too_long_is_dropped(hub: Hub, cache: Path) -> None:
    part = blob(cache).with_name(blob(cache).name + parts.SUFFIX)
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + b"more")
    assert fetch(source(hub, cache, repo=REPO)).path.read_bytes() == CONTENT


def test_redirects_keep_the_range_and_lose_the_token(hub: Hub, cache: Path) -> None:
    with Hub().running() as elsewhere:
        elsewhere.files["blob"] = CONTENT
        hub.faults = [Fault(status=302, location=f"{elsewhere.url}/files/blob") for _ in range(2)]
        elsewhere.faults = [Fault(cut_at=1000)]
        found = fetch(source(hub, cache, repo=REPO, token="hf_secret"))
        assert found.path.read_bytes() == CONTENT
        assert [a.headers.get("range") for a in elsewhere.asked] == [None, "bytes=1000-"]
        assert all("authorization" not in asked.headers for asked in elsewhere.asked)
        assert all(a.headers["authorization"] == "Bearer hf_secret" for a in hub.asked)


def test_a_full_disk_is_said_before_anything_comes(
    hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parent)._replace(free=0)
    monkeypatch.setattr(parts.shutil, "disk_usage", lambda _: usage)
    message = refuse(source(hub, cache, repo=REPO))
    assert message.startswith("no room for ")
    assert "1 MiB are needed, 0 MiB are free" in message


def test_a_disk_that_fills_meanwhile_is_said(
    hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullFile:
        def __init__(self, path: Path) -> None:
            self._file = path.open("a+b", buffering=0)

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

        def __enter__(self) -> "FullFile":
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

    monkeypatch.setattr(parts, "locked", FullFile)
    assert "No space left on device" in refuse(source(hub, cache, repo=REPO))


def test_a_cache_that_cannot_be_written_is_said(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refuse(source(hub, tmp_path / "file" / "cache", repo=REPO))
    assert "Not a directory" in message


def test_two_downloads_of_one_file_do_not_mix(hub: Hub, cache: Path) -> None:
    found: list[Fetched] = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch(source(hub, cache, repo=REPO))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [item.path.read_bytes() for item in found] == [CONTENT] * 3
    assert len(hub.asked_for("resolve")) == 1
    assert sum(len(item.receipts) for item in found) == 1
