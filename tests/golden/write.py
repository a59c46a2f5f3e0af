"""Writes the golden files: `python -m tests.golden.write`, from the root of the checkout.

Run it when a case is added. A file that changes means that bytes changed which clients count offsets
in: that takes a new projection version, unless nothing was released with the old bytes. Compare a
new file by eye with what llama-server sends for the same request before it is committed.
"""

from pathlib import Path

from services.bus.log import Entry
from services.streams.tape import Tape, render
from tests.golden.cases import CASES, GENERATION_ID, Case

FOLDER = Path(__file__).parent / "streams"


def tape_of(case: Case) -> Tape:
    """Each event an entry of its own."""
    entries = [Entry(index + 1, index, (event,)) for index, event in enumerate(case)]
    return render(GENERATION_ID, entries)


def shown(case: Case) -> bytes:
    """What a client gets: the stream, or the body where none was asked for or none came about."""
    tape = tape_of(case)
    is_streamed = tape.projection.requested.params.output.stream
    if is_streamed and tape.projection.failed_before_start is None:
        return tape.cut(0)
    result = tape.result()
    return b"%d\n%b\n" % (result.status, result.body)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stale in set(FOLDER.glob("*.txt")) - {path_of(name) for name in CASES}:
        stale.unlink()
    for name, case in CASES.items():
        path_of(name).write_bytes(shown(case))


if __name__ == "__main__":
    main()
