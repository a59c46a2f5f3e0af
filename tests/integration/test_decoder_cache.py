"""What slots keep, on real models: shifts, moved pieces, prompts in RAM, files."""

import struct
from pathlib import Path
from typing import Any

import pytest

from services.engine.llama.vocabulary import Vocabulary
from services.engine.protocol import (
    ActOnSlot,
    Admit,
    ChoiceJob,
    ContextShifted,
    Emitted,
    PromptProgress,
    SlotActed,
)
from tests.support.decoder_checks import GREEDY, end_of, logprobs, n_cached
from tests.support.decoder_client import (
    ROOT,
    STORIES,
    DecoderClient,
    admit,
    decoder,
    params,
)

WINDOWED = str(ROOT / "tests" / "models" / "vision-tiny.gguf")
"""Has a sliding window of 256 tokens in some of its layers."""
WELL_KNOWN = " I believe the meaning of life is"
FRANCE = (1, *range(300, 320))


def prompt(number: int, n: int = 30) -> tuple[int, ...]:
    """Prompts that have only their first token in common."""
    return (1, *(270 + (number * 37 + i * 11) % 400 for i in range(n)))


def ids_of(text: str) -> tuple[int, ...]:
    return Vocabulary(STORIES).tokenize(text, add_special=False, parse_special=False)


# -- context shift ---------------------------------------------------------------------------------

SHIFTING: dict[str, Any] = {"n_ctx": 256, "n_slots": 1, "caching": {"is_shifting": True}}


def shifts_of(client: DecoderClient) -> list[ContextShifted]:
    return [o for r in client.reports for o in r.outputs if isinstance(o, ContextShifted)]


def test_a_full_slot_goes_on() -> None:
    with decoder(**SHIFTING) as client:
        run = client.run_one(admit("g", prompt(1, 225), n_predict=96, ignore_eos=True))
        (shifted,) = shifts_of(client)
    end = end_of(run)
    assert (len(run.ids), end.stop_type, end.is_truncated) == (96, "limit", True)
    assert (end.n_prompt, end.n_context) == (226, 226 + 95 - 127)
    shift = shifted.shift
    assert (shift.index, shift.n_keep, shift.n_discard, shift.n_past) == (30, 1, 127, 255)


def test_what_is_to_be_kept_is_kept() -> None:
    with decoder(**SHIFTING) as client:
        limits: dict[str, Any] = {
            "n_predict": 400,
            "n_keep": 50,
            "n_discard": 20,
            "ignore_eos": True,
        }
        client.run_one(admit("g", prompt(1, 100), **limits))
        shifts = [shifted.shift for shifted in shifts_of(client)]
    assert {(s.n_keep, s.n_discard, s.n_past) for s in shifts} == {(51, 20, 255)}
    assert [s.index for s in shifts][:3] == [155, 175, 195]


def test_a_model_that_cannot_move_cells_ends_where_it_is_full() -> None:
    with decoder(**SHIFTING, model_path=WINDOWED) as client:
        end = end_of(client.run_one(admit("g", (2, *range(5, 40)), ignore_eos=True)))
    assert (end.stop_type, end.is_truncated) == ("limit", True)


@pytest.mark.parametrize("n_logged", [29, 30, 31, 60, 95, 150, 161, 199])
def test_a_shifted_log_is_continued_bit_for_bit(n_logged: int) -> None:
    """Shifts come before tokens 30, 157 (and so on); cut before, at, and after them."""
    job = ChoiceJob(choice=0, prompt=prompt(1, 225), seed=3)
    wanted = params(n_predict=200, temperature=0.8, n_probs=1, ignore_eos=True)
    with decoder(**SHIFTING) as client:
        whole = client.run_one(Admit(generation_id="g", choices=(job,), params=wanted))
        start = client.started("g").choices[0]
        shifts = tuple(shifted.shift for shifted in shifts_of(client))
    assert [shift.index for shift in shifts] == [30, 157]
    rest_job = ChoiceJob(
        choice=0,
        prompt=job.prompt,
        seed=3,
        emitted=whole.ids[:n_logged],
        texts=whole.texts[:n_logged],
        chunks=start.chunks,
        shifts=tuple(shift for shift in shifts if shift.index <= n_logged),
    )
    with decoder(**SHIFTING) as client:
        rest = client.run_one(Admit(generation_id="g", choices=(rest_job,), params=wanted))
        later = [shifted.shift for shifted in shifts_of(client)]
    assert rest.ids == whole.ids[n_logged:]
    assert [t.probs for t in rest.emitted] == [t.probs for t in whole.emitted[n_logged:]]
    assert later == [shift for shift in shifts if shift.index > n_logged]
    assert end_of(rest).n_context == end_of(whole).n_context
    assert end_of(rest).is_truncated


