"""The prompt of `/infill`: the text around a gap, as models for code want it told. Pure.

First come files that may help, then what stands before the gap, after it, and the mark of the gap
itself, in the order of llama-server. Tokenizing takes time: call it from a worker thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from schemas.errors import NOT_SUPPORTED, Problem, RequestError
from services.engine.prompts import PromptVocabulary, mixed_ids

PROJECT = "myproject\n"
FILE = "filename\n"
OTHER_FILE = "tmp"
BETWEEN_FILES = "\n\n--- snippet ---\n\n"
"""Where a model has no mark for files."""
N_MARKS_OF_GAP = 2

JsonObject = dict[str, Any]
Ids = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FillMarks:
    """Ids of the marks around a gap; None for one that the model lacks."""

    prefix: int | None = None
    suffix: int | None = None
    middle: int | None = None
    repository: int | None = None
    file: int | None = None


class FillVocabulary(PromptVocabulary, Protocol):
    @property
    def fill_marks(self) -> FillMarks: ...
    def first_ids(self) -> tuple[int, ...]:
        """What a text begins with: one id, or none."""
        ...


@dataclass(frozen=True, kw_only=True)
class FillRoom:
    """How much is told, in tokens: a batch around the gap, the rest of the context of other files.

    n_predict: what answers may be long if nobody says so. is_suffix_first: `--spm-infill`.
    """

    n_ctx: int
    n_batch: int
    n_predict: int = -1
    is_suffix_first: bool = False

    @property
    def n_extra(self) -> int:
        return max(0, self.n_ctx - self.n_batch - 2 * self.n_predict)


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A request's fields, checked. extra: file names and texts."""

    before: object
    after: object
    begun: str
    extra: tuple[tuple[str, str], ...]


def fill_in_ids(body: JsonObject, vocabulary: FillVocabulary, room: FillRoom) -> Ids:
    """The prompt's token ids. Raises RequestError: 501 for a model without the marks, 400 else."""
    prefix, suffix, middle = _marks(vocabulary.fill_marks)
    gap = read_gap(body)
    begun = vocabulary.tokenize(gap.begun, add_special=False, parse_special=True)
    quarter = room.n_batch // 4
    before = _ids(vocabulary, gap.before, "input_prefix", 3 * quarter, is_end=True)
    n_after = max(0, quarter - N_MARKS_OF_GAP - len(begun))
    after = _ids(vocabulary, gap.after, "input_suffix", n_after, is_end=False)
    parts = [(prefix, *before, *begun), (suffix, *after)]
    first, second = reversed(parts) if room.is_suffix_first else parts
    extra, begin = _extra(gap, vocabulary, room.n_extra), vocabulary.first_ids()
    return (*extra, *begin, *first, *second, middle)


def read_gap(body: JsonObject) -> Gap:
    """The fields that say what is to be filled in. Raises RequestError."""
    begun = body.get("prompt")
    if begun is not None and not isinstance(begun, str):
        raise RequestError.invalid('"prompt" must be a string', "prompt")
    for name in ("input_prefix", "input_suffix"):
        if body.get(name) is None:
            raise RequestError.invalid(f'"{name}" is required', name)
        if not isinstance(body[name], str | list):
            raise RequestError.invalid(f'"{name}" must be a string or a list', name)
    return Gap(
        before=body["input_prefix"],
        after=body["input_suffix"],
        begun=begun or "",
        extra=_read_extra(body.get("input_extra")),
    )


def _read_extra(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RequestError.invalid(
            '"input_extra" must be an array of {"filename": string, "text": string}', "input_extra"
        )
    return tuple(_read_file(item) for item in cast("list[object]", value))


def _read_file(item: object) -> tuple[str, str]:
    given = cast(JsonObject, item) if isinstance(item, dict) else {}
    name, text = given.get("filename", OTHER_FILE), given.get("text")
    for key, found in (("text", text), ("filename", name)):
        if not isinstance(found, str):
            raise RequestError.invalid(
                f'"input_extra" must hold objects with a string as "{key}"', "input_extra"
            )
    return cast(str, name), cast(str, text)


def _marks(marks: FillMarks) -> Ids:
    named = (("prefix", marks.prefix), ("suffix", marks.suffix), ("middle", marks.middle))
    found = tuple(mark for _, mark in named if mark is not None)
    if len(found) == len(named):
        return found
    lacking = " ".join(f"{name} token is missing." for name, mark in named if mark is None)
    raise RequestError(
        Problem(code=NOT_SUPPORTED, message=f"Infill is not supported by this model: {lacking}")
    )


def _ids(
    vocabulary: FillVocabulary, value: object, name: str, n_wanted: int, *, is_end: bool
) -> Ids:
    """The n_wanted ids at the end or at the beginning of a text, or of a list of texts and ids.

    No more is tokenized than they can stand for: everybody's text may be much longer.
    """
    room = n_wanted * vocabulary.longest_piece_bytes

    def text_ids(text: str, *, is_first: bool) -> Ids:
        del is_first
        near = text[max(0, len(text) - room) :] if is_end else text[:room]
        return vocabulary.tokenize(near, add_special=False, parse_special=False)

    items = cast("list[object]", value) if isinstance(value, list) else [value]
    ids = mixed_ids(vocabulary, items, text_ids, name)
    return ids[max(0, len(ids) - n_wanted) :] if is_end else ids[:n_wanted]


def _extra(gap: Gap, vocabulary: FillVocabulary, n_wanted: int) -> Ids:
    """The last n_wanted ids of what is told of other files."""
    found: list[Ids] = []
    n_found = 0
    for part in _parts_from_the_end(gap, vocabulary, n_wanted):
        if n_found >= n_wanted:
            break
        found.append(part)
        n_found += len(part)
    ids = tuple(token for part in reversed(found) for token in part)
    return ids[max(0, len(ids) - n_wanted) :]


def _parts_from_the_end(gap: Gap, vocabulary: FillVocabulary, n_wanted: int) -> Iterator[Ids]:
    marks = vocabulary.fill_marks

    def text_ids(text: str) -> Ids:
        return _ids(vocabulary, text, "input_extra", n_wanted, is_end=True)

    if marks.file is not None:
        yield (marks.file, *text_ids(FILE))
    for name, text in reversed(gap.extra):
        yield text_ids(text)
        if marks.file is None:
            yield text_ids(BETWEEN_FILES)
        else:
            yield (marks.file, *text_ids(f"{name}\n"))
    if marks.repository is not None:
        yield (marks.repository, *text_ids(PROJECT))
