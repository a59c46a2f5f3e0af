"""Every path, what it takes and what it gives. An alias says so in its summary."""

from typing import cast

from services.gateway.openapi.limits import limited
from services.gateway.openapi.terms import INTEGER, STRING, Json, between, one_of, ref
from services.gateway.unsupported import UNSUPPORTED

ERRORS: dict[str, str] = {
    "400": "The request is wrong; `message` says what, `param` where",
    "401": "No key, or none that is known",
    "403": "The key has not the scope for this",
    "413": "The body is too large",
    "500": "The server failed; nothing that a request holds should lead here",
    "501": "This server does not do that, or was not started for it",
    "503": "The model or the broker is away; try again after `Retry-After` seconds",
}
KEY_USED = "The idempotency key was used for another request"
NOT_FOUND = "There is nothing of that name that this caller owns"


def error(text: str) -> Json:
    return {"description": text, "content": {"application/json": {"schema": ref("Error")}}}


def answer(schema: Json, *, streams: bool = False) -> Json:
    """A 200 with JSON; streams: or with an event stream, where the request asks for one."""
    content: Json = {"application/json": {"schema": schema}}
    return {"description": "The answer", "content": content | (EVENTS if streams else {})}


EVENTS: Json = {"text/event-stream": {"schema": ref("Event")}}
ONLY_EVENTS: Json = {"description": "An event stream", "content": EVENTS}