def test_in_a_large_slot_the_window_is_decoded_anew() -> None:
    large: dict[str, Any] = {"n_ctx": 1024, "n_slots": 1, "caching": {"is_shifting": True}}
    job = ChoiceJob(choice=0, prompt=prompt(1, 1000), seed=3)
    wanted = params(n_predict=100, temperature=0.0, ignore_eos=True)
    with decoder(**large) as client:
        whole = client.run_one(Admit(generation_id="g", choices=(job,), params=wanted))
        (shifted,) = shifts_of(client)
    rest_job = ChoiceJob(
        choice=0, prompt=job.prompt, seed=3, emitted=whole.ids[:60], shifts=(shifted.shift,)
    )
    with decoder(**large) as client:
        rest = client.run_one(Admit(generation_id="g", choices=(rest_job,), params=wanted))
        progress = [o for r in client.reports for o in r.outputs if isinstance(o, PromptProgress)]
    assert [token.index for token in rest.emitted] == list(range(60, 100))
    assert end_of(rest).n_context == end_of(whole).n_context
    assert progress == []


# -- moved pieces ----------------------------------------------------------------------------------


def test_moved_pieces_are_reused() -> None:
    """The model knows the answer, whatever stood before; wrong positions would make it stammer."""
    bos, gone, tail = (1,), ids_of(" The cat ran to the tree."), ids_of(WELL_KNOWN)
    with decoder(n_slots=1) as client:
        client.run_one(admit("a", bos + gone + tail, n_predict=1, **GREEDY))
        run = client.run_one(admit("b", bos + tail, n_predict=15, n_cache_reuse=8, **GREEDY))
    assert end_of(run).n_cached == len(tail), "all but the last token of the prompt"
    assert end_of(run).timings.n_prompt == 1
    assert run.text.startswith(" going to bed early and being kind to all.")


def test_pieces_are_not_moved_unless_asked_for() -> None:
    head, tail = prompt(1, 20), prompt(3, 60)[1:]
    with decoder(n_slots=1) as client:
        n_cached(client, "a", head + prompt(2, 30)[1:] + tail)
        assert n_cached(client, "b", head + tail) == len(head)


# -- prompts in RAM --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_unified", [True, False])
def test_a_prompt_that_lost_its_slot_comes_back_exactly(is_unified: bool) -> None:
    ids = prompt(1, 200)
    config: dict[str, Any] = {"n_slots": 1, "caching": {"is_unified": is_unified}}
    with decoder(**config) as client:
        n_cached(client, "a", ids)
        n_cached(client, "b", prompt(2, 200))
        run = client.run_one(admit("a2", (*ids, 300), n_predict=1, n_probs=5, **GREEDY))
    assert end_of(run).n_cached == len(ids)
    with decoder(**config) as client:
        n_cached(client, "a", ids)
        stayed = client.run_one(admit("a2", (*ids, 300), n_predict=1, n_probs=5, **GREEDY))
    assert logprobs(run) == logprobs(stayed)


def test_many_conversations_on_few_slots() -> None:
    with decoder(n_ctx=1024, n_slots=2, caching={"is_unified": True}) as client:
        for number in range(6):
            assert n_cached(client, f"first {number}", prompt(number, 100)) <= 1
        for number in range(6):
            assert n_cached(client, f"then {number}", (*prompt(number, 100), 300)) == 101


def test_without_ram_the_prompt_is_decoded_anew() -> None:
    with decoder(n_slots=1, caching={"ram_mib": 0}) as client:
        n_cached(client, "a", prompt(1, 100))
        n_cached(client, "b", prompt(2, 100))
        assert n_cached(client, "a again", prompt(1, 100)) <= 1


# -- sharing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_unified", [True, False])
def test_choices_share_one_prefill(is_unified: bool) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=prompt(1, 400), seed=n) for n in range(4))
    with decoder(n_ctx=2048, caching={"is_unified": is_unified}) as client:
        runs = client.run(Admit(generation_id="g", choices=jobs, params=params(n_predict=9)))
        outputs = [o for r in client.reports for o in r.outputs]
        firsts = [o for o in outputs if isinstance(o, Emitted) and o.index == 0]
        for number in range(4):
            alone = admit(f"alone {number}", prompt(1, 400), seed=number, n_predict=9)
            assert client.run_one(alone).ids == runs["g", number].ids
    assert max(o.prompt_us for o in firsts) < 1.5 * min(o.prompt_us for o in firsts)
    assert {end_of(run).n_cached for run in runs.values()} == {0}


# -- files -----------------------------------------------------------------------------------------


