"""One slot, a caller that floods, a caller that asks once, and work that can wait."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.test_simulated import simulated
from tests.support.platform import url_of

N_FLOOD, N_TOO_MANY = 30, 100
BODY = {"prompt": "a", "n_predict": 20, "ignore_eos": True, "cache_prompt": False}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("fairness")
    flags = ("-np", "1", "--api-key", "flood,rare,batch", "--max-queue", "80")
    with simulated(folder, "tokens_per_s=200", *flags) as session:
        yield url_of(session)


class Crowd:
    """Requests of several callers, and the order in which they were answered."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.answered: list[str] = []

    async def ask(self, key: str, **fields: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        response = await self._http.post("/completion", json=BODY | fields, headers=headers)
        if response.status_code == 200:
            self.answered.append(key)
        return response


async def test_who_asks_once_is_answered_soon(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        crowd = Crowd(http)
        batch = [asyncio.create_task(crowd.ask("batch", priority="batch")) for _ in range(4)]
        flood = [asyncio.create_task(crowd.ask("flood")) for _ in range(N_FLOOD)]
        await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        n_before = len(crowd.answered)
        await crowd.ask("rare")
        assert len(crowd.answered) - n_before <= 10, "the one that runs, and the first of the flood"
        await asyncio.gather(*batch, *flood)
        assert "batch" in crowd.answered[:26], "it is not starved"
        assert crowd.answered.count("batch") == 4
        assert "batch" in crowd.answered[N_FLOOD:], "but waits"


async def test_too_many_are_refused_and_the_rest_is_answered(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        crowd = Crowd(http)
        found = await asyncio.gather(*(crowd.ask("flood") for _ in range(N_TOO_MANY)))
        refused = [response for response in found if response.status_code == 503]
        assert 5 <= len(refused) <= 45, "three quarters of the queue are for floods"
        assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
        assert len(crowd.answered) == N_TOO_MANY - len(refused)
        assert (await crowd.ask("flood")).status_code == 200
