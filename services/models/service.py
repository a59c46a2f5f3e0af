"""The control plane of one model: looks, decides, tells the host and the gateways, writes it down."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from schemas.lifecycle import EnginePresence, ModelStatus
from schemas.rpc import HostOrder
from services.bus.errors import BusError
from services.logs import event
from services.models.catalog import ModelSpec, status_of
from services.models.keeper import Keeper
from services.models.lifecycle import (
    Decision,
    ModelState,
    Observation,
    Order,
    Reason,
    Verdict,
    Wish,
    decide,
)
from services.models.mirror import Mirror
from services.models.observer import Observer
from services.models.orders import Ask, Orders

log = logging.getLogger(__name__)

RETRY_S = 0.2
LAST_WORD_S = 0.5
FIRST_TRY_S = 0.5
"""How long a start waits for the host to take the orders: what comes next may block the loop."""


class ModelsService:
    """One model's lifecycle. Event-loop thread; built by `bootstrap`.

    One task decides, so commands and observations never overlap. Gateways hear of a decision at
    once; the database, which may still be opening, hears of it through the keeper.
    """

    def __init__(
        self,
        *,
        spec: ModelSpec,
        wish: Wish,
        engines: tuple[str, ...],
        observe: Callable[[Callable[[], None]], Observer],
        mirror: Mirror,
        ask: Ask,
        to_host: Callable[[Order], HostOrder],
        keep: Callable[[Callable[[], None]], Keeper],
        now_ms: Callable[[], int],
    ) -> None:
        self._spec, self._wish, self._ours = spec, wish, engines
        self._mirror, self._to_host, self._now_ms = mirror, to_host, now_ms
        self._wake = asyncio.Event()
        self._observer = observe(self._wake.set)
        self._keeper = keep(self._wake.set)
        self._orders = Orders(ask, self._on_refusal)
        self._state, self._changed_at_ms = ModelState(), now_ms()
        self._refusal = ""
        self._deciding: asyncio.Task[None] | None = None

    @property
    def status(self) -> ModelStatus:
        """What gateways are told now."""
        registered, verdict = self._keeper.registered, self._state.verdict
        return status_of(self._spec, registered, verdict, self._changed_at_ms)

    async def start(self) -> None:
        """Return when orders are under way and gateways know; the database may come later."""
        await self._observer.start()
        await self._step()
        self._deciding = asyncio.create_task(self._keep_deciding())
        await self._orders.first_try(FIRST_TRY_S)
        self._keeper.start()

    async def stop(self) -> None:
        """Write down how it ends and let go of everything; at most about 2 s. Idempotent.

        Engines are not stopped: their host is told so by whoever stops the whole, and an engine
        must survive the end of this process alone.
        """
        if self._deciding is not None:
            self._deciding.cancel()
            await asyncio.gather(self._deciding, return_exceptions=True)
            self._deciding = None
            if self._wish is Wish.LOAD:
                await self._conclude(Verdict(reason=Reason.STOPPED))
        await self._orders.stop()
        await self._observer.stop()
        await self._keeper.stop()

    def load(self) -> None:
        """Have the model's engines run. Idempotent."""
        self._command(Wish.LOAD)

    def unload(self) -> None:
        """Have the model's engines stop. Idempotent."""
        self._command(Wish.UNLOAD)

    def _command(self, wish: Wish) -> None:
        if self._wish is not wish:
            self._wish, self._refusal = wish, ""
            self._wake.set()

    def _on_refusal(self, text: str) -> None:
        if text != self._refusal:
            self._refusal = text
            self._wake.set()

    async def _keep_deciding(self) -> None:
        while True:
            await self._wake.wait()
            try:
                await self._step()
            except Exception:
                log.exception("action=models_step_failed model=%s", self._spec.name)
                self._wake_later()

    async def _step(self) -> None:
        self._wake.clear()
        decision = decide(self._state, self._observation())
        for order in decision.orders:
            self._orders.give(self._to_host(order))
        self._accept(decision)
        await self._show()

    def _observation(self) -> Observation:
        engines: tuple[EnginePresence, ...] = self._observer.engines
        return Observation(wish=self._wish, engines=engines, ours=self._ours, refusal=self._refusal)

    def _accept(self, decision: Decision) -> None:
        before, after = self._state.verdict, decision.state.verdict
        self._state = decision.state
        if decision.is_news:
            self._note(before, after)

    def _note(self, before: Verdict, after: Verdict) -> None:
        at_ms = self._now_ms()
        self._keeper.note(after, at_ms)
        if before.status != after.status:
            self._changed_at_ms = at_ms
            self._log(after)

    def _log(self, verdict: Verdict) -> None:
        event(
            log,
            f"model_{verdict.status}",
            model=self._spec.name,
            reason=verdict.reason.value,
            engine=verdict.engine or None,
            error=verdict.error or None,
        )

    async def _conclude(self, verdict: Verdict) -> None:
        before, self._state = self._state.verdict, ModelState(verdict=verdict)
        self._note(before, verdict)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_S):
                await self._show()

    async def _show(self) -> None:
        try:
            await self._mirror.show(self.status)
        except BusError as error:
            event(log, "mirror_retry", level=logging.WARNING, error=str(error))
            self._wake_later()

    def _wake_later(self) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._wake.set)