def act(client: DecoderClient, action: str, slot: int, path: Path | str = "") -> SlotActed:
    client.send(ActOnSlot(id=7, slot=slot, action=action, path=str(path)))
    acted = client.read_until(lambda output: isinstance(output, SlotActed))
    assert isinstance(acted, SlotActed)
    return acted


def test_a_slot_goes_through_a_file(tmp_path: Path) -> None:
    with decoder() as client:
        client.run_one(admit("a", FRANCE, n_predict=64, ignore_eos=True, id_slot=1, **GREEDY))
        saved = act(client, "save", 1, tmp_path / "slot.bin")
        assert (saved.n_tokens, saved.problem) == (84, None)
        assert saved.n_bytes == (tmp_path / "slot.bin").stat().st_size
        assert [path.name for path in tmp_path.iterdir()] == ["slot.bin"]
    with decoder(caching={"ram_mib": 0}) as client:
        restored = act(client, "restore", 0, tmp_path / "slot.bin")
        assert (restored.n_tokens, restored.n_bytes, restored.n_held) == (84, saved.n_bytes, 84)
        assert n_cached(client, "b", (*FRANCE[:15], *range(400, 406)), id_slot=0) == 15
        assert act(client, "erase", 0).n_tokens == 22
        assert n_cached(client, "c", FRANCE, id_slot=0) == 0


def test_files_of_older_servers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    with decoder(caching={"ram_mib": 0}) as client:
        client.run_one(admit("a", FRANCE, n_predict=10, ignore_eos=True, id_slot=1))
        act(client, "save", 1, path)
        data = path.read_bytes()
        n_words = struct.unpack_from("=I", data, 8)[0]
        tokens, rest = data[24 : 24 + 4 * 30], data[12 + 4 * n_words :]
        path.write_bytes(data[:8] + struct.pack("=I", 30) + tokens + rest)
        assert act(client, "restore", 0, path).n_tokens == 30
        assert n_cached(client, "b", FRANCE, id_slot=0) == 20


def broken_files(data: bytes) -> dict[str, bytes]:
    n_words, n_tokens = struct.unpack_from("=I", data, 8)[0], struct.unpack_from("=I", data, 20)[0]
    shorter = data[:8] + struct.pack("=I", n_words - 1) + data[12:20]
    shorter += struct.pack("=I", n_tokens - 1) + data[28:]
    words = bytearray(data)
    words[24:28] = struct.pack("=i", 2**30)
    return {
        "Unable": b"",
        "not a file of this model": data[: len(data) // 2],
        "Invalid tokens": bytes(words),
        "do not belong together": shorter,
        "unknown version": data[:16] + struct.pack("=I", 99) + data[20:],
        "no room": data[:8] + struct.pack("=I", 2**31) + data[12:],
    }


def test_what_is_no_slot_file_is_refused_and_the_slot_is_empty_then(tmp_path: Path) -> None:
    path = tmp_path / "slot.bin"
    with decoder(caching={"ram_mib": 0}) as client:
        client.run_one(admit("a", FRANCE, n_predict=10, ignore_eos=True, id_slot=1))
        act(client, "save", 1, path)
        for reason, data in broken_files(path.read_bytes()).items():
            n_cached(client, "fill", FRANCE, id_slot=0)
            (tmp_path / "broken.bin").write_bytes(data)
            refused = act(client, "restore", 0, tmp_path / "broken.bin")
            assert refused.problem is not None, reason
            assert reason in refused.problem.message
            assert refused.n_held == 0
            assert n_cached(client, "after", FRANCE, id_slot=0) == 0
        missing = act(client, "restore", 0, tmp_path / "missing.bin").problem
        assert missing is not None
        assert "no such file" in missing.message


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    with decoder(model_path=WINDOWED) as client:
        client.run_one(admit("a", (2, *range(5, 30)), n_predict=5, id_slot=0))
        act(client, "save", 0, tmp_path / "slot.bin")
    with decoder() as client:
        problem = act(client, "restore", 0, tmp_path / "slot.bin").problem
        assert problem is not None
        assert n_cached(client, "after", FRANCE, id_slot=0) == 0


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with decoder() as client:
        n_cached(client, "a", FRANCE, id_slot=1)
        problem = act(client, "save", 1, tmp_path / "none" / "slot.bin").problem
    assert problem is not None
    assert "Unable to save slot" in problem.message


def test_a_busy_slot_is_waited_for() -> None:
    with decoder() as client:
        client.send(admit("a", FRANCE, n_predict=100, ignore_eos=True, id_slot=1))
        client.read_until(lambda output: isinstance(output, Emitted))
        erased = act(client, "erase", 1)
        assert erased.n_tokens == len(FRANCE) + 99
        assert client.run_one(admit("b", FRANCE, n_predict=1)).end
