"""OpenAI's chat completion: `/v1/chat/completions` and `/chat/completions`."""

from schemas.errors import RequestError
from services.gateway.dialects.fields import (
    JsonObject,
    NativeRequest,
    as_object,
    common_fields,
    optional_bool,
    optional_number,
    optional_object,
    optional_string,
    without_nulls,
    wrong_type,
)
from services.gateway.dialects.messages import check_messages
from services.gateway.dialects.tools import check_tools, tool_choice

DIALECT = "openai.chat"
DEFAULT_TOP_LOGPROBS = 20
TEXT_FORMATS = ("", "text")


def translate(body: JsonObject, *, allows_none: bool = False) -> NativeRequest:
    """A chat completion under native names. allows_none: there may be no messages. Raises RequestError.

    `messages`, `tools` and what else the template takes stay as they are, checked; what
    llama-server takes beyond OpenAI's fields (samplers, grammar …) goes through.
    """
    native = translate_template(body, allows_none=allows_none)
    return NativeRequest(kind="chat", body=native, is_stream=optional_bool(native, "stream"))


def translate_template(body: JsonObject, *, allows_none: bool = False) -> JsonObject:
    """What /apply-template and /v1/chat/completions share. Raises RequestError."""
    present = without_nulls(body)
    probs = _n_probs(present)
    native = common_fields(
        {k: v for k, v in present.items() if k not in ("logprobs", "top_logprobs")}
    )
    check_messages(native.get("messages"), allows_none=allows_none)
    has_tools = check_tools(native.get("tools"))
    native["tool_choice"] = tool_choice(native.get("tool_choice"))
    _check_template_fields(native)
    _constrain(native, has_tools and native["tool_choice"] != "none")
    if probs is not None:
        if has_tools and optional_bool(native, "stream"):
            raise RequestError.invalid("logprobs is not supported with tools + stream", "logprobs")
        native["n_probs"] = probs
    return native


def _n_probs(body: JsonObject) -> int | float | None:
    """How many probabilities OpenAI's two fields ask for."""
    if optional_bool(body, "logprobs"):
        wanted = optional_number(body, "top_logprobs")
        return DEFAULT_TOP_LOGPROBS if wanted is None else wanted
    if "top_logprobs" in body:
        raise RequestError.invalid(
            "top_logprobs requires logprobs to be set to true", "top_logprobs"
        )
    return None


def _check_template_fields(body: JsonObject) -> None:
    for name in ("add_generation_prompt", "parallel_tool_calls"):
        optional_bool(body, name)
    for name in ("reasoning_format", "reasoning_effort", "grammar"):
        optional_string(body, name)
    kwargs = optional_object(body, "chat_template_kwargs") or {}
    optional_bool(kwargs, "enable_thinking", "chat_template_kwargs.enable_thinking")


def _constrain(body: JsonObject, uses_tools: bool) -> None:
    """Turn `response_format` into `json_schema`, and refuse constraints that exclude each other."""
    if body.get("json_schema") is not None and body.get("grammar"):
        raise RequestError.invalid("Cannot use both json_schema and grammar", "grammar")
    if uses_tools and "grammar" in body:
        raise RequestError.invalid("Cannot use custom grammar constraints with tools.", "grammar")
    wanted = body.pop("response_format", None)
    if wanted is None:
        return
    response_format = as_object(wanted)
    if response_format is None:
        raise wrong_type("response_format", "an object")
    name, schema = _schema(response_format, body.get("json_schema"))
    if schema is not None:
        body["json_schema"] = schema or {"type": "object"}
        body["json_schema_property"] = name  # for messages about what is wrong with it


def _schema(response_format: JsonObject, given: object) -> tuple[str, object]:
    """The property that a `response_format`'s schema comes from, and it; None: any text."""
    kind = optional_string(response_format, "type", "response_format.type") or ""
    match kind:
        case "json_object":
            own = optional_object(response_format, "schema", "response_format.schema")
            if own is None and given:
                return "json_schema", given
            return "response_format.schema", own or {}
        case "json_schema":
            wrapper = optional_object(response_format, "json_schema", "response_format.json_schema")
            name = "response_format.json_schema.schema"
            return name, optional_object(wrapper or {}, "schema", name) or {}
        case _ if kind in TEXT_FORMATS:
            return "json_schema", given
        case _:
            raise RequestError.invalid(
                f"response_format type must be one of text, json_object or json_schema, but got: {kind}",
                "response_format",
            )
