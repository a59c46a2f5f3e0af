"""How many tokens a request would put into the context: rendered and tokenized, nothing generated.

Unlike `prepare` this counts prompts that are longer than the context, too.
"""

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response

from schemas.errors import RequestError
from schemas.rpc import ApplyTemplate, TemplateApplied, Tokenize, Tokenized
from services.edge.body import BodyTooLarge, JsonObject, read_json
from services.edge.errors import JSON_TYPE, anthropic_problem_response, problem_response
from services.gateway.answer import Refuse
from services.gateway.config import GatewaySettings
from services.gateway.dialects import anthropic, openai_chat
from services.gateway.engines import Engines

Endpoint = Callable[[Request], Awaitable[Response]]
OPENAI_OBJECT: JsonObject = {"object": "response.input_tokens"}


class Counted(NamedTuple):
    """translate: the client's JSON into what a template takes. extra: fields of the answer."""

    translate: Callable[[JsonObject], JsonObject]
    extra: JsonObject
    refuse: Refuse = problem_response


CHAT = Counted(openai_chat.translate_template, OPENAI_OBJECT)
MESSAGES = Counted(anthropic.translate_template, {}, anthropic_problem_response)
COUNTED_OF_PATH = {
    "/chat/completions/input_tokens": CHAT,
    "/v1/chat/completions/input_tokens": CHAT,
    "/v1/messages/count_tokens": MESSAGES,
}


class TokenCounter:
    """Counts the tokens of prompts; two round trips to any engine of the model."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def count(self, template_body: JsonObject) -> int:
        """Tokens of the rendered prompt. Raises RequestError, BusError."""
        data = orjson.dumps(template_body)
        question = ApplyTemplate(body=data, created_at_ms=time.time_ns() // 1_000_000)
        applied = await self._engines.ask(question, TemplateApplied, n_bytes=len(data))
        content = orjson.dumps(applied.prompt)
        tokens = Tokenize(content=content, add_special=True, parse_special=True)
        return len((await self._engines.ask(tokens, Tokenized, n_bytes=len(content))).ids)


class CountingRoutes:
    """Makes the endpoints."""

    def __init__(self, counter: TokenCounter, settings: GatewaySettings) -> None:
        self._counter = counter
        self._settings = settings

    def endpoint(self, counted: Counted) -> Endpoint:
        async def count(request: Request) -> Response:
            try:
                body = await read_json(request, self._settings.max_body_bytes)
                n_tokens = await self._counter.count(counted.translate(body))
            except BodyTooLarge:
                raise
            except RequestError as error:
                return counted.refuse(error.problem)
            return counted_response(n_tokens, counted.extra)

        return count


def counted_response(n_tokens: int, extra: JsonObject) -> Response:
    return Response(orjson.dumps({"input_tokens": n_tokens, **extra}), media_type=JSON_TYPE)
