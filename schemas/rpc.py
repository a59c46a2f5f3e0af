"""Questions and answers over request/reply. A reply is the answer or a `Refusal`."""

from schemas.errors import Problem
from schemas.events import MediaRef, Prompt
from schemas.lifecycle import ModelStatus
from schemas.params import Params
from schemas.struct import Message, TaggedMessage


class Refusal(TaggedMessage, frozen=True, kw_only=True, tag="refusal"):
    """The question cannot be answered; `problem` is in the client's terms."""

    problem: Problem


class Prepare(TaggedMessage, frozen=True, kw_only=True, tag="prepare"):
    """Turn a request into prompt ids and resolved parameters. Raises nothing; may be refused.

    kind: chat (body has `messages`), completion (body has `prompt`) or infill (body has
    `input_prefix` and `input_suffix`). body: JSON under
    llama-server's native names (the gateway has translated the client's dialect).
    created_at_ms: the template's clock. generation_id: of the log that will be opened with it next, if
    that is so; an engine may begin before it is. n_following: questions like this right behind it.
    """

    kind: str
    body: bytes
    created_at_ms: int
    generation_id: str = ""
    n_following: int = 0
    media: tuple[MediaRef, ...] = ()


class Prepared(TaggedMessage, frozen=True, kw_only=True, tag="prepared"):
    """The answer to Prepare. n_slots: slots that the request takes at once."""

    prompts: tuple[Prompt, ...]
    params: Params
    output_format: bytes = b""
    n_slots: int = 1
    n_ctx: int


class ApplyTemplate(TaggedMessage, frozen=True, kw_only=True, tag="apply_template"):
    """Render messages. body: JSON with `messages` and what else the template takes."""

    body: bytes
    created_at_ms: int


class TemplateApplied(TaggedMessage, frozen=True, kw_only=True, tag="template_applied"):
    """The rendered prompt."""

    prompt: str


class Tokenize(TaggedMessage, frozen=True, kw_only=True, tag="tokenize"):
    """Token ids of `content`: JSON, a string or a list of strings and token ids."""

    content: bytes
    add_special: bool = False
    parse_special: bool = True


class Tokenized(TaggedMessage, frozen=True, kw_only=True, tag="tokenized"):
    """Token ids and, per id, the bytes that it stands for."""

    ids: tuple[int, ...]
    pieces: tuple[bytes, ...]


class Detokenize(TaggedMessage, frozen=True, kw_only=True, tag="detokenize"):
    """Text of token ids (checked against the vocabulary)."""

    ids: tuple[int, ...]


class Detokenized(TaggedMessage, frozen=True, kw_only=True, tag="detokenized"):
    """Text; bytes that are no UTF-8 become U+FFFD."""

    content: str


class DescribeModel(TaggedMessage, frozen=True, kw_only=True, tag="describe_model"):
    """Ask for ModelDescription."""


class ModelDescription(TaggedMessage, frozen=True, kw_only=True, tag="model_description"):
    """What /props and /v1/models show of a loaded model. Sizes in bytes, n_* in tokens or numbers."""

    path: str
    name: str
    aliases: tuple[str, ...] = ()
    chat_template: str
    bos_token: str
    eos_token: str
    build: str
    n_slots: int
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_embd: int
    n_params: int
    n_bytes: int
    vocab_type: int
    ftype: str = ""
    params: Params
    chat_template_caps: dict[str, bool] = {}
    has_vision: bool = False
    has_audio: bool = False
    compat: str = ""


class DescribeSlots(TaggedMessage, frozen=True, kw_only=True, tag="describe_slots"):
    """Ask for SlotsDescription."""


class SlotDescription(Message, frozen=True, kw_only=True):
    """One slot. has_new_line: whether its answer has one so far. n_held: tokens that it holds.

    n_ctx, n_prompt, n_processed, n_cached, n_decoded, n_remain: tokens (−1: no limit).
    """

    id: int
    n_ctx: int
    is_processing: bool = False
    generation_id: str | None = None
    n_prompt: int = 0
    n_processed: int = 0
    n_cached: int = 0
    n_decoded: int = 0
    n_remain: int = -1
    has_new_line: bool = False
    n_held: int = 0
    params: Params | None = None


class SlotsDescription(TaggedMessage, frozen=True, kw_only=True, tag="slots_description"):
    """All slots of one engine. ordinal: its number among those of its model."""

    engine: str
    ordinal: int = 0
    slots: tuple[SlotDescription, ...]


class ChangeSlot(TaggedMessage, frozen=True, kw_only=True, tag="change_slot"):
    """Order to one engine: save a slot's cells to a file, restore them from it, or erase them.

    action: save, restore or erase. filename: in the engine's own folder; not for erase.
    """

    slot: int
    action: str
    filename: str = ""


class SlotChanged(TaggedMessage, frozen=True, kw_only=True, tag="slot_changed"):
    """The order was carried out. n_tokens, n_bytes: saved, restored or erased."""

    slot: int
    n_tokens: int
    n_bytes: int = 0
    elapsed_ms: float = 0.0


