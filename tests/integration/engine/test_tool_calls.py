"""A model that knows nothing of tools calls them all the same: the grammar makes it, the parser reads it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.output_format import from_json
from schemas.rpc import Prepare, Prepared
from services.engine.config import EngineSettings
from services.engine.protocol import Admit, ChoiceJob
from services.engine.questions import load_questions
from tests.support.decoder_client import STORIES, DecoderClient, decoder
from tests.support.formats import FOLDER, deltas_of, function, message_of
from tests.support.templates import AT_MS

TOOL = function("look", sure={"type": "boolean"}, why={"type": "string", "enum": ["fun", "need"]})
TOOL["function"]["parameters"]["required"] = ["sure", "why"]
WITHOUT_THOUGHTS = {"chat_template_kwargs": {"enable_thinking": False}}
THINKS_FIRST = {"fenced", "invoked", "delimited", "addressed", "elements", "pythonic"}
"""A model of stories would never end its thoughts."""
TEMPLATES = sorted({path.stem for path in FOLDER.glob("*.jinja")} - THINKS_FIRST)


@pytest.fixture(scope="module")
def client() -> Iterator[DecoderClient]:
    with decoder(n_ctx=4096) as client:
        yield client


def prepare(template: str, body: dict[str, Any], **changes: Any) -> Prepared:
    settings = EngineSettings(
        engine="e",
        host="h",
        model_key="k",
        model_name="m",
        model_path=STORIES,
        template=(FOLDER / f"{template}.jinja").read_text(encoding="utf-8"),
        n_ctx=4096,
        n_slots=1,
        **changes,
    )
    question = Prepare(kind="chat", body=json.dumps(body).encode(), created_at_ms=AT_MS)

    async def ask() -> Prepared:
        questions = await load_questions(settings, "build 1")
        try:
            answer = await questions.answer(question)
        finally:
            questions.close()
        assert isinstance(answer, Prepared)
        return answer

    return asyncio.run(ask())


def body(**changes: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": "Tell me"}], "tools": [TOOL]}
    return asked | WITHOUT_THOUGHTS | {"temperature": 0, "max_tokens": 300} | changes


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_call_that_must_come_comes(client: DecoderClient, template: str) -> None:
    prepared = prepare(template, body(tool_choice="required", parallel_tool_calls=False))
    job = ChoiceJob(choice=0, prompt=prepared.prompts[0].ids, seed=1)
    run = client.run_one(Admit(generation_id=template, choices=(job,), params=prepared.params))
    message = message_of(deltas_of(from_json(prepared.output_format), run.texts))
    (call,) = message.parsed_calls
    assert call[0] == "look"
    assert isinstance(call[1]["sure"], bool)
    assert call[1]["why"] in ("fun", "need")
    assert message.content == ""
    assert run.end is not None
    assert run.end.stop_type == "eos"


def test_a_call_that_may_come_need_not(client: DecoderClient) -> None:
    prepared = prepare("hermes", body(max_tokens=20))
    assert prepared.params.sampling.grammar_lazy
    job = ChoiceJob(choice=0, prompt=prepared.prompts[0].ids, seed=1)
    run = client.run_one(Admit(generation_id="auto", choices=(job,), params=prepared.params))
    message = message_of(deltas_of(from_json(prepared.output_format), run.texts))
    assert message.content
    assert not message.calls


def test_where_chats_are_not_parsed_all_text_is_content() -> None:
    prepared = prepare("hermes", body(), skips_parsing=True)
    assert prepared.output_format == b""
    assert not prepared.params.sampling.grammar
