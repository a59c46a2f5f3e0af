"""Questions and answers over NATS request/reply, typed by schemas.rpc."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import nats.errors
from nats.aio.subscription import Subscription

from schemas import codec
from schemas.errors import SERVER, Problem, RequestError, SchemaError
from schemas.rpc import Refusal
from schemas.struct import Message
from services.bus.connection import Bus
from services.bus.errors import MessageTooLarge, NoResponder, RpcTimeout
from services.bus.requests import Requests

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Message)


async def ask(
    bus: Bus, subject: str, question: Message, answer: type[A], *, timeout_s: float = 5.0
) -> A:
    """Send a question and return the answer.

    Raises RequestError for a Refusal, NoResponder when nobody listens, RpcTimeout when the answer is
    late, MessageTooLarge for a question over the broker's limit, BusUnavailable when it is away.
    """
    data = codec.encode(question)
    if len(data) > bus.max_message_bytes:
        raise MessageTooLarge(f"a question of {len(data)} bytes")
    try:
        reply = await bus.part(Requests).ask(subject, data, timeout_s, is_patient=True)
    except nats.errors.NoRespondersError as error:
        raise NoResponder(f"nobody serves {subject}") from error
    except TimeoutError as error:
        raise RpcTimeout(f"no answer on {subject} within {timeout_s:g} s") from error
    found = codec.decode(reply, cast("type[A | Refusal]", Refusal | answer))
    if isinstance(found, Refusal):
        raise RequestError(found.problem)
    return found


async def serve(
    bus: Bus,
    subject: str,
    questions: Any,
    handler: Callable[[Any], Awaitable[Message]],
    *,
    queue: str = "",
) -> Subscription:
    """Answer questions of the given types (a union) with what `handler` returns, concurrently.

    RequestError becomes a Refusal. queue: of several servers in one group only one gets a question.
    """
    running: set[asyncio.Task[None]] = set()

    async def answer(inbox: str, question: bytes) -> None:
        reply = codec.encode(await _answer(question, questions, handler))
        try:
            if not bus.nc.send(inbox, "", "", reply):
                await bus.nc.publish(inbox, reply)
        except (nats.errors.Error, OSError) as error:
            log.warning("action=rpc_reply_lost subject=%s error=%r", subject, error)

    def on_question(inbox: bytes, question: bytes) -> None:
        task = asyncio.create_task(answer(inbox.decode(), question))
        running.add(task)
        task.add_done_callback(running.discard)

    return await bus.nc.subscribe_questions(subject, queue, on_question)


async def _answer(
    data: bytes, questions: Any, handler: Callable[[Any], Awaitable[Message]]
) -> Message:
    try:
        return await handler(codec.decode(data, questions))
    except RequestError as error:
        return Refusal(problem=error.problem)
    except SchemaError as error:
        return Refusal(problem=Problem(code=SERVER, message=f"unreadable question: {error}"))
    except Exception:
        log.exception("action=rpc_failed")
        return Refusal(problem=Problem(code=SERVER, message="the server failed on this request"))
