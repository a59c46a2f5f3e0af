"""What a gateway tells an engine of the generation that it is about to open."""

import asyncio

import pytest

from schemas.errors import RequestError
from services.bus.connection import Bus
from services.gateway.crowd import Crowd
from services.gateway.limits.limiter import Limiter
from tests.support.gateway import Gateway
from tests.support.scripted_engine import ScriptedEngine

COMPLETION = {"prompt": "x", "n_predict": 4}


async def test_the_question_names_the_generation(gateway: Gateway, engine: ScriptedEngine) -> None:
    answer = await gateway.client.post("/completion", json=COMPLETION)
    (prepare,) = engine.prepares
    assert prepare.generation_id == answer.headers["x-generation-id"]
    assert prepare.n_following == 0


async def test_one_under_an_idempotency_key_has_no_name_yet(
    gateway: Gateway, engine: ScriptedEngine
) -> None:
    await gateway.client.post("/completion", json=COMPLETION, headers={"idempotency-key": "k"})
    assert [prepare.generation_id for prepare in engine.prepares] == [""]


async def test_counting_tokens_opens_nothing(gateway: Gateway, engine: ScriptedEngine) -> None:
    await gateway.client.post("/v1/responses/input_tokens", json={"input": "x"})
    assert not any(prepare.generation_id for prepare in engine.prepares)


async def test_an_engine_is_told_of_what_will_not_come(
    gateway: Gateway, engine: ScriptedEngine, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the tokens of the prompt are more than a key may have."""

    async def refuse(*_: object) -> None:
        raise RequestError.invalid("too many tokens")

    monkeypatch.setattr(Limiter, "take", refuse)
    answer = await gateway.client.post("/completion", json=COMPLETION)
    assert answer.status_code == 400
    (prepare,) = engine.prepares
    async with asyncio.timeout(5):
        await engine.gates.ended_event(prepare.generation_id).wait()
    assert engine.pokes == [prepare.generation_id]


async def test_those_behind_are_counted() -> None:
    crowd, told = Crowd(), list[int]()

    async def ask() -> None:
        with crowd.member() as member:
            told.append(await member.n_following())

    await asyncio.gather(*(ask() for _ in range(4)))
    assert told == [3, 2, 1, 0]
    assert crowd.n == 0


async def test_one_that_gives_up_is_not_waited_for() -> None:
    crowd = Crowd()
    with crowd.member() as member:
        with pytest.raises(ValueError), crowd.member():
            raise ValueError
        assert await member.n_following() == 0
    assert crowd.n == 0
