"""What models of many families write, with the message that it is.

Each sample names one of the templates beside the models; its text is what such a model generates
after the prompt.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from schemas.output_format import OutputFormat
from services.engine.chat_request import ChatRequest
from services.engine.output_format.request import for_request
from services.engine.templates import Rendered, Templates, TokenNames
from services.streams.parsers import AnswerParser
from services.streams.parsers.deltas import CALLS, CONTENT, THOUGHTS, Delta
from tests.support.templates import AT_MS

FOLDER = Path(__file__).parents[1] / "models" / "templates"
SEED = "generation/0"
USER = {"role": "user", "content": "How is it?"}


def function(name: str, **properties: object) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    described = {"name": name, "description": "What it does", "parameters": schema}
    return {"type": "function", "function": described}


TOOLS = [
    function(
        "weather",
        city={"type": "string"},
        days={"type": "integer"},
        exact={"type": "boolean"},
        tags={"type": "array", "items": {"type": "string"}},
        at={"type": "object", "properties": {"hour": {"type": "integer"}}},
    ),
    function("clock", zone={"type": "string", "enum": ["UTC", "CET"]}),
    function("ping"),
]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """calls: name and arguments. body: what else the request says. has_tools: it offers TOOLS."""

    template: str
    text: str
    content: str = ""
    thoughts: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    has_tools: bool = True
    body: dict[str, Any] = field(default_factory=dict[str, Any])


WEATHER = ("weather", {"city": "Paris", "days": 3})
CLOCK = ("clock", {"zone": "UTC"})
PING = ("ping", {})
BOTH = (WEATHER, CLOCK)
_P = '{"city": "Paris", "days": 3}'
_Z = '{"zone": "UTC"}'
_NS = "]<]minimax[>["

SAMPLES = (
    Sample(template="hermes", text="Fine.", content="Fine."),
    Sample(template="hermes", text="<think>\nHm.\n</think>\n\nFine.", content="Fine.", thoughts="Hm."),
    Sample(
        template="hermes",
        text=f'<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{{"name": "weather", "arguments": {_P}}}\n</tool_call>'
        f'\n<tool_call>\n{{"name": "clock", "arguments": {_Z}}}\n</tool_call>',
        content="I look.", thoughts="Hm.", calls=BOTH,
    ),
    Sample(template="hermes", text='<tool_call>{"name": "ping", "arguments": {}}</tool_call>', calls=(PING,)),
    Sample(template="llama3", text=f'{{"name": "weather", "parameters": {_P}}}', calls=(WEATHER,)),
    Sample(template="llama3", text='{"city": "Paris"} is no call', content='{"city": "Paris"} is no call'),
    Sample(
        template="nemo",
        text=f'[TOOL_CALLS][{{"name": "weather", "arguments": {_P}, "id": "abcdefghi"}}, '
        f'{{"name": "clock", "arguments": {_Z}, "id": "123456789"}}]',
        calls=BOTH,
    ),
    Sample(
        template="named_args",
        text=f"Well.[TOOL_CALLS]weather[CALL_ID]abc[ARGS]{_P}[TOOL_CALLS]clock[ARGS]{_Z}",
        content="Well.", calls=BOTH,
    ),
    Sample(
        template="functions",
        text=f"<function=weather>{_P}</function><function=clock>{_Z}</function>", calls=BOTH,
    ),
    Sample(template="recipients", text="all\nFine.", content="Fine."),
    Sample(template="recipients", text=f"weather\n{_P}>>>clock\n{_Z}", calls=BOTH),
    Sample(template="recipients", text=f"all\nI look.>>>weather\n{_P}", content="I look.", calls=(WEATHER,)),
    Sample(
        template="command_r",
        text="<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Fine.<|END_RESPONSE|>",
        content="Fine.", thoughts="Hm.",
    ),
    Sample(
        template="command_r",
        text="<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n"
        f'    {{"tool_call_id": "0", "tool_name": "weather", "parameters": {_P}}},\n'
        f'    {{"tool_call_id": "1", "tool_name": "clock", "parameters": {_Z}}}\n]<|END_ACTION|>',
        thoughts="Hm.", calls=BOTH,
    ),
    Sample(
        template="fenced",
        text="Hm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
        f"```json\n{_P}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n"
        f"```json\n{_Z}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        thoughts="Hm.", calls=BOTH,
    ),
    Sample(template="fenced", text="Hm.\n</think>\n\nFine.", content="Fine.", thoughts="Hm."),
    Sample(
        template="dsml",
        text='Hm.</think>I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        content="I look.", thoughts="Hm.", calls=(WEATHER,),
    ),
    Sample(
        template="dsml", text="Fine.", content="Fine.",
        body={"chat_template_kwargs": {"enable_thinking": False}},
    ),
    Sample(
        template="tagged",
        text="I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
        '<parameter=at>\n{"hour": 9}\n</parameter>\n</function>\n</tool_call>',
        content="I look.",
        calls=(("weather", {"city": "Paris", "days": 3, "exact": True, "at": {"hour": 9}}),),
    ),
    Sample(
        template="tagged",
        text="<function=clock>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</tool_call>",
        calls=(CLOCK,),
    ),
    Sample(
        template="tagged",
        text="<tool_call>\n<function=weather>\n<parameter=city>\n  a\n</parameter>b\n\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("weather", {"city": "  a\n</parameter>b\n"}),),
    ),
    Sample(template="tagged", text="<tool_call>\n<function=ping>\n</function>\n</tool_call>", calls=(PING,)),
    Sample(
        template="keyed",
        text="Hm.</think><tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
        "<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"
        "<tool_call>clock<arg_key>zone</arg_key><arg_value>UTC</arg_value></tool_call>",
        thoughts="Hm.", calls=BOTH,
    ),
    Sample(
        template="keyed", text="Fine.", content="Fine.",
        body={"chat_template_kwargs": {"enable_thinking": False}},
    ),
    Sample(
        template="numbered",
        text="<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
        f"{_P}<|tool_call_end|><|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{_Z}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        calls=BOTH,
    ),
    Sample(
        template="invoked",
        text='Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="clock">\n'
        '<parameter name="zone">UTC</parameter>\n</invoke>\n</minimax:tool_call>',
        thoughts="Hm.", calls=BOTH,
    ),
    Sample(
        template="quoted",
        text='<|channel>thought\nHm.<channel|><|tool_call>call:weather{city:<|"|>Paris, "here"<|"|>,days:3,'
        'tags:[<|"|>x<|"|>,<|"|>y<|"|>],at:{hour:9}}<tool_call|><|tool_call>call:ping{}<tool_call|>',
        thoughts="Hm.",
        calls=(("weather", {"city": 'Paris, "here"', "days": 3, "tags": ["x", "y"], "at": {"hour": 9}}), PING),
    ),
    Sample(
        template="keys",
        text=f'<|tools_prefix|>[{{"weather": {_P}}}, {{"clock": {_Z}}}]<|tools_suffix|>', calls=BOTH,
    ),
    Sample(
        template="pythonic",
        text="<think>Hm.</think>I look.<|tool_call_start|>[weather(city='Paris', days=3), "
        'clock(zone="UTC")]<|tool_call_end|>',
        content="I look.", thoughts="Hm.", calls=BOTH,
    ),
    Sample(
        template="pythonic",
        text="<think>Hm.</think><|tool_call_start|>[weather(city='L\\'Aquila \\\\ \"x\"\\n', exact=True, "
        "tags=[\"a\\\"b\", 'c'], at={\"hour\": 3})]<|tool_call_end|>",
        thoughts="Hm.",
        calls=(
            (
                "weather",
                {"city": "L'Aquila \\ \"x\"\n", "tags": ['a"b', "c"], "exact": True, "at": {"hour": 3}},
            ),
        ),
    ),
    Sample(
        template="turns",
        text="<|think|>Hm.<|end|><|begin|>assistant<|content|>Fine.", content="Fine.", thoughts="Hm.",
    ),
    Sample(
        template="turns",
        text="<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abc<|tool_call:name|>weather"
        f"<|tool_call:args|>{_P}<|tool_call:end|>",
        thoughts="Hm.", calls=(WEATHER,),
    ),
    Sample(
        template="channels",
        text="<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Fine.",
        content="Fine.", thoughts="Hm.",
    ),
    Sample(
        template="channels",
        text="<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        f"<|constrain|>json<|message|>{_P}",
        thoughts="Hm.", calls=(WEATHER,),
    ),
    Sample(template="channels", text=f" to=functions.clock<|channel|>analysis<|message|>{_Z}", calls=(CLOCK,)),
    Sample(
        template="addressed",
        text=" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Fine.",
        content="Fine.", thoughts="Hm.",
    ),
    Sample(
        template="addressed",
        text=' to=user<|message|>I look.<|eom|><|start|>assistant to=weather<|message|><atem:function_calls>\n'
        '<atem:invoke name="weather">\n<atem:parameter name="city">Paris</atem:parameter>\n'
        '<atem:parameter name="days">3</atem:parameter>\n</atem:invoke>\n</atem:function_calls>',
        content="I look.", calls=(WEATHER,),
    ),
    Sample(
        template="elements",
        text=f'<mm:think>Hm.</mm:think>{_NS}<tool_call>\n{_NS}<invoke name="weather">{_NS}<city>Paris{_NS}</city>'
        f"{_NS}<days>3{_NS}</days>{_NS}<tags>{_NS}<item>x{_NS}</item>{_NS}<item>y{_NS}</item>{_NS}</tags>"
        f"{_NS}<at>{_NS}<hour>9{_NS}</hour>{_NS}</at>{_NS}</invoke>\n{_NS}</tool_call>",
        thoughts="Hm.",
        calls=(("weather", {"city": "Paris", "days": 3, "tags": ["x", "y"], "at": {"hour": 9}}),),
    ),
    Sample(
        template="delimited",
        text=f'Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{{"name": "weather", "arguments": {_P}}}, '
        f'{{"name": "clock", "arguments": {_Z}}}]</tool_calls>',
        thoughts="Hm.", calls=BOTH,
    ),
    Sample(template="plain", text=" Fine. ", content=" Fine. ", has_tools=False),
    Sample(
        template="plain",
        text=f'I look.\n<tool_call>\n{{"name": "weather", "arguments": {_P}}}\n</tool_call>',
        content="I look.", calls=(WEATHER,),
    ),
)  # fmt: skip
NAMES = [f"{sample.template}-{number}" for number, sample in enumerate(SAMPLES)]


@cache
def templates_of(name: str) -> Templates:
    return Templates(
        chosen=(FOLDER / f"{name}.jinja").read_text(encoding="utf-8"),
        of_model={},
        tokens=TokenNames(bos="<s>", eos="</s>"),
        is_jinja=True,
        named=(),
        render_named=lambda _template, _pairs, _opens: None,
    )


def rendered(sample: Sample, **body: object) -> Rendered:
    given = {"messages": [USER], **({"tools": TOOLS} if sample.has_tools else {})}
    given |= {**sample.body, **body}
    return templates_of(sample.template).apply(given, AT_MS)


def chat_of(found: Rendered) -> ChatRequest:
    assert found.chat is not None
    return found.chat


def description_of(
    sample: Sample, *, reasoning_format: str = "auto", is_stream: bool = False, **body: object
) -> OutputFormat:
    """What the log says of the answer to a sample's request."""
    found = rendered(sample, **body)
    chat = chat_of(found)
    assert found.known is not None
    return for_request(
        found.known,
        tools=chat.tools,
        has_calls=bool(chat.tools) and chat.tool_choice != "none",
        prefix=found.answer,
        is_continued=chat.is_continued,
        reasoning_format=reasoning_format,
        is_stream=is_stream,
    )


