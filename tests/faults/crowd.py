"""Clients under faults: what they ask, and what they have seen when they are done."""

import asyncio
import itertools
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.fleet import Fleet
from tests.support.readers import Answer, Reader

LONG = "the little dog ran up the hill to see the big red ball and then it sat down. " * 9
"""So long that it is decoded aside where others generate."""
PROMPTS = ("once upon a time", "the old boat", "two friends went up the hill and found a box", LONG)
MAX_TOKENS = 160
PATIENCE_S = 80.0


@dataclass(kw_only=True)
class Seen:
    """n_refused: requests that got 503 or no answer, and were not accepted. n_left: clients that hung
    up. answers: of accepted requests, each read to its end. stopped: conversations that were deleted."""

    answers: list[tuple[dict[str, Any], Answer]] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    n_refused: int = 0
    n_left: int = 0


class Crowd:
    """Clients that ask one request after the other until it is over."""

    def __init__(self, fleet: Fleet, http: httpx.AsyncClient, seed: int) -> None:
        self._fleet, self._http = fleet, http
        self._random = random.Random(seed)
        self._is_over = asyncio.Event()
        self.seen = Seen()

    async def ask(self, n_clients: int) -> None:
        """Until `end`; returns when the last answer was read."""
        await asyncio.gather(*(self._client(n) for n in range(n_clients)))

    def end(self) -> None:
        self._is_over.set()

    async def _client(self, n: int) -> None:
        for turn in itertools.count():
            if self._is_over.is_set():
                return
            kind = self._random.random()
            if kind < 0.15:
                await self._leave(n + turn)
            elif kind < 0.25:
                await self._stop(n + turn)
            else:
                await self._read(n + turn)

    def _reader(self, n: int) -> Reader:
        """Begins at one gateway, resumes anywhere."""
        gateways = [service.url for service in self._fleet.of("gateway")]
        first = gateways[n % len(gateways)]
        others = [service.url for service in self._fleet.of("streams")]
        urls = [first, *(url for url in gateways if url != first), *others]
        return Reader(self._http, urls, str(uuid.uuid4()))

    def _body(self) -> dict[str, Any]:
        return {
            "prompt": self._random.choice(PROMPTS),
            "seed": self._random.choice((1, 2)),
            "n_predict": self._random.randint(10, MAX_TOKENS),
            "n_cmpl": self._random.choice((1, 1, 1, 2)),
            "ignore_eos": True,
            "stream": True,
        }

    async def _read(self, n: int) -> None:
        body = self._body()
        answer = await self._reader(n).ask("/completion", body, PATIENCE_S)
        await self._note(body, answer)

    async def _note(self, body: dict[str, Any], answer: Answer) -> None:
        if answer.is_accepted:
            self.seen.answers.append((body, answer))
            return
        assert answer.status in (0, 400, 503), answer
        self.seen.n_refused += 1
        await asyncio.sleep(0.3)

    async def _leave(self, n: int) -> None:
        """Without a conversation nobody can come back: the generation must end by itself."""
        reader = self._reader(n)
        body = self._body() | {"stream": self._random.random() < 0.5}
        url = reader.urls[0] + "/completion"
        asking = asyncio.create_task(self._http.post(url, json=body))
        await asyncio.wait([asking], timeout=self._random.uniform(0.0, 1.5))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        self.seen.n_left += 1

    async def _stop(self, n: int) -> None:
        """Somebody deletes the conversation through another server while it is read."""
        reader, body = self._reader(n), self._body()
        asking = asyncio.create_task(reader.ask("/completion", body, PATIENCE_S))
        await asyncio.wait([asking], timeout=self._random.uniform(0.2, 1.5))
        conversation = reader.answer.conversation
        self.seen.stopped.add(conversation)
        try:
            query = {"conv_id": conversation}
            await self._http.delete(reader.urls[-1] + "/v1/stream", params=query)
        except httpx.TransportError:
            pass
        try:
            await self._note(body, await asking)
        except AssertionError:  # deleted, so it was not found when the stream broke
            self.seen.n_refused += 1
