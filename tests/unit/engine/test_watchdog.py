"""When a decoder is given up. Pure."""

import os

import pytest

from services.engine.watchdog import (
    SILENT_BLIND_S,
    SILENT_S,
    STOPPED_S,
    ProcessState,
    Vitals,
    Watchdog,
    process_state,
)


def look(
    at_s: float, *, n: int = 0, busy: bool = True, cpu_s: float = 1.0, stopped: bool = False
) -> Vitals:
    state = ProcessState(is_stopped=stopped, cpu_s=cpu_s)
    return Vitals(at_s=at_s, n_signs=n, is_busy=busy, state=state)


def verdicts(*looks: Vitals) -> list[str]:
    dog = Watchdog()
    return [dog.judge(1, vitals) for vitals in looks]


def test_a_busy_one_without_reports_or_cpu_is_silent() -> None:
    assert verdicts(look(0), look(SILENT_S - 1), look(SILENT_S)) == ["", "", "silent"]


@pytest.mark.parametrize(
    "sign",
    [look(SILENT_S - 1, n=1), look(SILENT_S - 1, cpu_s=1.5), look(SILENT_S - 1, busy=False)],
    ids=["report", "cpu", "idle"],
)
def test_any_sign_of_life_counts(sign: Vitals) -> None:
    later = Vitals(at_s=SILENT_S + 1, n_signs=sign.n_signs, is_busy=True, state=sign.state)
    assert verdicts(look(0), sign, later) == ["", "", ""]


def test_a_stopped_one_is_noticed_soon_busy_or_not() -> None:
    first, still = (look(at_s, busy=False, stopped=True) for at_s in (1, STOPPED_S - 0.1))
    assert verdicts(look(0), first, still, look(STOPPED_S, stopped=True)) == ["", "", "", "stopped"]


def test_one_that_was_stopped_for_a_moment_lives_on() -> None:
    assert verdicts(look(0), look(1, stopped=True), look(2), look(3.5, stopped=True)) == [""] * 4


def test_where_nothing_is_seen_of_it_patience_is_longer() -> None:
    def blind(at_s: float) -> Vitals:
        return Vitals(at_s=at_s, n_signs=0, is_busy=True, state=None)

    assert verdicts(blind(0), blind(SILENT_S + 1), blind(SILENT_BLIND_S)) == ["", "", "silent"]


def test_the_next_process_starts_afresh() -> None:
    dog = Watchdog()
    assert dog.judge(1, look(0, stopped=True)) == ""
    assert dog.judge(2, look(100, stopped=True)) == ""


def test_this_process_is_seen() -> None:
    state = process_state(os.getpid())
    assert state is not None
    assert not state.is_stopped
    assert state.cpu_s > 0
    assert process_state(2**30) is None
