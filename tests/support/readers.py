"""Clients that do not give up: they resume a broken stream by offset, from whoever answers."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

HEADER = "X-Conversation-Id"
RETRY_S = 0.2
QUIET_S = 4.0
"""So long without a byte and the next server is asked: the stream may be in a stopped process."""
MAX_UNKNOWN = 5


@dataclass
class Answer:
    """What one client saw. status: of the first response, 0 for none. pauses_s: silences between
    bytes, the longest first."""

    conversation: str
    body: bytes = b""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    is_complete: bool = False
    n_resumes: int = 0
    longest_pause_s: float = 0.0

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


class Reader:
    """Reads one streamed answer to its end. urls: who may be asked, in order of preference."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], conversation: str) -> None:
        self._http, self.urls = http, urls
        self.answer = Answer(conversation)
        self._heard_at = time.monotonic()

    async def ask(self, path: str, body: dict[str, Any], timeout_s: float = 90) -> Answer:
        """POST, then read until the end; resume as often as it breaks. A refusal is an answer."""
        async with asyncio.timeout(timeout_s):
            try:
                url = self.urls[0] + path
                headers = {HEADER: self.answer.conversation}
                await self._read(self._http.stream("POST", url, json=body, headers=headers))
            except (httpx.TransportError, TimeoutError):
                pass
            if self.answer.status in (0, 200) and not self.answer.is_complete:
                await self._resume()
        return self.answer

    async def follow(self, timeout_s: float = 90) -> Answer:
        """Only read, from the first byte."""
        async with asyncio.timeout(timeout_s):
            await self._resume()
        return self.answer

    async def _resume(self) -> None:
        n_unknown = 0
        for n in itertools.count():
            url = self.urls[n % len(self.urls)] + "/v1/stream"
            found = await self._try_resume(url)
            if self.answer.is_complete or (self.answer.status not in (0, 200)):
                return
            n_unknown += found == 404
            if n_unknown >= MAX_UNKNOWN:
                assert not self.answer.body, f"{self.answer.conversation} was lost"
                return
            await asyncio.sleep(RETRY_S)

    async def _try_resume(self, url: str) -> int:
        """The status that was found, 0 if nobody answered."""
        self.answer.n_resumes += 1
        query = {"conv_id": self.answer.conversation, "from": str(len(self.answer.body))}
        try:
            return await self._read(self._http.stream("GET", url, params=query), is_resumed=True)
        except (httpx.TransportError, TimeoutError):
            return 0

    async def _read(self, opening: Any, *, is_resumed: bool = False) -> int:
        async with asyncio.timeout(2 * QUIET_S) as limit, opening as response:
            if response.status_code != 200:
                await self._refused(response, is_resumed=is_resumed)
                return response.status_code
            self.answer.status = 200
            self.answer.headers |= dict(response.headers)
            async for chunk in response.aiter_raw():
                limit.reschedule(asyncio.get_running_loop().time() + QUIET_S)
                self._take(chunk)
        self.answer.is_complete = True
        return 200

    async def _refused(self, response: httpx.Response, *, is_resumed: bool) -> None:
        """Of a resumption 404 and 503 are asked again, any other answer is the generation's own."""
        if is_resumed and (response.status_code == 404 or _is_soon(response)):
            return
        self.answer.status = response.status_code
        self.answer.headers |= dict(response.headers)
        self.answer.body = await response.aread()

    def _take(self, chunk: bytes) -> None:
        now = time.monotonic()
        if self.answer.body:
            self.answer.longest_pause_s = max(self.answer.longest_pause_s, now - self._heard_at)
        self._heard_at = now
        self.answer.body += chunk


def _is_soon(response: httpx.Response) -> bool:
    """A server that is not up yet; a generation that failed before its start looks the same."""
    return response.status_code == 503 and "x-generation-id" not in response.headers
