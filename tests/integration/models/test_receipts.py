"""Receipts of downloads between who downloads and who keeps the database."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.models.downloads import receipts
from services.models.downloads.receipts import Receipt

FIRST = Receipt(
    id="1", url="http://h/a", path="/a", started_at_ms=1, ended_at_ms=2, outcome="downloaded"
)
SECOND = replace(FIRST, id="2", error="ä\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "downloads.jsonl"


def test_without_a_file_there_are_none(file: Path) -> None:
    assert receipts.pending(file) == ()
    receipts.append(file, [])
    assert not file.exists()


def test_what_was_taken_goes_and_what_came_meanwhile_stays(file: Path) -> None:
    receipts.append(file, [FIRST])
    taken = receipts.pending(file)
    receipts.append(file, [SECOND])
    receipts.remove(file, taken)
    assert receipts.pending(file) == (SECOND,)


def test_what_cannot_be_read_is_left_out_and_removed(file: Path) -> None:
    receipts.append(file, [FIRST])
    with file.open("a") as torn:
        torn.write('{"id": "3", \n[]\n{"id": 1}\n')
    assert receipts.pending(file) == (FIRST,)
    receipts.remove(file, [FIRST])
    assert file.read_text() == ""


def test_fields_of_later_versions_are_ignored(file: Path) -> None:
    receipts.append(file, [FIRST])
    file.write_text(file.read_text().replace('{"id"', '{"new": 1, "id"'))
    assert receipts.pending(file) == (FIRST,)
