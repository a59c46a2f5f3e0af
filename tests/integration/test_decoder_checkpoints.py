"""Sliding windows and recurrent states, on real models: follow-up turns go back to checkpoints."""

from typing import Any

import pytest

from services.engine.protocol import Admit, ChoiceJob
from tests.support.decoder_checks import GREEDY, end_of, logprobs, n_cached, probs_with
from tests.support.decoder_client import ROOT, admit, decoder, params
from tests.support.recurrent_model import write_model

WINDOWED = str(ROOT / "tests" / "models" / "vision-tiny.gguf")
"""Has a sliding window of 256 tokens."""

# -- sliding windows -------------------------------------------------------------------------------


def story(n: int, last: int) -> tuple[int, ...]:
    """Prompts that differ in their last token only, for the model with a window."""
    return (2, *(5 + i * 7 % 90 for i in range(n)), last)


WINDOW: dict[str, Any] = {"model_path": WINDOWED, "n_ctx": 2048, "n_slots": 1, "n_ubatch": 256}


def test_a_follow_up_turn_of_a_sliding_window_model_does_not_begin_from_zero() -> None:
    with decoder(**WINDOW) as client:
        client.run_one(admit("a", story(1200, 50), n_predict=300, ignore_eos=True))
        asked = admit("b", story(1200, 60), n_predict=1, n_probs=5, **GREEDY)
        run = client.run_one(asked)
    assert end_of(run).n_cached == 1202 - 4
    fresh = probs_with(story(1200, 60), **WINDOW)
    assert logprobs(run) == pytest.approx(fresh, abs=0.2)


@pytest.mark.parametrize(
    "caching", [{"n_checkpoints": 0, "ram_mib": 0}, {"is_swa_full": True, "ram_mib": 0}]
)
def test_without_checkpoints_it_must_unless_all_cells_are_kept(caching: dict[str, object]) -> None:
    with decoder(**WINDOW, caching=caching) as client:
        client.run_one(admit("a", story(1200, 50), n_predict=300, ignore_eos=True))
        expected = 1201 if "is_swa_full" in caching else 0
        assert n_cached(client, "b", story(1200, 60)) == expected


def test_checkpoints_come_back_from_ram() -> None:
    with decoder(**WINDOW) as client:
        client.run_one(admit("a", story(1200, 50), n_predict=300, ignore_eos=True))
        n_cached(client, "b", (2, *range(6, 90)))
        assert n_cached(client, "c", story(1200, 60)) == 1202 - 4


# -- recurrent states ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("models") / "recurrent.gguf"
    return {"model_path": write_model(path), "n_ctx": 2048, "n_slots": 1, "n_ubatch": 256}


def bytes_of(n: int, last: int) -> tuple[int, ...]:
    return (1, *(3 + i * 7 % 250 for i in range(n)), last)


def test_a_follow_up_turn_of_a_recurrent_model_goes_back_to_a_checkpoint(
    recurrent: dict[str, Any],
) -> None:
    with decoder(**recurrent) as client:
        client.run_one(admit("a", bytes_of(600, 50), n_predict=50, ignore_eos=True))
        run = client.run_one(admit("b", bytes_of(600, 60), n_predict=1, n_probs=5, **GREEDY))
        earlier = (*bytes_of(600, 60)[:400], 9)
        assert n_cached(client, "c", earlier) == 602 - 4 - 256
    assert end_of(run).n_cached == 602 - 4
    fresh = probs_with(bytes_of(600, 60), **recurrent)
    assert logprobs(run) == pytest.approx(fresh, abs=1e-4)


def test_a_recurrent_model_continues_where_it_was(recurrent: dict[str, Any]) -> None:
    with decoder(**recurrent) as client:
        first = client.run_one(admit("a", bytes_of(100, 50), n_predict=20, ignore_eos=True))
        longer = (*bytes_of(100, 50), *first.ids[:-1], 77)
        assert n_cached(client, "b", longer) == len(longer) - 1


def test_a_recurrent_model_without_checkpoints_begins_anew(recurrent: dict[str, Any]) -> None:
    with decoder(**recurrent, caching={"n_checkpoints": 0}) as client:
        n_cached(client, "a", bytes_of(100, 50))
        assert n_cached(client, "b", bytes_of(100, 60)) == 0


def test_a_recurrent_model_with_several_slots(recurrent: dict[str, Any]) -> None:
    with decoder(**{**recurrent, "n_slots": 3}) as client:
        jobs = tuple(ChoiceJob(choice=n, prompt=bytes_of(100, 50), seed=n) for n in range(3))
        many = Admit(generation_id="g", choices=jobs, params=params(n_predict=9))
        runs = client.run(many)
        for number in range(3):
            alone = admit(f"alone {number}", bytes_of(100, 50), seed=number, n_predict=9)
            assert client.run_one(alone).ids == runs["g", number].ids
