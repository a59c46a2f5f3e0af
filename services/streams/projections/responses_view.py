"""A stored response as `GET /v1/responses/{id}` shows it, whatever has become of it."""

from schemas.events import Cancelled, Failed, Finished
from services.streams.projections.projection import Projection
from services.streams.projections.responses import Output, error_json, output_of, status_of
from services.streams.projections.responses_json import (
    CANCELLED,
    FAILED,
    IN_PROGRESS,
    INCOMPLETE,
    QUEUED,
    ResponseObject,
    usage_json,
)
from services.streams.projections.shapes import Json


def response_view(projection: Projection) -> Json:
    """The response object of a log, folded as far as it was read.

    The projection is one whose answer is not streamed: those gather the text.
    """
    choice = next(iter(projection.choices), None)
    context, end = projection.context, projection.generation.end
    response = ResponseObject(context)
    unfinished = IN_PROGRESS if end is None else INCOMPLETE
    whole = Output([], 0) if choice is None else output_of(context, choice, unfinished=unfinished)
    output = whole.items
    match end:
        case Finished() if choice is not None and choice.end is not None:
            usage = usage_json(choice.end, whole.n_thought)
            return response.json(status_of(choice.end), output, usage=usage)
        case Failed(problem=problem):
            return response.json(FAILED, output, error=error_json(problem))
        case Cancelled():
            return response.json(CANCELLED, output)
        case _:
            has_begun = projection.generation.first_started is not None
            return response.json(IN_PROGRESS if has_begun else QUEUED, output)
