"""The reasoning budget of a request: which tokens begin and end thinking, and what ends it. Pure.

Names and precedence are llama-server's: for chats whose template knows thinking its tags count, for
all others those that the request names.
"""

from typing import Any, Protocol

from msgspec.structs import replace

from schemas.params import Sampling
from services.engine.param_values import flag, whole, words, wrong

JsonObject = dict[str, Any]
MAX_TEXT_CHARS = 4096
MAX_TAGS = 16
UNLIMITED = -1
_START = "reasoning_budget_start_tag"
_END, _ENDS = "reasoning_budget_end_tag", "reasoning_budget_end_tags"
_MESSAGE = "reasoning_budget_message"
_BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens")


class Words(Protocol):
    """What of a vocabulary is needed to find tags among tokens."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...
    def piece(self, token: int, *, special: bool = True) -> bytes: ...


def with_reasoning(
    sampling: Sampling,
    body: JsonObject,
    vocabulary: Words,
    *,
    tags: tuple[str, str] | None,
    generation_prompt: str,
) -> Sampling:
    """`sampling` with what the body (or the flags, which it holds already) asks for.

    tags: what the chat's template writes around thoughts. generation_prompt: the end of the prompt
    with which the answer begins. Raises RequestError naming the property at fault.
    """
    start, ends = _tags(body) if tags is None else (tags[0].strip(), (tags[1].strip(),))
    sampling = replace(
        sampling,
        reasoning_budget_tokens=_budget(body, sampling),
        reasoning_control=flag("reasoning_control", body.get("reasoning_control") or False),
    )
    message = _text(body, _MESSAGE)
    message = sampling.reasoning_budget_message if message is None else message
    end_ids = tuple(ids for end in ends if (ids := _ids(end, vocabulary)))
    if not start or not end_ids:
        return sampling
    return replace(
        sampling,
        reasoning_budget_start=_ids(start, vocabulary),
        reasoning_budget_ends=end_ids,
        reasoning_budget_forced=_ids(message, vocabulary) + end_ids[0],
        reasoning_budget_prefill=_prefill(generation_prompt, vocabulary),
        reasoning_budget_message=message,
    )


def _budget(body: JsonObject, sampling: Sampling) -> int:
    """Tokens; −1 in a request asks for the server's own limit."""
    for name in _BUDGETS:
        if (value := body.get(name)) is not None:
            given = whole(UNLIMITED)(name, value)
            return sampling.reasoning_budget_tokens if given == UNLIMITED else given
    return sampling.reasoning_budget_tokens


def _tags(body: JsonObject) -> tuple[str, tuple[str, ...]]:
    start = _text(body, _START) or ""
    if (value := body.get(_ENDS)) is not None:
        ends = tuple(_bounded(_ENDS, text) for text in words(_ENDS, value))
        if len(ends) > MAX_TAGS:
            raise wrong(_ENDS, f"at most {MAX_TAGS} tags are taken")
        return start, ends
    return start, (_text(body, _END) or "",)


def _text(body: JsonObject, name: str) -> str | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong(name, "expected a string")
    return _bounded(name, value)


def _bounded(name: str, text: str) -> str:
    if len(text) > MAX_TEXT_CHARS:
        raise wrong(name, f"at most {MAX_TEXT_CHARS} characters are taken")
    return text


def _ids(text: str, vocabulary: Words) -> tuple[int, ...]:
    return vocabulary.tokenize(text, add_special=False, parse_special=True) if text else ()


def _prefill(generation_prompt: str, vocabulary: Words) -> tuple[int, ...]:
    """Tokens of the answer that stand in the prompt; a blank that the tokenizer put first is none."""
    ids = _ids(generation_prompt, vocabulary)
    if ids and not generation_prompt[0].isspace() and vocabulary.piece(ids[0])[:1].isspace():
        return ids[1:]
    return ids
