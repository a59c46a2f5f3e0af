"""The routes that only tell: health, models, props."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from schemas.lifecycle import SLEEPING
from services.edge.access import access_of
from services.edge.errors import JSON_TYPE
from services.gateway import views
from services.gateway.config import GatewaySettings
from services.gateway.models import ServedModel

NO_PROPS_POST = "This server does not support changing global properties. Start it with `--props`"


class InfoRoutes:
    """Answers from what is known already."""

    def __init__(self, model: ServedModel, settings: GatewaySettings) -> None:
        self._model = model
        self._settings = settings
        self._names = settings.model_name, *settings.aliases

    async def health(self, _request: Request) -> Response:
        if not self._model.is_loaded:
            raise RequestError(self._model.problem())
        return _json({"status": "ok"})

    async def models(self, request: Request) -> Response:
        """Those that the caller may use."""
        key, status = access_of(request).key, self._model.status
        if key is not None and not key.may_use(self._names):
            return _json(views.NO_MODELS)
        created_at_s = 0 if status is None else status.created_at_s
        return _json(views.models_view(self._model.loaded(), self._settings, created_at_s))

    async def props(self, _request: Request) -> Response:
        status = self._model.status
        is_sleeping = status is not None and status.status == SLEEPING
        found = self._model.loaded()
        return _json(views.props_view(found, self._settings, is_sleeping=is_sleeping))

    async def change_props(self, _request: Request) -> Response:
        if not self._settings.has_props_post:
            raise RequestError.not_supported(NO_PROPS_POST)
        return _json({"success": True})


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type=JSON_TYPE)
