"""What the archive keeps of one ended log: its row and its packed entries. Pure."""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from schemas import codec
from schemas.errors import SchemaError
from schemas.events import (
    Cancelled,
    Claimed,
    Failed,
    Finished,
    Requested,
    Started,
)
from services.bus.log import Entry
from services.streams.archive import digests
from services.streams.archive.folding import Folded, fold

FULL, HASHES, NONE = "full", "hashes", "none"
"""Values of Requested.content."""
CODEC = "zlib"
ZLIB_LEVEL = 6
TEXTUAL = {
    "limits": ("stop",),
    "output": ("generation_prompt", "response_fields"),
    "sampling": (
        "dry_sequence_breakers",
        "grammar",
        "grammar_triggers",
        "logit_bias",
        "reasoning_budget_forced",
        "reasoning_budget_message",
        "reasoning_budget_prefill",
    ),
}
"""Parameters that say what the request is about; kept only with the content."""

Columns = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One generation as the archive keeps it. columns: of archived_generations. events: packed
    entries, None where the content is not kept."""

    columns: Columns
    events: bytes | None
    codec: str = CODEC

    @property
    def generation_id(self) -> str:
        return cast(str, self.columns["generation_id"])

    @property
    def digest(self) -> str:
        return cast(str, self.columns["digest"])

    @property
    def last_seq(self) -> int:
        return cast(int, self.columns["last_seq"])


def record_of(
    entries: Sequence[Entry], *, archived_at_ms: int, model_digest: str = ""
) -> Record | None:
    """The record of a log; None for one that nobody opened or ended.

    model_digest: sha256 of the model's file, empty where it is not known.
    """
    log = fold(entries)
    if log is None or log.end is None:
        return None
    requested = log.requested
    columns: Columns = {
        **_of_request(requested),
        **_of_attempts(log.claims),
        **_of_start(requested, log.started),
        **_of_end(log, log.end),
        **_hashes(log, entries),
        "model_digest": model_digest,
        "n_entries": len(entries),
        "last_seq": entries[-1].seq,
        "archived_at_ms": archived_at_ms,
        "erased_at_ms": None,
    }
    columns = cast(Columns, digests.plain(columns))
    columns["digest"] = digests.row_digest(columns)
    return Record(columns=columns, events=pack(entries) if requested.content == FULL else None)


def pack(entries: Iterable[Entry]) -> bytes:
    """Entries as archived_events holds them."""
    return zlib.compress(codec.pack([[entry.seq, entry.data] for entry in entries]), ZLIB_LEVEL)


def unpack(data: bytes) -> list[tuple[int, bytes]]:
    """Sequence and bytes of every entry. Raises SchemaError for anything else."""
    try:
        value = codec.unpack(zlib.decompress(data))
        return [(int(seq), bytes(entry)) for seq, entry in cast("list[tuple[int, bytes]]", value)]
    except (zlib.error, TypeError, ValueError) as error:
        raise SchemaError(f"not an archived log: {error}") from error


def _of_request(requested: Requested) -> Columns:
    return {
        "generation_id": requested.generation_id,
        "caller": requested.caller,
        "model": requested.model,
        "model_key": requested.model_key,
        "dialect": requested.dialect,
        "priority": requested.priority,
        "conversation": requested.conversation,
        "content": requested.content,
        "created_at_ms": requested.created_at_ms,
    }


def _of_attempts(claims: list[Claimed]) -> Columns:
    last = claims[-1] if claims else None
    return {
        "engine": last.engine if last else "",
        "host": last.host if last else "",
        "build": last.build if last else "",
        "n_attempts": len(claims),
        "attempts": [
            {
                "attempt": claim.attempt,
                "engine": claim.engine,
                "host": claim.host,
                "build": claim.build,
                "at_ms": claim.at_ms,
            }
            for claim in claims
        ],
    }


def _of_start(requested: Requested, first: Started | None) -> Columns:
    """Parameters in their wire form, which leaves defaults out (schemas.params)."""
    resolved = requested.params if first is None or first.params is None else first.params
    params = cast("dict[str, dict[str, object]]", codec.to_builtins(resolved))
    if requested.content != FULL:
        for part, names in TEXTUAL.items():
            for name in names:
                params.get(part, {}).pop(name, None)
    return {
        "started_at_ms": first.at_ms if first else None,
        "compat": first.compat.model if first else "",
        "adapter_digests": list(first.compat.adapters) if first else [],
        "params": params,
    }


def _of_end(log: Folded, end: Finished | Failed | Cancelled) -> Columns:
    timings = [each.timings for each in log.ends.values()]
    return {
        "ended_at_ms": end.at_ms or log.requested.created_at_ms,
        "outcome": type(end).__name__.lower(),
        "reason": _reason(end, log),
        **_usage(end, log),
        "prompt_ms": float(sum(each.prompt_ms for each in timings)),
        "predicted_ms": float(sum(each.predicted_ms for each in timings)),
    }


def _reason(end: Finished | Failed | Cancelled, log: Folded) -> str:
    if isinstance(end, Failed):
        return end.problem.code
    if isinstance(end, Cancelled):
        return end.reason
    return ",".join(sorted({each.stop_type for each in log.ends.values()}))


def _usage(end: Finished | Failed | Cancelled, log: Folded) -> Columns:
    if isinstance(end, Finished):
        usage = end.usage
        return {
            "n_prompt": usage.n_prompt,
            "n_predicted": usage.n_predicted,
            "n_cached": usage.n_cached,
        }
    starts = log.starts.values()
    return {
        "n_prompt": sum(start.n_prompt for start in starts),
        "n_predicted": sum(log.n_ids.values()),
        "n_cached": sum(start.n_cached for start in starts),
    }


def _hashes(log: Folded, entries: Sequence[Entry]) -> Columns:
    requested = log.requested
    if requested.content == NONE:
        names = ("request_hash", "prompt_hash", "output_hash", "events_digest")
        return dict.fromkeys(names, "")
    prompts = [[list(prompt.ids), prompt.text] for prompt in requested.prompts]
    return {
        "request_hash": hashlib.sha256(requested.request).hexdigest(),
        "prompt_hash": digests.digest_of(prompts),
        "output_hash": digests.digest_of(log.output()),
        "events_digest": digests.events_digest((entry.seq, entry.data) for entry in entries),
    }
