"""Long prompts beside a chat, on real models: decoded aside, they give what they give alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.engine.protocol import Admit, Broken, Cancel, ChoiceJob, Emitted, PromptProgress
from tests.support.decoder_checks import GREEDY, end_of, logprobs, probs_with
from tests.support.decoder_client import ROOT, DecoderClient, Run, admit, config, decoder, params
from tests.support.recurrent_model import write_model

WINDOWED = str(ROOT / "tests" / "models" / "vision-tiny.gguf")
"""Has a sliding window of 256 tokens."""
THREADS: dict[str, Any] = {"n_threads": 2}
SIDE: dict[str, Any] = {**THREADS, "caching": {"prefill_threads": 1, "is_unified": True}}
CHAT = admit("chat", (1, *range(300, 310)), ignore_eos=True)


def prompt(n: int, last: int = 400) -> tuple[int, ...]:
    return (1, *(280 + i * 7 % 200 for i in range(n - 2)), last)


@pytest.fixture
def chatting() -> Iterator[DecoderClient]:
    """A decoder in which a chat goes on and on."""
    with decoder(**SIDE, n_ctx=8192) as client:
        begin_chat(client, CHAT)
        yield client


def begin_chat(client: DecoderClient, chat: Admit) -> None:
    client.send(chat)
    client.read_until(lambda o: isinstance(o, Emitted) and o.generation_id == "chat")


def beside(client: DecoderClient, admit: Admit) -> Run:
    """Run it to its end while the chat goes on."""
    return client.run_one(admit)


def pieces(client: DecoderClient, name: str) -> list[int]:
    """How much of a prompt was processed, by the reports."""
    outputs = (output for report in client.reports for output in report.outputs)
    progress = (o for o in outputs if isinstance(o, PromptProgress) and o.generation_id == name)
    return [output.n_processed for output in progress]


def logprobs_of(run: Run) -> list[float]:
    return [token.probs.logprob for token in run.emitted if token.probs]


def n_chat_tokens_before(client: DecoderClient, name: str) -> int:
    """Tokens of the chat between the first piece of a prompt and its first token."""
    n, is_begun = 0, False
    for output in (output for report in client.reports for output in report.outputs):
        match output:
            case PromptProgress() if output.generation_id == name:
                is_begun = True
            case Emitted() if output.generation_id == name:
                break
            case Emitted():
                n += is_begun
            case _:
                pass
    return n


def test_a_long_prompt_is_decoded_in_pieces_while_the_chat_goes_on(chatting: DecoderClient) -> None:
    run = beside(chatting, admit("long", prompt(1500), n_predict=3, **GREEDY))
    done = pieces(chatting, "long")
    sizes = [b - a for a, b in zip([0, *done], done, strict=False)]
    assert sizes[-1] == 1, "the last one here"
    assert all(64 <= size <= 128 for size in sizes[:-1])
    assert sum(sizes) == 1500 == end_of(run).n_prompt
    assert n_chat_tokens_before(chatting, "long") >= len(sizes)


def test_its_log_is_continued_as_it_was() -> None:
    """Alone, while the first attempt had a neighbour: the model's weights are floats, whose sums differ
    in the last bits by that."""
    split: dict[str, Any] = {**THREADS, "caching": {"prefill_threads": 1}}
    wanted = params(n_predict=40, temperature=0.8, n_probs=3, ignore_eos=True)
    job = ChoiceJob(choice=0, prompt=prompt(400), seed=5)
    with decoder(**split) as client:
        begin_chat(client, CHAT)
        run = beside(client, Admit(generation_id="long", choices=(job,), params=wanted))
        bounds = pieces(client, "long")
    chunks = tuple(b - a for a, b in zip([0, *bounds], bounds, strict=False))
    logged = ChoiceJob(
        choice=0,
        prompt=job.prompt,
        seed=5,
        emitted=run.ids[:10],
        texts=run.texts[:10],
        chunks=chunks,
    )
    with decoder(**split) as client:
        again = client.run_one(Admit(generation_id="again", choices=(logged,), params=wanted))
    assert again.ids == run.ids[10:]
    assert logprobs_of(again) == pytest.approx(logprobs_of(run)[10:], abs=1e-3)


@pytest.mark.parametrize("caching", [{"is_unified": True}, {}, {"is_unified": True, "ram_mib": 0}])
@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_it_gives_what_it_gives_alone(caching: dict[str, Any], flash_attn: str) -> None:
    ways: dict[str, Any] = {"n_ctx": 8192, "context": {"flash_attn": flash_attn}}
    asked = admit("long", prompt(1500), n_predict=1, n_probs=5, **GREEDY)
    side = {**caching, "prefill_threads": 1}
    with decoder(**THREADS, **ways, caching=side) as client:
        begin_chat(client, CHAT)
        run = beside(client, asked)
        assert len(pieces(client, "long")) > 10
    assert logprobs(run) == pytest.approx(probs_with(prompt(1500), **ways), abs=0.2)


def test_a_follow_up_takes_along_what_its_slot_holds(chatting: DecoderClient) -> None:
    first = beside(chatting, admit("first", prompt(1000), n_predict=2, **GREEDY))
    longer = (*prompt(1000), *first.ids[:1], *prompt(700)[1:])
    run = beside(chatting, admit("second", longer, n_predict=1, n_probs=5, **GREEDY))
    assert end_of(run).n_cached >= 1000
    assert len(pieces(chatting, "second")) > 4
    assert logprobs(run) == pytest.approx(probs_with(longer, n_ctx=8192), abs=0.2)


def test_a_follow_up_in_a_cache_of_its_own() -> None:
    """The slot's cells go to a context of one stream and come back; the slots differ in where they are."""
    with decoder(**THREADS, n_ctx=8192, caching={"prefill_threads": 1}) as client:
        begin_chat(client, CHAT)
        for number in range(3):
            start = prompt(500, 300 + number)
            first = beside(client, admit(f"first {number}", start, n_predict=2, **GREEDY))
            longer = (*start, *first.ids[:1], *prompt(700)[1:])
            asked = admit(f"second {number}", longer, n_predict=1, n_probs=5, **GREEDY)
            run = beside(client, asked)
            assert end_of(run).n_cached >= 500
            assert logprobs(run) == pytest.approx(probs_with(longer, n_ctx=8192), abs=0.2)


