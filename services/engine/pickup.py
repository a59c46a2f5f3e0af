"""What to do with a delivered task, given its log. Pure decisions."""

from enum import Enum, auto

from schemas.events import Compat
from schemas.generation import Generation
from services.engine.jobs import may_continue

MAX_FOREIGN_DELIVERIES = 5
"""After so many deliveries of a log that only another model could continue, it fails."""


class Pickup(Enum):
    """The verdicts."""

    RUN = auto()  # claim it and go
    WATCH = auto()  # somebody claimed it: look whether that one still writes
    FORGET = auto()  # the log is closed: acknowledge
    LATER = auto()  # not for us now: send it back with a delay
    EXPIRED = auto()  # the deadline is over: close with failed
    POISON = auto()  # it stopped three engines without a token: close with failed
    FOREIGN = auto()  # begun with another model, and nobody else came: close with failed
    ABANDONED = auto()  # no `requested` came within the accept time: close with failed


def decide(
    state: Generation,
    *,
    engine: str,
    compat: Compat,
    n_delivered: int,
    now_ms: int,
    accept_until_ms: int,
) -> Pickup:
    """engine, compat: our own. n_delivered: of this task. Times: Unix milliseconds."""
    if state.is_closed:
        return Pickup.FORGET
    if state.requested is None:
        return Pickup.ABANDONED if now_ms > accept_until_ms else Pickup.LATER
    if now_ms > state.requested.deadline_at_ms:
        return Pickup.EXPIRED
    if state.is_poisonous:
        return Pickup.POISON
    if not may_continue(state, compat):
        return Pickup.FOREIGN if n_delivered > MAX_FOREIGN_DELIVERIES else Pickup.LATER
    if state.engine is not None and state.engine != engine:
        return Pickup.WATCH
    return Pickup.RUN
