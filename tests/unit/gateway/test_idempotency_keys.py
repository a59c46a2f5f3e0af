"""What an idempotency key stands for, by what is in the bucket and in the log."""

import pytest

from schemas import codec, subjects
from schemas.errors import SERVER, Problem, RequestError
from schemas.events import Cancelled, Event, Failed
from schemas.tasks import IdempotentRequest
from services.bus.errors import BusUnavailable
from services.gateway import idempotency
from services.gateway.asking import Idempotency
from services.gateway.idempotency import OPENED_WITHIN_MS, Conflicts, Found, IdempotencyKeys
from services.streams.forgotten import Forgotten
from tests.golden.cases import CASES
from tests.support.fake_logs import FakeKeys, FakeLogs

CASE = CASES["simple.openai.chat"]
ME, WINDOW_S, NOW_MS = "me", 100, 1_700_000_000_000
ASKED = Idempotency("k", "hash")
FAILED = Failed(problem=Problem(code=SERVER, message="no"), by="engine")


class Stage:
    """Keys over logs in memory, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.logs, self.bucket = FakeLogs(), FakeKeys()
        self.forgotten = Forgotten(FakeKeys())
        self.keys = IdempotencyKeys(
            self.bucket, self.logs, self.forgotten, WINDOW_S, now_ms=lambda: self.now_ms
        )

    async def taken(self, *log: Event) -> str:
        """The generation that the key stands for from now on, with that log."""
        found = await self.keys.find(ME, ASKED)
        generation_id = await self.keys.take(ME, ASKED, found)
        assert generation_id is not None
        for event in log:
            self.logs.write(generation_id, event)
        return generation_id


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_new_key_is_free_and_then_taken(stage: Stage) -> None:
    assert await stage.keys.find(ME, ASKED) == Found(None, False, 0)
    generation_id = await stage.taken()
    found = await stage.keys.find(ME, ASKED)
    assert (found.generation_id, found.is_open) == (generation_id, False)
    stage.logs.write(generation_id, *CASE)
    found = await stage.keys.find(ME, ASKED)
    assert (found.generation_id, found.is_open) == (generation_id, True)


async def test_of_two_one_takes_it(stage: Stage) -> None:
    found = await stage.keys.find(ME, ASKED)
    first = await stage.keys.take(ME, ASKED, found)
    assert await stage.keys.take(ME, ASKED, found) is None
    assert (await stage.keys.find(ME, ASKED)).generation_id == first


async def test_keys_are_the_callers_own(stage: Stage) -> None:
    await stage.taken(*CASE)
    assert (await stage.keys.find("you", ASKED)).generation_id is None


async def test_another_request_is_refused_while_the_key_counts(stage: Stage) -> None:
    await stage.taken()
    other = Idempotency("k", "another hash")
    with pytest.raises(RequestError) as caught:
        await stage.keys.find(ME, other)
    assert caught.value.problem.status == 422
    stage.now_ms += WINDOW_S * 1000
    assert (await stage.keys.find(ME, other)).generation_id is None


async def test_the_window_counts_from_the_first_request(stage: Stage) -> None:
    first = await stage.taken(*CASE)
    stage.now_ms += WINDOW_S * 1000 - 1
    assert (await stage.keys.find(ME, ASKED)).generation_id == first
    stage.now_ms += 1
    second = await stage.taken(*CASE)
    assert second != first
    assert (await stage.keys.find(ME, ASKED)).generation_id == second


@pytest.mark.parametrize(
    ("end", "is_free"),
    [
        (FAILED, True),
        (Cancelled(by="gateway", reason="client_gone"), True),
        (Cancelled(by="gateway", reason="stopped"), False),
        (Cancelled(by="streams", reason="deleted"), False),
        (Cancelled(by="gateway", reason="replaced"), False),
    ],
)
async def test_what_brought_no_answer_frees_its_key(
    stage: Stage, end: Event, is_free: bool
) -> None:
    generation_id = await stage.taken(CASE[0], end)
    found = await stage.keys.find(ME, ASKED)
    assert found.generation_id == (None if is_free else generation_id)


async def test_another_request_may_use_a_key_that_failed(stage: Stage) -> None:
    await stage.taken(CASE[0], FAILED)
    assert (await stage.keys.find(ME, Idempotency("k", "another"))).generation_id is None


async def test_a_deleted_answer_frees_its_key(stage: Stage) -> None:
    await stage.forgotten.mark(await stage.taken(*CASE))
    assert (await stage.keys.find(ME, ASKED)).generation_id is None


async def test_what_was_named_and_never_opened_is_given_up(stage: Stage) -> None:
    first = await stage.taken()
    stage.now_ms += OPENED_WITHIN_MS - 1
    assert (await stage.keys.find(ME, ASKED)).generation_id == first
    stage.now_ms += 1
    assert (await stage.keys.find(ME, ASKED)).generation_id is None


async def test_what_is_stored_names_neither_caller_nor_key(stage: Stage) -> None:
    generation_id = await stage.taken()
    stored = await stage.bucket.get(subjects.idempotency_key(ME, "k"))
    assert stored is not None
    assert codec.decode(stored.value, IdempotentRequest) == IdempotentRequest(
        generation_id=generation_id, request_hash="hash", created_at_ms=NOW_MS
    )


async def test_nobody_looks_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "CONFLICT_WAIT_S", 0)
    conflicts = Conflicts()
    for _ in range(idempotency.MAX_CONFLICTS):
        await conflicts.again()
    with pytest.raises(BusUnavailable):
        await conflicts.again()
