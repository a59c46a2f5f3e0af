"""The event catalogue: everything that can stand in a generation's log.

One log per HTTP request. Its entries (stored messages) hold one event or several that were appended
together; `encode_entry` and `decode_entry` are the only way in and out. Every event has a tag `type`
and a version `v` (absent means 1); old versions are upcast here on read, events of an unknown type
are skipped.

Order in a log: `requested` first; then per attempt `claimed`, `started`, and any of `progress`,
`heartbeat`, `tokens`, `shifted`, `controlled`, `released`; last exactly one of `finished`, `failed`,
`cancelled`. What comes after the end is ignored by every fold.

Times are microseconds since the attempt's `started` (`elapsed_us`) or Unix milliseconds (`*_at_ms`).
"""

from typing import cast

import msgspec

from schemas import codec
from schemas.errors import Problem, SchemaError
from schemas.params import Params
from schemas.struct import Message, TaggedMessage

FIRST_VERSION = 1
"""The default of `v` for ever: an absent one must stay 1. A later version writes its number."""


class Prompt(Message, frozen=True, kw_only=True):
    """One prompt of a request. ids: token ids. text: what they say (the rendered template)."""

    ids: tuple[int, ...]
    text: str = ""


class MediaRef(Message, frozen=True, kw_only=True):
    """One picture or sound of a request. digest: sha256 in hex, the key in the object store."""

    digest: str
    mime_type: str
    n_bytes: int


class Requested(TaggedMessage, frozen=True, kw_only=True, tag="requested"):
    """The gateway accepted a request; opens the log.

    dialect: which projection renders it by default. render: version of that projection.
    request: the client's request as canonical JSON. output_format: JSON, how this model writes tool
    calls and thoughts (empty: plain text). replaces: the generation that this one displaces in its
    conversation. caller: key id, never the key. content: full, hashes or none (what may be kept).
    """

    v: int = FIRST_VERSION
    generation_id: str
    dialect: str
    render: int = 1
    request: bytes
    prompts: tuple[Prompt, ...]
    params: Params
    output_format: bytes = b""
    model_key: str
    model: str
    fingerprint: str = ""
    conversation: str | None = None
    replaces: str | None = None
    caller: str = ""
    idempotency_key: str | None = None
    priority: str = "interactive"
    media: tuple[MediaRef, ...] = ()
    content: str = "full"
    created_at_ms: int
    deadline_at_ms: int


class Claimed(TaggedMessage, frozen=True, kw_only=True, tag="claimed"):
    """An engine took the task. attempt: 1, 2, … build: engine software. Awaited before anything risky."""

    v: int = FIRST_VERSION
    attempt: int
    engine: str
    host: str = ""
    build: str = ""
    at_ms: int = 0


class Compat(Message, frozen=True, kw_only=True):
    """What must be equal for another engine to continue a log. Digests are sha256 in hex."""

    model: str
    adapters: tuple[str, ...] = ()
    projector: str = ""
    template: str = ""
    n_ctx: int
    build: str


class ChoiceStart(Message, frozen=True, kw_only=True):
    """How one choice began. slot: its id. seed: concrete, never −1, reused by later attempts.

    n_prompt, n_cached: tokens. chunks: how many prompt tokens went into each `llama_decode` call,
    in order, after the cached ones.
    """

    choice: int
    slot: int
    seed: int
    n_prompt: int
    n_cached: int = 0
    chunks: tuple[int, ...] = ()


class Started(TaggedMessage, frozen=True, kw_only=True, tag="started"):
    """The slots are taken, prefill is about to begin; HTTP headers go out now.

    params: as resolved by the engine. resumed_at: number of tokens already in the log, per choice.
    """

    v: int = FIRST_VERSION
    attempt: int
    compat: Compat
    choices: tuple[ChoiceStart, ...]
    params: Params | None = None
    resumed_at: tuple[int, ...] = ()
    at_ms: int = 0


class Progress(TaggedMessage, frozen=True, kw_only=True, tag="progress"):
    """Prefill went on. n_total, n_cached, n_processed: prompt tokens (cached ones count as processed)."""

    v: int = FIRST_VERSION
    choice: int
    n_total: int
    n_cached: int
    n_processed: int
    elapsed_us: int
    is_shown: bool = False


class Heartbeat(TaggedMessage, frozen=True, kw_only=True, tag="heartbeat"):
    """Nothing else happened for the ping interval; readers of SSE see a comment line."""

    v: int = FIRST_VERSION
    elapsed_us: int = 0


class TopProb(Message, frozen=True, kw_only=True):
    """One candidate. piece: its bytes. logprob: natural log, or the probability after sampling."""

    id: int
    piece: bytes
    logprob: float


class TokenProbs(Message, frozen=True, kw_only=True):
    """Probabilities of one emitted token and of the most probable candidates."""

    piece: bytes
    logprob: float
    top: tuple[TopProb, ...] = ()


class Timings(Message, frozen=True, kw_only=True):
    """What one choice cost, over all attempts. Counts in tokens, times in milliseconds."""

    n_cached: int = 0
    n_prompt: int = 0
    prompt_ms: float = 0.0
    n_predicted: int = 0
    predicted_ms: float = 0.0


