"""Every subject, stream, bucket and durable name. Nothing else builds or parses one.

    gen.<generation_id>                  the log of one generation        stream GENERATIONS
    live.gen.<generation_id>             the same after it was stored     republished, core NATS
    tasks.<model_key>                    work for any engine of a model   stream TASKS (work queue)
    tasks.<model_key>.l<lane>            the same, of lanes 1, 2, 3       (see schemas.lanes)
    tasks.<model_key>.e<ordinal>         work for one engine              stream TASKS (work queue)
    ended.<generation_id>                a hint: that log has ended       stream ENDED (work queue)
    purged.<generation_id>               that log was taken off the broker: let go of it   core NATS
    cancel.<model_key>.<generation_id>   a poke: look at that log         core NATS
    rpc.engine.<model_key>               questions to any engine          queue group
    rpc.engine.<model_key>.<engine_id>   questions to one engine
    rpc.engines.<model_key>              questions to every engine of a model
    rpc.host.<host_id>                   orders to one engine host
    rpc.models                           questions to the models service  queue group
    rpc.archive                          questions to the archive         queue group
    $KV.presence.<kind>.<id>             who is alive                     bucket presence (keys expire)
    $KV.models.<model_key>               what gateways know of a model    bucket models
    $KV.conversations.<h>.<h>            conversation → generation        bucket conversations
    $KV.conversations.forgotten.<id>     its owner wants it gone          bucket conversations
    $KV.idempotency.<h>                  key of a request → generation    bucket idempotency (keys expire)
    $KV.api_keys.<digest>                a key of the database            bucket api_keys
    $KV.limits.<key id>                  what a limited key has used      bucket limits

Model names, conversation ids and callers are hashed: they never stand in a subject.
"""

import base64
import hashlib

GENERATIONS_STREAM = "GENERATIONS"
GENERATIONS_SUBJECTS = "gen.*"
LIVE_PREFIX = "live."
TASKS_STREAM = "TASKS"
TASKS_SUBJECTS = "tasks.>"
CONVERSATIONS_BUCKET = "conversations"
MODELS_BUCKET = "models"
PRESENCE_BUCKET = "presence"
IDEMPOTENCY_BUCKET = "idempotency"
API_KEYS_BUCKET = "api_keys"
LIMITS_BUCKET = "limits"
MODELS_RPC = "rpc.models"
ENDED_STREAM = "ENDED"
ENDED_SUBJECTS = "ended.*"
ARCHIVERS_DURABLE = "archivers"
ARCHIVE_RPC = "rpc.archive"


def _hash(*parts: str, n_chars: int = 26) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:n_chars]


def model_key(model_name: str) -> str:
    """16 characters that stand for a model name in subjects."""
    return _hash("model", model_name, n_chars=16)


def generation(generation_id: str) -> str:
    return f"gen.{generation_id}"


def live(generation_id: str) -> str:
    return f"live.gen.{generation_id}"


def ended(generation_id: str) -> str:
    return f"ended.{generation_id}"


def purged(generation_id: str) -> str:
    return f"purged.{generation_id}"


def generation_id_of(subject: str) -> str:
    """The generation id at the end of a `gen.`, `live.gen.`, `ended.`, `purged.` or `cancel.` subject."""
    return subject.rsplit(".", 1)[1]


def tasks(key: str, ordinal: int | None = None, lane: int = 0) -> str:
    """The queue of one engine or, without an ordinal, of a lane."""
    if ordinal is not None:
        return f"tasks.{key}.e{ordinal}"
    return f"tasks.{key}.l{lane}" if lane else f"tasks.{key}"


def ordinal_of(tasks_subject: str) -> int | None:
    """The engine whose own queue that is; None for a lane."""
    last = tasks_subject.split(".")[-1]
    return int(last[1:]) if tasks_subject.count(".") == 2 and last[0] == "e" else None


def model_key_of(tasks_subject: str) -> str:
    """The model key in a `tasks.` subject."""
    return tasks_subject.split(".")[1]


def tasks_durable(key: str, ordinal: int | None = None, lane: int = 0) -> str:
    """The consumer of that queue."""
    if ordinal is not None:
        return f"engine_{key}_e{ordinal}"
    return f"engines_{key}_l{lane}" if lane else f"engines_{key}"


def cancel(key: str, generation_id: str) -> str:
    return f"cancel.{key}.{generation_id}"


def engine_rpc(key: str, engine_id: str | None = None) -> str:
    return f"rpc.engine.{key}" if engine_id is None else f"rpc.engine.{key}.{engine_id}"


def engines_rpc(key: str) -> str:
    return f"rpc.engines.{key}"


def host_rpc(host_id: str) -> str:
    return f"rpc.host.{host_id}"


def presence_key(kind: str, member_id: str) -> str:
    return f"{kind}.{member_id}"


def conversation_key(caller: str, conversation_id: str) -> str:
    """Key of one conversation of one caller: hash of its base, a dot, hash of its `::model` suffix."""
    base, _, model = conversation_id.partition("::")
    return f"{_hash('conversation', caller, base)}.{_hash('model', model, n_chars=16)}"


def conversation_variants(caller: str, base: str) -> str:
    """Key filter of all `<base>` and `<base>::<model>` conversations of one caller."""
    return f"{_hash('conversation', caller, base)}.*"


def idempotency_key(caller: str, key: str) -> str:
    """Key of what a caller asked for under an idempotency key."""
    return _hash("idempotency", caller, key)


def forgotten_key(generation_id: str) -> str:
    """Key that stands for: readers shall not find that generation any more. No hash looks like it."""
    return f"forgotten.{generation_id}"
