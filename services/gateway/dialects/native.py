"""llama-server's own completion: `/completion` and `/completions`, and `/infill`."""

from schemas.errors import RequestError
from services.gateway.dialects.fields import (
    JsonObject,
    NativeRequest,
    common_fields,
    optional_bool,
    optional_number,
    wrong_type,
)

DIALECT = "native.completion"


def translate(body: JsonObject) -> NativeRequest:
    """A completion under native names; `prompt` may be text, token ids, or a list of such.

    Raises RequestError for a missing prompt and for wrong types; what the prompt holds is checked
    where the vocabulary is. `logprobs: true` asks for one, as in llama-server.
    """
    native = common_fields(body)
    if "prompt" not in native:
        raise RequestError.invalid("'prompt' is required", "prompt")
    if not isinstance(native["prompt"], str | list | dict):
        raise wrong_type("prompt", "a string, a list or an object")
    return _native("completion", native)


def translate_infill(body: JsonObject) -> NativeRequest:
    """A gap to be filled in under native names, answered as a completion.

    Raises RequestError for wrong types; whether the model can do it, and what is before and after
    the gap, is looked at where the vocabulary is.
    """
    return _native("infill", common_fields(body))


def _native(kind: str, native: JsonObject) -> NativeRequest:
    if isinstance(logprobs := native.get("logprobs"), bool):
        native["logprobs"] = int(logprobs)
    optional_number(native, "logprobs")
    return NativeRequest(kind=kind, body=native, is_stream=optional_bool(native, "stream"))
