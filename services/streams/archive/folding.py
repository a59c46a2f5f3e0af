"""What a row needs of a log, in one lean pass: archiving must cost little per token. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.events import (
    Cancelled,
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Failed,
    Finished,
    Requested,
    Started,
    Tokens,
)
from services.bus.log import Entry


@dataclass(kw_only=True)
class Folded:
    """A log up to its end. started: the first one. starts, texts, n_ids, ends: by choice; the order of tokens
    is checked as in schemas.generation.apply."""

    requested: Requested
    claims: list[Claimed] = field(default_factory=list[Claimed])
    started: Started | None = None
    starts: dict[int, ChoiceStart] = field(default_factory=dict[int, ChoiceStart])
    texts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    n_ids: dict[int, int] = field(default_factory=dict[int, int])
    ends: dict[int, ChoiceEnd] = field(default_factory=dict[int, ChoiceEnd])
    end: Finished | Failed | Cancelled | None = None

    def output(self) -> list[str]:
        """The text of every choice, as sampled: thoughts and tool calls are still in it."""
        return [
            "".join(texts) + (self.ends[choice].tail if choice in self.ends else "")
            for choice, texts in sorted(self.texts.items())
        ]


def fold(entries: Iterable[Entry]) -> Folded | None:
    """None for a log that nobody opened."""
    events = (event for entry in entries for event in entry.events)
    first = next(events, None)
    if not isinstance(first, Requested):
        return None
    folded = Folded(requested=first)
    for event in events:
        if type(event) is Tokens:
            _take(folded, event)
        elif isinstance(event, Claimed):
            folded.claims.append(event)
        elif isinstance(event, Started):
            folded.started = folded.started or event
            for start in event.choices:
                folded.starts.setdefault(start.choice, start)
        elif isinstance(event, Finished | Failed | Cancelled):
            folded.end = event
            break
    return folded


def _take(folded: Folded, tokens: Tokens) -> None:
    choice = tokens.choice
    n_before = folded.n_ids.get(choice, 0)
    if tokens.index != n_before or choice in folded.ends:
        return
    folded.n_ids[choice] = n_before + len(tokens.ids)
    folded.texts.setdefault(choice, []).extend(tokens.texts)
    if tokens.end is not None:
        folded.ends[choice] = tokens.end
