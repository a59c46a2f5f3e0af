"""The items of OpenAI's responses, as messages of a chat.

What the model wrote in one turn (thoughts, text, calls) are several items there and one message here.
"""

from collections.abc import Callable, Iterable
from typing import cast

from schemas.errors import RequestError
from services.gateway.dialects.fields import (
    JsonObject,
    as_list,
    as_object,
    optional_object,
    optional_string,
)

ROLES = ("user", "system", "developer")
TEXT_PARTS = ("input_text", "output_text", "text")


def messages_of(items: Iterable[JsonObject]) -> list[JsonObject]:
    """The messages that `items` add up to. Raises RequestError naming `input`."""
    messages: list[JsonObject] = []
    for item in items:
        kind = item.get("type")
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise _wrong(f"items of the type {kind!r} are not supported")
        for message in reader(item):
            _append(messages, message)
    return messages


def _append(messages: list[JsonObject], message: JsonObject) -> None:
    """Add a message; what the assistant says after its own words belongs to the same turn."""
    is_answer = message["role"] == "assistant"
    if not (is_answer and messages and messages[-1]["role"] == "assistant"):
        messages.append(message)
        return
    last = messages[-1]
    for name in ("content", "tool_calls"):
        if name in message:
            before = cast("list[object]", last.get(name, []))
            last[name] = [*before, *cast("list[object]", message[name])]
    if "reasoning_content" in message:
        last["reasoning_content"] = f"{last.get('reasoning_content', '')}" + str(
            message["reasoning_content"]
        )


def _message(item: JsonObject) -> list[JsonObject]:
    role = item.get("role")
    if role == "assistant":
        return [{"role": role, "content": _parts(item.get("content"), _answer_part)}]
    if role not in ROLES:
        raise _wrong("the role of a message must be user, assistant, system or developer")
    return [{"role": role, "content": _parts(item.get("content"), _input_part)}]


def _call(item: JsonObject) -> list[JsonObject]:
    texts = {name: optional_string(item, name) for name in ("call_id", "name", "arguments")}
    if None in texts.values():
        raise _wrong("a function_call needs call_id, name and arguments")
    function = {"name": texts["name"], "arguments": texts["arguments"]}
    call = {"id": texts["call_id"], "type": "function", "function": function}
    return [{"role": "assistant", "content": [], "tool_calls": [call]}]


def _call_output(item: JsonObject) -> list[JsonObject]:
    call_id, output = optional_string(item, "call_id"), item.get("output")
    if call_id is None:
        raise _wrong("a function_call_output needs the call_id that it answers")
    content = output if isinstance(output, str) else _parts(output, _input_part)
    return [{"role": "tool", "tool_call_id": call_id, "content": content}]


def _reasoning(item: JsonObject) -> list[JsonObject]:
    """Thoughts, or their summary; nothing where both are hidden from us."""
    for name in ("content", "summary"):
        parts = as_list(item.get(name)) or []
        text = "".join(_text_of(as_object(part)) for part in parts)
        if text:
            return [{"role": "assistant", "content": [], "reasoning_content": text}]
    return []


_READERS: dict[str, Callable[[JsonObject], list[JsonObject]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
    "reasoning": _reasoning,
}


def _parts(value: object, read: Callable[[JsonObject], JsonObject]) -> list[JsonObject]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    parts = as_list(value)
    if parts is None:
        raise _wrong("the content of an item must be a string or a list of parts")
    found = [as_object(part) for part in parts]
    if None in found:
        raise _wrong("every part of an item must be an object")
    return [read(part) for part in found if part is not None]


def _input_part(part: JsonObject) -> JsonObject:
    kind = part.get("type")
    if kind in TEXT_PARTS:
        return {"type": "text", "text": _text_of(part)}
    if kind == "input_image":
        url = optional_string(part, "image_url", "input[].image_url")
        if url is None:
            raise _wrong("'image_url' is required")
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "input_audio":
        return {"type": kind, "input_audio": optional_object(part, "input_audio") or {}}
    raise _wrong("'type' must be one of 'input_text' or 'input_image'")


def _answer_part(part: JsonObject) -> JsonObject:
    if part.get("type") == "refusal":
        return {"type": "text", "text": optional_string(part, "refusal") or ""}
    if part.get("type") not in TEXT_PARTS:
        raise _wrong("'type' must be one of 'output_text' or 'refusal'")
    return {"type": "text", "text": _text_of(part)}


def _text_of(part: JsonObject | None) -> str:
    text = (part or {}).get("text")
    if not isinstance(text, str):
        raise _wrong("a part of an item requires 'text'")
    return text


def _wrong(message: str) -> RequestError:
    return RequestError.invalid(f"Field 'input': {message}", "input")
