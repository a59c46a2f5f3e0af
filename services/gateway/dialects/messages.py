"""The messages of a chat: shape only, nothing is changed."""

from schemas.errors import RequestError
from services.gateway.dialects.fields import (
    JsonObject,
    as_list,
    as_object,
    optional_string,
)

MAX_ROLE = 64
"""Characters. Any role goes: chat templates know such of their own (`ipython`, `documents`)."""
MEDIA_PARTS = {
    "image_url": "image",
    "input_audio": "audio",
    "input_video": "video",
    "video_url": "video",
}


def check_messages(value: object, *, allows_none: bool = False) -> None:
    """Raise RequestError unless `value` is a list of messages. allows_none: the list may be empty."""
    if value is None:
        raise RequestError.invalid("'messages' is required", "messages")
    messages = as_list(value)
    if messages is None:
        raise RequestError.invalid("Expected 'messages' to be an array", "messages")
    if not messages and not allows_none:
        raise RequestError.invalid("'messages' must hold at least one message", "messages")
    for number, message in enumerate(messages):
        _check_message(message, f"messages[{number}]")


def _check_message(value: object, place: str) -> None:
    message = as_object(value)
    if message is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "messages")
    _check_presence(message, _role(message, place), place)
    _check_content(message.get("content"), place)
    _check_tool_calls(message.get("tool_calls"), place)
    for name in ("reasoning_content", "name", "tool_call_id"):
        optional_string(message, name, f"{place}.{name}")


def _role(message: JsonObject, place: str) -> str:
    role = message.get("role")
    if role is None:
        raise RequestError.invalid(f"The role of {place} is missing", "messages")
    if not isinstance(role, str) or not 0 < len(role) <= MAX_ROLE:
        raise RequestError.invalid(
            f"The role of {place} must be a word, such as user or assistant", "messages"
        )
    return role


def _check_presence(message: JsonObject, role: str, place: str) -> None:
    if "content" in message:
        return
    if role != "assistant":
        raise RequestError.invalid(
            f"All non-assistant messages must contain 'content': {place} has none", "messages"
        )
    if message.get("tool_calls") is None:
        raise RequestError.invalid(
            f"Assistant message must contain either 'content' or 'tool_calls': {place} has neither",
            "messages",
        )


def _check_content(content: object, place: str) -> None:
    if content is None or isinstance(content, str):
        return
    parts = as_list(content)
    if parts is None:
        raise RequestError.invalid(
            f"Expected '{place}.content' to be a string or an array", "messages"
        )
    for number, part in enumerate(parts):
        _check_part(as_object(part), f"{place}.content[{number}]")


def _check_part(part: JsonObject | None, place: str) -> None:
    if part is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "messages")
    kind = part.get("type")
    if isinstance(kind, str) and kind in MEDIA_PARTS:
        raise RequestError.invalid(
            f"{MEDIA_PARTS[kind]} input is not supported - hint: if this is unexpected, "
            "you may need to provide the mmproj",
            "messages",
        )
    if kind != "text":
        raise RequestError.invalid(f"unsupported content[].type in {place}", "messages")
    if not isinstance(part.get("text"), str):
        raise RequestError.invalid(f"Expected '{place}.text' to be a string", "messages")


def _check_tool_calls(value: object, place: str) -> None:
    if value is None:
        return
    calls = as_list(value)
    if calls is None:
        raise RequestError.invalid(f"Expected '{place}.tool_calls' to be an array", "messages")
    for number, call in enumerate(calls):
        _check_tool_call(as_object(call), f"{place}.tool_calls[{number}]")


def _check_tool_call(call: JsonObject | None, place: str) -> None:
    function = as_object((call or {}).get("function"))
    if call is None or function is None or call.get("type") != "function":
        raise RequestError.invalid(f"{place} is not a function call", "messages")
    if not isinstance(function.get("name"), str):
        raise RequestError.invalid(f"Missing tool call name: {place}", "messages")
    if not isinstance(function.get("arguments"), str | dict):
        raise RequestError.invalid(
            f"Expected '{place}.function.arguments' to be a string or an object", "messages"
        )
    optional_string(call, "id", f"{place}.id")
