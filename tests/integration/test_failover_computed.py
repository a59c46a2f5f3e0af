"""A real model's decoder is killed in the middle of answers of every kind: they read as undisturbed ones.

Equal to the last bit, since they stay below 512 KV cells and have no neighbours.
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from schemas.events import Claimed
from tests.support.drill import Drill, begun, drill
from tests.support.fleet import TINY, Fleet
from tests.support.gateway import frames_of
from tests.support.nats_nodes import nats_nodes
from tests.support.readers import Answer

MAX_TRIES = 5
"""A hundred tokens of the tiny model take less than 0.1 s, and this process may be held up for that long."""
PROMPT = "Once upon a time there was"
SAMPLED = {"temperature": 0.9, "seed": 11, "n_predict": 150, "ignore_eos": True}
SCHEMA = {"type": "array", "items": {"type": "string", "minLength": 30}, "minItems": 8}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "probabilities": {"n_probs": 5},
    "probabilities after sampling": {"n_probs": 5, "post_sampling_probs": True},
    "grammar": {"grammar": 'root ::= ([a-z]{1,9} " "){60} "."', "n_predict": 200},
    "json schema": {"json_schema": SCHEMA, "n_predict": 200},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "penalties and dry": {"repeat_penalty": 1.2, "presence_penalty": 0.3, "dry_multiplier": 0.8},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.05},
    "dynamic temperature": {"dynatemp_range": 0.5, "typical_p": 0.9, "top_n_sigma": 2.0},
    "adaptive": {"samplers": ["top_k", "adaptive_p"], "adaptive_target": 0.4},
    "two choices": {"n_cmpl": 2},
    "stop string": {"stop": ["zzzz", "ever after it"]},
    "context shift": {"n_predict": 330},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("computed")
    variables = {
        "LLAMA_ARG_MODEL": str(TINY),
        "LLAMA_ARG_CTX_SIZE": "1024",
        "LLAMA_ARG_N_PARALLEL": "4",
        "LLAMA_ARG_KV_UNIFIED": "off",
        "LLAMA_ARG_CONTEXT_SHIFT": "on",
    }
    with nats_nodes(folder / "nats") as nats, Fleet(nats, folder, **variables) as running:
        running.start("m0", "g0", "g1", "s0")
        yield running


@pytest.fixture
async def alone(fleet: Fleet) -> AsyncIterator[Drill]:
    async with drill(fleet, "e0") as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_decoder(alone: Drill, kind: str) -> None:
    body = {"prompt": PROMPT} | SAMPLED | KINDS[kind]
    for _ in range(MAX_TRIES):
        calm = await answered(alone, body)
        answer = await killed(alone, body, len(calm.body) // 4)
        if sum(isinstance(event, Claimed) for event in await alone.events(answer)) > 1:
            break
    await alone.check(answer, n_attempts=2)
    assert said(answer) == said(calm)
    await alone.no_slot_is_busy()


async def killed(alone: Drill, body: dict[str, Any], n_bytes: int) -> Answer:
    """An answer whose decoder is killed when so much of it has come, unless it was faster than that."""
    a_reader = alone.reader()
    decoder = alone.fleet["e0"].session.one("decoder")
    asking = alone.ask(a_reader, **body)
    await begun(a_reader, n_bytes)
    os.kill(decoder, signal.SIGKILL)
    return await asking


async def answered(alone: Drill, body: dict[str, Any]) -> Answer:
    """The same, undisturbed; nothing of it is in a cache of the decoder that comes."""
    answer = await alone.ask(alone.reader(), **body)
    await alone.check(answer, n_attempts=1)
    return answer


def said(answer: Answer) -> list[tuple[Any, ...]]:
    """Per choice and token: its text, id and probabilities; at the end what ended it and the counts."""
    frames = [json.loads(frame) for frame in frames_of(answer.body.decode())]
    content = [f for f in frames if not f.get("stop")]
    pieces = [
        (f["index"], f["content"], f["tokens"], json.dumps(f.get("completion_probabilities")))
        for f in content
    ]
    ends = [
        (f["index"], f["stop_type"], f["stopping_word"], f["tokens_predicted"], f["truncated"])
        for f in frames
        if f.get("stop")
    ]
    return [*_joined(pieces), *sorted(ends)]


def _joined(pieces: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """However the tokens were merged into frames: one text, one list of ids per choice."""
    choices = sorted({piece[0] for piece in pieces})
    return [
        (
            choice,
            "".join(text for index, text, _, _ in pieces if index == choice),
            [i for index, _, ids, _ in pieces if index == choice for i in ids],
            [
                p
                for index, _, _, probs in pieces
                if index == choice
                for p in json.loads(probs) or []
            ],
        )
        for choice in choices
    ]
