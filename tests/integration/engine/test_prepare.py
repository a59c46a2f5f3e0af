"""The front's answers about prompts, on real vocabularies and templates."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import EXCEED_CONTEXT_SIZE, INVALID_REQUEST, RequestError
from schemas.rpc import (
    ApplyTemplate,
    DescribeModel,
    Detokenize,
    Detokenized,
    ModelDescription,
    Prepare,
    Prepared,
    TemplateApplied,
    Tokenize,
    Tokenized,
)
from services.engine.config import EngineSettings
from services.engine.options import ModelOptions
from services.engine.questions import Questions, load_questions
from tools.demo_model import demo_model

TINY = Path(__file__).parents[2] / "models" / "stories-tiny.gguf"
AT_MS = 1_700_000_000_000


def settings(path: Path | None, **changes: Any) -> EngineSettings:
    values: dict[str, Any] = {"n_slots": 2, "n_ctx": 1024} | changes
    return EngineSettings(
        engine="e", host="h", model_key="k", model_name="m", model_path=str(path), **values
    )


def loaded(path: Path | None, **changes: Any) -> Questions:
    return asyncio.run(load_questions(settings(path, **changes), "build 1"))


@pytest.fixture(scope="module")
def tiny() -> Iterator[Questions]:
    questions = loaded(TINY)
    yield questions
    questions.close()


@pytest.fixture(scope="module")
def smol() -> Iterator[Questions]:
    questions = loaded(demo_model(), n_ctx=8192)
    yield questions
    questions.close()


async def prepare(questions: Questions, body: object, kind: str = "completion") -> Prepared:
    question = Prepare(kind=kind, body=json.dumps(body).encode(), created_at_ms=AT_MS)
    answer = await questions.answer(question)
    assert isinstance(answer, Prepared)
    return answer


def chat(*contents: object) -> dict[str, Any]:
    roles = ["user"] if len(contents) == 1 else ["system", "user", "assistant"]
    pairs = zip(roles, contents, strict=False)
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize("jinja", [True, False])
@pytest.mark.parametrize("template", ["", "chatml"])
@pytest.mark.parametrize(
    ("content", "n_prompt"),
    [
        ("Hey", 69),
        ("What is the best book", 77),
        ([{"type": "text", "text": "What is"}, {"type": "text", "text": "the best book"}], 79),
    ],
)
async def test_counts_of_llama_servers_chat_tests(
    jinja: bool, template: str, content: object, n_prompt: int
) -> None:
    questions = await load_questions(settings(TINY, is_jinja=jinja, template=template), "b")
    prepared = await prepare(questions, chat("Book", content), kind="chat")
    questions.close()
    assert len(prepared.prompts[0].ids) == n_prompt
    assert prepared.prompts[0].ids.count(1) == 1


async def test_a_template_that_is_none(tiny: Questions) -> None:
    odd = await load_questions(settings(TINY, template="This is not a chat template, it is"), "b")
    prepared = await prepare(odd, chat("Book", "What is the best book"), kind="chat")
    odd.close()
    assert len(prepared.prompts[0].ids) == 23


async def test_a_completion(tiny: Questions) -> None:
    body = {"prompt": "I believe the meaning of life is", "n_predict": 8, "seed": 3}
    prepared = await prepare(tiny, body)
    assert len(prepared.prompts[0].ids) == 18
    assert prepared.prompts[0].text == "<s> I believe the meaning of life is"
    assert (prepared.n_slots, prepared.n_ctx) == (1, 512)
    assert (prepared.params.limits.n_predict, prepared.params.sampling.seed) == (8, 3)


async def test_several_choices_take_several_slots(tiny: Questions) -> None:
    assert (await prepare(tiny, {"prompt": ["a", "b"]})).n_slots == 2
    assert (await prepare(tiny, {"prompt": "a", "n": 2})).n_slots == 2
    for body in ({"prompt": ["a", "b"], "n": 2}, {"prompt": ["a"] * 3}):
        assert (await prepare(tiny, body)).n_slots == 2, "what finds no slot waits for one"
    with pytest.raises(RequestError, match="at most 1024") as caught:
        await prepare(tiny, {"prompt": ["a"] * 1025})
    assert caught.value.problem.param == "prompt"


async def test_the_models_own_template(smol: Questions) -> None:
    prepared = await prepare(smol, chat("Hi"), kind="chat")
    assert prepared.prompts[0].text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prepared.params.output.generation_prompt == "<|im_start|>assistant\n"
    assert not prepared.params.output.is_continuation


async def test_a_prefilled_answer(smol: Questions) -> None:
    prepared = await prepare(smol, chat("Be good", "Hi", "Well, "), kind="chat")
    assert prepared.prompts[0].text.endswith("Hi<|im_end|>\n<|im_start|>assistant\nWell, ")
    assert prepared.params.output.is_continuation


@pytest.mark.parametrize(
    ("kind", "body", "code", "param"),
    [
        ("completion", {}, INVALID_REQUEST, "prompt"),
        ("completion", {"prompt": [1, 674]}, INVALID_REQUEST, "prompt"),
        ("completion", {"prompt": "x", "n_predict": "many"}, INVALID_REQUEST, "n_predict"),
        ("completion", {"prompt": "x", "grammar": "root ::= x"}, INVALID_REQUEST, "grammar"),
        ("completion", {"prompt": [5] * 512}, EXCEED_CONTEXT_SIZE, None),
        ("completion", [1], INVALID_REQUEST, None),
        ("chat", {"messages": "x"}, INVALID_REQUEST, "messages"),
        ("chat", {"messages": [{"role": "user", "content": "x " * 2000}]}, EXCEED_CONTEXT_SIZE, None),
    ],
)  # fmt: skip
async def test_refusals(
    tiny: Questions, kind: str, body: object, code: str, param: str | None
) -> None:
    with pytest.raises(RequestError) as caught:
        await prepare(tiny, body, kind=kind)
    assert (caught.value.problem.code, caught.value.problem.param) == (code, param)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[" * 200_000, b'{"prompt": "\\ud800"}', b'{"prompt": NaN}', b"\xff"]
)
async def test_what_is_no_json_is_refused(tiny: Questions, data: bytes) -> None:
    with pytest.raises(RequestError, match="JSON"):
        await tiny.answer(Prepare(kind="completion", body=data, created_at_ms=AT_MS))


async def test_apply_template(tiny: Questions) -> None:
    body = json.dumps(chat("Hi")).encode()
    answer = await tiny.answer(ApplyTemplate(body=body, created_at_ms=AT_MS))
    assert answer == TemplateApplied(
        prompt="<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_tokenize_and_back(smol: Questions) -> None:
    text = "What is the capital of France? 😀\0"
    answer = await smol.answer(Tokenize(content=json.dumps(text).encode()))
    assert isinstance(answer, Tokenized)
    assert b"".join(answer.pieces).decode() == text
    assert await smol.answer(Detokenize(ids=answer.ids)) == Detokenized(content=text)


async def test_tokenize_adds_the_first_token_before_texts_only(tiny: Questions) -> None:
    async def ids(content: object) -> tuple[int, ...]:
        question = Tokenize(content=json.dumps(content).encode(), add_special=True)
        answer = await tiny.answer(question)
        assert isinstance(answer, Tokenized)
        return answer.ids

    assert (await ids("a"))[0] == 1
    assert (await ids(["a", 5]))[0] == 1
    assert await ids([5, 6]) == (5, 6)
    for wrong in (None, 1.5, {}, [[]], [True], [674]):
        with pytest.raises(RequestError):
            await ids(wrong)


async def test_ids_out_of_range_have_no_text(tiny: Questions) -> None:
    for token in (-1, 674, 2**40):
        with pytest.raises(RequestError, match="between 0 and 673"):
            await tiny.answer(Detokenize(ids=(token,)))


async def test_a_broken_character_is_shown_as_such(tiny: Questions) -> None:
    answer = await tiny.answer(Tokenize(content='"é"'.encode()))
    assert isinstance(answer, Tokenized)
    assert await tiny.answer(Detokenize(ids=answer.ids[:-1])) == Detokenized(content=" \ufffd")


async def test_large_inputs_leave_small_ones_alone(smol: Questions) -> None:
    large = asyncio.create_task(
        smol.answer(Tokenize(content=json.dumps("some words " * 100_000).encode()))
    )
    await asyncio.sleep(0)
    await prepare(smol, chat("Hi"), kind="chat")
    assert not large.done()
    answer = await large
    assert isinstance(answer, Tokenized)
    assert len(answer.ids) > 100_000


async def test_a_chat_of_control_tokens_cannot_hold_a_worker(smol: Questions) -> None:
    began = time.monotonic()
    with pytest.raises(RequestError) as caught:
        await prepare(smol, {"prompt": "<|im_start|><|im_end|>" * 50_000})
    assert caught.value.problem.code == EXCEED_CONTEXT_SIZE
    assert time.monotonic() - began < 5


async def test_the_description(smol: Questions) -> None:
    found = await smol.answer(DescribeModel())
    assert isinstance(found, ModelDescription)
    assert (found.ftype, found.n_params, found.n_vocab) == ("Q4_1", 134_515_008, 49_152)
    assert (found.n_ctx, found.n_ctx_train, found.n_slots) == (4096, 8192, 2)
    assert (found.bos_token, found.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert found.chat_template_caps["supports_system_role"]
    assert not found.chat_template_caps["supports_tools"]


def test_compat_tells_what_matters(tmp_path: Path, tiny: Questions) -> None:
    copy = tmp_path / "another name.gguf"
    copy.write_bytes(TINY.read_bytes())
    changed = tmp_path / "changed.gguf"
    data = bytearray(TINY.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    same = loaded(copy)
    others = [loaded(changed), loaded(TINY, template="x"), loaded(TINY, n_ctx=2048)]
    assert same.compat == tiny.compat
    assert len({questions.compat for questions in [tiny, *others]}) == 4
    for questions in [same, *others]:
        questions.close()


MARKS = ("fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep")
GAP = {"input_prefix": "def f():\n", "input_suffix": "\nreturn x", "input_extra": [{"text": "y"}]}


async def test_a_gap_is_filled_in_between_the_marks_of_the_model() -> None:
    overrides = tuple(
        (f"tokenizer.ggml.{m}_token_id", "int", str(3 + i)) for i, m in enumerate(MARKS)
    )
    questions = await load_questions(
        settings(demo_model(), n_ctx=4096, n_batch=512, model=ModelOptions(overrides=overrides)),
        "build 1",
    )
    try:
        (prompt,) = (await prepare(questions, GAP, "infill")).prompts
    finally:
        questions.close()
    before, begin, after = prompt.text.partition("<repo_name>")
    assert before == "<filename>myproject\n<gh_stars>tmp\ny<gh_stars>filename\n"
    assert begin + after == "<repo_name>def f():\n<reponame>\nreturn x<file_sep>"


async def test_a_model_without_marks_fills_in_nothing(smol: Questions) -> None:
    with pytest.raises(RequestError, match="Infill is not supported by this model") as caught:
        await prepare(smol, GAP, "infill")
    assert caught.value.problem.status == 501
