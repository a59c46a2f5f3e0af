"""Router mode: the server was started without a model, and requests name theirs.

What is here is llama-server's outside: the list of models, its errors, its properties. No model is
loaded on demand yet, so a request for one that is known is told how to start it.
"""

import importlib.metadata

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas import subjects
from schemas.errors import NOT_FOUND, Problem, RequestError
from schemas.lifecycle import ModelStatus
from schemas.rpc import ListModels, ModelList
from services.bus.connection import Bus
from services.bus.rpc import ask
from services.edge.access import access_of
from services.edge.body import read_json
from services.edge.errors import JSON_TYPE
from services.gateway.config import GatewaySettings
from services.gateway.counting import COUNTED_OF_PATH
from services.gateway.generating import DIALECT_OF_PATH
from services.gateway.views import Json

TIMEOUT_S = 10.0
MODEL_PATHS = (
    *DIALECT_OF_PATH,
    *COUNTED_OF_PATH,
    "/v1/responses",
    "/responses",
    "/v1/responses/input_tokens",
    "/responses/input_tokens",
    "/v1/chat/completions/control",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/props",
    "/slots/{slot}",
)
"""POST routes whose body names a model."""


class ChoosingRoutes:
    """The routes that need to know which model is meant."""

    def __init__(self, bus: Bus, settings: GatewaySettings) -> None:
        self._bus = bus
        self._settings = settings

    async def health(self, _request: Request) -> Response:
        """A router serves as soon as it answers."""
        return _json({"status": "ok"})

    async def models(self, request: Request) -> Response:
        """All models that the caller may use; `?reload=…` looks for new ones. Raises BusError."""
        listed, key = await self._list(is_fresh=_is_reload(request)), access_of(request).key
        shown = [each for each in listed if key is None or key.may_use((each.name, *each.aliases))]
        return _json({"data": [entry(model) for model in shown], "object": "list"})

    async def props(self, request: Request) -> Response:
        """The router's own, or those of the model that the query names."""
        if request.query_params.get("model"):
            return await self.ask(request)
        return _json(router_props(self._settings))

    async def ask(self, request: Request) -> Response:
        """A GET that names its model in the query. Raises RequestError, BusError."""
        raise RequestError(await self._problem(request.query_params.get("model", "")))

    async def order(self, request: Request) -> Response:
        """A POST that names its model in the body. Raises RequestError, BusError."""
        raise RequestError(await self._problem(await self._named(request)))

    async def load(self, request: Request) -> Response:
        """Raises RequestError, BusError."""
        name = await self._named(request)
        if await self._find(name) is None:
            raise RequestError(Problem(code=NOT_FOUND, message="model is not found"))
        raise RequestError(not_loadable(name))

    async def unload(self, request: Request) -> Response:
        """Raises RequestError, BusError."""
        is_known = await self._find(await self._named(request)) is not None
        raise RequestError.invalid(f"model is not {'running' if is_known else 'found'}", "model")

    async def _named(self, request: Request) -> str:
        name = (await read_json(request, self._settings.max_body_bytes)).get("model")
        return name if isinstance(name, str) else ""

    async def _problem(self, name: str) -> Problem:
        """Why a request for that model gets no answer."""
        if not name:
            return RequestError.invalid("model name is missing from the request", "model").problem
        if (found := await self._find(name)) is None:
            return RequestError.invalid(f"model '{name}' not found", "model").problem
        return not_loadable(found.name)

    async def _find(self, name: str) -> ModelStatus | None:
        listed = await self._list()
        return next((model for model in listed if name in (model.name, *model.aliases)), None)

    async def _list(self, *, is_fresh: bool = False) -> tuple[ModelStatus, ...]:
        question = ListModels(is_fresh=is_fresh)
        answer = await ask(self._bus, subjects.MODELS_RPC, question, ModelList, timeout_s=TIMEOUT_S)
        return answer.models


def _is_reload(request: Request) -> bool:
    return bool(request.query_params.get("reload"))


def not_loadable(name: str) -> Problem:
    message = (
        f"model '{name}' is known, but models are not loaded on demand yet: "
        "start the server with it (-m FILE, or -hf for one of the cache)"
    )
    return RequestError.not_supported(message).problem


def entry(model: ModelStatus) -> Json:
    """One model as llama-server's router lists it. No process of its own runs for it: no args."""
    return {
        "id": model.name,
        "aliases": sorted(model.aliases),
        "tags": sorted(model.tags),
        "object": "model",
        "owned_by": "llamacpp",
        "created": model.created_at_s,
        "status": {"value": model.status, "args": []},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": model.source,
        "can_remove": False,
    }


def router_props(settings: GatewaySettings) -> Json:
    """llama-server's keys; those of a model are there so that its clients find them."""
    return {
        "role": "router",
        "max_instances": 0,
        "models_autoload": False,
        "model_alias": "llamatape",
        "model_path": "none",
        "default_generation_settings": {"params": {}, "n_ctx": 0},
        "ui_settings": orjson.loads(settings.ui_settings),
        "build_info": f"llamatape-{importlib.metadata.version('llamatape')}",
        "cors_proxy_enabled": settings.has_cors_proxy,
    }


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type=JSON_TYPE)