class DescribeMetrics(TaggedMessage, frozen=True, kw_only=True, tag="describe_metrics"):
    """Ask for MetricsDescription."""


class BusFigures(Message, frozen=True, kw_only=True):
    """What one process did on the bus since its start.

    appends: entries stored, by latency: one bucket per bound (seconds, inclusive) and one for the
    rest; append_s: their sum. n_fenced: appends that another writer was faster than. n_live: logs
    followed now. n_gaps: breaks in live logs that were filled. n_failovers: logs taken over.
    n_pings: heartbeats written.
    """

    append_bounds_s: tuple[float, ...]
    appends: tuple[int, ...]
    append_s: float = 0.0
    n_fenced: int = 0
    n_live: int = 0
    n_gaps: int = 0
    n_failovers: int = 0
    n_pings: int = 0


class MetricsDescription(TaggedMessage, frozen=True, kw_only=True, tag="metrics_description"):
    """What one engine has done since its start; times in microseconds, the start in Unix seconds.

    n_prompt: tokens that were decoded, cached ones excluded. n_predicted_steps: tokens but the first
    of each choice, which cost a step of their own; predicted_us is their time. n_busy_slots: summed
    over all decode calls. n_context_max: tokens of the longest sequence seen. n_processing: slots at
    work now.
    """

    engine: str
    started_at_s: int
    n_prompt: int = 0
    n_prompt_cached: int = 0
    prompt_us: int = 0
    n_predicted: int = 0
    n_predicted_steps: int = 0
    predicted_us: int = 0
    n_decodes: int = 0
    n_busy_slots: int = 0
    n_context_max: int = 0
    n_processing: int = 0
    bus: BusFigures


class ControlGeneration(TaggedMessage, frozen=True, kw_only=True, tag="control_generation"):
    """Order something of a running generation. action: reasoning_end (stop thinking, answer now).

    caller: key id of who orders it; only its own generations are known to it.
    """

    generation_id: str
    action: str
    caller: str = ""


class ControlTaken(TaggedMessage, frozen=True, kw_only=True, tag="control_taken"):
    """What an engine says to an order. is_known: it runs that generation. message: why it did not
    obey, empty if it did."""

    is_known: bool
    message: str = ""


class StartEngine(TaggedMessage, frozen=True, kw_only=True, tag="start_engine"):
    """Order to an engine host: run an engine. env: its flags as environment variables."""

    model_key: str
    engine: str
    env: dict[str, str] = {}


class StopEngine(TaggedMessage, frozen=True, kw_only=True, tag="stop_engine"):
    """Order to an engine host: stop that engine. grace_s: seconds before it is killed."""

    engine: str
    grace_s: float = 3.0


class ListModels(TaggedMessage, frozen=True, kw_only=True, tag="list_models"):
    """Ask for ModelList. is_fresh: look at folders and caches again."""

    is_fresh: bool = False


class ModelList(TaggedMessage, frozen=True, kw_only=True, tag="model_list"):
    """Every model that the models service knows, by name."""

    models: tuple[ModelStatus, ...]


class Done(TaggedMessage, frozen=True, kw_only=True, tag="done"):
    """The order was carried out, or had been before."""


EngineQuestion = (
    Prepare
    | ApplyTemplate
    | Tokenize
    | Detokenize
    | DescribeModel
    | DescribeSlots
    | ChangeSlot
    | DescribeMetrics
    | ControlGeneration
)
EngineAnswer = (
    Prepared
    | TemplateApplied
    | Tokenized
    | Detokenized
    | ModelDescription
    | SlotsDescription
    | SlotChanged
    | MetricsDescription
    | ControlTaken
    | Refusal
)

KEPT, DROPPED, ERASED, ABSENT = "kept", "dropped", "erased", "absent"


class ReadArchive(TaggedMessage, frozen=True, kw_only=True, tag="read_archive"):
    """Ask for a piece of an archived log. offset: in bytes of its packed form."""

    generation_id: str
    offset: int = 0


class ArchivePiece(TaggedMessage, frozen=True, kw_only=True, tag="archive_piece"):
    """What the archive has of a generation. state: kept, dropped (it was not to be kept), erased or
    absent. caller: whose it is. data: from the offset on, as much as a message takes; n_bytes: of all.
    """

    state: str
    caller: str = ""
    codec: str = ""
    data: bytes = b""
    n_bytes: int = 0


class DescribeArchive(TaggedMessage, frozen=True, kw_only=True, tag="describe_archive"):
    """Ask for ArchiveDescription."""


class ArchiveDescription(TaggedMessage, frozen=True, kw_only=True, tag="archive_description"):
    """n_archived: generations that were ever archived."""

    n_archived: int


ArchiveQuestion = ReadArchive | DescribeArchive
ArchiveAnswer = ArchivePiece | ArchiveDescription | Refusal
HostOrder = StartEngine | StopEngine
HostAnswer = Done | Refusal
