"""When an answer said what, and what it looks like in any dialect."""

import msgspec
import pytest

from schemas.errors import RequestError
from schemas.events import Started
from services.cli.audit.replay import type_out
from services.streams.audit.pace import Typed, typed
from services.streams.audit.rendering import DIALECTS, rendered
from tests.golden.cases import CASES, GENERATION_ID
from tests.golden.write import tape_of
from tests.support import events
from tests.support.archive import entries_of


def started(at_ms: int, attempt: int = 1) -> Started:
    first = events.started(attempt)
    return Started(attempt=attempt, compat=first.compat, choices=first.choices, at_ms=at_ms)


def token(index: int, text: str, elapsed_ms: int, choice: int = 0) -> object:
    said = events.token(index, text, choice)
    return msgspec.structs.replace(said, elapsed_us=elapsed_ms * 1000)


LOG = [
    started(1000),
    token(0, "a", 10),
    token(1, "b", 30),
    started(3000, 2),
    token(1, "b", 5),  # both attempts brought it
    token(2, "c", 20),
    token(0, "x", 25, choice=1),
    token(3, "", 30),
]


def test_a_later_attempt_comes_later() -> None:
    assert list(typed(LOG)) == [  # type: ignore[arg-type]
        Typed(0.01, 0, "a"),
        Typed(0.03, 0, "b"),
        Typed(2.02, 0, "c"),
        Typed(2.025, 1, "x"),
    ]


class Terminal:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[tuple[float, str]] = []

    def write(self, text: str) -> None:
        self.said.append((round(self.now_s - 100, 6), text))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def play(speed: float, choice: int = 0) -> list[tuple[float, str]]:
    terminal = Terminal()
    type_out(
        entries_of(LOG),  # type: ignore[arg-type]
        speed=speed,
        choice=choice,
        write=terminal.write,
        clock=lambda: terminal.now_s,
        sleep=terminal.sleep,
    )
    return terminal.said


def test_it_is_typed_at_its_pace_or_another() -> None:
    assert play(1) == [(0.01, "a"), (0.03, "b"), (2.02, "c"), (2.02, "\n")]
    assert play(2) == [(0.005, "a"), (0.015, "b"), (1.01, "c"), (1.01, "\n")]
    assert play(0) == [(0, "a"), (0, "b"), (0, "c"), (0, "\n")]
    assert play(0, choice=1) == [(0, "x"), (0, "\n")]
    with pytest.raises(RequestError, match="no choice 2"):
        play(0, choice=2)


@pytest.mark.parametrize("name", CASES)
def test_the_clients_bytes(name: str) -> None:
    entries = entries_of(CASES[name])
    tape = tape_of(CASES[name])
    wanted = tape.cut(0) if tape.n_bytes else None
    found = rendered(GENERATION_ID, entries, "client")
    assert found
    if wanted is not None:
        assert found == wanted


@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_other_dialects(dialect: str) -> None:
    found = rendered(GENERATION_ID, entries_of(CASES["simple.openai.chat"]), dialect)
    assert b" upon" in found
    with pytest.raises(RequestError, match="no dialect"):
        rendered(GENERATION_ID, [], "klingon")
    with pytest.raises(RequestError, match="cannot be rendered"):
        rendered(GENERATION_ID, [], dialect)
