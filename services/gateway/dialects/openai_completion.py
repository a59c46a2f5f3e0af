"""OpenAI's text completion: `/v1/completions`.

As in llama-server the body goes on as it is: `logprobs` is a number and means `n_probs`, and what
it does not know (`echo`, `best_of`, `suffix`, `user`) is ignored.
"""

from services.gateway.dialects import native
from services.gateway.dialects.fields import JsonObject, NativeRequest

DIALECT = "openai.completion"
IGNORED = frozenset({"echo", "best_of", "suffix"})


def translate(body: JsonObject) -> NativeRequest:
    """An OpenAI completion under native names. Raises RequestError."""
    return native.translate({name: value for name, value in body.items() if name not in IGNORED})
