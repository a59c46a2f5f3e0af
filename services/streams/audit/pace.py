"""When an answer said what: its text with the times that the log recorded. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from schemas.events import Cancelled, Event, Failed, Finished, Started, Tokens


class Typed(NamedTuple):
    """A piece of an answer. at_s: seconds since the generation started, never falling."""

    at_s: float
    choice: int
    text: str


def typed(events: Iterable[Event]) -> Iterator[Typed]:
    """The texts of a log in order. A later attempt's clock begins where that attempt did; tokens that
    two attempts brought count once."""
    first_at_ms: int | None = None
    base_s = at_s = 0.0
    n_tokens: dict[int, int] = {}
    for event in events:
        match event:
            case Started():
                first_at_ms = event.at_ms if first_at_ms is None else first_at_ms
                base_s = max(0.0, (event.at_ms - first_at_ms) / 1000)
            case Tokens(choice=choice):
                if event.index != n_tokens.get(choice, 0):
                    continue
                n_tokens[choice] = event.index + len(event.ids)
                at_s = max(at_s, base_s + event.elapsed_us / 1_000_000)
                tail = "" if event.end is None else event.end.tail
                if text := "".join(event.texts) + tail:
                    yield Typed(at_s, choice, text)
            case Finished() | Failed() | Cancelled():
                return
            case _:
                pass
