"""Keys of the database at the door: scopes, expiry, revocation, and what stays when all are gone."""

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from schemas.errors import NOT_FOUND, RATE_LIMIT, Problem
from schemas.keys import ADMIN, GENERATE, READ, KeyRecord
from services.edge.access import access_of
from services.edge.auth import install_auth
from services.edge.errors import (
    RefusedWithHeaders,
    anthropic_problem_response,
    install_error_handlers,
    problem_response,
)
from services.edge.key_ring import KeyRing, digest_of, key_id
from services.edge.scopes import require_scope, scope_of

KEY = "sk-of-the-database"
RECORD = KeyRecord(id="key_1", digest=digest_of(KEY), name="app")
HEADERS = {"Authorization": f"Bearer {KEY}"}


class Clock:
    ms = 1000

    def __call__(self) -> int:
        return self.ms


def learnt(ring: KeyRing, **changes: object) -> KeyRing:
    ring.learn(RECORD.digest, msgspec.structs.replace(RECORD, **changes))
    return ring


async def show(request: Request) -> Response:
    access = access_of(request)
    scopes = sorted(request.state.scopes)
    return JSONResponse([request.state.caller, scopes, access.key is not None])


async def admin_only(request: Request) -> Response:
    require_scope(request, ADMIN)
    return Response()


async def refuse(_request: Request) -> Response:
    problem = Problem(code=RATE_LIMIT, message="too many", retry_after_s=3)
    raise RefusedWithHeaders(problem, {"x-ratelimit-limit-requests": "1"})


def client(ring: KeyRing) -> TestClient:
    routes = [
        Route("/v1/models", show),
        Route("/v1/completions", show, methods=["POST"]),
        Route("/tokenize", show, methods=["POST"]),
        Route("/v1/audit/x", admin_only),
        Route("/refused", refuse),
        Route("/", show),
    ]
    app = Starlette(routes=routes)
    install_error_handlers(app)
    install_auth(app, ring)
    return TestClient(app)


def test_the_first_key_closes_the_door_for_everybody_else() -> None:
    ring = KeyRing()
    site = client(ring)
    assert site.get("/v1/models").status_code == 200
    learnt(ring)
    assert site.get("/v1/models").status_code == 401
    assert site.get("/v1/models", headers=HEADERS).json() == ["key_1", [GENERATE, READ], True]


def test_it_stays_closed_when_the_last_key_has_gone() -> None:
    ring = learnt(KeyRing())
    ring.learn(RECORD.digest, None)
    assert ring.is_required
    assert client(ring).get("/v1/models").status_code == 401


def test_a_door_may_be_closed_before_any_key_is_known() -> None:
    assert client(KeyRing(is_required=True)).get("/v1/models").status_code == 401


def test_a_revoked_key_opens_nothing() -> None:
    ring = learnt(KeyRing())
    assert ring.find(KEY) is not None
    learnt(ring, revoked_at_ms=1)
    assert ring.find(KEY) is None


def test_a_key_opens_nothing_from_its_expiry_on() -> None:
    clock = Clock()
    ring = learnt(KeyRing(now_ms=clock), expires_at_ms=2000)
    clock.ms = 1999
    assert ring.find(KEY) is not None
    clock.ms = 2000
    assert ring.find(KEY) is None


def test_keys_of_flags_work_beside_those_of_the_database() -> None:
    ring = learnt(KeyRing(["flag"]))
    found = ring.find("flag")
    assert found is not None
    assert (found.caller, found.key) == (key_id("flag"), None)
    assert ring.find(KEY) is not None
    assert ring.find("") is None


def test_admin_keys_of_flags_may_do_everything_and_close_no_door() -> None:
    site = client(KeyRing(admin_keys=["boss"]))
    assert site.get("/v1/models").json() == ["", [GENERATE, READ], False]
    assert site.get("/v1/audit/x").status_code == 403
    assert site.get("/v1/audit/x", headers={"X-Api-Key": "boss"}).status_code == 200
    assert site.get("/v1/models", headers={"X-Api-Key": "nobody"}).json()[0] == ""


@pytest.mark.parametrize(
    ("scopes", "read", "generate", "tokenize", "admin"),
    [
        ((READ,), 200, 403, 200, 403),
        ((GENERATE,), 403, 200, 403, 403),
        ((ADMIN,), 403, 403, 403, 200),
        ((READ, GENERATE, ADMIN), 200, 200, 200, 200),
    ],
)
def test_scopes(
    scopes: tuple[str, ...], read: int, generate: int, tokenize: int, admin: int
) -> None:
    site = client(learnt(KeyRing(), scopes=scopes))
    site.headers = HEADERS
    assert site.get("/v1/models").status_code == read
    assert site.post("/v1/completions").status_code == generate
    assert site.post("/tokenize").status_code == tokenize
    assert site.get("/v1/audit/x").status_code == admin
    assert site.get("/").status_code == 200


def test_a_refusal_says_which_scope_is_missing() -> None:
    site = client(learnt(KeyRing(), scopes=(READ,)))
    error = site.post("/v1/completions", headers=HEADERS).json()["error"]
    assert (error["code"], error["type"]) == (403, "permission_error")
    assert "'generate'" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/stream", READ),
        ("HEAD", "/v1/models", READ),
        ("DELETE", "/v1/stream", GENERATE),
        ("POST", "/v1/responses/resp_1/cancel", GENERATE),
        ("POST", "/v1/streams/lookup", READ),
        ("POST", "/nowhere", GENERATE),
        ("POST", "/v1/audit/verify", ""),
    ],
)
def test_every_path_needs_a_scope(method: str, path: str, scope: str) -> None:
    assert scope_of(method, path) == scope


def test_a_limit_is_told_in_the_shapes_and_headers_that_clients_know() -> None:
    response = client(KeyRing()).get("/refused")
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"
    assert response.headers["x-ratelimit-limit-requests"] == "1"
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


def test_anthropic_clients_get_their_shape() -> None:
    problem = Problem(code=RATE_LIMIT, message="too many", retry_after_s=3)
    body = msgspec.json.decode(bytes(anthropic_problem_response(problem).body))
    assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")


def test_other_errors_keep_their_number_as_code() -> None:
    body = bytes(problem_response(Problem(code=NOT_FOUND, message="no")).body)
    assert msgspec.json.decode(body)["error"]["code"] == 404


@pytest.mark.parametrize(
    ("models", "names", "expected"),
    [((), ("a",), True), (("b",), ("a", "b"), True), (("c",), ("a", "b"), False)],
)
def test_models(models: tuple[str, ...], names: tuple[str, ...], expected: bool) -> None:
    assert msgspec.structs.replace(RECORD, models=models).may_use(names) is expected
