"""Keys beside a running `llamatape serve`: made by command, used and limited, revoked, kept over a
restart."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AuthenticationError, OpenAI, RateLimitError

from tests.support.platform import ROOT, serve, url_of
from tests.support.processes import Session

SECONDS = 10.0
POLL_S = 0.05


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Session]:
    with serve(folder) as session:
        yield session


def keys(folder: Path, *words: str) -> str:
    """What `llamatape keys` prints."""
    line = [sys.executable, "-P", "-m", "services.cli", "keys", *words]
    line += ["--data-dir", str(folder / "data")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(line, env=env, check=True, capture_output=True, text=True).stdout.strip()


def client(url: str, key: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=90)


def ask(url: str, key: str) -> str | None:
    messages = [{"role": "user", "content": "Hi"}]
    with client(url, key) as one:
        answer = one.chat.completions.create(model="x", messages=messages, max_tokens=4)  # pyright: ignore[reportArgumentType]
    return answer.choices[0].message.content


def opens(url: str, key: str) -> bool:
    try:
        with client(url, key) as one:
            one.models.list()
    except AuthenticationError:
        return False
    return True


def until(url: str, key: str, *, is_good: bool) -> None:
    """Return when the server knows what has become of a key; it looks once a second."""
    deadline = time.monotonic() + SECONDS
    while opens(url, key) is not is_good:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def test_from_open_to_limited_to_closed(folder: Path, server: Session) -> None:
    url = url_of(server)
    assert ask(url, "anything")
    key = keys(folder, "create", "app", "--requests-per-minute", "2")
    until(url, "anything", is_good=False)
    assert ask(url, key)
    assert ask(url, key)
    with pytest.raises(RateLimitError) as caught:
        ask(url, key)
    headers = caught.value.response.headers
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert 1 <= int(headers["retry-after"]) <= 30
    assert caught.value.code == "rate_limit_exceeded"
    keys(folder, "revoke", "app")
    until(url, key, is_good=False)


def test_a_key_that_is_older_than_the_server_closes_its_door_from_the_first_moment(
    tmp_path: Path,
) -> None:
    key = keys(tmp_path, "create", "early")
    with serve(tmp_path) as session:
        url = url_of(session)
        assert not opens(url, "anything")
        until(url, key, is_good=True)


def test_keys_outlive_the_server(folder: Path, server: Session) -> None:
    key = keys(folder, "create", "other")
    server.stop()
    assert "other" in keys(folder, "list")
    late = keys(folder, "create", "while nobody served")
    with serve(folder) as again:
        url = url_of(again)
        assert not opens(url, "anything")
        for one in (key, late):
            until(url, one, is_good=True)
            assert ask(url, one)
