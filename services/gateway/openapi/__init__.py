"""The OpenAPI description of the HTTP API, written by hand: `GET /openapi.json`.

The routes take no part in it, so a test compares the two: every route is described, and nothing else.
"""

from functools import cache

import orjson
from starlette.requests import Request
from starlette.responses import Response

from services.edge.errors import JSON_TYPE
from services.gateway.openapi.answers import ANSWERS
from services.gateway.openapi.audit import AUDIT_ANSWERS, AUDIT_PATHS, AUDIT_REQUESTS
from services.gateway.openapi.paths import PATHS
from services.gateway.openapi.requests import REQUESTS

Json = dict[str, object]
INFO: Json = {
    "title": "Llamatape",
    "version": "1",
    "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "description": (
        "LLM serving on a durable event log. Speaks llama-server's own API and the dialects of "
        "OpenAI and Anthropic; any generation can be read again, from any offset, in any of them."
    ),
}
SCHEMAS: Json = {**REQUESTS, **ANSWERS, **AUDIT_REQUESTS, **AUDIT_ANSWERS}
KEYS: Json = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}


def description() -> Json:
    """The whole document. Keys are asked for only where the server was started with some."""
    return {
        "openapi": "3.1.0",
        "info": INFO,
        "security": [{}, {"bearer": []}, {"header": []}],
        "paths": PATHS | AUDIT_PATHS,
        "components": {"schemas": SCHEMAS, "securitySchemes": KEYS},
    }


@cache
def document() -> bytes:
    return orjson.dumps(description())


async def openapi(_request: Request) -> Response:
    """The handler."""
    return Response(document(), media_type=JSON_TYPE)
