"""The tools of a chat: shape only; what a model makes of them is the template's matter."""

from typing import cast

from schemas.errors import RequestError
from services.gateway.dialects.fields import (
    JsonObject,
    as_list,
    as_object,
    optional_object,
    optional_string,
)

TOOL_CHOICES = ("auto", "none", "required")


def check_tools(value: object) -> bool:
    """Whether there are tools. Raises RequestError unless `value` is absent or a list of functions."""
    if value is None:
        return False
    tools = as_list(value)
    if tools is None:
        raise RequestError.invalid("Expected 'tools' to be an array", "tools")
    for number, tool in enumerate(tools):
        _check_tool(as_object(tool), f"tools[{number}]")
    return bool(tools)


def _check_tool(tool: JsonObject | None, place: str) -> None:
    if tool is None or tool.get("type") != "function":
        raise RequestError.invalid(f"Unsupported tool type: {place} is not a function", "tools")
    function = as_object(tool.get("function"))
    if function is None or not isinstance(function.get("name"), str):
        raise RequestError.invalid(f"Missing tool function or its name: {place}", "tools")
    optional_string(function, "description", f"{place}.function.description")
    optional_object(function, "parameters", f"{place}.function.parameters")


def tool_choice(value: object) -> object:
    """One of TOOL_CHOICES, or an object that names the function to be called. Raises RequestError."""
    if value is None:
        return "auto"
    if isinstance(value, dict):
        return _named(cast(JsonObject, value))
    if value not in TOOL_CHOICES:
        raise RequestError.invalid(
            f"Invalid tool_choice: use one of {', '.join(TOOL_CHOICES)}", "tool_choice"
        )
    return value


def _named(choice: JsonObject) -> JsonObject:
    function = optional_object(choice, "function", "tool_choice.function")
    if choice.get("type") != "function" or function is None:
        raise RequestError.invalid(
            "Invalid tool_choice: an object must be of the type function and name one",
            "tool_choice",
        )
    if optional_string(function, "name", "tool_choice.function.name") is None:
        raise RequestError.invalid("Missing tool_choice.function.name", "tool_choice")
    return choice
