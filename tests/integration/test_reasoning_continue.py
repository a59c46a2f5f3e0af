"""The reasoning budget in a real decoder: forced ends, ordered ends, and both restored from a log."""

from collections.abc import Iterator
from typing import Any

import pytest

from services.engine.protocol import Admit, Control, Emitted, Ended, Output, ReasoningEnded
from tests.support.continuing import cut, fresh
from tests.support.decoder_client import DecoderClient, decoder, params

PROMPT = (1, *range(300, 340))
FORCED = (500, 501, 502)
END = (502,)
N_PREDICT = 40


@pytest.fixture(scope="module")
def first() -> Iterator[DecoderClient]:
    with decoder() as client:
        yield client


@pytest.fixture(scope="module")
def second() -> Iterator[DecoderClient]:
    with decoder() as client:
        yield client


def thinking(name: str, *, n_predict: int = N_PREDICT, **fields: object) -> Admit:
    """A choice that thinks from its first token on."""
    tags = {
        "reasoning_budget_start": [7],
        "reasoning_budget_prefill": [7],
        "reasoning_budget_ends": [list(END)],
        "reasoning_budget_forced": list(FORCED),
    }
    sampling = params(n_predict=n_predict, ignore_eos=True, **tags, **fields)
    return fresh(name, PROMPT, 7, sampling)


def outputs_of(client: DecoderClient, admit: Admit, *, order_at: int = -1) -> list[Output]:
    """Everything that is reported of a choice; the end of its thinking is ordered once, when it has
    said so many tokens."""
    client.send(admit)
    outputs: list[Output] = []
    while not outputs or not isinstance(outputs[-1], Ended):
        for output in client.read().outputs:
            if isinstance(output, Emitted | ReasoningEnded | Ended):
                outputs.append(output)
            if isinstance(output, Emitted) and output.index == order_at:
                client.send(Control(generation_id=admit.generation_id, action="reasoning_end"))
    return outputs


def ids_of(outputs: list[Output]) -> tuple[int, ...]:
    return tuple(output.id for output in outputs if isinstance(output, Emitted))


@pytest.mark.parametrize("sampling", [{}, {"mirostat": 2}, {"xtc_probability": 0.5}])
def test_a_spent_budget_forces_the_end_and_is_restored(
    sampling: dict[str, Any], first: DecoderClient, second: DecoderClient
) -> None:
    name = f"budget {sampling}"
    admit = thinking(name, reasoning_budget_tokens=6, **sampling)
    outputs = outputs_of(first, admit)
    ids = ids_of(outputs)
    assert ids[6:9] == FORCED
    start = first.started(name).choices[0]
    for n in (3, 6, 7, 9, 20):
        again = cut(admit, start, outputs, n, f"{name} {n}")
        assert ids[:n] + second.run_one(again).ids == ids, n


def test_an_ordered_end_is_reported_and_restored(
    first: DecoderClient, second: DecoderClient
) -> None:
    admit = thinking("ordered", n_predict=300, reasoning_control=True)
    outputs = outputs_of(first, admit, order_at=5)
    ids = ids_of(outputs)
    (ordered,) = [output for output in outputs if isinstance(output, ReasoningEnded)]
    assert ids[ordered.index : ordered.index + 3] == FORCED
    start = first.started("ordered").choices[0]
    for n in (ordered.index, ordered.index + 1, ordered.index + 30):
        again = cut(admit, start, outputs, n, f"ordered {n}")
        assert ids[:n] + second.run_one(again).ids == ids, n


def test_an_order_without_thinking_changes_nothing(first: DecoderClient) -> None:
    plain = fresh("plain", PROMPT, 7, params(n_predict=300, ignore_eos=True))
    outputs = outputs_of(first, plain, order_at=3)
    assert not [output for output in outputs if isinstance(output, ReasoningEnded)]
    assert len(ids_of(outputs)) == 300
