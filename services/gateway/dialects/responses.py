"""OpenAI's responses: `/v1/responses` and `/responses`.

A response is made of items: those of the earlier responses that it continues, then its own input.
Both become the messages of a chat; tools that are no functions are left out, as in llama-server.
"""

from collections.abc import Sequence

from schemas.errors import RequestError
from services.gateway.dialects import openai_chat
from services.gateway.dialects.fields import (
    JsonObject,
    NativeRequest,
    as_list,
    as_object,
    optional_bool,
    optional_number,
    optional_object,
    optional_string,
    without_nulls,
    wrong_type,
)
from services.gateway.dialects.responses_items import messages_of

DIALECT = "openai.responses"
NOT_BUILT = {
    "conversation": "use previous_response_id, or X-Conversation-Id to find the stream again",
    "prompt": "send what the stored prompt says as instructions and input",
}
OWN_FIELDS = frozenset(
    {
        "background",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "n",
        "n_cmpl",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncation",
        "user",
        *NOT_BUILT,
    }
)
"""What is translated or means nothing here; all else goes through under its own name."""
LOGPROBS = "message.output_text.logprobs"


def translate(body: JsonObject, history: Sequence[JsonObject] = ()) -> NativeRequest:
    """A request under native names. history: items of what it continues. Raises RequestError."""
    return openai_chat.translate(to_chat(body, history))


def translate_template(body: JsonObject, history: Sequence[JsonObject] = ()) -> JsonObject:
    """What decides the prompt, for counting its tokens. Raises RequestError."""
    return openai_chat.translate_template(to_chat(body, history))


def to_chat(body: JsonObject, history: Sequence[JsonObject] = ()) -> JsonObject:
    """The OpenAI chat completion that asks for the same. Raises RequestError."""
    given = without_nulls(body)
    _check(given)
    chat = {name: value for name, value in given.items() if name not in OWN_FIELDS}
    instructions = optional_string(given, "instructions")
    first = [] if instructions is None else [{"role": "system", "content": instructions}]
    chat["messages"] = [*first, *messages_of([*history, *input_items(given)])]
    if "max_output_tokens" in given:
        chat["max_tokens"] = optional_number(given, "max_output_tokens")
    return chat | _tools(given) | _reasoning(given) | _format(given) | _logprobs(given)


def input_items(body: JsonObject) -> list[JsonObject]:
    """The request's own input as a list of items. Raises RequestError."""
    value = body.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": _text(value)}]
    items = as_list(value)
    if items is None:
        said = "'input' is required" if value is None else "'input' must be a string or a list"
        raise RequestError.invalid(said, "input")
    return [_item(as_object(item), f"input[{number}]") for number, item in enumerate(items)]


def _item(item: JsonObject | None, place: str) -> JsonObject:
    """An item with its type said; the short form of a message has none."""
    if item is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "input")
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
    if not isinstance(kind, str):
        raise RequestError.invalid(f"Cannot determine type of '{place}'", "input")
    if kind == "message" and isinstance(item.get("content"), str):
        is_answer = item.get("role") == "assistant"
        content = _text(str(item["content"]), "output_text" if is_answer else "input_text")
        return item | {"type": kind, "content": content}
    return item | {"type": kind}


def _text(text: str, kind: str = "input_text") -> list[JsonObject]:
    return [{"type": kind, "text": text}]


def _check(body: JsonObject) -> None:
    for name, hint in NOT_BUILT.items():
        if name in body:
            raise RequestError.invalid(f"'{name}' is not supported: {hint}", name)
    for name in ("background", "store", "stream"):
        optional_bool(body, name)
    optional_object(body, "metadata")
    optional_string(body, "previous_response_id")
    if body.get("background") is True and body.get("store") is False:
        raise RequestError.invalid("A background response must be stored", "store")


def _tools(body: JsonObject) -> JsonObject:
    tools = as_list(body.get("tools", []))
    if tools is None:
        raise RequestError.invalid("'tools' must be an array of objects", "tools")
    found = (_tool(as_object(tool), f"tools[{number}]") for number, tool in enumerate(tools))
    functions = [tool for tool in found if tool is not None]
    if not functions:
        return {}
    choice = _tool_choice(body.get("tool_choice"))
    return {"tools": functions} | ({} if choice is None else {"tool_choice": choice})


def _tool(tool: JsonObject | None, place: str) -> JsonObject | None:
    """A function in the form of a chat's; None for every other tool."""
    if tool is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "tools")
    if tool.get("type") != "function":
        return None
    function = {name: value for name, value in tool.items() if name != "type" and value is not None}
    return {"type": "function", "function": function}


def _tool_choice(value: object) -> object:
    """A chat's `tool_choice`: a word, or a function that must be called."""
    choice = as_object(value)
    if choice is None:
        return value
    match choice.get("type"):
        case "function":
            return {"type": "function", "function": {"name": choice.get("name")}}
        case "allowed_tools":
            return choice.get("mode")
        case _:
            return "auto"


def _reasoning(body: JsonObject) -> JsonObject:
    effort = optional_string(optional_object(body, "reasoning") or {}, "effort", "reasoning.effort")
    return {} if effort is None else {"reasoning_effort": effort}


def _format(body: JsonObject) -> JsonObject:
    """`text.format` as a chat's `response_format`."""
    wanted = optional_object(optional_object(body, "text") or {}, "format", "text.format")
    if wanted is None:
        return {}
    if wanted.get("type") != "json_schema":
        return {"response_format": wanted}
    schema = {name: value for name, value in wanted.items() if name != "type"}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _logprobs(body: JsonObject) -> JsonObject:
    """Probabilities are shown where `include` names them."""
    include = as_list(body.get("include", []))
    if include is None:
        raise wrong_type("include", "a list")
    if LOGPROBS not in include:
        return {}
    return {"logprobs": True, "top_logprobs": optional_number(body, "top_logprobs") or 0}
