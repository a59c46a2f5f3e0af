"""Tools for models whose templates know none: they are described in the system message."""

import json

from schemas.errors import RequestError
from services.engine.messages import JsonObject, text_of

_HOW = """\
You can call functions. These are their descriptions, one JSON object per line:
{tools}
To call one, write this and nothing after it, with the arguments that its parameters ask for:
<tool_call>
{{"name": "the function's name", "arguments": {{}}}}
</tool_call>
When no function is of use, answer in plain text."""


def with_instructions(messages: list[JsonObject], tools: list[JsonObject]) -> list[JsonObject]:
    """The messages with what the model must know to call functions, in front of what it is told.

    Raises RequestError for tools that are nested too deeply.
    """
    try:
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    except RecursionError as error:
        raise RequestError.invalid("the tools are nested too deeply", "tools") from error
    text = _HOW.format(tools=lines)
    if messages and messages[0]["role"] == "system":
        first = messages[0] | {"content": f"{text_of(messages[0])}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
