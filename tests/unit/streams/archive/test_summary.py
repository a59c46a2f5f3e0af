"""From a log to the archive's row: what is in it, and what is not where content is not to be kept."""

import hashlib

import msgspec
import pytest

from schemas.errors import SchemaError
from schemas.events import Cancelled, Claimed, Requested
from schemas.params import GrammarTrigger, Limits, Output, Params, Sampling
from services.streams.archive import digests
from services.streams.archive.store import ArchivedGeneration
from services.streams.archive.summary import Record, pack, record_of, unpack
from tests.golden.cases import CASES, CREATED_AT_MS, Case
from tests.support.archive import entries_of

SECRET = Params(
    sampling=Sampling(
        grammar="root ::= secret",
        grammar_triggers=(GrammarTrigger(kind="word", value="secret"),),
        reasoning_budget_message="secret",
        temperature=0.5,
        logit_bias=((5, float("-inf")),),
    ),
    limits=Limits(stop=("secret",), n_predict=7),
    output=Output(generation_prompt="secret"),
)


def record(case: Case, **changes: object) -> Record:
    first = msgspec.structs.replace(case[0], **changes)  # type: ignore[type-var]
    found = record_of(entries_of([first, *case[1:]]), archived_at_ms=7, model_digest="d")
    assert found is not None
    return found


def test_every_column_has_a_value() -> None:
    names = {column.name for column in ArchivedGeneration.__table__.columns}
    assert record(CASES["simple.openai.chat"]).columns.keys() == names


def test_a_finished_generation() -> None:
    columns = record(CASES["two_choices.openai.chat"], caller="me").columns
    assert (columns["outcome"], columns["reason"]) == ("finished", "limit")
    assert (columns["caller"], columns["created_at_ms"]) == ("me", CREATED_AT_MS)
    assert (columns["n_attempts"], columns["model_digest"], columns["compat"]) == (1, "d", "m")
    assert columns["n_entries"] == len(CASES["two_choices.openai.chat"])
    assert isinstance(columns["predicted_ms"], float)


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("failed_early.openai.chat", "failed", "exceed_context_size_error"),
        ("failed_late.openai.chat", "failed", "server_error"),
        ("cancelled_late.openai.chat", "cancelled", "client_gone"),
    ],
)
def test_one_that_did_not_finish(name: str, outcome: str, reason: str) -> None:
    columns = record(CASES[name]).columns
    assert (columns["outcome"], columns["reason"]) == (outcome, reason)


def test_every_attempt_is_named() -> None:
    case = list(CASES["simple.openai.chat"])
    case[2:2] = [Claimed(attempt=2, engine="e2", host="h2", build="b2", at_ms=5)]
    columns = record(case).columns
    assert [each["attempt"] for each in columns["attempts"]] == [1, 2]  # type: ignore[attr-defined]
    assert (columns["engine"], columns["host"], columns["build"]) == ("e2", "h2", "b2")


def test_hashes_are_of_what_was_said() -> None:
    found = record(CASES["simple.openai.chat"], request=b'{"a":1}').columns
    other = record(CASES["stop_word.openai.chat"], request=b'{"a":1}').columns
    assert found["request_hash"] == hashlib.sha256(b'{"a":1}').hexdigest()
    assert found["prompt_hash"] == other["prompt_hash"]
    assert found["output_hash"] != other["output_hash"]
    assert found["events_digest"] != other["events_digest"]


@pytest.mark.parametrize("content", ["full", "hashes", "none"])
def test_what_is_kept(content: str) -> None:
    found = record(CASES["simple.openai.chat"], content=content, params=SECRET, request=b"secret")
    text = str(found.columns)
    assert ("secret" in text) is (content == "full")
    assert (found.events is not None) is (content == "full")
    hashes = [found.columns[name] for name in ("request_hash", "output_hash", "events_digest")]
    assert all(hashes) is (content != "none")
    assert found.columns["params"]["sampling"]["temperature"] == 0.5  # type: ignore[index]


def test_the_digest_is_the_same_whoever_archives_and_when() -> None:
    entries = entries_of(CASES["simple.openai.chat"])
    one, other = (record_of(entries, archived_at_ms=at, model_digest="d") for at in (1, 2))
    assert one is not None
    assert other is not None
    assert one.digest == other.digest == digests.row_digest(one.columns)


def test_packed_entries_come_back() -> None:
    entries = entries_of(CASES["everything.openai.chat"])
    assert unpack(pack(entries)) == [(entry.seq, entry.data) for entry in entries]


@pytest.mark.parametrize("data", [b"", b"x", pack([])[:-1]])
def test_what_is_no_archived_log_is_an_error(data: bytes) -> None:
    with pytest.raises(SchemaError):
        unpack(data)


def test_what_has_not_ended_or_was_never_opened_has_no_record() -> None:
    case = CASES["simple.openai.chat"]
    assert record_of(entries_of(case[:-1]), archived_at_ms=1) is None
    assert record_of(entries_of([Cancelled(by="streams", reason="x")]), archived_at_ms=1) is None
    assert record_of([], archived_at_ms=1) is None
    assert isinstance(case[0], Requested)
