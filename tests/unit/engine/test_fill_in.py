"""The prompt of a gap that is to be filled in."""

from typing import Any

import pytest

from schemas.errors import INVALID_REQUEST, NOT_SUPPORTED, RequestError
from services.engine.fill_in import BETWEEN_FILES, FillMarks, FillRoom, fill_in_ids
from tests.support.words import BOS, CharacterVocabulary

PREFIX, SUFFIX, MIDDLE, REPOSITORY, FILE = range(1000, 1005)
GAP = {"input_prefix": "abc", "input_suffix": "xyz"}
ROOM = FillRoom(n_ctx=4096, n_batch=512)


class CodeVocabulary(CharacterVocabulary):
    """Has marks for gaps; all of them, if nothing else is said."""

    n_vocab = 2000

    def __init__(self, marks: FillMarks | None = None) -> None:
        super().__init__()
        self.fill_marks = marks or FillMarks(
            prefix=PREFIX, suffix=SUFFIX, middle=MIDDLE, repository=REPOSITORY, file=FILE
        )

    def first_ids(self) -> tuple[int, ...]:
        return (BOS,)


PLAIN = FillMarks(prefix=PREFIX, suffix=SUFFIX, middle=MIDDLE)


def ids(text: str) -> tuple[int, ...]:
    return CharacterVocabulary().tokenize(text, add_special=False, parse_special=False)


def filled(room: FillRoom = ROOM, marks: FillMarks = PLAIN, **fields: object) -> tuple[int, ...]:
    return fill_in_ids(GAP | fields, CodeVocabulary(marks), room)


def test_before_and_after_stand_between_marks() -> None:
    assert filled() == (BOS, PREFIX, *ids("abc"), SUFFIX, *ids("xyz"), MIDDLE)


def test_what_the_gap_begins_with_follows_what_is_before() -> None:
    assert filled(prompt="de") == (BOS, PREFIX, *ids("abcde"), SUFFIX, *ids("xyz"), MIDDLE)


def test_the_suffix_may_come_first() -> None:
    room = FillRoom(n_ctx=4096, n_batch=512, is_suffix_first=True)
    assert filled(room) == (BOS, SUFFIX, *ids("xyz"), PREFIX, *ids("abc"), MIDDLE)


def test_texts_may_be_mixed_with_ids() -> None:
    around = filled(input_prefix=["a", *ids("b"), "c"], input_suffix=list(ids("xyz")))
    assert around == filled()


def test_what_is_near_the_gap_is_kept() -> None:
    room = FillRoom(n_ctx=4096, n_batch=16)
    assert filled(room, prompt="d") == (BOS, PREFIX, *ids("abcd"), SUFFIX, *ids("x"), MIDDLE)
    long = filled(room, input_prefix="-" * 99 + "0123456789ab", input_suffix="xy" + "-" * 99)
    assert long == (BOS, PREFIX, *ids("0123456789ab"), SUFFIX, *ids("xy"), MIDDLE)


EXTRA = [{"filename": "one", "text": "first"}, {"text": "second"}]


def test_other_files_come_first_under_their_names() -> None:
    told = filled(marks=CodeVocabulary().fill_marks, input_extra=EXTRA)
    files = (FILE, *ids("onefirst"), FILE, *ids("tmpsecond"), FILE, *ids("filename"))
    assert told == (REPOSITORY, *ids("myproject"), *files, *filled())


def test_other_files_of_a_model_without_marks_for_them() -> None:
    told = filled(input_extra=EXTRA)
    between = ids(BETWEEN_FILES)
    assert told == (*between, *ids("first"), *between, *ids("second"), *filled())


@pytest.mark.parametrize(("n_predict", "n_extra"), [(-1, 2), (0, 0), (40, 0)])
def test_other_files_have_what_a_batch_and_an_answer_leave(n_predict: int, n_extra: int) -> None:
    room = FillRoom(n_ctx=64, n_batch=64, n_predict=n_predict)
    assert filled(room, input_extra=EXTRA) == (*ids("second")[6 - n_extra :], *filled(room))


def refusal(marks: FillMarks = PLAIN, **fields: object) -> Any:
    with pytest.raises(RequestError) as caught:
        filled(marks=marks, **fields)
    return caught.value.problem


def test_a_model_without_the_marks_cannot() -> None:
    problem = refusal(FillMarks(prefix=PREFIX))
    assert (problem.code, problem.status) == (NOT_SUPPORTED, 501)
    assert "suffix token is missing. middle token is missing." in problem.message


@pytest.mark.parametrize(
    "fields",
    [
        {"input_prefix": None},
        {"input_suffix": 5},
        {"input_prefix": ["a", 2.5]},
        {"input_suffix": [5000]},
        {"prompt": ["a"]},
        {"input_extra": "a"},
        {"input_extra": ["a"]},
        {"input_extra": [{"filename": "a"}]},
        {"input_extra": [{"filename": 1, "text": "a"}]},
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object]) -> None:
    problem = refusal(**fields)
    assert (problem.code, problem.param) == (INVALID_REQUEST, *fields)
