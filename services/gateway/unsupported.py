"""What llama-server can do and this server cannot: clients are told so (501), not that they have the
address wrong (404). Adapters can be listed: there are none.
"""

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.errors import RequestError
from services.edge.body import parse_json, read_body
from services.edge.errors import JSON_TYPE

UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("/embedding", "/embeddings", "/v1/embeddings"), "embeddings"),
    **dict.fromkeys(("/rerank", "/reranking", "/v1/rerank", "/v1/reranking"), "reranking"),
    **dict.fromkeys(("/audio/transcriptions", "/v1/audio/transcriptions"), "audio"),
}
"""Path to what its name is; all are POST."""


def unsupported_routes(max_body_bytes: int) -> list[Route]:
    async def change_adapters(request: Request) -> Response:
        check_adapters(parse_json(await read_body(request, max_body_bytes)))
        return Response(b'{"success":true}', media_type=JSON_TYPE)

    return [
        *(Route(path, _refuse, methods=["POST"]) for path in UNSUPPORTED),
        Route("/lora-adapters", _no_adapters, methods=["GET"]),
        Route("/lora-adapters", change_adapters, methods=["POST"]),
    ]


def check_adapters(scales: object) -> None:
    """Raise RequestError unless `scales` is a list that names no adapter."""
    if not isinstance(scales, list):
        raise RequestError.invalid("Request body must be an array")
    if scales:
        raise RequestError.invalid("There is no LoRA adapter: none was loaded")


async def _refuse(request: Request) -> Response:
    what = UNSUPPORTED[request.scope["path"]]
    raise RequestError.not_supported(f"This server does not support {what}")


async def _no_adapters(_request: Request) -> Response:
    return Response(orjson.dumps([]), media_type=JSON_TYPE)
