"""A request for a slot of an engine that died is done by another engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.events import Claimed
from tests.support.drill import begun, drill, simulated_fleet, text_of, until_true
from tests.support.fleet import Fleet

SLOT_OF_E1 = 5  # engines have four slots each


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with simulated_fleet(tmp_path) as running:
        yield running


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "waiting"])
async def test_another_engine_takes_over(fleet: Fleet, is_running: bool) -> None:
    async with drill(fleet, "e0", "e1") as pair:
        text = await pair.undisturbed()
        a_reader = pair.reader()
        if not is_running:  # it is still announced as present, so the task is addressed to it
            fleet["e1"].kill()
        asking = pair.ask(a_reader, id_slot=SLOT_OF_E1)
        if is_running:
            await begun(a_reader)
            assert (await pair.owner(a_reader)).name == "e1"
            fleet["e1"].kill()

        async def is_answered() -> bool:
            return asking.done()

        await until_true(is_answered, 60)
        answer = await asking
        events = await pair.check(answer, n_attempts=2 if is_running else 1)
        assert [e.engine for e in events if isinstance(e, Claimed)][-1] == "e0"
        assert text_of(answer) == text
        await pair.no_task_is_left()
