"""What is not to be kept is nowhere in the database: looked for in its very bytes."""

from pathlib import Path

import msgspec
import pytest

from schemas.errors import SERVER, Problem
from schemas.events import Event, Failed, Prompt, Requested, Tokens
from schemas.params import GrammarTrigger, Limits, Output, Params, Sampling
from services.bus.connection import Bus
from services.streams.archive.store import ArchiveStore
from services.streams.audit.store import AuditStore
from tests.golden.cases import CASES
from tests.support.archive import Rig, write_case
from tests.support.tampering import verify

CASE = CASES["simple.openai.chat"]
SECRET = "xylophone"
HASHES = ("request_hash", "prompt_hash", "output_hash", "events_digest")
PARAMS = Params(
    sampling=Sampling(
        grammar=f'root ::= "{SECRET}"',
        grammar_triggers=(GrammarTrigger(kind="word", value=SECRET),),
        dry_sequence_breakers=(SECRET,),
        reasoning_budget_message=SECRET,
        temperature=0.25,
    ),
    limits=Limits(stop=(SECRET,), n_predict=7),
    output=Output(generation_prompt=SECRET, response_fields=(SECRET,)),
)


def talkative(end: Event) -> list[Event]:
    """A log that says the secret wherever something can be said."""
    said: list[Event] = []
    for event in CASE[:-1]:
        if isinstance(event, Requested):
            request, prompts = f'{{"x":"{SECRET}"}}'.encode(), (Prompt(ids=(1,), text=SECRET),)
            event = msgspec.structs.replace(
                event, request=request, prompts=prompts, params=PARAMS, output_format=request
            )
        elif isinstance(event, Tokens):
            event = msgspec.structs.replace(event, texts=(SECRET,))
        said.append(event)
    return [*said, end]


def bytes_under(folder: Path) -> bytes:
    """The database, its journal included."""
    return b"".join(path.read_bytes() for path in folder.glob("llamatape.db*"))


FAILED = Failed(problem=Problem(code=SERVER, message=f"no {SECRET}"), by="engine", at_ms=1)


@pytest.mark.parametrize("end", [CASE[-1], FAILED], ids=["finished", "failed"])
@pytest.mark.parametrize("content", ["full", "hashes", "none"])
async def test_no_byte_of_the_text(
    bus: Bus, archive: ArchiveStore, tmp_path: Path, content: str, end: Event
) -> None:
    rig, audit = Rig(bus, archive), AuditStore(archive.engine)
    generation_id = await write_case(bus, talkative(end), content=content)
    assert await rig.archive(generation_id) == 1
    facts = await audit.facts(generation_id)
    assert facts is not None
    stored = bytes_under(tmp_path)
    is_full = content == "full"
    assert (SECRET.encode() in stored) == is_full, "parameters are text; logs are compressed"
    assert bool(await audit.packed([generation_id])) == is_full
    assert {bool(facts[name]) for name in HASHES} == {content != "none"}
    assert facts["content"] == content
    assert facts["params"]["limits"]["n_predict"] == 7  # type: ignore[index]
    assert (await verify(archive.engine))[0] == []
