"""How a template writes tool calls: one call and two calls are rendered and compared. Pure."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from schemas.output_format import (
    ANY,
    ARGUMENTS,
    ID,
    INDEX,
    NAME,
    OBJECT,
    PARAMETERS,
    QUOTED,
    TEXT,
    Calls,
    Parameters,
    Part,
)
from services.engine.output_format.arguments import parameters_in
from services.engine.output_format.objects import Keys, find_object, keys_of
from services.engine.output_format.samples import FIRST, SECOND, TYPED, SampleCall, Samples
from services.engine.output_format.segments import (
    common_prefix,
    common_suffix,
    is_tag,
    split,
    without_any,
)
from services.engine.output_format.thoughts import Header


class Core(NamedTuple):
    """One call in a text, from its first telling part to its last. parts: what it is made of."""

    start: int
    end: int
    parts: tuple[Part, ...]
    keys: Keys | None = None
    parameters: Parameters | None = None
    quote: str = ""


def calls_of(samples: Samples, header: Header, markers: Iterable[str]) -> Calls | None:
    """The calls of a template, None if it shows none. markers: of thoughts and content, which may
    stand in front of calls."""
    text = samples.called(FIRST)
    first = None if text is None else find_call(text, FIRST, samples)
    if text is None or first is None:
        return None
    calls = _described(first, samples)
    two = samples.called(FIRST, SECOND)
    both = (
        None if two is None else (find_call(two, FIRST, samples), find_call(two, SECOND, samples))
    )
    clean = _Cleaner(header, tuple(markers))
    if two is None or both is None or both[0] is None or both[1] is None:
        start, end = clean.before(text[: first.start]), clean.behind(text[first.end :])
        return _with_texts(replace(calls, is_parallel=False), first, start, end)
    return _compared(calls, two, both[0], both[1], clean)


def find_call(text: str, call: SampleCall, samples: Samples) -> Core | None:
    """Where a sample call stands in a text: as an object, before an object, or before parameters."""
    is_call = partial(_is_call, call)
    arguments = find_object(text, lambda found: found == call.arguments)
    if arguments is not None:
        whole = find_object(text, is_call, before=arguments.start)
        if whole is not None and whole.end >= arguments.end:
            part = (Part(kind=OBJECT),)
            return Core(whole.start, whole.end, part, keys_of(whole.value, call))
        return _pattern(text, call, (arguments.start, arguments.end), ARGUMENTS)
    encoded = find_object(text, is_call)
    if encoded is not None:
        return Core(encoded.start, encoded.end, (Part(kind=OBJECT),), keys_of(encoded.value, call))
    return _written_out(text, call, samples)


def _is_call(call: SampleCall, value: dict[str, Any]) -> bool:
    return keys_of(value, call) is not None


def _written_out(text: str, call: SampleCall, samples: Samples) -> Core | None:
    at = text.find(call.name)
    if at < 0:
        return None
    written = parameters_in(text[at:], samples.called(TYPED), call)
    if written is None:
        return None
    core = _pattern(text, call, (at + written.start, at + written.end), PARAMETERS)
    return core if core is None else core._replace(parameters=written.how, quote=written.quote)


def _pattern(text: str, call: SampleCall, arguments: tuple[int, int], kind: str) -> Core | None:
    """The call as parts: name, id and arguments, and the texts between them."""
    places = [(*arguments, kind)]
    for word, word_kind in ((call.name, NAME), (call.id, ID)):
        for match in re.finditer(re.escape(word), text):
            if not arguments[0] <= match.start() < arguments[1]:
                places.append((*match.span(), word_kind))
    places.sort()
    if all(place[2] != NAME for place in places):
        return None
    parts: list[Part] = []
    pos = places[0][0]
    for start, end, place_kind in places:
        if start > pos:
            parts.append(Part(kind=TEXT, text=text[pos:start]))
        parts.append(Part(kind=place_kind))
        pos = end
    return Core(places[0][0], places[-1][1], tuple(parts))


def _described(core: Core, samples: Samples) -> Calls:
    """What one call says of all."""
    has_any_id = samples.called(FIRST, id_suffix="0123456789") is not None
    kinds = [part.kind for part in core.parts]
    calls = Calls(
        patterns=(core.parts,),
        parameters=core.parameters,
        id_chars=0 if has_any_id else len(FIRST.id),
        has_late_id=ID in kinds and kinds.index(ID) > _last_of(kinds, (ARGUMENTS, PARAMETERS)),
    )
    if core.keys is not None:
        keys = core.keys
        calls = replace(
            calls,
            name_keys=keys.name,
            arguments_keys=keys.arguments,
            id_keys=keys.id,
            has_late_id=keys.has_late_id,
            id_is_number=keys.id_is_number,
        )
    return calls


def _last_of(kinds: list[str], wanted: tuple[str, ...]) -> int:
    return max((number for number, kind in enumerate(kinds) if kind in wanted), default=len(kinds))


def _compared(calls: Calls, text: str, first: Core, second: Core, clean: "_Cleaner") -> Calls:
    """Two calls in one text tell what belongs to each of them and what stands around all."""
    before = clean.before(text[: first.start])
    between, behind = text[first.end : second.start], clean.behind(text[second.end :])
    opening = _marker(common_suffix(before, between))
    between = between.removesuffix(opening)
    closing = _marker(common_prefix(between, behind))
    core = first._replace(parts=_with_index(first.parts, second.parts))
    separator = between.removeprefix(closing)
    if not opening and separator.strip() and clean.header.opened.endswith(separator.strip()):
        opening, separator = separator, ""  # the turn's opening holds that of the first call
    calls = replace(
        calls,
        start=before.removesuffix(opening),
        separator=separator,
        end=behind.removeprefix(closing),
        id_parts=_id_parts(opening, core.parts),
    )
    return _with_texts(calls, core, opening, closing)


def _marker(text: str) -> str:
    return text if text.strip() else ""


def _with_texts(calls: Calls, core: Core, opening: str, closing: str) -> Calls:
    """The pattern with what stands before and behind each call."""
    around = [Part(kind=TEXT, text=text) for text in (opening, closing)]
    first, last = ((part,) if part.text.strip() else () for part in around)
    pattern = (*first, *core.parts, *last)
    calls = replace(calls, patterns=(pattern,))
    if core.parameters is not None and core.quote and core.parameters.notation == QUOTED:
        return _as_object(calls, core)
    return calls


def _as_object(calls: Calls, core: Core) -> Calls:
    """Bare keys and quotes of the model's own between braces are one object in another notation."""
    return replace(
        calls,
        patterns=tuple(_braced(pattern) for pattern in calls.patterns),
        parameters=None,
        notation=QUOTED,
        quote=core.quote,
    )


