"""Takes orders about slots to the decoder, and its answers back. Event-loop thread only."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

from schemas.errors import RequestError
from schemas.rpc import ChangeSlot, SlotChanged
from services.engine.protocol import ActOnSlot, SlotActed
from services.engine.slot_names import check_name

ERASE = "erase"
ACTIONS = ("save", "restore", ERASE)
NO_FOLDER = "This server does not support slots action. Start it with `--slot-save-path`"


class SlotDesk:
    """folder: of saved slots, empty where nothing may be saved."""

    def __init__(self, send: Callable[[ActOnSlot], None], folder: str) -> None:
        self._send = send
        self._folder = folder
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[SlotActed]] = {}

    async def change(self, order: ChangeSlot) -> SlotChanged:
        """Carry out an order; waits until the slot is free. Raises RequestError."""
        action = self._action(order)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[action.id] = answer
        try:
            self._send(action)
            acted = await answer
        finally:
            del self._waiting[action.id]
        if acted.problem is not None:
            raise RequestError(acted.problem)
        return SlotChanged(
            slot=order.slot,
            n_tokens=acted.n_tokens,
            n_bytes=acted.n_bytes,
            elapsed_ms=acted.elapsed_us / 1000,
        )

    def on_acted(self, output: SlotActed) -> None:
        answer = self._waiting.get(output.id)
        if answer is not None and not answer.done():
            answer.set_result(output)

    def on_gone(self) -> None:
        """The decoder died, and with it what its slots held."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(RequestError.unavailable("the decoder was started anew"))

    def _action(self, order: ChangeSlot) -> ActOnSlot:
        if not self._folder:
            raise RequestError.not_supported(NO_FOLDER)
        if order.action not in ACTIONS:
            raise RequestError.invalid("Invalid action", "action")
        has_file = order.action != ERASE
        path = str(Path(self._folder) / check_name(order.filename)) if has_file else ""
        return ActOnSlot(id=next(self._numbers), slot=order.slot, action=order.action, path=path)
