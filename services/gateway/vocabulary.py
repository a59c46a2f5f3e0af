"""/tokenize, /detokenize and /apply-template: questions to an engine front, which has the vocabulary."""

import time
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from schemas.rpc import (
    ApplyTemplate,
    Detokenize,
    Detokenized,
    TemplateApplied,
    Tokenize,
    Tokenized,
)
from services.edge.body import JsonObject, read_json
from services.edge.errors import JSON_TYPE
from services.gateway.config import GatewaySettings
from services.gateway.dialects import openai_chat
from services.gateway.dialects.fields import as_list, optional_bool, wrong_type
from services.gateway.engines import Engines

MAX_TOKEN_ID = 2**31 - 1
MAX_ID_BYTES = 5  # of an id in MessagePack


class VocabularyRoutes:
    """Three endpoints, each one round trip to any engine of the model."""

    def __init__(self, engines: Engines, settings: GatewaySettings) -> None:
        self._engines = engines
        self._settings = settings

    async def tokenize(self, request: Request) -> Response:
        body = await self._read(request)
        if "content" not in body:
            return _json({"tokens": []})
        question = tokenize_question(body)
        found = await self._engines.ask(question, Tokenized, n_bytes=len(question.content))
        is_with_pieces = optional_bool(body, "with_pieces")
        return _json({"tokens": with_pieces(found) if is_with_pieces else found.ids})

    async def detokenize(self, request: Request) -> Response:
        body = await self._read(request)
        if "tokens" not in body:
            return _json({"content": ""})
        ids = token_ids(body["tokens"])
        question = Detokenize(ids=ids)
        found = await self._engines.ask(question, Detokenized, n_bytes=len(ids) * MAX_ID_BYTES)
        return _json({"content": found.content})

    async def apply_template(self, request: Request) -> Response:
        data = orjson.dumps(openai_chat.translate_template(await self._read(request)))
        question = ApplyTemplate(body=data, created_at_ms=time.time_ns() // 1_000_000)
        found = await self._engines.ask(question, TemplateApplied, n_bytes=len(data))
        return _json({"prompt": found.prompt})

    async def _read(self, request: Request) -> JsonObject:
        return await read_json(request, self._settings.max_body_bytes)


def tokenize_question(body: JsonObject) -> Tokenize:
    """The question for a /tokenize body: text, or a list of texts and token ids. Raises RequestError."""
    content = body["content"]
    if not isinstance(content, str):
        parts = as_list(content)
        if parts is None or not all(isinstance(part, str) or is_token_id(part) for part in parts):
            raise wrong_type("content", "a string or a list of strings and token ids")
    parse_special = (
        True if body.get("parse_special") is None else optional_bool(body, "parse_special")
    )
    optional_bool(body, "with_pieces")
    return Tokenize(
        content=orjson.dumps(content),
        add_special=optional_bool(body, "add_special"),
        parse_special=parse_special,
    )


def token_ids(value: object) -> tuple[int, ...]:
    """`value` as token ids; whether the vocabulary has them is the engine's to check. Raises RequestError."""
    ids = as_list(value)
    if ids is None:
        raise wrong_type("tokens", "a list of token ids")
    if not all(is_token_id(item) for item in ids):
        raise RequestError.invalid("Field 'tokens': not every element is a token id", "tokens")
    return cast("tuple[int, ...]", tuple(ids))


def is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


def with_pieces(found: Tokenized) -> list[JsonObject]:
    """llama-server's `with_pieces` form: text, or a list of bytes where they are no UTF-8."""
    pairs = zip(found.ids, found.pieces, strict=True)
    return [{"id": token, "piece": _piece(piece)} for token, piece in pairs]


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type=JSON_TYPE)