def test_moved_pieces_go_along_in_their_new_places(chatting: DecoderClient) -> None:
    caching = {"n_cache_reuse": 64}
    beside(chatting, admit("first", prompt(900), n_predict=2, **caching, **GREEDY))
    shorter = (*prompt(900)[:300], *prompt(900)[400:], *prompt(500)[1:])
    alone = {**SIDE, "n_ctx": 8192}
    with decoder(**alone) as client:
        client.run_one(admit("first", prompt(900), n_predict=2, **caching, **GREEDY))
        asked = admit("second", shorter, n_predict=1, n_probs=5, **caching, **GREEDY)
        expected = client.run_one(asked)
    run = beside(chatting, asked)
    assert end_of(run).n_cached == end_of(expected).n_cached > 700
    assert len(pieces(chatting, "second")) > 2
    assert logprobs(run) == pytest.approx(logprobs(expected), abs=0.2)


def test_it_goes_on_aside_when_a_chat_comes_in_between() -> None:
    with decoder(**SIDE, n_ctx=8192, n_ubatch=128) as client:
        asked = admit("long", prompt(1900), n_predict=1, n_probs=5, **GREEDY)
        client.send(asked)
        client.read_until(lambda o: isinstance(o, PromptProgress))
        begin_chat(client, CHAT)
        n_before = len(pieces(client, "long"))
        run = Run()
        while run.end is None:
            for output in client.read().outputs:
                if getattr(output, "generation_id", "") == "long":
                    if isinstance(output, Emitted):
                        run.emitted.append(output)
                    run.end = getattr(output, "end", None)
        done = pieces(client, "long")
    assert 0 < n_before < len(done) - 2
    assert done == sorted(done)
    assert logprobs(run) == pytest.approx(probs_with(prompt(1900), n_ctx=8192), abs=0.2)


