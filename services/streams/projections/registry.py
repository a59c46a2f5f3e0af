"""Which projection renders which dialect in which version."""

from collections.abc import Callable

from schemas.events import Requested
from services.streams.errors import UnknownProjection
from services.streams.projections.anthropic import Anthropic
from services.streams.projections.chat import Chat
from services.streams.projections.completion import Completion
from services.streams.projections.context import Context
from services.streams.projections.dialect import Dialect
from services.streams.projections.native import Native
from services.streams.projections.projection import Projection
from services.streams.projections.responses import Responses

LATEST_RENDER = 1
"""The version in which a log is rendered for a reader who chose another dialect than the client's."""

DIALECTS: dict[tuple[str, int], Callable[[Context], Dialect]] = {
    ("openai.chat", 1): Chat,
    ("openai.completion", 1): Completion,
    ("native.completion", 1): Native,
    ("anthropic.messages", 1): Anthropic,
    ("openai.responses", 1): Responses,
}
COMPLETIONS = ("openai.completion", "native.completion")
VIEWS = {
    "": None,
    "openai": "openai.chat",
    "anthropic": "anthropic.messages",
    "responses": "openai.responses",
    "native": "native.completion",
}
"""What readers may choose, and the dialect that each stands for."""


def dialect_of_view(view: str, requested: Requested) -> str | None:
    """The dialect of one of VIEWS for that log; None: its own. OpenAI has one for texts, too."""
    if view == "openai" and requested.dialect in COMPLETIONS:
        return "openai.completion"
    return VIEWS[view]


def projection_for(
    requested: Requested, *, dialect: str | None = None, is_streamed: bool | None = None
) -> Projection:
    """The projection of a log, at its beginning. dialect, is_streamed: where not as it was asked for.

    Raises UnknownProjection.
    """
    is_own = dialect is None or dialect == requested.dialect
    key = (dialect or requested.dialect, requested.render if is_own else LATEST_RENDER)
    new_dialect = DIALECTS.get(key)
    if new_dialect is None:
        raise UnknownProjection(f"no projection renders {key[0]} in version {key[1]}")
    return Projection(requested, new_dialect, is_streamed=is_streamed)
