"""Builds the gateway: the only place here that joins it to the bus."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Lifespan

from schemas import subjects
from services.bus.backlog import Backlog
from services.bus.connection import Bus
from services.bus.errors import BusError
from services.bus.kv import Bucket
from services.bus.log import LogWriter
from services.edge.auth import install_auth
from services.edge.body import install_body_handlers
from services.edge.cors import install_cors
from services.edge.errors import install_error_handlers
from services.edge.key_ring import KeyRing
from services.edge.prefix import install_prefix
from services.gateway.admission import Admission
from services.gateway.answer import Answers
from services.gateway.cancellation import Canceller
from services.gateway.choosing import MODEL_PATHS, ChoosingRoutes
from services.gateway.config import GatewaySettings
from services.gateway.controlling import ControlRoutes
from services.gateway.cors_proxy import CorsProxy, refuse
from services.gateway.counting import COUNTED_OF_PATH, CountingRoutes, TokenCounter
from services.gateway.engines import Engines
from services.gateway.generating import DIALECT_OF_PATH, GeneratingRoutes
from services.gateway.idempotency import IdempotencyKeys
from services.gateway.info import InfoRoutes
from services.gateway.limits.limiter import Limiter
from services.gateway.loads import CallerLoads
from services.gateway.metrics import MetricsRoute
from services.gateway.models import ServedModel
from services.gateway.openapi import openapi
from services.gateway.opening import Opener
from services.gateway.predict import PredictRoute
from services.gateway.readiness import install_readiness
from services.gateway.responses import ResponsesRoutes
from services.gateway.slots import SlotRoutes
from services.gateway.static import install_static
from services.gateway.stored_responses import StoredResponses
from services.gateway.unsupported import unsupported_routes
from services.gateway.vocabulary import VocabularyRoutes
from services.streams.conversations import Conversations
from services.streams.errors import StreamsError
from services.streams.forgotten import Forgotten
from services.streams.hub import Hub
from services.streams.keys import watching_keys


def create_app(
    bus: Bus,
    settings: GatewaySettings,
    hub: Hub,
    conversations: Conversations,
    writer: LogWriter,
) -> FastAPI:
    """The HTTP API of one gateway. Its lifespan watches the model, and closes `hub` at the end;
    `bus` stays the caller's. Routes of the read side may be added to it."""
    model = ServedModel(bus, settings)
    keys = _key_ring(settings)
    loads = CallerLoads(hub)
    backlog = Backlog(bus, settings.model_key, settings.max_queue)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with watching_keys(bus, keys), _running(loads.watch()):
            await model.start()
            yield
            await model.stop()
        backlog.close()
        await hub.close()

    app = _bare_app(lifespan)
    engines = Engines(bus, settings.model_key, settings.prepare_timeout_s)
    ender = Canceller(bus, writer, settings.model_key)
    admission = Admission(
        bus=bus,
        hub=hub,
        engines=engines,
        model=model,
        conversations=conversations,
        opener=Opener(bus=bus, writer=writer, hub=hub, conversations=conversations, ender=ender),
        idempotency=_idempotency(bus, hub, conversations, settings),
        backlog=backlog,
        loads=loads,
        limiter=_limiter(bus, hub, engines, settings),
        settings=settings,
    )
    answers, counter = Answers(ender), TokenCounter(engines)
    stored = StoredResponses(hub.logs, Forgotten(conversations.keys))
    if settings.is_router:
        _add_choosing_routes(app, ChoosingRoutes(bus, settings))
    _add_generating_routes(app, GeneratingRoutes(admission, answers, settings))
    _add_responses_routes(
        app, ResponsesRoutes(admission, answers, stored, counter, ender, settings)
    )
    _add_counting_routes(app, CountingRoutes(counter, settings))
    control = ControlRoutes(engines, conversations, settings).control
    app.router.add_route("/v1/chat/completions/control", control, methods=["POST"])
    _add_info_routes(app, InfoRoutes(model, settings))
    _add_slot_routes(app, SlotRoutes(model, engines, settings))
    metrics = MetricsRoute(bus, engines, hub, admission.refused, settings)
    app.router.add_route("/metrics", metrics.metrics, methods=["GET"])
    _add_vocabulary_routes(app, VocabularyRoutes(engines, settings))
    _add_refused_routes(app, settings)
    _add_predict_routes(app, settings)
    install_static(app, settings.static_dir, has_page=settings.has_page)
    _install_manners(app, settings, model, keys)
    return app


