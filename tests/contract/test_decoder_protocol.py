"""What a front may rely on: frames and their order, from decoder processes real and simulated."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import codec
from schemas.errors import EXCEED_CONTEXT_SIZE, INVALID_REQUEST
from services.engine.config import EngineSettings
from services.engine.context_size import slot_context
from services.engine.decoder.pipe import LENGTH
from services.engine.llama.gguf import read_gguf
from services.engine.protocol import (
    Admit,
    Broken,
    ChoiceJob,
    Emitted,
    Ended,
    LoadFailed,
    LoadProgress,
    Output,
    PromptProgress,
    Ready,
    SlotsStarted,
    Stop,
)
from services.engine.simulation import Simulation
from tests.support.decoder_client import (
    ROOT,
    STORIES,
    DecoderClient,
    admit,
    config,
    decoder,
    params,
)

PROMPT = (1, *range(300, 310))
Changes = dict[str, object]


KINDS: dict[str, Changes] = {"real": {}, "simulated": {"simulate": Simulation(tokens_per_s=500)}}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def kind(request: pytest.FixtureRequest) -> Changes:
    """What makes a configuration one of that kind."""
    return request.param


@pytest.fixture(scope="module")
def client(kind: Changes) -> Iterator[DecoderClient]:
    """A running decoder of that kind."""
    with decoder(**kind) as a_client:
        yield a_client


@pytest.fixture(scope="module")
def real() -> Iterator[DecoderClient]:
    with decoder() as a_client:
        yield a_client


def outputs_of(client: DecoderClient, an_admit: Admit) -> list[Output]:
    """Everything that is reported of one generation, in order."""
    first = len(client.reports)
    client.send(an_admit)
    client.read_until(lambda output: isinstance(output, Ended | Broken))
    return [output for report in client.reports[first:] for output in report.outputs]


def broken(client: DecoderClient, an_admit: Admit) -> Broken:
    (output,) = outputs_of(client, an_admit)
    assert isinstance(output, Broken)
    return output


def test_a_generation_is_started_then_prefilled_then_emitted_then_ended(
    client: DecoderClient,
) -> None:
    kinds = [type(output) for output in outputs_of(client, admit("g", PROMPT, n_predict=3))]
    assert kinds == [SlotsStarted, PromptProgress, Emitted, Emitted, Emitted, Ended]


def test_the_start_says_what_will_happen(client: DecoderClient) -> None:
    first = outputs_of(client, admit("start", PROMPT, seed=5, n_predict=1, cache_prompt=False))[0]
    assert isinstance(first, SlotsStarted)
    (start,) = first.choices
    assert (start.seed, start.n_prompt, start.n_cached, start.chunks) == (5, 11, 0, (11,))
    assert 0 <= start.slot < 4


def test_one_report_per_step_for_all_slots(client: DecoderClient) -> None:
    first = len(client.reports)
    client.run(*[admit(name, PROMPT, n_predict=20) for name in ("a", "b", "c", "d")])
    emitted = [
        [output for output in report.outputs if isinstance(output, Emitted)]
        for report in client.reports[first:]
    ]
    assert sum(map(len, emitted)) == 80
    # A simulated pace that fell behind puts several steps into one report, still for all slots.
    slots = [len({output.generation_id for output in step}) for step in emitted if step]
    assert len(slots) <= 30
    assert slots.count(4) >= len(slots) // 2


def test_text_of_a_prompt_that_is_too_long(client: DecoderClient) -> None:
    problem = broken(client, admit("long", (5,) * 512)).problem
    assert problem.code == EXCEED_CONTEXT_SIZE
    assert (problem.n_prompt_tokens, problem.n_ctx) == (512, 512)


@pytest.mark.parametrize("token", [-1, 674, 2**31 - 1])
def test_ids_that_do_not_exist_never_reach_c(client: DecoderClient, token: int) -> None:
    assert broken(client, admit("bad", (1, token))).problem.code == INVALID_REQUEST
    assert client.run_one(admit("good", PROMPT, n_predict=1)).end


def test_an_empty_prompt(client: DecoderClient) -> None:
    assert broken(client, admit("empty", ())).problem.code == INVALID_REQUEST


def test_more_choices_of_one_prompt_than_slots(client: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=PROMPT, seed=n) for n in range(5))
    five = msgspec.structs.replace(params(), n_cmpl=5)
    many = Admit(generation_id="many", choices=jobs, params=five)
    assert broken(client, many).problem.code == INVALID_REQUEST


def test_more_prompts_than_slots_wait_for_slots(client: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=(*PROMPT, 300 + n), seed=n) for n in range(9))
    wanted = params(n_predict=5, ignore_eos=True)
    runs = client.run(Admit(generation_id="many", choices=jobs, params=wanted))
    assert [len(runs["many", n].ids) for n in range(9)] == [5] * 9


def test_choices_share_the_prompt_and_differ_by_seed(client: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=PROMPT, seed=n) for n in range(3))
    hot = params(n_predict=30, temperature=1.5)
    runs = client.run(Admit(generation_id="g", choices=jobs, params=hot))
    assert {len(runs["g", n].ids) for n in range(3)} == {30}
    assert len({runs["g", n].ids for n in range(3)}) == 3


def test_the_cache_is_reused(client: DecoderClient) -> None:
    client.run_one(admit("once", PROMPT, n_predict=1))
    client.run_one(admit("twice", PROMPT, n_predict=1))
    assert client.started("twice").choices[0].n_cached == len(PROMPT) - 1


def test_a_cancelled_generation_is_heard_of_no_more(client: DecoderClient) -> None:
    client.send(admit("gone", PROMPT, ignore_eos=True))
    client.read_until(lambda output: isinstance(output, Emitted))
    client.cancel("gone")
    later = outputs_of(client, admit("next", PROMPT, n_predict=20))
    n_next = next(i for i, output in enumerate(later) if isinstance(output, SlotsStarted))
    assert {getattr(output, "generation_id", "") for output in later[n_next:]} == {"next"}


def test_a_stop_string_cuts_the_text_and_shows_nothing_of_itself(client: DecoderClient) -> None:
    free = client.run_one(admit("free", PROMPT, n_predict=30))
    word = free.text[40:46]
    run = client.run_one(admit("cut", PROMPT, n_predict=30, stop=[word]))
    assert run.end
    assert (run.end.stop_type, run.end.stopping_word) == ("word", word)
    assert run.text == free.text[: free.text.index(word)]


def test_a_full_context_ends_it(client: DecoderClient) -> None:
    run = client.run_one(admit("full", (5,) * 500, ignore_eos=True))
    assert run.end
    assert (run.end.stop_type, run.end.is_truncated) == ("limit", True)
    assert len(run.ids) <= 12


def test_a_log_is_continued_as_if_nothing_had_happened(client: DecoderClient) -> None:
    run = client.run_one(admit("first", PROMPT, n_predict=20, stop=["zzz"]))
    for n in (1, 7, 19):
        job = ChoiceJob(
            choice=0,
            prompt=PROMPT,
            seed=1,
            emitted=run.ids[:n],
            texts=run.texts[:n],
            chunks=(len(PROMPT),),
        )
        again = params(n_predict=20, stop=["zzz"])
        rest = client.run_one(Admit(generation_id=f"from{n}", choices=(job,), params=again))
        assert run.ids[:n] + rest.ids == run.ids
        assert run.texts[:n] + rest.texts == run.texts


def test_a_log_of_other_texts_is_not_continued(client: DecoderClient) -> None:
    job = ChoiceJob(choice=0, prompt=PROMPT, seed=1, emitted=(300,), texts=("something else",))
    problem = broken(client, Admit(generation_id="other", choices=(job,), params=params())).problem
    assert "something else" in problem.message


def test_a_grammar_that_is_none(real: DecoderClient) -> None:
    problem = broken(real, admit("bad", PROMPT, grammar="root ::= x")).problem
    assert (problem.code, problem.param) == (INVALID_REQUEST, "grammar")
    assert real.run_one(admit("good", PROMPT, n_predict=1)).end


def test_bad_parameters(real: DecoderClient) -> None:
    problem = broken(real, admit("bad", PROMPT, repeat_penalty=0.0)).problem
    assert (problem.code, problem.param) == (INVALID_REQUEST, "repeat_penalty")


@pytest.mark.parametrize(
    ("sizes", "n_ctx", "n_ctx_slot"),
    [
        ({"n_ctx": 300, "n_slots": 2}, 512, 256),
        ({"n_ctx": 1000, "n_slots": 3}, 1536, 512),
        ({"n_ctx": 500, "n_slots": 2, "caching": {"is_unified": True}}, 512, 512),
        ({"n_ctx": 512, "n_slots": 2, "caching": {"max_slot_tokens": 100}}, 512, 100),
    ],
)
def test_ready_carries_the_sizes_that_the_context_has(
    kind: Changes, sizes: dict[str, Any], n_ctx: int, n_ctx_slot: int
) -> None:
    with decoder(**kind, **sizes) as a_client:
        ready = a_client.reports[-1].outputs[-1]
    assert ready == Ready(n_ctx=n_ctx, n_ctx_slot=n_ctx_slot, n_slots=sizes["n_slots"])


def test_front_and_decoder_reckon_with_the_same_sizes(kind: Changes) -> None:
    settings = EngineSettings(
        engine="e", host="h", model_key="k", model_name="m", model_path=STORIES, n_ctx=700
    )
    expected = slot_context(settings, read_gguf(STORIES).n_ctx_train)
    with decoder(n_ctx=700, **kind) as a_client:
        ready = a_client.reports[-1].outputs[-1]
    assert isinstance(ready, Ready)
    assert (ready.n_ctx, ready.n_ctx_slot) == expected


def test_loading_a_real_model_tells_how_far_it_is() -> None:
    client = DecoderClient(config())
    client.wait_ready()
    told = [o.fraction for r in client.reports for o in r.outputs if isinstance(o, LoadProgress)]
    client.close()
    assert told == sorted(told)
    assert told[-1] == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), (b"PK\x03\x04", "not a GGUF file"), (b"GGUF\x03", "cannot load")],
)
def test_a_model_that_cannot_be_loaded(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x.gguf"
    if content is not None:
        path.write_bytes(content)
    client = DecoderClient(config(model_path=str(path)))
    failed = client.read_until(lambda output: isinstance(output, LoadFailed))
    assert client.wait() == 78
    client.close()
    assert isinstance(failed, LoadFailed)
    assert message in failed.message
    assert "\n" not in failed.message


def test_stop_ends_it(kind: Changes) -> None:
    with decoder(**kind) as client:
        client.send(admit("g", PROMPT, n_predict=400), Stop())
        assert client.wait() == 0


def test_signals_are_the_fronts_business(kind: Changes) -> None:
    with decoder(**kind) as client:
        client.process.send_signal(signal.SIGTERM)
        client.process.send_signal(signal.SIGINT)
        assert client.run_one(admit("g", PROMPT, n_predict=3)).end


def test_end_of_file_ends_it_while_it_works(kind: Changes) -> None:
    with decoder(**kind) as client:
        client.send(admit("g", PROMPT, ignore_eos=True))
        client.read_until(lambda output: isinstance(output, Emitted))
        client.connection.close()
        assert client.wait() == 0


ORPHANER = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
command = [sys.executable, "-m", "services.cli", "decoder", str(theirs.fileno())]
child = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
theirs.close()
ours.sendall(bytes.fromhex(sys.argv[1]))
ours.recv(1 << 16)
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_a_front_that_is_killed_leaves_no_decoder_behind(kind: Changes) -> None:
    frame = codec.encode(config(**kind))
    words = [sys.executable, "-c", ORPHANER, (LENGTH.pack(len(frame)) + frame).hex()]
    ours, theirs = os.pipe()
    front = subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs
    )
    assert front.stdout
    assert front.stdin
    os.close(theirs)
    assert int(front.stdout.readline()) > 0
    front.kill()
    front.communicate()
    with open(ours, "rb") as its_stderr:
        assert its_stderr.read() == b"", "it ends when the decoder does, and nothing was said"
