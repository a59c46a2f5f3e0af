"""A chat's messages in the form that templates take. Pure: the caller's values are not changed.

Follows llama-server's reading of the OpenAI format: unknown fields are dropped, `content: null` is
empty text, text parts are joined by newlines unless the template wants parts.
"""

import json
from typing import Any, cast

from schemas.errors import RequestError
from services.engine.template_caps import Caps

JsonObject = dict[str, Any]
_OPTIONAL_TEXTS = ("reasoning_content", "name", "tool_call_id")


def read_messages(value: object) -> list[JsonObject]:
    """The messages of a request, checked and reduced to what templates know.

    `content` is a string or a list of text parts. Raises RequestError naming `messages`.
    """
    if value is None:
        raise _wrong("'messages' is required")
    if not isinstance(value, list):
        raise _wrong("Expected 'messages' to be an array")
    messages = cast("list[object]", value)
    return [_message(item, f"messages[{i}]") for i, item in enumerate(messages)]


def read_tools(value: object) -> list[JsonObject]:
    """The tools of a request, as function descriptions. Raises RequestError naming `tools`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError.invalid("Expected 'tools' to be an array", "tools")
    return [_tool(item) for item in cast("list[object]", value)]


def text_of(message: JsonObject, separator: str = "\n") -> str:
    """The text of a message; parts are joined by `separator`."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return separator.join(part["text"] for part in content)


def for_template(messages: list[JsonObject], caps: Caps, *, keeps_developer: bool) -> list[Any]:
    """The messages as this template can take them (llama.cpp's workarounds).

    keeps_developer: the template knows the role `developer`, which otherwise becomes `system`.
    """
    shaped = [_shape(message, caps) for message in messages]
    if not keeps_developer:
        shaped = [_as_system(message) for message in shaped]
    if not caps.supports_system_role:
        shaped = _merge_system(shaped)
    if caps.supports_object_arguments:
        shaped = [_with_object_arguments(message) for message in shaped]
    return shaped


def _wrong(message: str) -> RequestError:
    return RequestError.invalid(message, "messages")


def _message(value: object, place: str) -> JsonObject:
    if not isinstance(value, dict):
        raise _wrong(f"Expected '{place}' to be an object")
    given = cast(JsonObject, value)
    role = given.get("role")
    if not isinstance(role, str):
        raise _wrong(f"Missing 'role' in {place}")
    if "content" not in given and (role != "assistant" or given.get("tool_calls") is None):
        raise _wrong(f"{place} must contain 'content'" + _or_calls(role))
    message: JsonObject = {"role": role, "content": _content(given.get("content"), place)}
    message.update(_texts(given, place))
    if calls := _tool_calls(given.get("tool_calls"), place):
        message["tool_calls"] = calls
    return message


def _or_calls(role: str) -> str:
    return " or 'tool_calls'" if role == "assistant" else ""


def _texts(given: JsonObject, place: str) -> JsonObject:
    texts = {name: given[name] for name in _OPTIONAL_TEXTS if given.get(name) is not None}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _wrong(f"Expected '{place}.{name}' to be a string")
    return {name: text for name, text in texts.items() if text}


def _content(value: object, place: str) -> str | list[JsonObject]:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _wrong(f"Expected '{place}.content' to be a string or an array")
    return [_part(part, f"{place}.content") for part in cast("list[object]", value)] or ""


def _part(value: object, place: str) -> JsonObject:
    part = cast(JsonObject, value) if isinstance(value, dict) else {}
    kind = part.get("type")
    if kind != "text":
        raise _wrong(f"unsupported content[].type in {place}: only text is served by this model")
    if not isinstance(part.get("text"), str):
        raise _wrong(f"a part of '{place}' has no text")
    return {"type": "text", "text": part["text"]}


def _tool_calls(value: object, place: str) -> list[JsonObject]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(f"Expected '{place}.tool_calls' to be an array")
    return [_tool_call(call, f"{place}.tool_calls") for call in cast("list[object]", value)]


def _tool_call(value: object, place: str) -> JsonObject:
    call = cast(JsonObject, value) if isinstance(value, dict) else {}
    function = call.get("function")
    if call.get("type") != "function" or not isinstance(function, dict):
        raise _wrong(f"an entry of '{place}' is not a function call")
    name, arguments = _name_and_arguments(cast(JsonObject, function), place)
    known: JsonObject = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if isinstance(call.get("id"), str) and call["id"]:
        known["id"] = call["id"]
    return known


def _name_and_arguments(function: JsonObject, place: str) -> tuple[str, str]:
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str):
        raise _wrong(f"Missing tool call name in '{place}'")
    if arguments is None:
        raise _wrong(f"Missing tool call arguments in '{place}'")
    if isinstance(arguments, str):
        return name, arguments
    try:
        return name, json.dumps(arguments, ensure_ascii=False)
    except RecursionError as error:
        raise _wrong(f"the arguments in '{place}' are nested too deeply") from error


def _tool(value: object) -> JsonObject:
    tool = cast(JsonObject, value) if isinstance(value, dict) else {}
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise RequestError.invalid("Each tool must be of the type function", "tools")
    known = cast(JsonObject, function)
    if not isinstance(known.get("name"), str):
        raise RequestError.invalid("Each tool's function must have a name", "tools")
    return {
        "type": "function",
        "function": {
            "name": known["name"],
            "description": known.get("description") or "",
            "parameters": known.get("parameters") or {},
        },
    }


def _shape(message: JsonObject, caps: Caps) -> JsonObject:
    content = message["content"]
    if isinstance(content, str):
        if caps.supports_string_content:
            return dict(message)
        return message | {"content": [{"type": "text", "text": content}]}
    return dict(message) if caps.supports_typed_content else message | {"content": text_of(message)}


def _as_system(message: JsonObject) -> JsonObject:
    return message | {"role": "system"} if message["role"] == "developer" else message


def _merge_system(messages: list[JsonObject]) -> list[JsonObject]:
    """The template knows no system role: its text goes in front of the next message's."""
    if not messages or messages[0]["role"] != "system":
        return messages
    if len(messages) == 1:
        return []
    second = messages[1] | {"content": f"{text_of(messages[0])}\n{text_of(messages[1])}"}
    return [second, *messages[2:]]


def _with_object_arguments(message: JsonObject) -> JsonObject:
    """The template takes the arguments of tool calls as objects, not as JSON text."""
    if "tool_calls" not in message:
        return message
    return message | {"tool_calls": [_parsed_call(call) for call in message["tool_calls"]]}


def _parsed_call(call: JsonObject) -> JsonObject:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError) as error:
        raise _wrong(f"Failed to parse tool call arguments as JSON: {error}") from error
    return call | {"function": function | {"arguments": arguments}}
