"""From the text of a choice to the fields of an assistant message.

The one place where a dialect's message is made of generated text. Text streams in, deltas come out;
what a model wrote as plain text is content as it stands.
"""

from collections.abc import Iterable

from services.streams.parsers.deltas import (
    CALLS,
    CONTENT,
    THOUGHTS,
    CallHead,
    Delta,
    MessageParser,
    PlainText,
    Span,
)
from services.streams.projections.shapes import Json

__all__ = [
    "CALLS",
    "CONTENT",
    "THOUGHTS",
    "CallHead",
    "Delta",
    "MessageParser",
    "PlainText",
    "Span",
    "delta_json",
    "message_of",
]


def message_of(parser: MessageParser, text: str) -> Json:
    """The whole message of a finished choice. parser: a fresh one."""
    return _message([*(parser.feed(text) if text else ()), *parser.close()])


def _message(deltas: Iterable[Delta]) -> Json:
    """llama-server's order of keys."""
    texts = {CONTENT: [""], THOUGHTS: list[str]()}
    heads: list[CallHead] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        if delta.field != CALLS:
            texts[delta.field].append(delta.text)
            continue
        if delta.head is not None:
            heads.append(delta.head)
            arguments.append([])
        arguments[delta.call].append(delta.text)
    message: Json = {"role": "assistant"}
    message.update({field: "".join(parts) for field, parts in texts.items() if parts})
    calls = [_call(head, "".join(parts)) for head, parts in zip(heads, arguments, strict=True)]
    return message | {CALLS: calls} if calls else message


def _call(head: CallHead, arguments: str) -> Json:
    function = {"name": head.name, "arguments": arguments}
    return {"type": "function", "function": function, "id": head.id}


def delta_json(delta: Delta) -> Json:
    """A delta as OpenAI's chat streams it: what names a call comes once, then its arguments."""
    if delta.field != CALLS:
        return {delta.field: delta.text}
    if delta.head is None:
        return {CALLS: [{"index": delta.call, "function": {"arguments": delta.text}}]}
    function = {"name": delta.head.name, "arguments": delta.text}
    head = {"index": delta.call, "id": delta.head.id, "type": "function"}
    return {CALLS: [head | {"function": function}]}
