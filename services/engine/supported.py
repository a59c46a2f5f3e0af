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


def _names_tool(body: JsonObject, _: Params) -> bool:
    choice = body.get("tool_choice")
    return bool(body.get("tools")) and (choice == "required" or isinstance(choice, dict))


def _has_format(body: JsonObject, _: Params) -> bool:
    wanted = body.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return wanted is not None and kind not in (None, "", "text")


GAPS = (
    Gap("grammar", lambda body, _: bool(body.get("grammar"))),
    Gap("json_schema", lambda body, _: body.get("json_schema") is not None),
    Gap("response_format", _has_format),
    Gap("grammar_triggers", lambda body, _: bool(body.get("grammar_triggers"))),
    Gap("tool_choice", _names_tool),
    Gap("lora", lambda _, params: any(scale != 0 for _id, scale in params.limits.lora)),
)


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
