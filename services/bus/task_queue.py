"""Taking tasks: all queues that one engine may take from, in turns.

A queue that was found empty has a pull waiting in it, so that what arrives comes at once. One that may
hold something is asked in its turn, so that what has waited is taken in the right order. What comes
while nothing can be taken is sent back.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count

import nats.errors
import orjson
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from schemas import lanes, subjects
from schemas.errors import SchemaError
from services.bus.connection import Bus, unsubscribe
from services.bus.errors import BusUnavailable
from services.bus.tasks import Delivery
from services.bus.topology import ensure_task_consumers

log = logging.getLogger(__name__)

PULL_S = 2.0
"""How long a pull waits at the broker. A replica that becomes leader knows of none of them."""
PROBE_TIMEOUT_S = 1.0
REST_S = 0.2
"""A queue whose pull was refused is left alone for so long."""
EMPTY = ("404", "408")


class _Pull:
    """One pull that the broker has not answered in full. token: of its replies. n_left: tasks that it
    may still bring. is_lasting: it waits for what comes. done: set at its end."""

    def __init__(self, token: str, n: int, until: float, *, is_lasting: bool) -> None:
        self.token, self.n_left, self.until, self.is_lasting = token, n, until, is_lasting
        self.done = asyncio.Event()
        self.found: list[Delivery] = []


class _Queue:
    """One consumer as this engine sees it. is_empty: nobody had a task there when it was last asked."""

    def __init__(self, durable: str, inbox: str) -> None:
        self.subject = f"$JS.API.CONSUMER.MSG.NEXT.{subjects.TASKS_STREAM}.{durable}"
        self.inbox = inbox
        self.is_empty = False
        self.rests_until = 0.0
        self.pull: _Pull | None = None


class TaskQueue:
    """Tasks of one model and, with an ordinal, of one engine. One caller of `fetch`; event-loop thread."""

    def __init__(self, bus: Bus, model_key: str, ordinal: int | None = None) -> None:
        self._bus = bus
        self._model_key = model_key
        self._ordinal = ordinal
        self._queues: dict[int, _Queue] = {}
        self._subscriptions: list[Subscription] = []
        self._arrived: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._numbers = count(1)
        self._turn = 0
        self._is_wanted = False
        self._is_stopped = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget_reconnect: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Create the consumers if need be, and listen. Raises BusUnavailable."""
        try:
            await ensure_task_consumers(self._bus, self._model_key, self._ordinal)
            for lane in lanes.SHARED:
                await self._listen(lane, subjects.tasks_durable(self._model_key, lane=lane))
            if self._ordinal is not None:
                durable = subjects.tasks_durable(self._model_key, self._ordinal)
                await self._listen(lanes.OWN, durable)
        except (nats.errors.Error, OSError) as error:
            raise BusUnavailable(f"cannot listen to the task queue: {error!r}") from error
        self._forget_reconnect = self._bus.on_reconnect(self._on_reconnect)

    async def fetch(self, n: int, wait_s: float = PULL_S) -> list[Delivery]:
        """Up to n tasks; waits at most `wait_s`. Empty when there is none or no broker, and after
        `stop`. May be cancelled: what was on its way goes back."""
        self._is_wanted = True
        give_up_at = self._now() + wait_s
        while not self._is_stopped:
            if self._arrived:
                return [self._arrived.popleft() for _ in range(min(n, len(self._arrived)))]
            if found := await self._ask_in_turn(n):
                return found
            if not await self._wait(give_up_at):
                break
        return []

    async def pause(self) -> None:
        """Nothing can be taken until the next `fetch`: what has arrived goes back, and so does what
        still comes. Who has tasks then is not known any more."""
        self._is_wanted = False
        for queue in self._queues.values():
            queue.is_empty = False
        while self._arrived:
            await self._arrived.popleft().nak()

    async def stop(self) -> None:
        """Take nothing any more; a waiting `fetch` returns. Idempotent."""
        self._is_stopped = True
        self._news.set()
        self._forget_reconnect()
        for subscription in self._subscriptions:
            await unsubscribe(subscription)
        await self.pause()

    # --- asking -----------------------------------------------------------------------------

    async def _ask_in_turn(self, n: int) -> list[Delivery]:
        """Look into the queues that may hold something, one after another. Alone it gives up to n."""
        unknown = [lane for lane, queue in self._queues.items() if self._may_hold(queue)]
        for lane in lanes.order(self._turn, unknown):
            found = await self._probe(self._queues[lane], n if len(unknown) == 1 else 1)
            if found:
                self._turn += len(found)
                return found
            if self._arrived or self._is_stopped:
                break
        return []

    def _may_hold(self, queue: _Queue) -> bool:
        return queue.pull is None and not queue.is_empty and queue.rests_until <= self._now()

    async def _probe(self, queue: _Queue, n: int) -> list[Delivery]:
        """What is there now, up to n."""
        pull = await self._pull(queue, n, is_lasting=False)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await pull.done.wait()
        except TimeoutError:
            self._rest(queue)
        finally:
            queue.pull = None
            if not pull.done.is_set():  # cancelled, or late: what comes is like any other arrival
                self._arrived.extend(pull.found)
                pull.found = []
        return pull.found

    async def _wait(self, until: float) -> bool:
        """Until something arrives or a pull ends; False when the time is over. All queues that are not
        resting have a pull then."""
        self._news.clear()
        for queue in self._queues.values():
            if queue.pull is None and queue.is_empty:
                await self._pull(queue, 1, is_lasting=True)
        if self._arrived:
            return True
        try:
            async with asyncio.timeout_at(min(until, self._now() + REST_S * 5)):
                await self._news.wait()
        except TimeoutError:
            self._give_up_lost_pulls()
        return self._now() < until

    async def _pull(self, queue: _Queue, n: int, *, is_lasting: bool) -> _Pull:
        token = str(next(self._numbers))
        wait_s = PULL_S if is_lasting else PROBE_TIMEOUT_S
        pull = queue.pull = _Pull(token, n, self._now() + wait_s + 1, is_lasting=is_lasting)
        query: dict[str, object] = {"batch": n}
        query |= {"expires": int(PULL_S * 1e9)} if is_lasting else {"no_wait": True}
        with contextlib.suppress(nats.errors.Error, OSError):  # it is asked again
            reply = f"{queue.inbox}.{token}"
            await self._bus.nc.publish(queue.subject, orjson.dumps(query), reply=reply)
        return pull

    # --- what comes -------------------------------------------------------------------------

    async def _listen(self, lane: int, durable: str) -> None:
        queue = self._queues[lane] = _Queue(durable, self._bus.nc.new_inbox())
        on_message = partial(self._on_message, queue)
        self._subscriptions.append(await self._bus.nc.subscribe(f"{queue.inbox}.*", cb=on_message))

    async def _on_message(self, queue: _Queue, message: Msg) -> None:
        status = (message.headers or {}).get("Status")
        if status is not None and not message.data and not message.reply:
            self._on_status(queue, message.subject.rpartition(".")[2], status)
            return
        try:
            self._on_task(queue, Delivery(message))
        except SchemaError:
            log.exception("action=task_unreadable subject=%s", message.subject)

    def _on_task(self, queue: _Queue, delivery: Delivery) -> None:
        queue.is_empty = delivery.n_behind == 0
        pull = queue.pull
        if pull is not None:
            pull.n_left -= 1
            if not pull.is_lasting:
                pull.found.append(delivery)
            if pull.n_left == 0 or (queue.is_empty and not pull.is_lasting):
                self._end(queue, pull)
        if pull is None or pull.is_lasting:
            self._arrive(queue, delivery)

    def _arrive(self, queue: _Queue, delivery: Delivery) -> None:
        if self._is_wanted and not self._is_stopped:
            self._arrived.append(delivery)
            self._news.set()
            return
        queue.is_empty = False
        task = asyncio.create_task(delivery.nak())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_status(self, queue: _Queue, token: str, status: str) -> None:
        pull = queue.pull
        if pull is None or pull.token != token:
            return
        if status in EMPTY:
            queue.is_empty = self._is_wanted and not pull.found
        else:  # the consumer or its leader is gone
            self._rest(queue)
        self._end(queue, pull)

    def _end(self, queue: _Queue, pull: _Pull) -> None:
        queue.pull = None
        pull.done.set()
        self._news.set()

    def _rest(self, queue: _Queue) -> None:
        queue.is_empty = False
        queue.rests_until = self._now() + REST_S

    def _give_up_lost_pulls(self) -> None:
        for queue in self._queues.values():
            if queue.pull is not None and queue.pull.until < self._now():
                queue.is_empty = False
                self._end(queue, queue.pull)

    def _on_reconnect(self) -> None:
        """The broker has forgotten our pulls."""
        for queue in self._queues.values():
            if queue.pull is not None:
                queue.is_empty = False
                self._end(queue, queue.pull)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