def test_it_ends_alone_when_the_chat_is_over(chatting: DecoderClient) -> None:
    chatting.send(admit("long", prompt(1900), n_predict=2, **GREEDY))
    chatting.read_until(lambda o: isinstance(o, PromptProgress))
    chatting.cancel("chat")
    chatting.read_until(lambda o: isinstance(o, Emitted) and o.generation_id == "long")


def test_several_choices_share_what_was_decoded_aside(chatting: DecoderClient) -> None:
    jobs = tuple(ChoiceJob(choice=n, prompt=prompt(600), seed=n) for n in range(3))
    wanted = params(n_predict=3, n_probs=2, temperature=0.0)
    runs = chatting.run(Admit(generation_id="many", choices=jobs, params=wanted))
    assert len({runs["many", n].ids for n in range(3)}) == 1


def test_a_cancelled_one_leaves_its_slot_to_the_next(chatting: DecoderClient) -> None:
    for number in range(4):
        chatting.send(admit(f"long {number}", prompt(1900), n_predict=2, **GREEDY))
    chatting.read_until(lambda o: isinstance(o, PromptProgress) and o.generation_id == "long 1")
    chatting.send(*(Cancel(generation_id=f"long {number}") for number in range(4)))
    assert len(beside(chatting, admit("next", prompt(900), n_predict=2, **GREEDY)).ids) == 2


def test_where_its_cells_find_no_room_it_fails_and_the_chat_goes_on() -> None:
    caching = {**SIDE["caching"], "saves_idle": False}
    with decoder(**THREADS, caching=caching, n_ctx=1024) as client:
        begin_chat(client, admit("chat", prompt(400), ignore_eos=True))
        client.send(admit("long", prompt(900), n_predict=2))
        broken = client.read_until(lambda o: isinstance(o, Broken))
        assert isinstance(broken, Broken)
        assert broken.generation_id == "long"
        client.read_until(lambda o: isinstance(o, Emitted) and o.generation_id == "chat")


def test_stopping_does_not_wait_for_it() -> None:
    client = DecoderClient(config(**SIDE, n_ctx=8192))
    client.wait_ready()
    begin_chat(client, CHAT)
    client.send(admit("long", prompt(1900), n_predict=2))
    client.read_until(lambda o: isinstance(o, PromptProgress))
    client.close()
    assert client.wait() == 0


# -- what cannot be cut ----------------------------------------------------------------------------


def story(n: int, last: int) -> tuple[int, ...]:
    return (2, *(5 + i * 7 % 90 for i in range(n)), last)


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "recurrent.gguf"
    write_model(path)
    return path


@pytest.mark.parametrize("kind", ["windowed", "recurrent"])
def test_checkpoints_are_made_aside(kind: str, recurrent: Path) -> None:
    model = {"model_path": WINDOWED if kind == "windowed" else str(recurrent)}
    sizes: dict[str, Any] = {**model, "n_ctx": 4096, "n_slots": 2, "n_ubatch": 256}
    chat = admit("chat", (2, *range(6, 20)), ignore_eos=True)
    with decoder(**THREADS, **sizes, caching={"prefill_threads": 1}) as client:
        begin_chat(client, chat)
        asked = admit("a", story(1200, 50), n_predict=300, n_probs=5, ignore_eos=True, **GREEDY)
        run = beside(client, asked)
        assert len(pieces(client, "a")) > 9
        follow_up = beside(client, admit("b", story(1200, 60), n_predict=1, n_probs=5, **GREEDY))
    assert logprobs(run) == pytest.approx(probs_with(story(1200, 50), **sizes), abs=0.2)
    assert end_of(follow_up).n_cached == 1202 - 4
    assert logprobs(follow_up) == pytest.approx(probs_with(story(1200, 60), **sizes), abs=0.2)
