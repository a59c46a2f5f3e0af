"""What the front and the decoder of one engine say to each other over their socket pair.

Frames are a 4-byte big-endian length and one MessagePack value. The front sends one command per
frame; the decoder sends one `Report` per decode step, whatever happened in it, for all slots.
"""

from schemas.errors import Problem
from schemas.events import ChoiceEnd, ChoiceStart, Shifted, TokenProbs
from schemas.params import Params
from schemas.struct import Message, TaggedMessage
from services.engine.caching import Caching
from services.engine.options import ContextOptions, ModelOptions
from services.engine.simulation import Simulation


class DecoderConfig(Message, frozen=True, kw_only=True):
    """First frame to a decoder: what to load. Sizes in tokens. n_ctx: over all slots, 0: the model's.

    n_threads 0: one per physical core (llama-server). simulate: keep time instead of computing;
    model_path then says whose vocabulary it speaks, empty for a built-in one. cpus: numbers of the
    cores to run on, () for all. model, context: further options of llama.cpp.
    """

    model_path: str
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int = 0
    n_threads_batch: int = 0
    n_slots: int = 4
    is_warmup: bool = True
    is_verbose: bool = False
    simulate: Simulation | None = None
    cpus: tuple[int, ...] = ()
    model: ModelOptions = ModelOptions()
    context: ContextOptions = ContextOptions()
    caching: Caching = Caching()


class ChoiceJob(Message, frozen=True, kw_only=True):
    """One choice of a generation: needs one slot.

    seed: concrete. emitted, texts, draws, xtc_draws: what the log already holds of it, to be
    continued from (draws empty: one per id). mu: the sampler's last state, see Marks. controlled:
    numbers of the tokens before which the end of reasoning was ordered. chunks: the first attempt's
    prompt chunks after its n_cached tokens, to be repeated. shifts: context shifts, in order, all
    before the token that comes next. replay: fast or exact (emitted ids are
    decoded one by one). spent_*: of earlier attempts.
    """

    choice: int
    prompt: tuple[int, ...]
    seed: int
    emitted: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    draws: tuple[int, ...] = ()
    xtc_draws: tuple[int, ...] = ()
    mu: float | None = None
    controlled: tuple[int, ...] = ()
    chunks: tuple[int, ...] = ()
    n_cached_first: int = 0
    shifts: tuple[Shifted, ...] = ()
    replay: str = "fast"
    spent_predicted_us: int = 0
    spent_prompt_us: int = 0


class Admit(TaggedMessage, frozen=True, kw_only=True, tag="admit"):
    """Run a generation: all its choices start together, as soon as enough slots are free.

    params.limits.id_slot: the slot that the (single) choice must have, or −1.
    """

    generation_id: str
    choices: tuple[ChoiceJob, ...]
    params: Params


class Cancel(TaggedMessage, frozen=True, kw_only=True, tag="cancel"):
    """Drop a generation, queued, prefilling or generating; nothing more is reported of it.

    is_answered: but for a Dropped, after which the same id may be admitted again.
    """

    generation_id: str
    is_answered: bool = False


class Control(TaggedMessage, frozen=True, kw_only=True, tag="control"):
    """End the thinking of a running generation now, where it thinks. action: reasoning_end."""

    generation_id: str
    action: str


class ActOnSlot(TaggedMessage, frozen=True, kw_only=True, tag="act_on_slot"):
    """Save, restore or erase what a slot holds, once it is free. id: of the answer. path: of the file."""

    id: int
    slot: int
    action: str
    path: str = ""


class Stop(TaggedMessage, frozen=True, kw_only=True, tag="stop"):
    """End the decoder after the current step."""


Command = Admit | Cancel | Control | ActOnSlot | Stop


class LoadProgress(TaggedMessage, frozen=True, kw_only=True, tag="load_progress"):
    """fraction: 0–1."""

    fraction: float


class Ready(TaggedMessage, frozen=True, kw_only=True, tag="ready"):
    """The model is loaded (and warm). Sizes in tokens."""

    n_ctx: int
    n_ctx_slot: int
    n_slots: int


class LoadFailed(TaggedMessage, frozen=True, kw_only=True, tag="load_failed"):
    """The model cannot be loaded; the decoder exits after this."""

    message: str


class SlotsStarted(TaggedMessage, frozen=True, kw_only=True, tag="slots_started"):
    """A generation got its slots; prefill begins. choices carry slot, n_cached and planned chunks."""

    generation_id: str
    choices: tuple[ChoiceStart, ...]


class PromptProgress(TaggedMessage, frozen=True, kw_only=True, tag="prompt_progress"):
    """A prompt chunk was decoded. n_processed includes n_cached. elapsed_us: since the slot's start."""

    generation_id: str
    choice: int
    n_total: int
    n_cached: int
    n_processed: int
    elapsed_us: int


class Emitted(TaggedMessage, frozen=True, kw_only=True, tag="emitted"):
    """One token of one choice. index: in its choice over all attempts. text: may be empty.

    draws, xtc_draws, mu: as in Marks. prompt_us: set on the first token of
    an attempt, its prefill time. elapsed_us: since the slot's start in this attempt.
    """

    generation_id: str
    choice: int
    index: int
    id: int
    text: str = ""
    probs: TokenProbs | None = None
    draws: int = 1
    xtc_draws: int = 1
    mu: float | None = None
    elapsed_us: int = 0
    prompt_us: int = 0


class ReasoningEnded(TaggedMessage, frozen=True, kw_only=True, tag="reasoning_ended"):
    """A Control had its effect: from token `index` on the end of thinking is forced."""

    generation_id: str
    choice: int
    index: int


class ControlTaken(TaggedMessage, frozen=True, kw_only=True, tag="control_taken"):
    """A Control was obeyed; its effects, if it had any, were reported before. n_choices: that it
    changed."""

    generation_id: str
    n_choices: int


class ContextShifted(TaggedMessage, frozen=True, kw_only=True, tag="context_shifted"):
    """A full slot forgot its oldest tokens: to be logged."""

    generation_id: str
    shift: Shifted


class Ended(TaggedMessage, frozen=True, kw_only=True, tag="ended"):
    """A choice ended and its slot is free."""

    generation_id: str
    end: ChoiceEnd


class Broken(TaggedMessage, frozen=True, kw_only=True, tag="broken"):
    """A generation cannot go on (all its slots are free now); other generations are not touched."""

    generation_id: str
    problem: Problem


class Dropped(TaggedMessage, frozen=True, kw_only=True, tag="dropped"):
    """A Cancel that wants an answer was obeyed."""

    generation_id: str


class SlotActed(TaggedMessage, frozen=True, kw_only=True, tag="slot_acted"):
    """The answer to ActOnSlot. n_tokens, n_bytes: what it was about. problem: why it was not done.

    slot: which one it was. n_held: tokens that it holds now.
    """

    id: int
    slot: int
    n_held: int
    n_tokens: int = 0
    n_bytes: int = 0
    elapsed_us: int = 0
    problem: Problem | None = None


Output = (
    LoadProgress
    | Ready
    | LoadFailed
    | SlotsStarted
    | PromptProgress
    | Emitted
    | ReasoningEnded
    | ControlTaken
    | ContextShifted
    | Ended
    | Broken
    | Dropped
    | SlotActed
)


class Report(Message, frozen=True, kw_only=True):
    """Everything that one decode step (or its preparation) brought, in order."""

    outputs: tuple[Output, ...]
