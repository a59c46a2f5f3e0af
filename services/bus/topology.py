"""Streams, buckets and consumers: what must exist on the broker. Idempotent, any service may call it."""

import asyncio
from collections.abc import Awaitable, Callable

import nats.errors
from nats.js import api
from nats.js.errors import APIError, BadRequestError, NotFoundError
from nats.js.errors import Error as JetStreamError

from schemas import subjects
from schemas.lanes import OWN, SHARED
from services.bus.connection import Bus
from services.bus.errors import BusUnavailable

INACTIVE_S = 86_400
"""A consumer that no engine has used for so long goes; its tasks stay for the next one."""
PATIENCE_S = 30.0
RETRY_S = 0.3
FINAL = (10074,)
"""Errors that no waiting helps against: more replicas than a lone server can have."""
DUPLICATE_WINDOW_S = 120
MARKER_TTL_S = 2
MAX_CONSUMERS = 20_000
MAX_ACK_PENDING = 20_000
MAX_HINTS = 200_000
HINT_AGE_S = 86_400
"""What is dropped here is found by the archive's sweep."""


async def ensure_topology(bus: Bus, *, patience_s: float = PATIENCE_S) -> None:
    """Create or update every stream and bucket. A broker that has just started, or a cluster that
    elects, has `patience_s` seconds. Raises BusUnavailable."""

    async def ensure() -> None:
        for config in (_generations(bus), _tasks(bus), _ended(bus), *_buckets(bus)):
            await _ensure_stream(bus, config)

    await _insist(ensure, patience_s)


async def ensure_task_consumers(
    bus: Bus, model_key: str, ordinal: int | None, *, patience_s: float = PATIENCE_S
) -> None:
    """Create the durable consumers of a model's lanes and, with an ordinal, of one engine's queue.
    The same patience. Raises BusUnavailable."""
    queues = [(None, lane) for lane in SHARED] + ([] if ordinal is None else [(ordinal, OWN)])

    async def ensure() -> None:
        await asyncio.gather(*(_ensure_consumer(bus, model_key, *queue) for queue in queues))

    await _insist(ensure, patience_s)


async def _insist(work: Callable[[], Awaitable[None]], patience_s: float) -> None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience_s
    while True:
        try:
            return await work()
        except (nats.errors.Error, JetStreamError, TimeoutError, OSError) as error:
            is_final = getattr(error, "err_code", None) in FINAL
            if is_final or loop.time() >= give_up_at:
                raise BusUnavailable(f"the broker does not take our streams: {error}") from error
        await asyncio.sleep(RETRY_S)


def _generations(bus: Bus) -> api.StreamConfig:
    return api.StreamConfig(
        name=subjects.GENERATIONS_STREAM,
        subjects=[subjects.GENERATIONS_SUBJECTS],
        storage=api.StorageType.FILE,
        num_replicas=bus.settings.n_replicas,
        discard=api.DiscardPolicy.NEW,
        max_bytes=bus.settings.store_max_bytes or -1,
        max_consumers=MAX_CONSUMERS,
        allow_direct=True,
        republish=api.RePublish(src="gen.>", dest=f"{subjects.LIVE_PREFIX}gen.>"),
    )


def _tasks(bus: Bus) -> api.StreamConfig:
    return api.StreamConfig(
        name=subjects.TASKS_STREAM,
        subjects=[subjects.TASKS_SUBJECTS],
        storage=api.StorageType.FILE,
        num_replicas=bus.settings.n_replicas,
        retention=api.RetentionPolicy.WORK_QUEUE,
        duplicate_window=DUPLICATE_WINDOW_S,
        allow_direct=True,
        max_consumers=MAX_CONSUMERS,
        allow_msg_ttl=True,
    )


def _ended(bus: Bus) -> api.StreamConfig:
    """Bounded, since nobody takes hints where there is no archive, or while its database is away."""
    return api.StreamConfig(
        name=subjects.ENDED_STREAM,
        subjects=[subjects.ENDED_SUBJECTS],
        storage=api.StorageType.FILE,
        num_replicas=bus.settings.n_replicas,
        retention=api.RetentionPolicy.WORK_QUEUE,
        discard=api.DiscardPolicy.OLD,
        max_msgs=MAX_HINTS,
        max_age=HINT_AGE_S,
    )


def _buckets(bus: Bus) -> list[api.StreamConfig]:
    names = (
        subjects.CONVERSATIONS_BUCKET,
        subjects.MODELS_BUCKET,
        subjects.PRESENCE_BUCKET,
        subjects.API_KEYS_BUCKET,
        subjects.LIMITS_BUCKET,
        subjects.IDEMPOTENCY_BUCKET,
    )
    return [
        api.StreamConfig(
            name=f"KV_{name}",
            subjects=[f"$KV.{name}.>"],
            storage=api.StorageType.FILE,
            num_replicas=bus.settings.n_replicas,
            max_msgs_per_subject=1,
            discard=api.DiscardPolicy.NEW,
            allow_direct=True,
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            subject_delete_marker_ttl=MARKER_TTL_S,
        )
        for name in names
    ]


async def _ensure_stream(bus: Bus, config: api.StreamConfig) -> None:
    try:
        await bus.js.add_stream(config)
    except BadRequestError:  # it exists with other settings
        await bus.js.update_stream(config)


async def _ensure_consumer(bus: Bus, model_key: str, ordinal: int | None, lane: int) -> None:
    name = subjects.tasks_durable(model_key, ordinal, lane)
    config = api.ConsumerConfig(
        name=name,
        durable_name=name,
        filter_subject=subjects.tasks(model_key, ordinal, lane),
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=bus.settings.lease_s,
        max_ack_pending=MAX_ACK_PENDING,
        max_deliver=-1,
        inactive_threshold=INACTIVE_S,
    )
    try:
        await bus.js.add_consumer(subjects.TASKS_STREAM, config)
    except (BadRequestError, NotFoundError) as error:
        if not await _has_consumer(bus, name):
            raise error


async def _has_consumer(bus: Bus, name: str) -> bool:
    try:
        await bus.js.consumer_info(subjects.TASKS_STREAM, name)
    except APIError:
        return False
    return True
