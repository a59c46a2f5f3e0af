"""The tools of a chat: shape only; what a model makes of them is the template's matter."""

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


def tool_choice(value: object) -> str:
    """One of TOOL_CHOICES; as in llama-server, an object that names a function counts as auto."""
    if value is None or isinstance(value, dict):
        return "auto"
    if value not in TOOL_CHOICES:
        raise RequestError.invalid(
            f"Invalid tool_choice: use one of {', '.join(TOOL_CHOICES)}", "tool_choice"
        )
    return str(value)
