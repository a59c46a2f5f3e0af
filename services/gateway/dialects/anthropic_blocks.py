"""The content blocks of Anthropic's messages, as messages of an OpenAI chat."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from schemas.errors import RequestError
from services.gateway.dialects.fields import JsonObject, as_list, as_object, optional_string

IMAGE_TYPE = "image/jpeg"


@dataclass(kw_only=True)
class _Parts:
    """What the blocks of one message add up to. results: messages of their own, before this one: they
    answer the calls of the message before."""

    content: list[JsonObject] = field(default_factory=list[JsonObject])
    calls: list[JsonObject] = field(default_factory=list[JsonObject])
    results: list[JsonObject] = field(default_factory=list[JsonObject])
    thoughts: str = ""


def read_message(value: object, place: str) -> list[JsonObject]:
    """One message as several: tool results become messages of the role `tool`. Raises RequestError.

    An assistant message without content is left out, as in llama-server.
    """
    message = as_object(value)
    if message is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "messages")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise RequestError.invalid(f"The role of {place} is missing", "messages")
    if content is None and role == "assistant":
        return []
    blocks = as_list(content)
    if blocks is None:
        return [{name: message[name] for name in ("role", "content") if name in message}]
    parts = _Parts()
    for number, block in enumerate(blocks):
        _add(parts, block, f"{place}.content[{number}]")
    return [*parts.results, *_own_message(role, parts)]


def text_of_blocks(blocks: Iterable[object], place: str) -> Iterator[str]:
    """The texts of the blocks that are text."""
    for number, block in enumerate(blocks):
        given = _object(block, f"{place}[{number}]")
        if given.get("type") == "text":
            yield optional_string(given, "text", f"{place}[{number}].text") or ""


def _own_message(role: str, parts: _Parts) -> list[JsonObject]:
    if not (parts.content or parts.calls or parts.thoughts):
        return []
    message: JsonObject = {"role": role, "content": parts.content or ""}
    if parts.calls:
        message["tool_calls"] = parts.calls
    if parts.thoughts:
        message["reasoning_content"] = parts.thoughts
    return [message]


def _add(parts: _Parts, value: object, place: str) -> None:
    block = _object(value, place)
    match block.get("type"):
        case "text":
            text = optional_string(block, "text", f"{place}.text") or ""
            parts.content.append({"type": "text", "text": text})
        case "thinking":
            parts.thoughts += optional_string(block, "thinking", f"{place}.thinking") or ""
        case "image":
            parts.content += _image(block, place)
        case "tool_use":
            parts.calls.append(_call(block, place))
        case "tool_result":
            parts.results.append(_result(block, place))
        case _:
            pass


def _call(block: JsonObject, place: str) -> JsonObject:
    function = {
        "name": optional_string(block, "name", f"{place}.name") or "",
        "arguments": orjson.dumps(block.get("input") or {}).decode(),
    }
    id_ = optional_string(block, "id", f"{place}.id") or ""
    return {"id": id_, "type": "function", "function": function}


def _result(block: JsonObject, place: str) -> JsonObject:
    """Text where there is only text: more templates know it."""
    content = block.get("content")
    blocks = as_list(content)
    if blocks is not None:
        images = [part for each in blocks for part in _image(_object(each, place), place)]
        texts = list(text_of_blocks(blocks, f"{place}.content"))
        as_parts = [{"type": "text", "text": text} for text in texts]
        content = [*as_parts, *images] if images else "".join(texts)
    return {
        "role": "tool",
        "tool_call_id": optional_string(block, "tool_use_id", f"{place}.tool_use_id") or "",
        "content": "" if content is None else content,
    }


def _image(block: JsonObject, place: str) -> list[JsonObject]:
    """A picture as OpenAI's URL; nothing for another block or a source of another kind."""
    if block.get("type") != "image":
        return []
    source = _object(block.get("source") or {}, f"{place}.source")
    match source.get("type"):
        case "base64":
            kind = optional_string(source, "media_type", f"{place}.source.media_type")
            data = optional_string(source, "data", f"{place}.source.data") or ""
            url = f"data:{kind or IMAGE_TYPE};base64,{data}"
        case "url":
            url = optional_string(source, "url", f"{place}.source.url") or ""
        case _:
            return []
    return [{"type": "image_url", "image_url": {"url": url}}]


def _object(value: object, place: str) -> JsonObject:
    found = as_object(value)
    if found is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "messages")
    return found
