"""When a decoder is given up. Pure."""

import os
from dataclasses import replace

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


def verdict(*looks: Vitals) -> tuple[float, str]:
    """When the dog bites, and why; it goes on looking as it last did, twice a second."""
    dog = Watchdog()
    for vitals in looks:
        assert dog.judge(1, vitals) == ""
    at_s = looks[-1].at_s
    for n in range(1, 3000):
        now = replace(looks[-1], at_s=at_s + n / 2)
        if reason := dog.judge(1, now):
            return now.at_s, reason
    return 0.0, ""


def test_a_busy_one_without_reports_or_cpu_is_silent() -> None:
    assert verdict(look(0)) == (SILENT_S, "silent")


@pytest.mark.parametrize("sign", [look(1, n=1), look(1, cpu_s=1.5)], ids=["report", "cpu"])
def test_any_sign_of_life_counts(sign: Vitals) -> None:
    assert verdict(look(0), sign) == (SILENT_S + 1, "silent")


def test_an_idle_one_may_be_silent() -> None:
    assert verdict(look(0), look(1, busy=False)) == (0.0, "")


@pytest.mark.parametrize("busy", [True, False])
def test_a_stopped_one_is_noticed_soon(busy: bool) -> None:
    assert verdict(look(0), look(0.5, busy=busy, stopped=True)) == (STOPPED_S, "stopped")


def test_one_that_was_stopped_for_a_moment_lives_on() -> None:
    looks = look(0), look(1, stopped=True), look(2), look(3, stopped=True)
    assert verdict(*looks) == (2 + STOPPED_S, "stopped")


def test_after_a_sleep_of_its_own_the_dog_looks_twice() -> None:
    """Both were stopped together, and the dog woke first."""
    assert verdict(look(0), look(100, stopped=True), look(100.5)) == (99 + SILENT_S, "silent")


def test_where_nothing_is_seen_of_it_patience_is_longer() -> None:
    blind = Vitals(at_s=0, n_signs=0, is_busy=True, state=None)
    assert verdict(blind) == (SILENT_BLIND_S, "silent")


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
