"""The very bytes of an archived answer, in the dialect it was asked in or another. Pure."""

from collections.abc import Iterable

from schemas.errors import RequestError
from services.bus.log import Entry
from services.edge.errors import problem_body
from services.streams.projections import VIEWS
from services.streams.tape import Rendering, Tape

CLIENT = "client"
DIALECTS = (CLIENT, *(view for view in VIEWS if view))


def rendered(generation_id: str, entries: Iterable[Entry], dialect: str) -> bytes:
    """What a client gets. dialect: `client` for the bytes that the one who asked got, body or stream;
    else one of VIEWS, as a stream. Raises RequestError."""
    if dialect not in DIALECTS:
        raise RequestError.invalid(f"there is no dialect {dialect}, but {', '.join(DIALECTS)}")
    rendering = None if dialect == CLIENT else Rendering(dialect)
    tape = Tape(generation_id, rendering=rendering)
    for entry in entries:
        tape.take(entry)
    if tape.requested is None or tape.is_broken:
        raise RequestError.not_found(f"the log of {generation_id} cannot be rendered")
    return _bytes(tape, is_own=rendering is None)


def _bytes(tape: Tape, *, is_own: bool) -> bytes:
    problem = tape.projection.failed_before_start
    if problem is not None:
        return problem_body(problem)
    if is_own and not tape.projection.requested.params.output.stream:
        return tape.result().body
    return b"".join(_chunks(tape))


def _chunks(tape: Tape) -> Iterable[bytes]:
    position = 0
    while chunk := tape.cut(position):
        position += len(chunk)
        yield chunk
