"""Pings on quiet streams: per server and per request, and part of what is replayed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support import platform

FLAGS = ("-np", "4", "--simulate", "tokens_per_s=0.6", "--sse-ping-interval", "1")
BODY: dict[str, Any] = {"prompt": "x", "n_predict": 2, "stream": True}
PING = ":\n\n"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with platform.serve(tmp_path_factory.mktemp("pings"), platform.TINY, *FLAGS) as session:
        yield platform.url_of(session)


def stream_of(url: str, path: str = "/completion", **fields: Any) -> str:
    headers = {"X-Conversation-Id": fields.pop("conversation", "")}
    answer = httpx.post(f"{url}{path}", json=BODY | fields, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_pings_come_as_server_and_request_say(url: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    with ThreadPoolExecutor(4) as pool:
        by_server = pool.submit(stream_of, url, conversation="quiet")
        by_request = pool.submit(stream_of, url, sse_ping_interval=-1)
        rarely = pool.submit(stream_of, url, sse_ping_interval=30)
        named = pool.submit(stream_of, url, "/v1/messages", messages=messages, max_tokens=2)
    assert PING in by_server.result()
    assert PING not in by_request.result() + rarely.result()
    assert named.result().count("event: ping") > 1
    again = httpx.get(f"{url}/v1/stream", params={"conv_id": "quiet"}, timeout=60)
    assert again.text == by_server.result()