def deltas_of(description: OutputFormat, pieces: Iterable[str], **options: bool) -> list[Delta]:
    parser = AnswerParser(description, seed=SEED, **options)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return [*deltas, *parser.close()]


@dataclass(kw_only=True)
class Message:
    """What deltas add up to. calls: id, name, arguments as text."""

    content: str = ""
    thoughts: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])

    @property
    def parsed_calls(self) -> list[tuple[str, Any]]:
        return [(name, json.loads(arguments)) for _, name, arguments in self.calls]


def message_of(deltas: Iterable[Delta]) -> Message:
    message = Message()
    for delta in deltas:
        if delta.field == CONTENT:
            message.content += delta.text
        elif delta.field == THOUGHTS:
            message.thoughts += delta.text
        else:
            assert delta.field == CALLS
            _add_call(message, delta)
    return message


def _add_call(message: Message, delta: Delta) -> None:
    if delta.head is not None:
        assert delta.call == len(message.calls), "calls are numbered in order"
        message.calls.append((delta.head.id, delta.head.name, ""))
    call_id, name, arguments = message.calls[delta.call]
    message.calls[delta.call] = (call_id, name, arguments + delta.text)


class FakeWords:
    """Knows three control tokens; the last ends a generation."""

    eog = (9,)

    def piece(self, token: int, *, special: bool = True) -> bytes:
        assert special
        return {9: b"<|bye|>"}[token]

    _ids = {"<tool_call>": (7,), "</tool_call>": (8,), "<think>": (9,)}  # noqa: RUF012

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        assert parse_special
        assert not add_special
        return self._ids.get(text, (1, 2))
