"""The few templates that comparing cannot read, known by words that only they have. Data.

Formats whose parts are messages with headers (channels), whose values are nested tags, or whose
templates never show a call.
"""

from typing import NamedTuple

from msgspec.structs import replace

from schemas.output_format import (
    ANY,
    ARGUMENTS,
    ELEMENTS,
    INDEX,
    KEY,
    NAME,
    OBJECT,
    PARAMETERS,
    PYTHON,
    TEXT,
    TYPE,
    Calls,
    OutputFormat,
    Parameters,
    Part,
)


def _parts(*words: str) -> tuple[Part, ...]:
    """Texts, and kinds of parts in capitals."""
    kinds = {
        kind.upper(): kind for kind in (NAME, KEY, TYPE, INDEX, ANY, ARGUMENTS, OBJECT, PARAMETERS)
    }
    return tuple(
        Part(kind=kinds[word]) if word in kinds else Part(kind=TEXT, text=word) for word in words
    )


class Special(NamedTuple):
    """words: all of them stand in the template, none of `others` does. format: what its model writes;
    fields that it leaves empty are derived. only_if_no_calls: calls that comparing found are better."""

    words: tuple[str, ...]
    format: OutputFormat
    others: tuple[str, ...] = ()
    only_if_no_calls: bool = False


_M3 = "]<]minimax[>["
_PYTHONIC = Calls(
    start="<|tool_call_start|>[",
    end="]<|tool_call_end|>",
    separator=", ",
    patterns=(_parts("NAME", "(", "PARAMETERS", ")"),),
    parameters=Parameters(head=_parts("KEY", "="), separator=", ", notation=PYTHON),
)

SPECIALS = (
    Special(
        ("<|channel|>", "analysis", "commentary"),
        OutputFormat(
            thought_start="<|channel|>analysis<|message|>",
            thought_end="<|end|>",
            content_starts=(
                "<|channel|>final<|message|>",
                "<|channel|>final <|constrain|>json<|message|>",
                "<|channel|>commentary<|message|>",
            ),
            content_end="<|end|>",
            turns=("<|start|>assistant", "<|channel|>commentary to=assistant", "<|return|>"),
            has_many_thoughts=True,
            calls=Calls(
                patterns=(
                    _parts(
                        "<|channel|>commentary to=functions.", "NAME", " <|constrain|>json<|message|>",
                        "ARGUMENTS",
                    ),
                    _parts(
                        "<|channel|>commentary to=functions.", "NAME", "ANY", "<|message|>",
                        "ARGUMENTS",
                    ),
                    _parts(
                        "<|channel|>analysis to=functions.", "NAME", "ANY", "<|message|>",
                        "ARGUMENTS",
                    ),
                    _parts(
                        " to=functions.", "NAME", "<|channel|>", "ANY", "<|message|>",
                        "ARGUMENTS",
                    ),
                ),
                separator="<|start|>assistant",
                is_parallel=False,
            ),
        ),
    ),
    Special(
        ("<|open|>", "<|close|>", "<|sep|>"),
        OutputFormat(
            thought_start="<|open|>think<|sep|>",
            thought_end="<|close|>think<|sep|>",
            content_starts=("<|open|>response<|sep|>",),
            content_end="<|close|>response<|sep|>",
            turns=("<|close|>message<|sep|>", "<|end_of_msg|>", '<|open|>message role="assistant"<|sep|>'),
            calls=Calls(
                start="<|open|>tools<|sep|>",
                end="<|close|>tools<|sep|><|close|>message<|sep|>",
                patterns=(
                    _parts(
                        '<|open|>call tool="', "NAME", '" index="', "INDEX", '"<|sep|>',
                        "PARAMETERS", "<|close|>call<|sep|>",
                    ),
                    _parts(
                        '<|open|>call tool="', "NAME", '"', "ANY", "<|sep|>",
                        "PARAMETERS", "<|close|>call<|sep|>",
                    ),
                ),
                parameters=Parameters(
                    head=_parts('<|open|>argument key="', "KEY", '" type="', "TYPE", '"<|sep|>'),
                    tail="<|close|>argument<|sep|>",
                    types={
                        "string": "string", "integer": "number", "number": "number",
                        "boolean": "boolean", "null": "null", "array": "array", "object": "object",
                    },
                ),
            ),
        ),
    ),
    Special(
        (_M3, "<invoke name="),
        OutputFormat(
            thought_start="<mm:think>",
            thought_end="</mm:think>",
            calls=Calls(
                start=f"{_M3}<tool_call>\n",
                end=f"{_M3}</tool_call>",
                separator="\n",
                patterns=(
                    _parts(f'{_M3}<invoke name="', "NAME", '">', "PARAMETERS", f"{_M3}</invoke>"),
                ),
                parameters=Parameters(
                    head=_parts(f"{_M3}<", "KEY", ">"), notation=ELEMENTS, namespace=_M3
                ),
            ),
        ),
    ),
    Special(
        ("Write your thoughts between <think></think>", "<response></response>"),
        OutputFormat(
            thought_start="<think>",
            thought_end="</think>",
            content_starts=("<response>",),
            content_end="</response>",
            calls=Calls(
                start="<|tool_call|>[",
                end="]",
                separator=", ",
                patterns=(_parts("OBJECT"),),
                name_keys=("name",),
                arguments_keys=("arguments",),
            ),
        ),
    ),
    Special(("<|tool_list_start|>",), OutputFormat(calls=_PYTHONIC), only_if_no_calls=True),
    Special(("List of tools: [",), OutputFormat(calls=_PYTHONIC), only_if_no_calls=True),
)  # fmt: skip


def special_for(source: str, derived: OutputFormat) -> OutputFormat:
    """What is known of this template better than by comparing; else what was derived."""
    for special in SPECIALS:
        is_meant = all(word in source for word in special.words)
        if is_meant and not (special.only_if_no_calls and derived.calls is not None):
            return _merged(derived, special.format)
    return derived


def _merged(derived: OutputFormat, known: OutputFormat) -> OutputFormat:
    names = known.__struct_fields__
    default = OutputFormat()
    changed = {
        name: getattr(known, name)
        for name in names
        if getattr(known, name) != getattr(default, name)
    }
    return replace(derived, **changed)
