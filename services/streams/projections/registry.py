"""Which projection renders which dialect in which version."""

from collections.abc import Callable

from schemas.events import Requested
from services.streams.errors import UnknownProjection
from services.streams.projections.chat import Chat
from services.streams.projections.completion import Completion
from services.streams.projections.context import Context
from services.streams.projections.dialect import Dialect
from services.streams.projections.native import Native
from services.streams.projections.projection import Projection

DIALECTS: dict[tuple[str, int], Callable[[Context], Dialect]] = {
    ("openai.chat", 1): Chat,
    ("openai.completion", 1): Completion,
    ("native.completion", 1): Native,
}


def projection_for(requested: Requested, *, dialect: str | None = None) -> Projection:
    """The projection of a log, at its beginning. dialect: where not the one that was asked in.

    Raises UnknownProjection.
    """
    key = (dialect or requested.dialect, requested.render)
    new_dialect = DIALECTS.get(key)
    if new_dialect is None:
        raise UnknownProjection(f"no projection renders {key[0]} in version {key[1]}")
    return Projection(requested, new_dialect)