class ChoiceEnd(Message, frozen=True, kw_only=True):
    """How one choice ended.

    stop_type: eos, word or limit. tail: text that was held back and turned out to be content.
    n_context: tokens in the slot's KV cache at the end. n_cut: characters at the end of the text that
    an answer in one piece does not show (the line that n_indent ended at).
    """

    choice: int
    stop_type: str
    stopping_word: str = ""
    tail: str = ""
    n_predicted: int
    n_prompt: int
    n_cached: int = 0
    n_context: int = 0
    n_cut: int = 0
    slot: int = 0
    is_truncated: bool = False
    has_new_line: bool = False
    timings: Timings


class Tokens(TaggedMessage, frozen=True, kw_only=True, tag="tokens"):
    """Tokens of one choice. index: number of the first one in its choice, from 0.

    ids: as sampled, also those whose text is still held back. texts: text per id (whole UTF-8
    characters; a stop string's prefix is held back, so some are empty). probs: per id, where asked.
    draws, xtc_draws: values taken from the random sources per id, where not one. mu: the state of
    mirostat (mu) or adaptive-p (its decaying sum) after each id. end: set on the last event of a
    choice.
    """

    v: int = FIRST_VERSION
    choice: int = 0
    index: int
    ids: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    probs: tuple[TokenProbs, ...] = ()
    draws: tuple[int, ...] = ()
    xtc_draws: tuple[int, ...] = ()
    mu: tuple[float, ...] = ()
    elapsed_us: int = 0
    prompt_us: int = 0
    end: ChoiceEnd | None = None


class Shifted(TaggedMessage, frozen=True, kw_only=True, tag="shifted"):
    """The context of a choice was shifted before token `index`. Counts in tokens."""

    v: int = FIRST_VERSION
    choice: int
    index: int
    n_keep: int
    n_discard: int
    n_past: int


class Controlled(TaggedMessage, frozen=True, kw_only=True, tag="controlled"):
    """A reader ordered something of a running choice. action: reasoning_end. ids: forced tokens."""

    v: int = FIRST_VERSION
    choice: int
    index: int
    action: str
    ids: tuple[int, ...] = ()


class Released(TaggedMessage, frozen=True, kw_only=True, tag="released"):
    """An engine gives the generation back unfinished. reason: drain or reload."""

    v: int = FIRST_VERSION
    attempt: int
    reason: str


class Usage(Message, frozen=True, kw_only=True):
    """Tokens of the whole request, over all choices and attempts."""

    n_prompt: int
    n_predicted: int
    n_cached: int = 0


class Finished(TaggedMessage, frozen=True, kw_only=True, tag="finished"):
    """Every choice ended. Closes the log."""

    v: int = FIRST_VERSION
    usage: Usage
    at_ms: int = 0


class Failed(TaggedMessage, frozen=True, kw_only=True, tag="failed"):
    """The generation cannot be served. by: engine, gateway or streams. Closes the log."""

    v: int = FIRST_VERSION
    problem: Problem
    by: str
    at_ms: int = 0


class Cancelled(TaggedMessage, frozen=True, kw_only=True, tag="cancelled"):
    """Somebody stopped the generation. by: who wrote it. reason: client_gone, stopped, replaced or
    deleted. Closes the log."""

    v: int = FIRST_VERSION
    by: str
    reason: str
    at_ms: int = 0


Event = (
    Requested
    | Claimed
    | Started
    | Progress
    | Heartbeat
    | Tokens
    | Shifted
    | Controlled
    | Released
    | Finished
    | Failed
    | Cancelled
)
Terminal = (Finished, Failed, Cancelled)

_KIND_OF_TAG: dict[str, type[Message]] = {
    cast(str, kind.__struct_config__.tag): kind
    for kind in (
        Requested,
        Claimed,
        Started,
        Progress,
        Heartbeat,
        Tokens,
        Shifted,
        Controlled,
        Released,
        Finished,
        Failed,
        Cancelled,
    )
}


_TODAYS = codec.decoder(Event | list[Event])


def encode_entry(events: "tuple[Event, ...] | list[Event]") -> bytes:
    """The bytes of one log entry: a map for one event, an array of maps for several."""
    return codec.encode(events[0] if len(events) == 1 else list(events))


def decode_entry(data: bytes) -> tuple[Event, ...]:
    """The events of one log entry, upcast to today's versions. Raises SchemaError."""
    try:
        value = cast("Event | list[Event]", _TODAYS.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_slowly(data)
    return tuple(value) if isinstance(value, list) else (value,)


def _decode_slowly(data: bytes) -> tuple[Event, ...]:
    """Entries with events of unknown types, and those that are none. (There is only version 1 so
    far; a kind that has a second one must come here to be upcast.)"""
    value = codec.unpack(data)
    maps = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(event for item in maps if (event := _decode_event(item)) is not None)


def _decode_event(item: object) -> Event | None:
    if not isinstance(item, dict):
        raise SchemaError("not an event: no map")
    fields = _upcast(cast("dict[str, object]", item))
    kind = _KIND_OF_TAG.get(cast(str, fields.get("type")))
    return None if kind is None else cast(Event, codec.convert(fields, kind))


def _upcast(fields: dict[str, object]) -> dict[str, object]:
    """Older versions become today's here, one step per version. There is only version 1 so far."""
    return fields
