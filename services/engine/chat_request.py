"""What of a chat's body decides the prompt. Pure."""

from dataclasses import dataclass
from typing import Any, cast

from schemas.errors import RequestError
from services.engine.constraints import schema_of
from services.engine.messages import JsonObject, read_messages, read_tools

TOOL_CHOICES = ("auto", "none", "required")
_CONTINUED_FIELDS = ("content", "reasoning_content")


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """continues: None, or which field of the last message the answer goes on with: "auto", "content"
    or "reasoning_content". is_continued: that was asked for, so the client knows the beginning.
    kwargs: further variables of the template. named_tool: the one that must be called.
    parallel_tool_calls: None where the template's ability decides. schema: of a JSON answer."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    tool_choice: str
    add_generation_prompt: bool
    enable_thinking: bool
    continues: str | None
    kwargs: JsonObject
    is_continued: bool = False
    named_tool: str = ""
    parallel_tool_calls: bool | None = None
    schema: JsonObject | None = None

    def turns_and_answer(self) -> tuple[list[JsonObject], JsonObject | None]:
        """The closed turns, and the message that the answer continues."""
        if self.continues is None or not self.messages:
            return self.messages, None
        return self.messages[:-1], self.messages[-1]

    @property
    def continues_reasoning(self) -> bool:
        if self.continues != "auto":
            return self.continues == "reasoning_content"
        last = self.messages[-1]
        return bool(last.get("reasoning_content")) and not last["content"]


def read_chat(body: JsonObject, *, prefill_assistant: bool) -> ChatRequest:
    """Read and check. prefill_assistant: a last assistant message is continued without being asked.

    Raises RequestError naming the property at fault.
    """
    messages = read_messages(body.get("messages"))
    opens = _boolean(body, "add_generation_prompt", default=True)
    continues = _continuation(body.get("continue_final_message"))
    if continues is not None and opens:
        raise RequestError.invalid(
            "Cannot set both add_generation_prompt and continue_final_message to true.",
            "continue_final_message",
        )
    is_continued = continues is not None
    if continues is None and prefill_assistant and _ends_with_answer(messages):
        continues, opens = "auto", False
    if continues is not None and messages and messages[-1].get("tool_calls"):
        raise RequestError.invalid(
            "Cannot continue an assistant message that contains tool calls.", "messages"
        )
    kwargs, thinks = _kwargs(body)
    tools = read_tools(body.get("tools"))
    choice, named = _tool_choice(body.get("tool_choice"), tools)
    return ChatRequest(
        messages=messages,
        tools=tools,
        tool_choice=choice,
        named_tool=named,
        parallel_tool_calls=_parallel(body),
        add_generation_prompt=opens,
        enable_thinking=thinks,
        continues=continues,
        is_continued=is_continued,
        kwargs=kwargs,
        schema=schema_of(body),
    )


def _boolean(body: JsonObject, name: str, *, default: bool) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError.invalid(f"Field '{name}': expected a boolean", name)
    return value


def _continuation(value: object) -> str | None:
    if value is True:
        return "auto"
    return value if isinstance(value, str) and value in _CONTINUED_FIELDS else None


def _ends_with_answer(messages: list[JsonObject]) -> bool:
    if not messages or messages[-1]["role"] != "assistant":
        return False
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise RequestError.invalid(
            "Cannot have 2 or more assistant messages at the end of the list.", "messages"
        )
    return True


def _parallel(body: JsonObject) -> bool | None:
    if body.get("parallel_tool_calls") is None:
        return None
    return _boolean(body, "parallel_tool_calls", default=True)


def _tool_choice(value: object, tools: list[JsonObject]) -> tuple[str, str]:
    """auto, none or required, and the function that it names: required, too."""
    if value is None:
        return "auto", ""
    if isinstance(value, dict):
        return "required", _named_tool(cast("JsonObject", value), tools)
    if value not in TOOL_CHOICES:
        raise RequestError.invalid(
            f"Field 'tool_choice': use one of {', '.join(TOOL_CHOICES)}", "tool_choice"
        )
    return cast("str", value), ""


def _named_tool(choice: JsonObject, tools: list[JsonObject]) -> str:
    function: Any = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if any(tool["function"]["name"] == name for tool in tools):
        return str(name)
    raise RequestError.invalid(
        "Field 'tool_choice': it must name one of the functions in 'tools'", "tool_choice"
    )


def _kwargs(body: JsonObject) -> tuple[JsonObject, bool]:
    """Variables of the template, and whether the model may think."""
    given: Any = body.get("chat_template_kwargs")
    if given is not None and not isinstance(given, dict):
        raise RequestError.invalid(
            "Field 'chat_template_kwargs': expected an object", "chat_template_kwargs"
        )
    kwargs: JsonObject = dict(cast(JsonObject, given or {}))
    thinks = _boolean(kwargs, "enable_thinking", default=True)
    kwargs.pop("messages", None)
    effort = body.get("reasoning_effort")
    if effort == "none":
        thinks = False
        kwargs.pop("reasoning_effort", None)
        kwargs.pop("enable_thinking", None)
    elif isinstance(effort, str) and effort:
        kwargs["reasoning_effort"] = effort
    return kwargs, thinks
