"""Anthropic's messages: `/v1/messages` and `/v1/messages/count_tokens`.

Permissive as llama-server is: `max_tokens` may be missing, blocks of unknown types are left out.
"""

import re

from schemas.errors import RequestError
from services.gateway.dialects import openai_chat
from services.gateway.dialects.anthropic_blocks import read_message, text_of_blocks
from services.gateway.dialects.fields import (
    JsonObject,
    NativeRequest,
    as_list,
    as_object,
    optional_object,
    optional_string,
    without_nulls,
    wrong_type,
)

DIALECT = "anthropic.messages"
MAX_TOKENS = 4096
THINKING_BUDGET = 10_000
OWN_FIELDS = frozenset(
    {
        "anthropic_version",
        "betas",
        "container",
        "context_management",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "n",
        "n_cmpl",
        "output_config",
        "output_format",
        "prompt",
        "service_tier",
        "stop_sequences",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
"""What is translated or means nothing here; all else goes through under its own name."""

TOOL_CHOICES = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
_BILLING_HASH = re.compile(r"\A(x-anthropic-billing-header:.*?cch=)[^;]{5}(?=;)", re.DOTALL)


def translate(body: JsonObject) -> NativeRequest:
    """A request under native names. Raises RequestError."""
    return openai_chat.translate(to_chat(body), allows_none=True)


def translate_template(body: JsonObject) -> JsonObject:
    """What decides the prompt, for counting its tokens. Raises RequestError."""
    return openai_chat.translate_template(to_chat(body), allows_none=True)


def to_chat(body: JsonObject) -> JsonObject:
    """The OpenAI chat completion that asks for the same. Raises RequestError."""
    given = without_nulls(body)
    chat = {name: value for name, value in given.items() if name not in OWN_FIELDS}
    chat["messages"] = [*_system(given.get("system")), *_messages(given.get("messages"))]
    chat |= _tools(given)
    if "stop_sequences" in given:
        chat["stop"] = given["stop_sequences"]
    chat.setdefault("max_tokens", MAX_TOKENS)
    return chat | _thinking(given) | _format(given)


def without_billing_hash(text: str) -> str:
    """A system prompt whose billing header is the same for every request.

    Claude Code begins its prompt with a header whose `cch=` changes each time; it would spoil the
    prefix cache from the first token on.
    """
    return _BILLING_HASH.sub(r"\1fffff", text)


def _system(value: object) -> list[JsonObject]:
    """Text, or blocks of text, each of which may begin with the billing header."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "system", "content": without_billing_hash(value)}]
    blocks = as_list(value)
    if blocks is None:
        raise wrong_type("system", "a string or a list of blocks")
    texts = [without_billing_hash(text) for text in text_of_blocks(blocks, "system")]
    return [{"role": "system", "content": "".join(texts)}]


def _messages(value: object) -> list[JsonObject]:
    if value is None:
        raise RequestError.invalid("'messages' is required", "messages")
    messages = as_list(value)
    if messages is None:
        raise RequestError.invalid("Expected 'messages' to be an array", "messages")
    read = [read_message(message, f"messages[{n}]") for n, message in enumerate(messages)]
    return [message for several in read for message in several]


def _tools(body: JsonObject) -> JsonObject:
    """`tools` and `tool_choice` in OpenAI's form."""
    chat: JsonObject = {}
    if "tools" in body:
        tools = as_list(body["tools"])
        if tools is None:
            raise RequestError.invalid("Expected 'tools' to be an array", "tools")
        found = (_tool(as_object(tool), f"tools[{number}]") for number, tool in enumerate(tools))
        chat["tools"] = [tool for tool in found if tool is not None]
    choice = optional_object(body, "tool_choice") or {}
    kind = optional_string(choice, "type", "tool_choice.type")
    if kind in TOOL_CHOICES and chat.get("tools"):
        chat["tool_choice"] = TOOL_CHOICES[kind]
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False
    return chat


def _tool(tool: JsonObject | None, place: str) -> JsonObject | None:
    """A function; None for what Anthropic's servers would run themselves."""
    if tool is None:
        raise RequestError.invalid(f"Expected '{place}' to be an object", "tools")
    kind = tool.get("type")
    if kind not in (None, "custom") and "input_schema" not in tool:
        return None
    if not isinstance(tool.get("name"), str):
        raise RequestError.invalid(f"Missing tool name: {place}", "tools")
    function = {
        "name": tool["name"],
        "description": optional_string(tool, "description", f"{place}.description") or "",
        "parameters": optional_object(tool, "input_schema", f"{place}.input_schema") or {},
    }
    return {"type": "function", "function": function}


def _thinking(body: JsonObject) -> JsonObject:
    """How long the model may think; nothing is said of it where it may as it likes."""
    thinking = optional_object(body, "thinking") or {}
    match optional_string(thinking, "type", "thinking.type"):
        case "enabled":
            budget = thinking.get("budget_tokens", THINKING_BUDGET)
            if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
                raise wrong_type("thinking.budget_tokens", "a number of tokens")
            return {"thinking_budget_tokens": budget}
        case "disabled":
            kwargs = optional_object(body, "chat_template_kwargs") or {}
            return {"chat_template_kwargs": kwargs | {"enable_thinking": False}}
        case _:
            return {}


def _format(body: JsonObject) -> JsonObject:
    """Structured output, which stands in one of two places."""
    config = optional_object(body, "output_config") or {}
    wanted = optional_object(config, "format", "output_config.format")
    wanted = wanted or optional_object(body, "output_format")
    if not wanted or wanted.get("type") != "json_schema":
        return {}
    schema = optional_object(wanted, "schema", "output_config.format.schema") or {}
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
