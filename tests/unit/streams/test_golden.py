"""Every rendered byte against the golden files, and what must hold for all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.bus.log import Entry
from services.streams.tape import Tape, render
from tests.golden.cases import CASES, GENERATION_ID, Case
from tests.golden.write import FOLDER, path_of, shown, tape_of

NAMES = sorted(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_the_golden_file(name: str) -> None:
    assert shown(CASES[name]).decode() == path_of(name).read_text(encoding="utf-8")


def test_there_is_a_golden_file_for_each_case_and_no_other() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)


def _as_one_entry(case: Case) -> Tape:
    return render(GENERATION_ID, [Entry(7, 0, tuple(case))])


@pytest.mark.parametrize("name", NAMES)
def test_how_events_are_grouped_into_entries_does_not_show(name: str) -> None:
    assert _as_one_entry(CASES[name]).cut(0) == tape_of(CASES[name]).cut(0)


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_after_the_end_does_not_show(name: str) -> None:
    case = CASES[name]
    assert tape_of([*case, *case]).cut(0) == tape_of(case).cut(0)


@given(name=st.sampled_from(NAMES), data=st.data())
def test_any_offset_gives_the_same_rest(name: str, data: st.DataObject) -> None:
    tape = tape_of(CASES[name])
    whole = tape.cut(0)
    offset = data.draw(st.integers(0, tape.n_bytes + 10))
    assert tape.cut(offset) == whole[offset:]


@given(name=st.sampled_from([n for n in NAMES if n.startswith("resumable")]), data=st.data())
def test_the_id_of_a_frame_says_where_it_ends(name: str, data: st.DataObject) -> None:
    tape = tape_of(CASES[name])
    number = data.draw(st.integers(0, tape.n_frames))
    end = tape.end_of(number)
    assert end is not None
    rest = tape.cut(end)
    assert rest == b"" if number == tape.n_frames else rest.startswith(b"id: %d\n" % (number + 1))
