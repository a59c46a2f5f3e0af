"""Types an answer out, as it came."""

import sys
import time
from collections.abc import Callable, Iterable

from schemas.errors import RequestError
from services.bus.log import Entry
from services.streams.audit.pace import typed


def type_out(
    entries: Iterable[Entry],
    *,
    speed: float,
    choice: int,
    write: Callable[[str], object] = sys.stdout.write,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Write the text of one choice, each piece when it came, `speed` times as fast; 0: at once.

    Blocks for as long as the answer took. Raises RequestError where there is no such choice.
    """
    events = [event for entry in entries for event in entry.events]
    pieces = [piece for piece in typed(events) if piece.choice == choice]
    if not pieces and choice:
        raise RequestError.invalid(f"there is no choice {choice}")
    begun_at = clock()
    for piece in pieces:
        wait_s = piece.at_s / speed - (clock() - begun_at) if speed > 0 else 0.0
        if wait_s > 0:
            sys.stdout.flush()
            sleep(wait_s)
        write(piece.text)
    write("\n")
    sys.stdout.flush()
