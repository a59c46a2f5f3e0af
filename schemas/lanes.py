"""Lanes: the queues of one model that its engines empty in turns. Pure.

A caller with few unfinished requests has its tasks in LIGHT, one with more in BUSY, one that floods in
FLOODING; whatever is not urgent is in BATCH. OWN is the queue of one engine, for tasks that no other
one may do. Within a lane tasks go in order.
"""

from collections.abc import Collection

LIGHT, BUSY, FLOODING, BATCH, OWN = range(5)
SHARED = (LIGHT, BUSY, FLOODING, BATCH)
INTERACTIVE_CLASS, BATCH_CLASS = "interactive", "batch"
PRIORITIES = (INTERACTIVE_CLASS, BATCH_CLASS)

TURNS = (
    *(LIGHT, OWN, LIGHT, BUSY),
    *(LIGHT, OWN, LIGHT, FLOODING),
    *(LIGHT, OWN, LIGHT, BUSY),
    *(LIGHT, OWN, LIGHT, BATCH),
)
"""Who comes first at each turn, so that nobody starves; the others follow in RANKS' order."""
RANKS = (LIGHT, OWN, BUSY, FLOODING, BATCH)

BOUNDS = (4, 32)
"""From so many unfinished requests on a caller is in BUSY, in FLOODING."""

SHARES = (1.0, 1.0, 0.75, 0.5, 1.0)
"""The part of the bounded queue that tasks of each lane may fill: a flood leaves room for others."""


def order(turn: int, lanes: Collection[int]) -> list[int]:
    """`lanes` in the order in which they are looked into at that turn (one task taken is one turn)."""
    first = TURNS[turn % len(TURNS)]
    ranked = (first, *(lane for lane in RANKS if lane != first))
    return [lane for lane in ranked if lane in lanes]


def lane_of(n_unfinished: int, before: int = LIGHT) -> int:
    """The lane for one more request of a caller that has `n_unfinished`, and whose last one went to
    lane `before`. It comes back to a faster lane only at half of what took it out, so that its later
    requests seldom overtake its earlier ones."""
    lane = before
    while lane < FLOODING and n_unfinished >= BOUNDS[lane]:
        lane += 1
    while lane > LIGHT and n_unfinished < BOUNDS[lane - 1] // 2:
        lane -= 1
    return lane


def limit_of(lane: int, max_queue: int) -> int:
    """How many tasks may wait in all lanes together while one more may enter `lane`; at least 1."""
    return max(1, round(max_queue * SHARES[lane]))
