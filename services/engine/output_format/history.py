"""Earlier turns and the beginning of an answer, written as the model itself would. Pure."""

from hashlib import sha256
from typing import NamedTuple

from schemas.output_format import OutputFormat
from services.engine.messages import JsonObject
from services.engine.output_format.request import prefix_in


def with_thoughts(messages: list[JsonObject], field: str) -> list[JsonObject]:
    """Thoughts where the template reads them: a field of its own, or parts of the content."""
    if field in ("", "reasoning_content"):
        return messages
    return [_moved(message, field) for message in messages]


def _moved(message: JsonObject, field: str) -> JsonObject:
    thoughts = message.get("reasoning_content")
    if field != "parts":
        return message | {field: thoughts} if thoughts else message
    if message["role"] not in ("assistant", "system"):
        return message
    parts: list[JsonObject] = [{"type": "thinking", "thinking": thoughts}] if thoughts else []
    content = message["content"]
    if isinstance(content, str):
        parts += [{"type": "text", "text": content}] if content or not parts else []
    else:
        parts += content
    return {name: item for name, item in message.items() if name != "reasoning_content"} | {
        "content": parts
    }


def with_ids(messages: list[JsonObject], n_chars: int) -> list[JsonObject]:
    """Ids of calls, and of their results, in the length that the template demands (0: any will do).

    Missing ones are made up; results without one belong to the calls before them, in order.
    """
    if not n_chars:
        return messages
    shaped: list[JsonObject] = []
    open_ids: list[str] = []
    for number, message in enumerate(messages):
        if calls := message.get("tool_calls"):
            open_ids = [
                _fitting(call.get("id") or f"{number}/{place}", n_chars)
                for place, call in enumerate(calls)
            ]
            named = [call | {"id": own} for call, own in zip(calls, open_ids, strict=True)]
            shaped.append(message | {"tool_calls": named})
        elif message["role"] == "tool":
            given = message.get("tool_call_id")
            own = _fitting(given or next(iter(open_ids), str(number)), n_chars)
            open_ids = [known for known in open_ids if known != own]
            shaped.append(message | {"tool_call_id": own})
        else:
            shaped.append(message)
    return shaped


def _fitting(text: str, n_chars: int) -> str:
    if len(text) == n_chars and text.isalnum():
        return text
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:n_chars]


class Opening(NamedTuple):
    """What stands between the turns and the model's own words. answer: the part that is its answer."""

    turn: str
    answer: str

    @property
    def text(self) -> str:
        return self.turn + self.answer


def opening(known: OutputFormat, generation_prompt: str) -> Opening:
    """What opens a new answer."""
    answer = prefix_in(known, generation_prompt)
    return Opening(generation_prompt.removesuffix(answer), answer)


def reopening(
    known: OutputFormat,
    generation_prompt: str,
    *,
    thoughts: str,
    content: str,
    is_thinking: bool,
    has_bare_end: bool = False,
) -> Opening:
    """What opens an answer that was begun: up to its thoughts, or up to its content. has_bare_end:
    without thoughts nothing opens them, and yet they are closed."""
    turn = opening(known, generation_prompt).turn
    before_content = known.content_starts[0] if known.content_starts else ""
    if not known.thought_end:
        return Opening(turn, before_content + content)
    is_bare = has_bare_end and not (thoughts or is_thinking)
    answer = "" if is_bare else known.thought_start + thoughts
    if is_thinking:
        return Opening(turn, answer)
    next_part = known.turns[0] if known.turns and known.has_many_thoughts else ""
    return Opening(turn, answer + known.thought_end + next_part + before_content + content)