@contextlib.asynccontextmanager
async def _running(work: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """While inside, `work` runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _idempotency(
    bus: Bus, hub: Hub, conversations: Conversations, settings: GatewaySettings
) -> IdempotencyKeys:
    bucket = Bucket(bus, subjects.IDEMPOTENCY_BUCKET)
    forgotten = Forgotten(conversations.keys)
    return IdempotencyKeys(bucket, hub.logs, forgotten, settings.idempotency_window_s)


def _limiter(bus: Bus, hub: Hub, engines: Engines, settings: GatewaySettings) -> Limiter:
    bucket = Bucket(bus, subjects.LIMITS_BUCKET)
    return Limiter(bucket, hub, _names(settings), engines.require_connection)


def _names(settings: GatewaySettings) -> tuple[str, ...]:
    return settings.model_name, *settings.aliases


def _bare_app(lifespan: Lifespan[FastAPI]) -> FastAPI:
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    # A redirect would name this process, not what the client knows: proxies, prefixes, TLS before it.
    app.router.redirect_slashes = False
    return app


def _key_ring(settings: GatewaySettings) -> KeyRing:
    return KeyRing(
        settings.api_keys,
        admin_keys=settings.admin_api_keys,
        is_required=settings.requires_key,
    )


# Plain Starlette routes: FastAPI's own would resolve dependencies and validate on every request.


def _add_choosing_routes(app: FastAPI, routes: ChoosingRoutes) -> None:
    """Before those of the one model, which they stand in front of."""
    add = app.router.add_route
    for path in ("/health", "/v1/health"):
        add(path, routes.health, methods=["GET"])
    for path in ("/models", "/v1/models"):
        add(path, routes.models, methods=["GET"])
    add("/models/load", routes.load, methods=["POST"])
    add("/models/unload", routes.unload, methods=["POST"])
    add("/props", routes.props, methods=["GET"])
    add("/slots", routes.ask, methods=["GET"])
    for path in MODEL_PATHS:
        add(path, routes.order, methods=["POST"])


def _add_generating_routes(app: FastAPI, routes: GeneratingRoutes) -> None:
    for path, dialect in DIALECT_OF_PATH.items():
        app.router.add_route(path, routes.endpoint(dialect), methods=["POST"])


def _add_responses_routes(app: FastAPI, routes: ResponsesRoutes) -> None:
    add = app.router.add_route
    for path in ("/v1/responses", "/responses"):
        add(path, routes.create, methods=["POST"])
        add(f"{path}/input_tokens", routes.count, methods=["POST"])
        add(f"{path}/{{response_id}}", routes.retrieve, methods=["GET"])
        add(f"{path}/{{response_id}}", routes.delete, methods=["DELETE"])
        add(f"{path}/{{response_id}}/cancel", routes.cancel, methods=["POST"])
        add(f"{path}/{{response_id}}/input_items", routes.list_input, methods=["GET"])


def _add_counting_routes(app: FastAPI, routes: CountingRoutes) -> None:
    for path, counted in COUNTED_OF_PATH.items():
        app.router.add_route(path, routes.endpoint(counted), methods=["POST"])


def _add_info_routes(app: FastAPI, routes: InfoRoutes) -> None:
    add = app.router.add_route
    for path in ("/health", "/v1/health"):
        add(path, routes.health, methods=["GET"])
    for path in ("/models", "/v1/models"):
        add(path, routes.models, methods=["GET"])
    add("/props", routes.props, methods=["GET"])
    add("/props", routes.change_props, methods=["POST"])
    add("/openapi.json", openapi, methods=["GET"])


def _add_slot_routes(app: FastAPI, routes: SlotRoutes) -> None:
    app.router.add_route("/slots", routes.show, methods=["GET"])
    app.router.add_route("/slots/{slot}", routes.change, methods=["POST"])


def _add_vocabulary_routes(app: FastAPI, routes: VocabularyRoutes) -> None:
    add = app.router.add_route
    add("/tokenize", routes.tokenize, methods=["POST"])
    add("/detokenize", routes.detokenize, methods=["POST"])
    add("/apply-template", routes.apply_template, methods=["POST"])


def _add_refused_routes(app: FastAPI, settings: GatewaySettings) -> None:
    """What may be dangerous, and answers 403 where it is off; what is not built, and says so."""
    app.router.routes.extend(unsupported_routes(settings.max_body_bytes))
    proxy = CorsProxy(settings).forward if settings.has_cors_proxy else refuse
    for path, endpoint in (("/cors-proxy", proxy), ("/tools", refuse)):
        app.router.add_route(path, endpoint, methods=["GET", "POST"])


def _add_predict_routes(app: FastAPI, settings: GatewaySettings) -> None:
    """Last, since it answers for all the others."""
    if settings.predict_route:
        route = PredictRoute(app, app.routes, settings)
        app.router.add_route(settings.predict_route, route.predict, methods=["POST"])
    if settings.predict_health_route:
        health = next(r for r in app.routes if isinstance(r, Route) and r.path == "/health")
        app.router.add_route(settings.predict_health_route, health.endpoint, methods=["GET"])


def _install_manners(
    app: FastAPI, settings: GatewaySettings, model: ServedModel, keys: KeyRing
) -> None:
    """What is added last comes first: preflights need no model, and a 503 needs no key."""
    install_error_handlers(app, unavailable=(BusError, StreamsError))
    install_body_handlers(app)
    install_auth(app, keys)
    if not settings.is_router:
        install_readiness(app, model)
    install_prefix(app, settings.api_prefix)
    install_cors(app, settings.cors)
