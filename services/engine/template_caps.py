"""What a chat template can do, found by rendering small chats and watching what it touches.

The questions are those of llama.cpp's capability analysis (`chat_template_caps` in `/props`): values
that note when they are read stand in the place of contents, tools and arguments.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from jinja2 import Template

from services.engine.sandbox import ChatEnvironment, render_bounded
from services.engine.template_bounds import budget, to_json

Render = Callable[[dict[str, Any]], str | None]
_MARKER = "STRING_MARKER"
_REASONING = "<REASONING_CONTENT_PLACEHOLDER>"
_USER = {"role": "user", "content": "User message"}


@dataclass(frozen=True, kw_only=True)
class Caps:
    """llama.cpp's names and defaults."""

    supports_string_content: bool = True
    supports_typed_content: bool = False
    supports_tools: bool = True
    supports_tool_calls: bool = True
    supports_parallel_tool_calls: bool = True
    supports_system_role: bool = True
    supports_preserve_reasoning: bool = False
    supports_reasoning_effort: bool = False
    supports_object_arguments: bool = False

    def as_dict(self) -> dict[str, bool]:
        return asdict(self)


class NotedText(str):
    """A text that notes whether it was read, and whether as a list of parts."""

    __slots__ = ("is_iterated", "is_read", "is_tested")

    def __new__(cls, text: str) -> "NotedText":
        noted = super().__new__(cls, text)
        noted.is_read = noted.is_iterated = noted.is_tested = False
        return noted

    def __iter__(self) -> Iterator[str]:
        self.is_iterated = True
        return super().__iter__()

    def __getitem__(self, key: Any) -> str:
        self.is_iterated = self.is_iterated or isinstance(key, int)
        return super().__getitem__(key)


class NotedWord(str):
    """A word that notes whether it was compared or changed."""

    is_read = False
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.is_read = True
        return super().__eq__(other)

    def __str__(self) -> str:
        self.is_read = True
        return super().__str__()

    def lower(self) -> str:
        self.is_read = True
        return super().lower()


class NotedList(list[Any]):
    """A list that notes whether its items were looked at."""

    is_iterated = False

    def __iter__(self) -> Iterator[Any]:
        self.is_iterated = True
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        self.is_iterated = True
        return super().__getitem__(key)


class NotedDict(dict[str, Any]):
    """A map that notes which of its keys were read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __repr__(self) -> str:
        self.read.update(self)
        return super().__repr__()

    def items(self) -> Any:
        self.read.update(self)
        return super().items()

    def values(self) -> Any:
        self.read.update(self)
        return super().values()


class ProbeEnvironment(ChatEnvironment):
    """Notes `is string`, which templates that take both kinds of content ask."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for_string = False
        self.tests["string"] = self._is_string
        self.filters["tojson"] = cast("Any", _noted_to_json)

    def _is_string(self, value: object) -> bool:
        self.asked_for_string = True
        return isinstance(value, str)


def _noted_to_json(value: Any, *args: Any, **kwargs: Any) -> str:
    """Writing a list as JSON is not going through its parts."""
    text = to_json(value, *args, **kwargs)
    if isinstance(value, NotedList):
        value.is_iterated = False
    return text


def probe(source: str) -> Caps:
    """The capabilities of a template. Takes up to `MAX_RENDER_S` for a bad one.

    Raises what Jinja raises for source that does not parse.
    """
    environment = ProbeEnvironment()
    render = _renderer(environment.from_string(source))
    with budget():
        return _probed(environment, render)


def _probed(environment: ProbeEnvironment, render: Render) -> Caps:
    caps = _content_caps(Caps(), environment, render)
    caps = replace(caps, supports_system_role=_reads_system(render))
    caps = _tool_caps(caps, render)
    return replace(
        caps,
        supports_preserve_reasoning=_keeps_reasoning(render),
        supports_reasoning_effort=_reads_effort(render),
    )


def _renderer(template: Template) -> Render:
    """Renders variables over a probe's common ones; None where the template fails."""

    def render(variables: dict[str, Any]) -> str | None:
        common: dict[str, Any] = {"tools": [], "bos_token": "", "eos_token": ""}
        common.update(add_generation_prompt=True, strftime_now=_no_time)
        try:
            return render_bounded(template, common | variables)
        except Exception:  # a probe may fail in any way that templates can
            return None

    return render


