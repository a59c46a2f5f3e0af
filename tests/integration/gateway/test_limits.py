"""Keys of the database and their limits, over two gateways on one broker."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import msgspec
import openai
import pytest

from schemas import ids, subjects
from schemas.errors import Problem
from schemas.events import Event, Finished, Requested, Usage
from schemas.generation import Generation
from schemas.keys import KeyUsage, RunningUse
from services.bus.config import BusSettings
from services.bus.connection import Bus, connect
from services.bus.errors import BusUnavailable
from services.bus.log import LogWriter, read_log
from services.gateway.limits import meter
from tests.support import events
from tests.support.gateway import Gateway, healthy, running_gateway, streamed_text
from tests.support.keys import TestKey, known_at, status_when
from tests.support.scripted_engine import ScriptedEngine

COMPLETION = {"prompt": "x", "n_predict": 4}
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
MESSAGES = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "model": "tiny"}
GENERATING: dict[str, dict[str, Any]] = {
    "/completion": COMPLETION,
    "/v1/completions": {"prompt": "x", "max_tokens": 4},
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": {"input": "x", "max_output_tokens": 4},
}
N_TOKENS = 4  # of every scripted answer
N_PROMPT = 3
LONG_AGO_MS = 1_700_000_000_000
FAR_MS = 4_000_000_000_000


@dataclass
class Site:
    """Two gateways of one model, and its engine."""

    bus: Bus
    gateways: tuple[Gateway, Gateway]
    engine: ScriptedEngine

    async def key(self, **fields: Any) -> TestKey:
        """One that both gateways know."""
        made = TestKey(self.bus, **fields)
        await made.publish()
        for gateway in self.gateways:
            await known_at(gateway.client, made)
        return made

    async def ask(
        self, number: int, key: TestKey, path: str = "/completion", **more: Any
    ) -> httpx.Response:
        body = GENERATING[path] | more
        return await self.gateways[number].client.post(path, json=body, headers=key.headers)


@pytest.fixture
async def site(bus: Bus, bus_settings: BusSettings) -> AsyncIterator[Site]:
    model_key = subjects.model_key(ids.new_generation_id())
    other = await connect(bus_settings, name="other")
    engine = ScriptedEngine(bus, model_key)
    async with (
        running_gateway(bus, model_key, aliases=("small",), has_metrics=True) as first,
        running_gateway(other, model_key, aliases=("small",)) as second,
    ):
        await engine.start()
        await healthy(first)
        await healthy(second)
        yield Site(bus, (first, second), engine)
        engine.gates.open()
        await engine.stop()
    await other.close()


async def test_two_gateways_share_the_requests_of_a_minute(site: Site) -> None:
    key = await site.key(requests_per_minute=4)
    answers = [await site.ask(n % 2, key) for n in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert left == ["3", "2", "1", "0", "0", "0"]
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"4"}
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 15
    error = answers[-1].json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "4 requests per minute" in error["message"]


async def test_refusals_are_counted(site: Site) -> None:
    key = await site.key(requests_per_minute=1)
    for _ in range(3):
        await site.ask(0, key)
    shown = (await site.gateways[0].client.get("/metrics", headers=key.headers)).text
    assert 'llamatape_refused_total{error="rate_limit_error"} 2.0' in shown


async def test_many_at_once_get_no_more_than_there_is(site: Site) -> None:
    key = await site.key(requests_per_minute=10)
    answers = await asyncio.gather(*(site.ask(n % 2, key) for n in range(40)))
    assert sorted(answer.status_code for answer in answers) == [200] * 10 + [429] * 30


async def test_a_flood_of_refused_requests_costs_no_engine_a_look(site: Site) -> None:
    key = await site.key(requests_per_minute=1)
    await site.ask(0, key)
    n_prepared = len(site.engine.prepares)
    answers = await asyncio.gather(*(site.ask(0, key) for _ in range(30)))
    assert {answer.status_code for answer in answers} == {429}
    assert len(site.engine.prepares) == n_prepared


@pytest.mark.parametrize("path", GENERATING)
async def test_every_dialect_tells_and_refuses(site: Site, path: str) -> None:
    key = await site.key(requests_per_minute=1, tokens_per_minute=1000)
    served, refused = await site.ask(0, key, path), await site.ask(1, key, path)
    assert (served.status_code, refused.status_code) == (200, 429)
    assert served.headers["x-ratelimit-limit-tokens"] == "1000"
    for answer in (served, refused):
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        has_anthropic = "anthropic-ratelimit-requests-reset" in answer.headers
        assert has_anthropic == (path == "/v1/messages")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert ("type" in refused.json()) == (path == "/v1/messages")
    assert "retry-after" in refused.headers


async def test_streams_tell_too(site: Site) -> None:
    key = await site.key(requests_per_minute=5)
    answer = await site.ask(0, key, stream=True)
    assert streamed_text(answer.text) == "Hello world!"
    assert answer.headers["x-ratelimit-remaining-requests"] == "4"


async def test_a_key_without_limits_is_told_nothing_and_leaves_no_trace(site: Site) -> None:
    key = await site.key()
    answer = await site.ask(0, key)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if "ratelimit" in name]
    assert await key.usage() == KeyUsage()


async def test_promised_tokens_are_charged_until_the_real_ones_are_known(site: Site) -> None:
    key = await site.key(tokens_per_minute=1000, concurrent=5)
    site.engine.gates.may_go_on.clear()
    running = asyncio.create_task(site.ask(0, key, n_predict=500))
    await site.engine.taken.get()
    held = await key.usage_when(1)
    now_ns = held.tokens_until_ns - (N_PROMPT + 500) * meter.MINUTE_NS // 1000
    site.engine.gates.open()
    answer = await running
    assert answer.headers["x-ratelimit-remaining-tokens"] == str(1000 - N_PROMPT - 500)
    ended = await key.usage_when(0)
    used_ns = ended.tokens_until_ns - now_ns
    assert used_ns * 1000 // meter.MINUTE_NS in (N_PROMPT + N_TOKENS - 1, N_PROMPT + N_TOKENS)


async def test_a_prompt_over_the_limit_is_refused_for_good(site: Site) -> None:
    key = await site.key(tokens_per_minute=2)
    refused = await site.ask(0, key)
    assert refused.status_code == 429
    assert "retry-after" not in refused.headers
    assert "the prompt alone has 3" in refused.json()["error"]["message"]


async def test_generations_at_once_count_over_all_gateways(site: Site) -> None:
    key = await site.key(concurrent=1)
    site.engine.gates.may_go_on.clear()
    running = asyncio.create_task(site.ask(0, key, stream=True))
    await site.engine.taken.get()
    refused = await site.ask(1, key)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "1 generations at once" in refused.json()["error"]["message"]
    site.engine.gates.open()
    assert (await running).status_code == 200
    assert (await site.ask(0, key)).status_code == 200


async def test_who_hangs_up_makes_room(site: Site) -> None:
    key = await site.key(concurrent=1)
    site.engine.gates.may_go_on.clear()
    client = site.gateways[0].client
    body = COMPLETION | {"stream": True}
    async with client.stream("POST", "/completion", json=body, headers=key.headers) as answer:
        assert answer.status_code == 200
        await key.usage_when(1)
    await key.usage_when(0)
    site.engine.gates.open()
    assert (await site.ask(1, key)).status_code == 200


async def test_a_stream_whose_client_left_counts_until_its_end(site: Site) -> None:
    key = await site.key(concurrent=1)
    site.engine.gates.may_go_on.clear()
    client, headers = site.gateways[0].client, key.headers | {"X-Conversation-Id": "c"}
    body = COMPLETION | {"stream": True}
    async with client.stream("POST", "/completion", json=body, headers=headers):
        pass
    assert (await site.ask(1, key)).status_code == 429
    site.engine.gates.open()
    await key.usage_when(0)
    assert (await site.ask(1, key)).status_code == 200


async def test_what_a_dead_gateway_left_is_found_in_the_logs(site: Site) -> None:
    ended, never_opened = events.new_id(), events.new_id()
    state = await LogWriter(site.bus).append(Generation(), ended, events.requested(ended))
    finished = Finished(usage=Usage(n_prompt=3, n_predicted=1))
    await LogWriter(site.bus).append(state, ended, events.token(0), finished)
    key = await site.key(concurrent=2, tokens_per_minute=1000)
    use = RunningUse(since_ms=LONG_AGO_MS, until_ms=FAR_MS, n_reserved=0)
    await key.set_usage(KeyUsage(running={ended: use, never_opened: use}))
    assert (await site.ask(0, key)).status_code == 200
    left = await key.usage_when(0)
    assert left.tokens_until_ns > 0


async def test_what_still_runs_is_not_taken_for_dead(site: Site) -> None:
    running = events.new_id()
    await LogWriter(site.bus).append(Generation(), running, events.requested(running))
    key = await site.key(concurrent=1)
    use = RunningUse(since_ms=LONG_AGO_MS, until_ms=FAR_MS)
    await key.set_usage(KeyUsage(running={running: use}))
    assert (await site.ask(0, key)).status_code == 429
    await key.set_usage(KeyUsage(running={running: RunningUse(since_ms=1, until_ms=LONG_AGO_MS)}))
    assert (await site.ask(0, key)).status_code == 200


async def test_what_an_engine_refuses_is_not_charged(site: Site) -> None:
    key = await site.key(requests_per_minute=5)
    site.engine.script.refusal = Problem(code="invalid_request_error", message="no")
    assert (await site.ask(0, key)).status_code == 400
    assert await key.usage() == KeyUsage()


async def test_retries_under_one_idempotency_key_are_charged_once(site: Site) -> None:
    key = await site.key(requests_per_minute=10, concurrent=5)
    key_headers = key.headers | {"Idempotency-Key": ids.new_generation_id()}

    async def ask(n: int) -> httpx.Response:
        client = site.gateways[n % 2].client
        return await client.post("/completion", json=COMPLETION, headers=key_headers)

    answers = [*await asyncio.gather(*(ask(n) for n in range(4))), await ask(0)]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.headers["x-generation-id"] for answer in answers}) == 1
    await key.usage_when(0)
    assert (await site.ask(1, key)).headers["x-ratelimit-remaining-requests"] == "8"


class BrokenWriter(LogWriter):
    """Cannot open a log."""

    async def append(self, state: Generation, generation_id: str, *entry: Event) -> Generation:
        raise BusUnavailable("no")


async def test_what_could_not_begin_is_given_back(site: Site) -> None:
    key = await site.key(requests_per_minute=5, tokens_per_minute=100, concurrent=1)
    model_key, writer = site.gateways[0].model_key, BrokenWriter(site.bus)
    async with running_gateway(site.bus, model_key, writer=writer) as broken:
        await healthy(broken)
        await known_at(broken.client, key)
        answer = await broken.client.post("/completion", json=COMPLETION, headers=key.headers)
        assert answer.status_code == 503
    await key.usage_when(0)
    served = await site.ask(0, key)
    assert served.headers["x-ratelimit-remaining-requests"] == "4"


async def test_a_revoked_key_is_refused_everywhere_and_what_runs_goes_on(site: Site) -> None:
    key = await site.key()
    site.engine.gates.may_go_on.clear()
    running = asyncio.create_task(site.ask(0, key, stream=True))
    started = site.engine.gates.started_event(await site.engine.taken.get())
    await started.wait()
    await key.publish(msgspec.structs.replace(key.record, revoked_at_ms=1))
    for gateway in site.gateways:
        await status_when(gateway.client, key.headers, 401)
    site.engine.gates.open()
    assert streamed_text((await running).text) == "Hello world!"
    assert (await site.ask(0, key)).status_code == 401


async def test_an_expired_key_is_refused(site: Site) -> None:
    key = await site.key()
    await key.publish(msgspec.structs.replace(key.record, expires_at_ms=LONG_AGO_MS))
    await status_when(site.gateways[0].client, key.headers, 401)


@pytest.mark.parametrize("path", GENERATING)
async def test_a_model_that_is_not_the_keys_does_not_exist_for_it(site: Site, path: str) -> None:
    key = await site.key(models=("other",))
    refused = await site.ask(0, key, path)
    assert refused.status_code == 404
    error = refused.json()["error"]
    assert (error["type"], error["param"]) == ("not_found_error", "model")
    found = (await site.gateways[0].client.get("/v1/models", headers=key.headers)).json()
    assert (found["data"], found["models"]) == ([], [])


@pytest.mark.parametrize("name", ["tiny", "small"])
async def test_a_key_may_name_the_model_or_its_alias(site: Site, name: str) -> None:
    key = await site.key(models=("other", name))
    assert (await site.ask(0, key)).status_code == 200
    found = (await site.gateways[0].client.get("/v1/models", headers=key.headers)).json()
    assert [each["id"] for each in found["data"]] == ["tiny"]


@pytest.mark.parametrize(("content", "expected"), [("hashes", "hashes"), ("", "full")])
async def test_the_log_says_who_asked_and_what_may_be_kept(
    site: Site, content: str, expected: str
) -> None:
    key = await site.key(content=content)
    await site.ask(0, key)
    requested = (await read_log(site.bus, await site.engine.taken.get()))[0].events[0]
    assert isinstance(requested, Requested)
    assert (requested.caller, requested.content) == (key.record.id, expected)


async def test_scopes_hold_on_real_routes(site: Site) -> None:
    key = await site.key(scopes=("read",))
    assert (await site.ask(0, key)).status_code == 403
    tokenized = await site.gateways[0].client.post(
        "/tokenize", json={"content": "a"}, headers=key.headers
    )
    assert tokenized.status_code == 200


Call = Callable[[str, str], Awaitable[object]]


async def ask_openai(url: str, secret: str) -> object:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=secret, max_retries=0) as client:
        return await client.chat.completions.create(model="tiny", **CHAT)


async def ask_anthropic(url: str, secret: str) -> object:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=secret, max_retries=0) as client:
        return await client.messages.create(**MESSAGES)


@pytest.mark.parametrize(
    ("call", "error", "header"),
    [
        (ask_openai, openai.RateLimitError, "x-ratelimit-reset-requests"),
        (ask_anthropic, anthropic.RateLimitError, "anthropic-ratelimit-requests-reset"),
    ],
)
async def test_official_clients_know_what_happened(
    site: Site, call: Call, error: type[Exception], header: str
) -> None:
    key = await site.key(requests_per_minute=1)
    await call(site.gateways[0].url, key.secret)
    with pytest.raises(error) as caught:
        await call(site.gateways[1].url, key.secret)
    assert isinstance(caught.value, openai.RateLimitError | anthropic.RateLimitError)
    response = caught.value.response
    assert header in response.headers
    assert 1 <= int(response.headers["retry-after"]) <= 60
