"""What llama-server can do and this engine cannot yet. Asking for it is refused, never ignored.

Whoever builds one of these removes its line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from schemas.errors import NOT_SUPPORTED, Problem, RequestError
from schemas.params import Params

JsonObject = dict[str, Any]


class Gap(NamedTuple):
    """A property, and whether a request (its body and resolved parameters) needs it."""

    name: str
    is_needed: Callable[[JsonObject, Params], bool]


GAPS = (Gap("lora", lambda _, params: any(scale != 0 for _id, scale in params.limits.lora)),)


def check_supported(body: JsonObject, params: Params) -> None:
    """Raise RequestError (501, not_supported_error) naming the first property that is not built."""
    for gap in GAPS:
        if gap.is_needed(body, params):
            raise RequestError(
                Problem(
                    code=NOT_SUPPORTED,
                    message=f"Field '{gap.name}': this is not supported yet; remove it",
                    param=gap.name.partition(":")[0],
                )
            )
