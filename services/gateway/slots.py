"""GET /slots, and POST /slots/{id}: saving, restoring and erasing what a slot holds."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import UNAVAILABLE, Problem, RequestError
from schemas.rpc import ChangeSlot, SlotChanged
from services.edge.body import JsonObject, read_json
from services.edge.errors import JSON_TYPE
from services.gateway import views
from services.gateway.config import GatewaySettings
from services.gateway.engines import Engines
from services.gateway.models import ServedModel

NO_SLOTS = "This server does not support slots endpoint. Start it with `--slots`"
NO_FILES = "This server does not support slots action. Start it with `--slot-save-path`"
SAVE, RESTORE, ERASE = "save", "restore", "erase"
MAX_DIGITS = 9


class SlotRoutes:
    """Asks the engines."""

    def __init__(self, model: ServedModel, engines: Engines, settings: GatewaySettings) -> None:
        self._model = model
        self._engines = engines
        self._settings = settings

    async def show(self, request: Request) -> Response:
        if not self._settings.has_slots:
            raise RequestError.not_supported(NO_SLOTS)
        engines = await self._engines.slots()
        is_full = all(slot.is_processing for engine in engines for slot in engine.slots)
        if request.query_params.get("fail_on_no_slot") and is_full:
            raise RequestError(Problem(code=UNAVAILABLE, message="no slot available"))
        return _json(views.slots_view(engines))

    async def change(self, request: Request) -> Response:
        """Waits while the slot is at work."""
        if not self._settings.has_slot_files:
            raise RequestError.not_supported(NO_FILES)
        number = slot_number(request.path_params["slot"])
        action = request.query_params.get("action", "")
        if action not in (SAVE, RESTORE, ERASE):
            raise RequestError.invalid("Invalid action", "action")
        filename = "" if action == ERASE else await self._filename(request)
        order = ChangeSlot(slot=number, action=action, filename=filename)
        changed = await self._engines.change_slot(
            order, self._model.loaded().n_slots, timeout_s=self._settings.deadline_s
        )
        return _json(changed_view(number, order, changed))

    async def _filename(self, request: Request) -> str:
        body = await read_json(request, self._settings.max_body_bytes)
        name = body.get("filename")
        if not isinstance(name, str):
            raise RequestError.invalid("Field 'filename' must be a string", "filename")
        return name


def slot_number(text: str) -> int:
    """Raises RequestError."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise RequestError.invalid("Invalid slot ID", "id_slot")
    return int(text)


def changed_view(number: int, order: ChangeSlot, changed: SlotChanged) -> JsonObject:
    """llama-server's keys."""
    if order.action == ERASE:
        return {"id_slot": number, "n_erased": changed.n_tokens}
    is_save = order.action == SAVE
    return {
        "id_slot": number,
        "filename": order.filename,
        "n_saved" if is_save else "n_restored": changed.n_tokens,
        "n_written" if is_save else "n_read": changed.n_bytes,
        "timings": {"save_ms" if is_save else "restore_ms": changed.elapsed_ms},
    }


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type=JSON_TYPE)