def _braced(pattern: tuple[Part, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for number, part in enumerate(pattern):
        text = part.text
        if (
            part.kind == TEXT
            and number + 1 < len(pattern)
            and pattern[number + 1].kind == PARAMETERS
        ):
            text = text.removesuffix("{")
        elif part.kind == TEXT and number and pattern[number - 1].kind == PARAMETERS:
            text = text.removeprefix("}")
        kind = ARGUMENTS if part.kind == PARAMETERS else part.kind
        if kind != TEXT or text:
            parts.append(Part(kind=kind, text=text))
    return tuple(parts)


def _with_index(first: tuple[Part, ...], second: tuple[Part, ...]) -> tuple[Part, ...]:
    """Texts in which two calls differ hold the call's number, or something that nobody needs."""
    if [part.kind for part in first] != [part.kind for part in second]:
        return first
    parts: list[Part] = []
    for one, other in zip(first, second, strict=True):
        parts += [one] if one.text == other.text else _numbered(one.text, other.text)
    return tuple(parts)


def _numbered(one: str, other: str) -> list[Part]:
    before, behind = common_prefix(one, other), common_suffix(one, other)
    middle = one[len(before) : len(one) - len(behind)]
    kind = INDEX if middle.isdigit() else ANY
    parts = [Part(kind=TEXT, text=before), Part(kind=kind), Part(kind=TEXT, text=behind)]
    return [part for part in parts if part.kind != TEXT or part.text]


def _id_parts(opening: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """An id made of the name and the call's number, as in `functions.name:0`."""
    kinds = [part.kind for part in parts]
    if kinds[:3] != [NAME, TEXT, INDEX] or parts[1].text != ":":
        return ()
    stem = "" if is_tag(split(opening)[-1]) else re.split(r"[>\]\s]", opening)[-1]
    return (Part(kind=TEXT, text=stem), *parts[:3])


class _Cleaner:
    """Cuts what belongs to the turn, to thoughts and to content off the texts around calls."""

    def __init__(self, header: Header, markers: tuple[str, ...]) -> None:
        self.header = header
        self._markers = markers

    def before(self, text: str) -> str:
        leads = [common_prefix(text, other) for other in (self.header.plain, self.header.opened)]
        if _is_whole(said := common_prefix(text, self.header.said)):
            leads.append(said)
        lead = max(leads, key=len)
        return without_any(text.removeprefix(lead), self._markers)

    def behind(self, text: str) -> str:
        """Without the end of the turn, which may be another one than that of content."""
        ending = self.header.ending
        if ending.strip() and text.endswith(ending):
            return self._to_next_turn(text.removesuffix(ending))
        cut = self._to_next_turn(text)
        tags = _tags(cut)
        is_other = len(tags) > 1 and (bool(_tags(ending)) or _ENDING.search(tags[-1]) is not None)
        if cut == text and is_other and cut.rstrip().endswith(tags[-1]):
            return cut.rpartition(tags[-1])[0]
        return cut

    def _to_next_turn(self, text: str) -> str:
        known = _tags(self.header.ending + self.header.plain)
        return text[: min((text.index(tag) for tag in known if tag in text), default=len(text))]


def _is_whole(text: str) -> bool:
    """Whether a text ends with a tag or whitespace, and not inside a word of its own."""
    return bool(text) and (text[-1].isspace() or is_tag(split(text)[-1]))


def _tags(text: str) -> list[str]:
    return [segment for segment in split(text) if is_tag(segment)]


_ENDING = re.compile(r"(?<![a-z])(?:eos|eot|eom|eog)(?![a-z])", re.IGNORECASE)