def operation(
    summary: str,
    found: Json,
    *,
    body: str = "",
    parameters: tuple[Json, ...] = (),
    success: str = "200",
    can_miss: bool = False,
) -> Json:
    """One method of one path. body: name of the schema that it takes. can_miss: 404 is possible."""
    texts = ERRORS | ({"404": NOT_FOUND} if can_miss else {})
    responses: Json = {success: found, **{code: error(text) for code, text in texts.items()}}
    described: Json = {"summary": summary, "responses": responses}
    if parameters:
        described["parameters"] = list(parameters)
    if body:
        content = {"application/json": {"schema": ref(body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def unsupported(what: str) -> Json:
    """A method that only says that this server cannot do it."""
    responses = {code: error(ERRORS[code]) for code in ("401", "403", "501")}
    return {"summary": f"llama-server's {what}; not here", "responses": responses}


def query(name: str, schema: Json, text: str, *, is_required: bool = False) -> Json:
    return {
        "name": name,
        "in": "query",
        "schema": schema,
        "description": text,
        "required": is_required,
    }


def header(name: str, text: str) -> Json:
    return {"name": name, "in": "header", "schema": STRING, "description": text, "required": False}


def in_path(name: str, text: str, example: str) -> Json:
    place: Json = {"name": name, "in": "path", "required": True, "schema": STRING}
    return place | {"description": text, "example": example}


CONVERSATION = header(
    "X-Conversation-Id", "Under this id the stream can be found again, by this caller"
)
IDEMPOTENCY = header(
    "Idempotency-Key",
    "1 to 255 printable ASCII characters; the same request under the same key is generated once, and "
    "its answer is given again. 422 where the key was used for another request",
)
PRIORITY = header("X-Priority", "`interactive` or `batch`; the body's `priority` wins over it")
ASKING = (CONVERSATION, IDEMPOTENCY, PRIORITY)
CONV_ID = query("conv_id", STRING, "The conversation", is_required=True)
FROM = query("from", between(0, schema=INTEGER), "Byte to begin at")
LAST_EVENT = header("Last-Event-ID", "Number of the last frame received; wins over `from`")
GENERATION = in_path(
    "generation_id",
    "X-Generation-Id of the answer, or the answer's id",
    "01936b5e-4c00-7abc-8def-0123456789ab",
)
RESPONSE = in_path("response_id", "Id of the response", "resp_01936b5e4c007abc8def0123456789ab")


def generating(summary: str, body: str, found: str) -> Json:
    shown = answer(ref(found), streams=True)
    return {"post": generated(operation(summary, shown, body=body, parameters=ASKING))}


def generated(described: Json) -> Json:
    """A generating operation may also find its idempotency key used, and its API key limited."""
    responses = limited(cast(Json, described["responses"]))
    return described | {"responses": responses | {"422": error(KEY_USED)}}


def asking(summary: str, body: str, found: str) -> Json:
    return {"post": operation(summary, answer(ref(found)), body=body)}


def telling(summary: str, found: str) -> Json:
    return {"get": operation(summary, answer(ref(found)))}


def _response(
    summary: str, found: str, method: str, *parameters: Json, streams: bool = False
) -> Json:
    shown = answer(ref(found), streams=streams)
    return {method: operation(summary, shown, parameters=(RESPONSE, *parameters), can_miss=True)}


COMPLETION = generating("llama-server's own completion", "CompletionRequest", "Completion")
CHAT = generating("OpenAI's chat completion", "ChatRequest", "Chat")
COUNT_CHAT = asking("Tokens of a chat", "TemplateRequest", "InputTokens")
MODELS = telling("The model", "Models")
HEALTH = telling("Whether the model serves", "Health")
RESPONSES: dict[str, Json] = {
    "": {
        "post": generated(
            operation(
                "OpenAI's responses; in the background nobody has to wait",
                answer(ref("Response"), streams=True),
                body="ResponsesRequest",
                parameters=ASKING,
            )
        )
    },
    "/input_tokens": asking("Tokens of a response's input", "ResponsesRequest", "InputTokens"),
    "/{response_id}": {
        **_response(
            "A stored response, or its events",
            "Response",
            "get",
            query("stream", one_of("true", "false"), "Events instead of the object"),
            query(
                "starting_after",
                between(0, schema=INTEGER),
                "`sequence_number` of the last event received",
            ),
            streams=True,
        ),
        **_response("Stop it and forget it", "DeletedResponse", "delete"),
    },
    "/{response_id}/cancel": _response("Stop it", "Response", "post"),
    "/{response_id}/input_items": _response(
        "The items that went into it",
        "InputItems",
        "get",
        query("limit", between(1, 100, INTEGER), "Items on a page"),
        query("order", one_of("asc", "desc"), "Newest first by default"),
        query("after", STRING, "Id of the last item seen"),
    ),
}
METRICS: Json = {
    "get": operation(
        "Prometheus's text form",
        {"description": "Metrics", "content": {"text/plain": {"schema": STRING}}},
    )
}
FORBIDDEN = error("Switched off, as it is by default")
PROXY: Json = {
    "summary": "Another server's answer, for pages (--ui-mcp-proxy)",
    "parameters": [
        query("url", STRING, "Where to ask; headers go along as x-llama-server-proxy-header-…")
    ],
    "responses": {
        "default": {"description": "What the other server answers"},
        "401": error(ERRORS["401"]),
        "403": FORBIDDEN,
    },
}
TOOLS: Json = {
    "summary": "llama-server's built-in tools; not here",
    "responses": {"401": error(ERRORS["401"]), "403": FORBIDDEN},
}
STREAM: Json = {
    "get": operation(
        "A conversation's stream from an offset on",
        ONLY_EVENTS,
        parameters=(CONV_ID, FROM, LAST_EVENT),
        can_miss=True,
    ),
    "delete": operation(
        "Stop a conversation's generation and forget the stream",
        {"description": "Done, also where there was none"},
        parameters=(CONV_ID,),
        success="204",
    ),
}
RENDER: Json = {
    "get": operation(
        "A generation of one's own in a dialect of one's choice",
        ONLY_EVENTS,
        parameters=(
            GENERATION,
            query(
                "as",
                one_of("openai", "anthropic", "responses", "native"),
                "The dialect; without it, the one that was asked in",
            ),
            FROM,
            LAST_EVENT,
        ),
        can_miss=True,
    )
}

PATHS: dict[str, Json] = {
    "/health": HEALTH,
    "/v1/health": HEALTH,
    "/models": MODELS,
    "/v1/models": MODELS,
    "/metrics": METRICS,
    "/props": {
        **telling("The model's properties", "Props"),
        "post": operation("Change properties (--props)", answer(ref("Success"))),
    },
    "/slots": {
        "get": operation(
            "What each slot does",
            answer(ref("Slots")),
            parameters=(query("fail_on_no_slot", STRING, "503 where all are busy"),),
        )
    },
    "/slots/{slot}": {
        "post": operation(
            "Save, restore or erase what a slot holds (--slot-save-path)",
            answer(ref("SlotChange")),
            body="SlotFile",
            parameters=(
                in_path("slot", "Number of the slot", "0"),
                query(
                    "action",
                    one_of("save", "restore", "erase"),
                    "What to do, once the slot is free; `erase` takes no body",
                    is_required=True,
                ),
            ),
        )
    },
    "/completion": COMPLETION,
    "/completions": COMPLETION,
    "/infill": generating("Text for a gap between two texts", "InfillRequest", "Completion"),
    "/v1/completions": generating(
        "OpenAI's text completion", "OpenAiCompletionRequest", "OpenAiCompletion"
    ),
    "/chat/completions": CHAT,
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/control": asking(
        "An order to an answer that is being generated", "ControlRequest", "Success"
    ),
    "/chat/completions/input_tokens": COUNT_CHAT,
    "/v1/chat/completions/input_tokens": COUNT_CHAT,
    "/v1/messages": generating("Anthropic's messages", "MessagesRequest", "AnthropicAnswer"),
    "/v1/messages/count_tokens": asking("Tokens of a message", "MessagesRequest", "InputTokens"),
    **{f"/v1/responses{rest}": described for rest, described in RESPONSES.items()},
    **{f"/responses{rest}": described for rest, described in RESPONSES.items()},
    "/tokenize": asking("Token ids of a text", "TokenizeRequest", "Tokens"),
    "/detokenize": asking("The text of token ids", "DetokenizeRequest", "Content"),
    "/apply-template": asking("A chat as the prompt that it becomes", "TemplateRequest", "Prompt"),
    "/cors-proxy": dict.fromkeys(("get", "post"), PROXY),
    "/tools": dict.fromkeys(("get", "post"), TOOLS),
    **{path: {"post": unsupported(what)} for path, what in UNSUPPORTED.items()},
    "/lora-adapters": {
        **telling("The adapters: none", "Adapters"),
        "post": operation("Scales of adapters; the empty list", answer(ref("Success"))),
    },
    "/v1/stream": STREAM,
    "/v1/streams/lookup": asking(
        "Which conversations have a stream", "LookupRequest", "Conversations"
    ),
    "/v1/generations/{generation_id}/stream": RENDER,
    "/openapi.json": telling("This document", "OpenApi"),
}
