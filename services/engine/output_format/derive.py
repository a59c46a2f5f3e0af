"""From a chat template to the description of what its model writes. Takes some tens of renderings."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from schemas.output_format import ARGUMENTS, ID, NAME, RAW, TEXT, Calls, OutputFormat, Part
from services.engine.messages import JsonObject
from services.engine.output_format.calls import calls_of
from services.engine.output_format.samples import Render, Samples
from services.engine.output_format.segments import first_tag
from services.engine.output_format.special import special_for
from services.engine.output_format.thoughts import content_of, header_of, thoughts_of

MIN_OPENING = 4


class Derived(NamedTuple):
    """thought_field: where the template reads thoughts of earlier turns, empty where it does not."""

    format: OutputFormat
    thought_field: str = ""


def derive(
    source: str, render: Render, prepare: Callable[[list[JsonObject]], list[JsonObject]]
) -> Derived:
    """What the model of this template writes. A template that renders nothing gives plain text."""
    samples = Samples(render, prepare)
    header = header_of(samples)
    if header is None:
        return Derived(special_for(source, OutputFormat()))
    thoughts = thoughts_of(samples, header, source)
    content, turn = content_of(samples, header, thoughts)
    content_end = first_tag(header.ending).strip() if content else ""
    calls = calls_of(samples, header, (thoughts.start, thoughts.end, content, content_end))
    found = OutputFormat(
        thought_start=thoughts.start,
        thought_end=thoughts.end,
        content_starts=(content,) if content else (),
        content_end=content_end,
        turns=(turn,) if turn else (),
        has_many_thoughts=bool(turn) or _is_special(thoughts.start),
        calls=None if calls is None else _with_variants(calls, source),
    )
    return Derived(special_for(source, found), thoughts.field)


def _is_special(marker: str) -> bool:
    """Whether a marker looks like a control token, which nobody writes as text."""
    return any(sign in marker for sign in ("<|", "|>", "<｜"))


def _with_variants(calls: Calls, source: str) -> Calls:
    """The pattern, and what models also write: no outer tag in front of the inner one, no id."""
    pattern = calls.patterns[0]
    others = (_without_outer_tag(calls), _without_id(pattern))
    how = calls.parameters
    is_tagged = how is not None and how.notation == RAW
    opening = calls.start + pattern[0].text
    has_arguments = any(part.kind == ARGUMENTS for part in pattern)
    return replace(
        calls,
        patterns=(pattern, *(other for other in others if other)),
        cuts_thoughts=is_tagged or (has_arguments and _is_special(opening)),
        parameters=None if how is None else replace(how, has_cdata="<![CDATA[" in source),
    )


def _without_outer_tag(calls: Calls) -> tuple[Part, ...]:
    first, *rest = calls.patterns[0]
    tag = first_tag(first.text)
    inner = first.text.removeprefix(tag).strip()
    if calls.parameters is None or not tag or len(inner) < MIN_OPENING:
        return ()
    return (Part(kind=TEXT, text=inner), *rest)


def _without_id(pattern: tuple[Part, ...]) -> tuple[Part, ...]:
    """An id between the name and the arguments, and the text in front of it, may be missing."""
    kinds = [part.kind for part in pattern]
    at = kinds.index(ID) if ID in kinds else 0
    if at < 2 or kinds[at - 2 : at] != [NAME, TEXT] or at + 1 == len(kinds):
        return ()
    return (*pattern[: at - 1], *pattern[at + 1 :])
