"""What the log says of a chat's answer: its output format, and the parameters that follow from it."""

from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace

from schemas.output_format import Calls, OutputFormat, to_json
from schemas.params import Params
from services.engine.output_format.request import for_request, is_plain
from services.engine.output_format.segments import is_tag, split
from services.engine.templates import Rendered

CHAT_FORMAT = "peg-native"
"""llama-server's name of what is parsed by a format that was derived."""


class Words(Protocol):
    """What of a vocabulary is needed to find markers among tokens."""

    @property
    def eog(self) -> tuple[int, ...]: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...


def with_output_format(
    params: Params, rendered: Rendered, vocabulary: Words
) -> tuple[Params, bytes]:
    """The parameters of a chat, and its output format as the log keeps it (empty: plain text)."""
    output = replace(
        params.output,
        generation_prompt=rendered.generation_prompt,
        is_continuation=rendered.is_continuation,
    )
    chat, known = rendered.chat, rendered.known
    if chat is None or known is None:
        return replace(params, output=output), b""
    has_calls = bool(chat.tools) and chat.tool_choice != "none"
    output = replace(output, chat_format=CHAT_FORMAT, parse_tool_calls=has_calls)
    description = for_request(
        known,
        tools=chat.tools,
        has_calls=has_calls,
        prefix=rendered.answer,
        is_continued=rendered.is_continuation and not output.echo,
        reasoning_format=output.reasoning_format,
        is_stream=output.stream,
    )
    preserved = preserved_tokens(description, vocabulary)
    sampling = replace(params.sampling, preserved_tokens=preserved)
    params = replace(params, output=output, sampling=sampling)
    return params, b"" if is_plain(description) else to_json(description)


def preserved_tokens(description: OutputFormat, vocabulary: Words) -> tuple[int, ...]:
    """The control tokens whose names must stand in the text, since markers are made of them.

    Those that end a generation have no text.
    """
    tags = {tag for text in _texts(description) for tag in (*split(text), text.strip())}
    found: set[int] = set()
    for tag in tags:
        if is_tag(tag):
            ids = vocabulary.tokenize(tag, add_special=False, parse_special=True)
            found.update(ids if len(ids) == 1 else ())
    return tuple(sorted(found - set(vocabulary.eog)))


def _texts(description: OutputFormat) -> Iterator[str]:
    yield from (description.thought_start, description.thought_end, description.content_end)
    yield from (*description.content_starts, *description.turns)
    if description.calls is not None:
        yield from _texts_of_calls(description.calls)


def _texts_of_calls(calls: Calls) -> Iterator[str]:
    yield from (calls.start, calls.end, calls.separator, calls.quote)
    for pattern in calls.patterns:
        yield from (part.text for part in pattern)
    if calls.parameters is not None:
        yield from (part.text for part in calls.parameters.head)
        yield from (calls.parameters.tail, calls.parameters.separator)
