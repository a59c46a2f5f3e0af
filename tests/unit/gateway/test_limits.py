"""Limits of keys: the pure verdicts, under any history of requests."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.events import Prompt
from schemas.keys import KeyLimits, KeyUsage, RunningUse
from schemas.params import Limits, Params
from schemas.rpc import Prepared
from services.gateway.limits import meter
from services.gateway.limits.headers import anthropic_headers, duration, openai_headers
from services.gateway.limits.problems import limit_reached
from services.gateway.limits.verdict import (
    CONCURRENT,
    REQUESTS,
    TOKENS,
    TOO_LARGE,
    Cost,
    Gauge,
    Grant,
    Standing,
    Verdict,
    admit,
    cost_of,
    generation_of,
    new_place,
    settle,
    undo,
)

NOW_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000
FAR_MS = NOW_NS // 1_000_000 + 3_600_000
ONE = Cost(n_prompt=1)


class Key:
    """One key's use, on a clock of the test's own."""

    def __init__(self, **limits: int) -> None:
        self.limits = KeyLimits(**limits)
        self.usage = KeyUsage()
        self.now_ns = NOW_NS
        self.n = 0

    def ask(self, cost: Cost = ONE, *, until_ms: int = FAR_MS) -> Verdict:
        self.n += 1
        self.usage, verdict = admit(
            self.usage, self.limits, cost, f"g{self.n}", until_ms, self.now_ns
        )
        return verdict

    def end(self, number: int, verdict: Verdict, n_generated: int) -> None:
        grant = Grant(f"g{number}", verdict.n_reserved)
        self.usage = settle(self.usage, self.limits, grant, n_generated, self.now_ns)

    def wait(self, ns: int) -> None:
        self.now_ns += ns


def tokens(verdict: Verdict) -> Gauge:
    assert verdict.standing.tokens is not None
    return verdict.standing.tokens


@pytest.mark.parametrize("limit", [1, 3, 7, 60, 1_000_003])
def test_a_fresh_key_has_its_whole_limit_at_once_and_not_one_more(limit: int) -> None:
    key = Key(requests_per_minute=limit)
    n_admitted = 0
    while n_admitted < min(limit, 200) and not key.ask().refused_by:
        n_admitted += 1
    assert n_admitted == min(limit, 200)
    if limit <= 200:
        refused = key.ask()
        assert refused.refused_by == REQUESTS
        assert 0 < refused.retry_ns <= 60 * SECOND_NS // limit + 1


@given(
    limit=st.integers(1, 500),
    pauses=st.lists(st.integers(0, 20 * SECOND_NS), min_size=1, max_size=80),
)
def test_no_minute_sees_more_than_twice_the_limit_and_no_hour_more_than_the_average(
    limit: int, pauses: list[int]
) -> None:
    key, admitted = Key(requests_per_minute=limit), list[int]()
    for pause in pauses:
        key.wait(pause)
        if not key.ask().refused_by:
            admitted.append(key.now_ns)
    for at in admitted:
        n_in_minute = sum(at - 60 * SECOND_NS < other <= at for other in admitted)
        assert n_in_minute <= 2 * limit
    elapsed_ns = key.now_ns - NOW_NS
    assert len(admitted) <= limit + elapsed_ns * limit // (60 * SECOND_NS) + 1


@given(
    limit=st.integers(1, 10_000),
    n_used=st.integers(0, 400),
    pause=st.integers(0, 70 * SECOND_NS),
)
def test_who_waits_as_long_as_told_is_let_in(limit: int, n_used: int, pause: int) -> None:
    key = Key(requests_per_minute=limit)
    for _ in range(n_used):
        key.ask()
    key.wait(pause)
    verdict = key.ask()
    if verdict.refused_by:
        key.wait(verdict.retry_ns)
        assert not key.ask().refused_by


@given(
    limit=st.integers(1, 10_000),
    asks=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000)), max_size=30),
)
def test_a_refusal_charges_nothing_and_what_is_undone_was_never_there(
    limit: int, asks: list[tuple[int, int]]
) -> None:
    key = Key(tokens_per_minute=limit, requests_per_minute=1000, concurrent=100)
    for n_prompt, n_answer in asks:
        before, cost = key.usage, Cost(n_prompt, n_answer)
        verdict = key.ask(cost)
        if verdict.refused_by:
            assert key.usage == before
            continue
        grant = Grant(f"g{key.n}", verdict.n_reserved)
        undone = undo(key.usage, key.limits, grant, n_prompt, key.now_ns)
        assert undone.running == before.running
        at = key.now_ns
        for after, was, per_minute in (
            (undone.tokens_until_ns, before.tokens_until_ns, limit),
            (undone.requests_until_ns, before.requests_until_ns, 1000),
        ):
            left = meter.remaining(after, per_minute, at)
            assert left - meter.remaining(was, per_minute, at) in (0, 1)


@given(st.lists(st.sampled_from(["ask", "end", "wait"]), max_size=60), st.integers(1, 5))
def test_never_more_at_once_than_the_limit(steps: list[str], limit: int) -> None:
    key, running = Key(concurrent=limit), list[int]()
    for step in steps:
        if step == "ask":
            verdict = key.ask()
            assert bool(verdict.refused_by) == (len(running) == limit)
            if not verdict.refused_by:
                running.append(key.n)
        elif step == "end" and running:
            key.end(running.pop(0), Verdict(Standing(None, None)), 5)
        else:
            key.wait(SECOND_NS)
        assert set(key.usage.running) == {f"g{number}" for number in running}


def test_what_should_be_over_by_now_does_not_count_any_more() -> None:
    key = Key(concurrent=1)
    assert not key.ask(until_ms=NOW_NS // 1_000_000 + 10_000).refused_by
    assert key.ask().refused_by == CONCURRENT
    key.wait(10 * SECOND_NS)
    assert not key.ask().refused_by


def test_an_end_that_two_gateways_see_is_charged_once() -> None:
    key = Key(concurrent=2, tokens_per_minute=1000)
    verdict = key.ask(Cost(100, 200))
    key.end(1, verdict, 50)
    once = key.usage
    key.end(1, verdict, 50)
    assert key.usage == once
    assert meter.remaining(once.tokens_until_ns, 1000, key.now_ns) == 850


def test_promised_tokens_are_charged_until_the_real_ones_are_known() -> None:
    key = Key(tokens_per_minute=1000)
    verdict = key.ask(Cost(n_prompt=100, n_answer=500))
    assert tokens(verdict) == Gauge(1000, 400, 36 * SECOND_NS)
    assert key.ask(Cost(100, 500)).refused_by == TOKENS
    key.end(1, verdict, 50)
    assert tokens(key.ask(Cost(1, 0))).remaining == 849


def test_who_promises_more_than_the_limit_is_served_alone() -> None:
    key = Key(tokens_per_minute=1000)
    verdict = key.ask(Cost(n_prompt=100, n_answer=1_000_000))
    assert not verdict.refused_by
    assert (verdict.n_reserved, tokens(verdict).remaining) == (900, 0)


def test_an_answer_without_a_bound_leaves_a_debt_that_has_to_leak_out() -> None:
    key = Key(tokens_per_minute=600)
    verdict = key.ask(Cost(n_prompt=10))
    key.end(1, verdict, 1190)
    refused = key.ask(Cost(n_prompt=10))
    assert (refused.refused_by, refused.retry_ns) == (TOKENS, 61 * SECOND_NS)
    key.wait(refused.retry_ns)
    assert not key.ask(Cost(n_prompt=10)).refused_by


def test_a_debt_is_forgotten_after_an_hour() -> None:
    key = Key(tokens_per_minute=1)
    key.end(1, key.ask(ONE), 10**12)
    assert key.ask(ONE).retry_ns <= 61 * 60 * SECOND_NS
    assert codec.decode(codec.encode(key.usage), KeyUsage) == key.usage


def test_a_prompt_that_never_fits_is_told_so() -> None:
    key = Key(tokens_per_minute=50)
    verdict = key.ask(Cost(n_prompt=51))
    assert (verdict.refused_by, verdict.retry_ns) == (TOO_LARGE, 0)
    problem = limit_reached(verdict, key.limits, Cost(51))
    assert problem.retry_after_s is None
    assert "51" in problem.message


def test_of_several_limits_the_longest_wait_is_told() -> None:
    key = Key(requests_per_minute=60, tokens_per_minute=60)
    key.ask(Cost(60))
    verdict = key.ask(Cost(30))
    assert (verdict.refused_by, verdict.retry_ns) == (TOKENS, 30 * SECOND_NS)
    assert limit_reached(verdict, key.limits, Cost(30)).retry_after_s == 30


def test_a_gateway_whose_clock_is_behind_lets_in_a_little_later_and_nobody_more() -> None:
    key = Key(requests_per_minute=2)
    key.ask()
    key.wait(-5 * SECOND_NS)
    assert key.ask().retry_ns == 5 * SECOND_NS
    key.wait(5 * SECOND_NS)
    assert not key.ask().refused_by
    assert key.ask().refused_by == REQUESTS


def test_running_generations_cost_few_bytes() -> None:
    use = RunningUse(since_ms=NOW_NS // 1_000_000, until_ms=FAR_MS, n_reserved=100)
    usage = KeyUsage(running={f"{n:036}": use for n in range(100)})
    assert codec.decode(codec.encode(usage), KeyUsage) == usage
    assert len(codec.encode(usage)) < 100 * 64


@pytest.mark.parametrize(
    ("n_prompts", "n_cmpl", "n_predict", "expected"),
    [(1, 1, 16, Cost(3, 16)), (2, 3, 10, Cost(6, 60)), (1, 2, -1, Cost(3, 0))],
)
def test_every_prompt_once_and_every_choice(
    n_prompts: int, n_cmpl: int, n_predict: int, expected: Cost
) -> None:
    prepared = Prepared(
        prompts=(Prompt(ids=(1, 2, 3)),) * n_prompts,
        params=Params(limits=Limits(n_predict=n_predict), n_cmpl=n_cmpl),
        n_ctx=100,
    )
    assert cost_of(prepared) == expected


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (20, "20ms"),
        (1000, "1s"),
        (1500, "1.5s"),
        (60_000, "1m0s"),
        (361_000, "6m1s"),
        (3_600_000, "1h0m0s"),
    ],
)
def test_durations_are_written_as_openai_does(ms: int, text: str) -> None:
    assert duration(ms * 1_000_000) == text


def test_headers_of_both_dialects() -> None:
    standing = Standing(Gauge(10, 9, 6 * SECOND_NS), None)
    assert openai_headers(standing) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "6s",
    }
    assert anthropic_headers(standing, 1_767_225_600 * SECOND_NS) == {
        "anthropic-ratelimit-requests-limit": "10",
        "anthropic-ratelimit-requests-remaining": "9",
        "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:06Z",
    }


@pytest.mark.parametrize("change", [admit, settle, undo])
def test_usage_is_never_changed_in_place(change: Callable[..., object]) -> None:
    usage = KeyUsage(running={"a": RunningUse(since_ms=0, until_ms=FAR_MS)})
    before = msgspec.json.encode(usage)
    limits = KeyLimits(concurrent=5, tokens_per_minute=5)
    arguments = {
        admit: (ONE, "b", FAR_MS, NOW_NS),
        settle: (Grant("a", 0), 3, NOW_NS),
        undo: (Grant("a", 0), 3, NOW_NS),
    }
    change(usage, limits, *arguments[change])
    assert msgspec.json.encode(usage) == before


def test_two_gateways_that_begin_the_same_generation_have_a_place_each() -> None:
    key = Key(concurrent=3, tokens_per_minute=1000)
    grants = [Grant(new_place("the-id"), 100) for _ in range(2)]
    for grant in grants:
        key.usage, _ = admit(key.usage, key.limits, Cost(5, 100), grant.place, FAR_MS, key.now_ns)
    assert len(key.usage.running) == 2
    key.usage = undo(key.usage, key.limits, grants[0], 5, key.now_ns)
    assert list(key.usage.running) == [grants[1].place]
    assert generation_of(grants[1].place) == "the-id"
    key.usage = settle(key.usage, key.limits, grants[1], 10, key.now_ns)
    assert key.usage.running == {}
    assert meter.remaining(key.usage.tokens_until_ns, 1000, key.now_ns) == 985
