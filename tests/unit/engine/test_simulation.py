"""What `--simulate` says, the built-in vocabulary, and what a simulated decoder says and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.byte_vocabulary import ByteVocabulary
from services.engine.decoder.simulated_pace import PacedScheduler
from services.engine.decoder.simulated_text import Voice, Words
from services.engine.errors import BadSimulation
from services.engine.scheduler import Sizes
from services.engine.seating import Need, Request
from services.engine.simulation import Simulation, parse_simulation
from tests.unit.engine.recording_memory import RecordingMemory

VOCABULARY = ByteVocabulary()
WORDS = Words(VOCABULARY)


def test_what_is_not_named_keeps_its_default() -> None:
    assert parse_simulation("") == Simulation()
    found = parse_simulation(" tokens_per_s=200, ttft_ms=5.5 ,eos_after=7")
    assert found == Simulation(tokens_per_s=200.0, ttft_ms=5.5, eos_after=7)
    assert isinstance(found.eos_after, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed=3", "there is no 'speed'"),
        ("tokens_per_s", "has no value"),
        ("tokens_per_s=fast", "tokens_per_s: 'fast' is not a number"),
        ("tokens_per_s=0", "out of range"),
        ("tokens_per_s=nan", "out of range"),
        ("jitter=2", "jitter: 2 is out of range"),
        ("eos_after=1.5", "not a whole number"),
        ("ttft_ms=1,ttft_ms=2", "is there twice"),
    ],
)
def test_what_makes_no_sense_is_named(text: str, message: str) -> None:
    with pytest.raises(BadSimulation, match=message):
        parse_simulation(text)


@given(st.text())
def test_any_text_survives_the_vocabulary(text: str) -> None:
    ids = VOCABULARY.tokenize(text, add_special=True, parse_special=False)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert VOCABULARY.detokenize(ids) == whole
    assert VOCABULARY.is_valid(ids)


def test_words_and_markers_are_tokens_of_their_own() -> None:
    text = "<|im_start|>say the word<|im_end|>"
    ids = VOCABULARY.tokenize(text, add_special=False, parse_special=True)
    assert [VOCABULARY.piece(i) for i in ids[-3:]] == [b" the", b" word", b"<|im_end|>"]
    assert VOCABULARY.piece(ids[0], special=False) == b""
    plain = VOCABULARY.tokenize(text, add_special=False, parse_special=False)
    assert len(plain) > len(ids)
    assert VOCABULARY.detokenize(ids) == VOCABULARY.detokenize(plain) == text


def test_an_id_out_of_range() -> None:
    for token in (-1, VOCABULARY.n_vocab):
        with pytest.raises(ValueError, match="token ids"):
            VOCABULARY.piece(token)


def test_a_voice_depends_on_prompt_seed_and_position_alone() -> None:
    def said(prompt: tuple[int, ...], seed: int) -> list[int]:
        voice = Voice(WORDS, prompt, seed)
        return [voice.at(index).id for index in range(50)]

    assert said((1, 2), 3) == said((1, 2), 3)
    assert said((1, 2), 3) != said((1, 2), 4)
    assert said((1, 2), 3) != said((12,), 3)
    assert len(set(said((1,), 1))) > 20


def test_made_up_probabilities_name_the_token_first() -> None:
    voice = Voice(WORDS, (1,), 1)
    found = voice.with_probs(5, 3)
    assert found.id == voice.at(5).id
    assert found.probs is not None
    assert found.probs.top[0].id == found.id
    assert [round(2 ** (top.logprob / 0.6931471805599453), 3) for top in found.probs.top] == [
        0.5,
        0.25,
        0.125,
    ]


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def scheduler(clock: Clock, n_slots: int = 2, **fields: float) -> PacedScheduler:
    simulation = Simulation(**{"tokens_per_s": 10.0, **fields})  # type: ignore[arg-type]
    return PacedScheduler(Sizes(n_slots=n_slots), RecordingMemory(), simulation, clock)


def seat(paced: PacedScheduler, name: str, n_prompt: int = 4) -> None:
    need = Need(choice=0, prompt=tuple(range(n_prompt)))
    paced.admit(Request(generation_id=name, needs=(need,)))
    assert paced.seat_next() is not None


def step(paced: PacedScheduler) -> int:
    """How many slots are sampled in the next batch; each is fed a token."""
    batch = paced.plan()
    sampled = [a.slot for a in paced.commit(batch) if a.row is not None] if batch else []
    for slot in sampled:
        paced.feed(slot, 7)
    return len(sampled)


def test_the_first_token_comes_after_its_time_and_the_next_ones_with_the_ticks() -> None:
    clock = Clock()
    paced = scheduler(clock, ttft_ms=300)
    seat(paced, "a")
    assert step(paced) == 0
    assert paced.wakes_at == pytest.approx(100.3)
    clock.now = paced.wakes_at
    assert step(paced) == 1
    assert paced.wakes_at == pytest.approx(100.4)
    assert step(paced) == 0
    clock.now = 100.4
    assert step(paced) == 1


def test_a_long_prompt_takes_its_time() -> None:
    clock = Clock()
    paced = scheduler(clock, prompt_tokens_per_s=100)
    seat(paced, "a", n_prompt=50)
    assert step(paced) == 0
    assert paced.wakes_at == pytest.approx(100.5)


def test_one_tick_serves_all_slots_and_nobody_waits_for_a_neighbours_first_token() -> None:
    clock = Clock()
    paced = scheduler(clock, ttft_ms=1000)
    seat(paced, "a")
    step(paced)
    clock.now = 101.0
    assert step(paced) == 1
    seat(paced, "b")
    clock.now = 101.5
    assert step(paced) == 1, "the second one still waits"
    clock.now = 102.6
    assert step(paced) == 2
    clock.now = 102.8
    assert step(paced) == 2


def test_lost_ticks_are_made_up_for_but_not_for_ever() -> None:
    clock = Clock()
    paced = scheduler(clock)
    seat(paced, "a")
    step(paced)
    clock.now += 1.0
    assert sum(step(paced) for _ in range(11)) == 10
    clock.now += 100.0
    assert sum(step(paced) for _ in range(50)) <= 17
