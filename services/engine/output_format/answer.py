"""What the log says of a chat's answer: its output format, and the parameters that follow from it."""

from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace

from schemas.errors import RequestError
from schemas.output_format import Calls, OutputFormat, to_json
from schemas.params import GrammarTrigger, Params, Sampling
from services.engine.chat_request import ChatRequest
from services.engine.grammar.errors import SchemaInvalid
from services.engine.messages import JsonObject
from services.engine.output_format.grammar import json_answer, lazy_calls, required_calls
from services.engine.output_format.request import for_request, is_plain, without_names
from services.engine.output_format.segments import is_tag, split
from services.engine.templates import Rendered

WORD, TOKEN = "word", "token"
CHAT_FORMAT = "peg-native"
"""llama-server's name of what is parsed by a format that was derived."""


class Words(Protocol):
    """What of a vocabulary is needed to find markers among tokens."""

    @property
    def eog(self) -> tuple[int, ...]: ...
    def piece(self, token: int, *, special: bool = True) -> bytes: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...


def with_output_format(
    params: Params, rendered: Rendered, body: JsonObject, vocabulary: Words
) -> tuple[Params, bytes]:
    """The parameters of a chat, and its output format as the log keeps it (empty: plain text).

    params: resolved, with the grammar that the body asks for. Raises RequestError for tools that no
    grammar can hold.
    """
    output = replace(
        params.output,
        generation_prompt=rendered.generation_prompt,
        is_continuation=rendered.is_continuation,
    )
    chat, known = rendered.chat, rendered.known
    if chat is None or known is None:
        return replace(params, output=output), b""
    is_json = is_json_wanted(body)
    has_calls = bool(chat.tools) and chat.tool_choice != "none" and not is_json
    output = replace(output, chat_format=CHAT_FORMAT, parse_tool_calls=has_calls)
    description = for_request(
        without_names(known, _ends(vocabulary)),
        tools=chat.tools,
        has_calls=has_calls,
        prefix=rendered.answer,
        is_continued=chat.is_continued and not output.echo,
        reasoning_format=output.reasoning_format,
        is_stream=output.stream,
    )
    preserved = preserved_tokens(description, vocabulary)
    sampling = replace(params.sampling, preserved_tokens=preserved)
    if has_calls:
        sampling = _with_calls(sampling, description, rendered, chat, vocabulary)
    elif is_json and not is_plain(description):
        sampling = replace(sampling, grammar=json_answer(description, sampling.grammar).text)
    params = replace(params, output=output, sampling=sampling)
    return params, b"" if is_plain(description) else to_json(description)


def _ends(vocabulary: Words) -> tuple[str, ...]:
    """The names of the tokens that end a generation: they never stand in its text."""
    pieces = (vocabulary.piece(token) for token in vocabulary.eog)
    return tuple(name for piece in pieces if (name := piece.decode("utf-8", "replace").strip()))


def is_json_wanted(body: JsonObject) -> bool:
    """Whether the body asks for an answer by a schema."""
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return body.get("json_schema") is not None or kind in ("json_object", "json_schema")


def _with_calls(
    sampling: Sampling,
    description: OutputFormat,
    rendered: Rendered,
    chat: ChatRequest,
    vocabulary: Words,
) -> Sampling:
    """With the grammar of calls, where something shows when they begin or one must come."""
    tools = [tool for tool in chat.tools if chat.named_tool in ("", tool["function"]["name"])]
    is_parallel = chat.parallel_tool_calls
    if is_parallel is None:
        is_parallel = rendered.has_parallel_calls
    try:
        if chat.tool_choice == "required":
            found = required_calls(description, tools, is_parallel=is_parallel)
        else:
            found = lazy_calls(description, tools, is_parallel=is_parallel)
    except SchemaInvalid as error:
        if chat.tool_choice == "required":
            raise RequestError.invalid(
                f"no grammar can hold these tools: {error}", "tools"
            ) from error
        found = None
    if found is None:
        return sampling
    triggers = tuple(_as_token(trigger, vocabulary) for trigger in found.triggers)
    return replace(
        sampling, grammar=found.text, grammar_lazy=found.is_lazy, grammar_triggers=triggers
    )


def _as_token(trigger: GrammarTrigger, vocabulary: Words) -> GrammarTrigger:
    """A word that is one token is looked for as that."""
    if trigger.kind != WORD:
        return trigger
    ids = vocabulary.tokenize(trigger.value, add_special=False, parse_special=True)
    if len(ids) != 1:
        return trigger
    return GrammarTrigger(kind=TOKEN, value=trigger.value, token=ids[0])


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
