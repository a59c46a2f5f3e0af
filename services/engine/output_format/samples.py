"""Sample chats that a template is made to render, and what it writes for the assistant's turn."""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from services.engine.messages import JsonObject

ASKED = "Questionmark7"
SAID = "Saidmark7"
THOUGHT = "Thoughtmark7"
THOUGHT_FIELDS = ("reasoning_content", "thinking", "reasoning", "parts")
"""Where templates look for thoughts; parts: a part of the content."""

Render = Callable[[JsonObject], str | None]
"""Renders a template with these variables; None where it fails."""


class SampleCall(NamedTuple):
    """A call whose parts can be found again in a rendered text."""

    name: str
    id: str
    arguments: dict[str, Any]


FIRST = SampleCall("firstfunc", "call00001", {"alphakey": "valueone", "betakey": "valuetwo"})
SECOND = SampleCall("otherfunc", "call00002", {"alphakey": "valuethree", "betakey": "valuefour"})
TYPED = SampleCall(
    "firstfunc",
    "call00001",
    {
        "keystring": "valueone",
        "keyinteger": 71,
        "keynumber": 7.5,
        "keyboolean": True,
        "keynull": None,
        "keyarray": [72],
        "keyobject": {"inner": 73},
        "keylast": "valuetwo",
    },
)


class Samples:
    """Sample chats of one template. prepare: gives messages the form that the template takes.

    Every text is what stands after the user's question; None: the template cannot render it.
    """

    def __init__(
        self, render: Render, prepare: Callable[[list[JsonObject]], list[JsonObject]]
    ) -> None:
        self._render = render
        self._prepare = prepare

    def opening(self, *, thinks: bool = True, has_tools: bool = False) -> str | None:
        """What opens the assistant's turn."""
        return self._text([], has_tools=has_tools, opens=True, thinks=thinks)

    def said(self, *, has_tools: bool = False) -> str | None:
        """An answer of content only."""
        return self._text([_answer(SAID)], has_tools=has_tools)

    def said_before(self) -> str | None:
        """The same, in a turn that others follow."""
        return self._text([_answer(SAID), {"role": "user", "content": "And then?"}])

    def thought(self, field: str, content: str = SAID) -> str | None:
        """An answer of thoughts and content. field: one of THOUGHT_FIELDS."""
        return self._text([_with_thoughts(_answer(content), field)])

    def called(self, *calls: SampleCall, field: str = "", id_suffix: str = "") -> str | None:
        """An answer of calls, and of thoughts where a field for them is named."""
        answer = _answer("")
        answer["tool_calls"] = [_call(call, id_suffix) for call in calls]
        answer = _with_thoughts(answer, field) if field else answer
        return self._text([answer], has_tools=True)

    def _prepared(self, messages: list[JsonObject]) -> list[JsonObject]:
        """Parts that hold thoughts stay as they are: the template takes them, or it fails."""
        parts = [isinstance(message["content"], list) for message in messages]
        if not any(parts):
            return self._prepare(messages)
        shaped = self._prepare([message | {"content": ""} for message in messages])
        return [
            new | {"content": old["content"]} for new, old in zip(shaped, messages, strict=True)
        ]

    def _text(
        self,
        answer: list[JsonObject],
        *,
        has_tools: bool = False,
        opens: bool = False,
        thinks: bool = True,
    ) -> str | None:
        try:
            messages = self._prepared([{"role": "user", "content": ASKED}, *answer])
        except Exception:  # whatever a template's workarounds cannot shape
            return None
        variables: JsonObject = {"messages": messages, "enable_thinking": thinks}
        if has_tools:
            variables["tools"] = _tools()
        if opens:
            variables["add_generation_prompt"] = True
        text = self._render(variables)
        if text is None or ASKED not in text:
            return None
        return text.rpartition(ASKED)[2]


def _answer(content: str) -> JsonObject:
    return {"role": "assistant", "content": content}


def _with_thoughts(answer: JsonObject, field: str) -> JsonObject:
    if field != "parts":
        return answer | {field: THOUGHT}
    parts = [{"type": "thinking", "thinking": THOUGHT}]
    if answer["content"]:
        parts.append({"type": "text", "text": answer["content"]})
    return answer | {"content": parts}


def _call(call: SampleCall, id_suffix: str) -> JsonObject:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id + id_suffix, "type": "function", "function": function}


def _tools() -> list[JsonObject]:
    return [_tool(call.name, TYPED.arguments | FIRST.arguments) for call in (FIRST, SECOND)]


def _tool(name: str, keys: Iterable[str]) -> JsonObject:
    properties = {key: {"type": "string", "description": "A value"} for key in keys}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": "A function", "parameters": parameters}
    return {"type": "function", "function": function}