def _no_time(_: str) -> str:
    return "01 Jan 1970"


def _content_caps(caps: Caps, environment: ProbeEnvironment, render: Render) -> Caps:
    text = NotedText(_MARKER)
    rendered = render({"messages": [{"role": "user", "content": text}]})
    is_typed, is_string = text.is_iterated, rendered is not None
    if rendered is not None and text.is_iterated:
        is_string = _MARKER in rendered
    if environment.asked_for_string:
        parts = NotedList()
        rendered = render({"messages": [{"role": "user", "content": parts}]})
        is_typed = is_typed or (parts.is_iterated and rendered is not None)
    return replace(caps, supports_typed_content=is_typed, supports_string_content=is_string)


def _reads_system(render: Render) -> bool:
    system = NotedDict(role="system", content="System message")
    render({"messages": [system, _USER]})
    return "content" in system.read


def _tool_caps(caps: Caps, render: Render) -> Caps:
    first = _try_tools(render, {"arg": "value"}, n_calls=1)
    is_object = first.is_rendered and first.reads_argument
    if not is_object:
        first = _try_tools(render, '{"arg": "value"}', n_calls=1)
    several = _try_tools(render, {"arg": "value"} if is_object else '{"arg": "value"}', n_calls=2)
    return replace(
        caps,
        supports_object_arguments=is_object,
        supports_tools=first.is_rendered and first.reads_tool,
        supports_tool_calls=first.is_rendered and first.reads_calls,
        supports_parallel_tool_calls=several.is_rendered and several.reads_last_call,
    )


@dataclass(frozen=True, kw_only=True)
class _Tried:
    is_rendered: bool
    reads_tool: bool
    reads_calls: bool
    reads_last_call: bool
    reads_argument: bool


def _try_tools(render: Render, arguments: "str | dict[str, str]", *, n_calls: int) -> _Tried:
    function = NotedDict(name="tool1", description="Tool description", parameters=_PARAMETERS)
    tool = NotedDict(type="function", function=function)
    noted = arguments if isinstance(arguments, str) else NotedDict(arguments)
    calls = [_call(number, noted) for number in range(n_calls)]
    answer = NotedDict(role="assistant", content="", tool_calls=calls)
    rendered = render({"messages": _tool_chat(answer), "tools": [tool]})
    return _Tried(
        is_rendered=rendered is not None,
        reads_tool="name" in function.read,
        reads_calls="tool_calls" in answer.read,
        reads_last_call="function" in calls[-1].read,
        reads_argument=isinstance(noted, NotedDict) and "arg" in noted.read,
    )


_PARAMETERS = {
    "type": "object",
    "properties": {"arg": {"type": "string", "description": "Arg description"}},
    "required": ["arg"],
}


def _call(number: int, arguments: object) -> NotedDict:
    function = NotedDict(name="tool1", arguments=arguments)
    return NotedDict(id=f"call{number + 1:05}", type="function", function=function)


def _tool_chat(answer: NotedDict) -> list[dict[str, Any]]:
    tool = {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"}
    last = {"role": "assistant", "content": "The tool response was 'tool response'"}
    return [_USER, answer, tool, last, _USER]


def _keeps_reasoning(render: Render) -> bool:
    first = {"role": "assistant", "content": "Assistant message", "reasoning_content": _REASONING}
    second = first | {"reasoning_content": "Reasoning content"}
    chat = {"messages": [_USER, first, _USER, second, _USER], "enable_thinking": True}
    return _REASONING in (render(chat | preserve_reasoning(is_kept=True)) or "")


def _reads_effort(render: Render) -> bool:
    level = NotedWord("EFFORT_MARKER")
    chat = {"messages": [_USER], "enable_thinking": True}
    return level in (render(chat | reasoning_effort(level)) or "") or level.is_read


def preserve_reasoning(*, is_kept: bool) -> dict[str, bool]:
    """The variables by which templates are told to keep the thoughts of earlier turns."""
    return {
        "preserve_thinking": is_kept,
        "clear_thinking": not is_kept,
        "truncate_history_thinking": not is_kept,
        "drop_thinking": not is_kept,
    }


def reasoning_effort(level: str) -> dict[str, str]:
    """The variables by which templates are told how much to think."""
    return {"reasoning_effort": level, "reasoning_strength": level}
