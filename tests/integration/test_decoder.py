"""A real decoder with the tiny model: many jobs, cancelling, caches, limits, seeds, samplers."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from schemas.events import ChoiceEnd
from services.engine.protocol import (
    Admit,
    Broken,
    ChoiceJob,
    Emitted,
    Ended,
    PromptProgress,
    SlotsStarted,
)
from tests.support.decoder_client import DecoderClient, Run, admit, decoder, params

PROMPT = (1, *range(300, 330))
GREEDY: dict[str, Any] = {"temperature": 0.0}
UNIFIED: dict[str, Any] = {"is_unified": True}


def prompt(number: int, n: int = 30) -> tuple[int, ...]:
    """Prompts that have only their first token in common."""
    return (1, *(270 + (number * 37 + i * 11) % 400 for i in range(n)))


@pytest.fixture(scope="module")
def shared() -> Iterator[DecoderClient]:
    with decoder(n_ctx=2048) as client:
        yield client


@pytest.fixture
def client() -> Iterator[DecoderClient]:
    """A decoder whose slots nobody has used."""
    with decoder(n_ctx=2048, caching=UNIFIED, n_batch=104, n_ubatch=100) as a_client:
        yield a_client


def end_of(run: Run) -> ChoiceEnd:
    assert run.end
    return run.end


def is_emitted(generation_id: str, at_least: int = 0):
    def check(output: object) -> bool:
        is_it = isinstance(output, Emitted) and output.generation_id == generation_id
        return is_it and output.index >= at_least

    return check


# -- many at once ---------------------------------------------------------------------------------


def test_eight_concurrent_generations(client: DecoderClient) -> None:
    admits = [admit(f"g{n}", prompt(n), seed=n, n_predict=20 + n) for n in range(8)]
    runs = client.run(*admits)
    assert [len(runs[f"g{n}", 0].ids) for n in range(8)] == [20 + n for n in range(8)]
    for run in runs.values():
        assert [token.index for token in run.emitted] == list(range(len(run.ids)))


def test_greedy_is_the_same_beside_neighbours(shared: DecoderClient) -> None:
    alone = shared.run_one(admit("alone", PROMPT, n_predict=40, cache_prompt=False, **GREEDY))
    names = ("x", "a", "b", "c")
    admits = [admit("x", PROMPT, n_predict=40, cache_prompt=False, **GREEDY)]
    admits += [admit(name, prompt(ord(name), 100), n_predict=60) for name in names[1:]]
    assert shared.run(*admits)["x", 0].ids == alone.ids


def test_choices_share_the_prompt_and_differ_by_seed(client: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=PROMPT, seed=n) for n in range(3))
    many = Admit(generation_id="g", choices=jobs, params=params(n_predict=30, temperature=1.5))
    runs = client.run(many)
    progress = [o for r in client.reports for o in r.outputs if isinstance(o, PromptProgress)]
    assert len({runs["g", n].ids for n in range(3)}) == 3
    assert {(p.choice, p.n_processed) for p in progress} == {(n, 31) for n in range(3)}
    for n in range(3):
        alone = admit(f"alone{n}", PROMPT, seed=n, n_predict=30, temperature=1.5)
        assert client.run_one(alone).ids == runs["g", n].ids


def test_several_prompts_in_one_generation(client: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=prompt(n), seed=n) for n in range(2))
    runs = client.run(Admit(generation_id="g", choices=jobs, params=params(n_predict=9)))
    assert {key: len(run.ids) for key, run in runs.items()} == {("g", 0): 9, ("g", 1): 9}


def many_prompts(n_predict: int) -> Admit:
    """Two choices for each of 11 prompts; there are 8 slots."""
    jobs = tuple(ChoiceJob(choice=i, prompt=prompt(i // 2), seed=i) for i in range(22))
    return Admit(generation_id="g", choices=jobs, params=params(n_predict=n_predict, n_cmpl=2))


def test_more_prompts_than_slots_wait_for_one(client: DecoderClient) -> None:
    many = many_prompts(n_predict=9)
    runs = client.run(many)
    assert {len(run.ids) for run in runs.values()} == {9}
    outputs = [o for report in client.reports for o in report.outputs]
    starts = [o.choices for o in outputs if isinstance(o, SlotsStarted)]
    assert [start.choice for each in starts for start in each] == [
        job.choice for job in many.choices
    ]
    last = many.choices[-2]
    alone = admit("alone", last.prompt, seed=last.seed, n_predict=9)
    assert client.run_one(alone).ids == runs["g", last.choice].ids


def test_a_cancelled_one_has_nothing_waiting(client: DecoderClient) -> None:
    client.send(many_prompts(n_predict=60))
    client.read_until(is_emitted("g"))
    client.cancel("g")
    assert len(client.run_one(admit("next", PROMPT, n_predict=70)).ids) == 70
    n_before = len(client.reports)
    assert len(client.run_one(admit("last", PROMPT, n_predict=9)).ids) == 9
    later = [o for report in client.reports[n_before:] for o in report.outputs]
    assert not any(isinstance(o, SlotsStarted) and o.generation_id == "g" for o in later)


# -- cancel ---------------------------------------------------------------------------------------


def test_cancel_while_generating_frees_the_slot_at_once(client: DecoderClient) -> None:
    client.send(*[admit(f"g{n}", prompt(n), ignore_eos=True) for n in range(4)])
    client.send(admit("next", PROMPT, n_predict=1))
    client.read_until(is_emitted("g2"))
    client.cancel("g2")
    started = client.read_until(lambda output: isinstance(output, SlotsStarted))
    assert isinstance(started, SlotsStarted)
    assert started.generation_id == "next"
    assert started.choices[0].slot == client.started("g2").choices[0].slot
    client.read_until(lambda output: isinstance(output, Ended))
    for n in (0, 1, 3):
        client.cancel(f"g{n}")
    assert client.run_one(admit("last", PROMPT, n_predict=3)).end


def test_nothing_is_reported_after_a_cancel_was_obeyed(client: DecoderClient) -> None:
    client.send(admit("gone", prompt(1), ignore_eos=True))
    client.read_until(is_emitted("gone"))
    client.cancel("gone")
    client.send(admit("next", PROMPT, n_predict=30))
    client.read_until(lambda output: isinstance(output, SlotsStarted))
    n_before = len(client.reports)
    client.read_until(lambda output: isinstance(output, Ended))
    later = [o for report in client.reports[n_before:] for o in report.outputs]
    assert {getattr(o, "generation_id", None) for o in later} == {"next"}


def test_cancel_in_prefill_takes_effect_after_the_chunk(client: DecoderClient) -> None:
    long = prompt(1, 1800)
    client.send(admit("long", long))
    client.read_until(lambda output: isinstance(output, PromptProgress))
    client.cancel("long")
    client.send(admit("next", PROMPT, n_predict=1))
    client.read_until(lambda output: isinstance(output, Ended))
    progress = [o for r in client.reports for o in r.outputs if isinstance(o, PromptProgress)]
    n_processed = max(p.n_processed for p in progress if p.generation_id == "long")
    assert n_processed < len(long)


def test_cancel_in_the_queue(client: DecoderClient) -> None:
    client.send(*[admit(f"g{n}", prompt(n), n_predict=20) for n in range(4)])
    client.send(admit("queued", PROMPT), admit("after", PROMPT, n_predict=2))
    client.cancel("queued")
    client.read_until(lambda o: isinstance(o, Ended) and o.generation_id == "after")
    assert "queued" not in str(client.reports)


def test_neighbours_generate_while_a_long_prompt_is_prefilled(client: DecoderClient) -> None:
    client.send(admit("short", prompt(2), ignore_eos=True))
    client.read_until(is_emitted("short"))
    n_before = len(client.reports)
    client.send(admit("long", prompt(1, 1000), n_predict=1))
    client.read_until(lambda o: isinstance(o, Ended))
    outputs = [o for report in client.reports[n_before:] for o in report.outputs]
    pieces = [o.n_processed for o in outputs if isinstance(o, PromptProgress)]
    assert max(b - a for a, b in pairwise([0, *pieces])) <= 127
    shown = "".join(
        "p" if isinstance(o, PromptProgress) else "e" if isinstance(o, Emitted) else ""
        for o in outputs
    )
    assert "pp" not in shown, "somebody gets a token between any two pieces"
    client.cancel("short")


# -- caches and limits ----------------------------------------------------------------------------


def test_prompt_cache(client: DecoderClient) -> None:
    first = client.run_one(admit("a", PROMPT, n_predict=10, **GREEDY))
    assert end_of(first).n_cached == 0
    again = client.run_one(admit("b", PROMPT, n_predict=10, **GREEDY))
    assert end_of(again).n_cached == len(PROMPT) - 1
    assert end_of(again).timings.n_prompt == 1
    longer = client.run_one(admit("c", (*PROMPT, *again.ids[:-1], 300, 301), n_predict=1))
    assert end_of(longer).n_cached == len(PROMPT) + 9
    unwanted = client.run_one(admit("d", PROMPT, n_predict=1, cache_prompt=False))
    assert end_of(unwanted).n_cached == 0


def test_a_certain_slot(client: DecoderClient) -> None:
    for slot in (2, 0, 2):
        assert end_of(client.run_one(admit("g", PROMPT, n_predict=1, id_slot=slot))).slot == slot


def test_context_full() -> None:
    with decoder(n_ctx=256) as client:
        end = end_of(client.run_one(admit("g", PROMPT, ignore_eos=True)))
    assert (end.stop_type, end.is_truncated, end.n_context) == ("limit", True, 255)
    assert end.n_predicted == 256 - len(PROMPT)


def test_idle_caches_make_room_when_the_context_is_full() -> None:
    with decoder(n_ctx=256, caching=UNIFIED) as client:
        for n in range(4):
            assert end_of(client.run_one(admit(f"g{n}", prompt(n, 150), n_predict=5)))


def test_too_much_at_once_breaks_the_largest_only() -> None:
    with decoder(n_ctx=256, caching=UNIFIED) as client:
        client.send(admit("large", prompt(1, 120), ignore_eos=True))
        client.send(admit("small", prompt(2, 60), n_predict=100, ignore_eos=True))
        broken = client.read_until(lambda output: isinstance(output, Broken | Ended))
        assert isinstance(broken, Broken)
        assert broken.generation_id == "large"
        ended = client.read_until(lambda output: isinstance(output, Broken | Ended))
        assert isinstance(ended, Ended)
        assert ended.end.n_predicted == 100


def test_a_slot_may_be_smaller_than_the_context() -> None:
    with decoder(n_ctx=1024, caching={"is_unified": True, "max_slot_tokens": 100}) as client:
        end = end_of(client.run_one(admit("g", PROMPT, ignore_eos=True)))
    assert (end.is_truncated, end.n_context) == (True, 99)


# -- what is sampled ------------------------------------------------------------------------------


def test_seeds_are_reproducible(shared: DecoderClient) -> None:
    runs = [
        shared.run_one(admit("g", PROMPT, seed=seed, n_predict=30, temperature=1.0))
        for seed in (1, 2, 1)
    ]
    assert runs[0].ids == runs[2].ids != runs[1].ids


def test_greedy_takes_the_best_one(shared: DecoderClient) -> None:
    run = shared.run_one(admit("g", PROMPT, n_predict=20, n_probs=1, **GREEDY))
    assert all(token.probs and token.probs.top[0].id == token.id for token in run.emitted)


def test_stop_strings(shared: DecoderClient) -> None:
    free = shared.run_one(admit("free", PROMPT, n_predict=60, **GREEDY))
    word = free.text[25:40]
    stopped = shared.run_one(admit("g", PROMPT, n_predict=60, stop=[word], **GREEDY))
    assert stopped.text == free.text[: free.text.index(word)]
    assert (end_of(stopped).stop_type, end_of(stopped).stopping_word) == ("word", word)


def test_end_tokens_end_it_unless_ignored(shared: DecoderClient) -> None:
    eos = 2
    bias = [[eos, 100.0]]
    run = shared.run_one(admit("g", PROMPT, logit_bias=bias))
    assert (run.ids, end_of(run).stop_type, run.text) == ((eos,), "eos", "")
    ignored = shared.run_one(admit("h", PROMPT, n_predict=5, logit_bias=bias, ignore_eos=True))
    assert eos not in ignored.ids
    assert len(ignored.ids) == 5


def test_logit_bias(shared: DecoderClient) -> None:
    run = shared.run_one(admit("g", PROMPT, n_predict=4, logit_bias=[[400, 1000.0]]))
    assert run.ids == (400,) * 4


def test_penalties_look_at_the_prompt_too(shared: DecoderClient) -> None:
    best = shared.run_one(admit("a", PROMPT, n_predict=1, **GREEDY)).ids
    seen = (*best, *PROMPT[1:])
    again = shared.run_one(admit("b", (1, *seen), n_predict=1, presence_penalty=50.0, **GREEDY))
    assert again.ids[0] not in seen


@pytest.mark.parametrize(
    "order", [["top_k", "temperature"], ["temperature", "min_p"], [], ["no such sampler"]]
)
def test_samplers_in_any_order(shared: DecoderClient, order: list[str]) -> None:
    run = shared.run_one(admit("g", PROMPT, n_predict=5, samplers=order, top_k=1))
    assert len(run.ids) == 5


def test_all_samplers_at_once(shared: DecoderClient) -> None:
    settings = {
        "dry_multiplier": 0.8,
        "dry_penalty_last_n": -1,
        "repeat_last_n": -1,
        "repeat_penalty": 1.2,
        "top_n_sigma": 2.0,
        "typical_p": 0.9,
        "xtc_probability": 0.5,
        "dynatemp_range": 0.3,
        "min_keep": 2,
    }
    assert len(shared.run_one(admit("g", PROMPT, n_predict=20, **settings)).ids) == 20


def test_probabilities_before_and_after_sampling(shared: DecoderClient) -> None:
    settings = {"n_predict": 3, "n_probs": 4, "temperature": 1.0}
    before = shared.run_one(admit("g", PROMPT, **settings)).emitted
    after = shared.run_one(admit("g", PROMPT, post_sampling_probs=True, **settings)).emitted
    assert [token.id for token in before] == [token.id for token in after]
    for token in before:
        assert token.probs
        assert len(token.probs.top) == 4
        assert 0 >= token.probs.top[0].logprob >= token.probs.top[3].logprob
    for token in after:
        assert token.probs
        assert 0 < token.probs.logprob <= 1
        assert sum(top.logprob for top in token.probs.top) <= 1.0001
