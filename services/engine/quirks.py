"""What single families of models want of their messages, beside what their templates say. Pure.

Each is known by words that only its templates have. Sources: the models' own reference code, as
llama.cpp follows it.
"""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from services.engine.messages import JsonObject, text_of

Shape = Callable[[list[JsonObject]], list[JsonObject]]
GEMMA_TURN_END, GEMMA_TURN = "<turn|>\n", "<|turn>model\n"


def unchanged(messages: list[JsonObject]) -> list[JsonObject]:
    return messages


def trimmed(messages: list[JsonObject]) -> list[JsonObject]:
    """Texts without the whitespace around them, parts one by one: it makes these models think in
    circles."""
    return [_trimmed(message) for message in messages]


def _trimmed(message: JsonObject) -> JsonObject:
    content = message["content"]
    if isinstance(content, str):
        found: JsonObject = {"content": content.strip()}
    else:
        found = {"content": [part | {"text": part["text"].strip()} for part in content]}
    if thoughts := message.get("reasoning_content"):
        found["reasoning_content"] = thoughts.strip()
    return message | found


def in_order_of_calls(messages: list[JsonObject]) -> list[JsonObject]:
    """Results in the order of the calls that they belong to; other messages stay where they are."""
    order: dict[str, int] = {}
    shaped = list(messages)
    for block in _blocks(messages):
        first = messages[block[0]]
        if first["role"] == "assistant" and (calls := first.get("tool_calls")):
            order = {call.get("id", ""): place for place, call in enumerate(calls)}
        places = [place for place in block if messages[place]["role"] == "tool"]
        results = [messages[place] for place in places]
        results.sort(key=lambda result: order.get(result.get("tool_call_id", ""), 0))
        for place, result in zip(places, results, strict=True):
            shaped[place] = result
    return shaped


def _blocks(messages: list[JsonObject]) -> Iterator[list[int]]:
    """Places of messages: runs of users' and tools', and every other message by itself."""
    run: list[int] = []
    for place, message in enumerate(messages):
        if message["role"] in ("user", "tool"):
            run.append(place)
            continue
        if run:
            yield run
        run = []
        yield [place]
    if run:
        yield run


def with_results_inside(messages: list[JsonObject]) -> list[JsonObject]:
    """Calls, their results and the answer that follows as one message, results in `tool_responses`."""
    shaped: list[JsonObject] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if message["role"] != "assistant" or not message.get("tool_calls"):
            shaped.append(message)
            continue
        results: list[JsonObject] = []
        while rest and rest[0]["role"] == "tool":
            results.append(_response(rest.pop(0), message["tool_calls"], len(results)))
        whole = message | ({"tool_responses": results} if results else {})
        if rest and rest[0]["role"] == "assistant" and _only_says_something(rest[0]):
            whole |= {"content": rest.pop(0)["content"]}
        shaped.append(whole)
    return shaped


def _response(result: JsonObject, calls: list[JsonObject], place: int) -> JsonObject:
    """A result under the name of its call, found by id, else by place; JSON as values."""
    given = result.get("tool_call_id", "")
    own = next((call for call in calls if given and call.get("id") == given), None)
    if own is None and place < len(calls):
        own = calls[place]
    name = given if own is None else own["function"]["name"]
    return {"name": name, "response": _value(text_of(result))}


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _only_says_something(message: JsonObject) -> bool:
    return not message.get("tool_calls") and bool(message["content"])


class Quirk(NamedTuple):
    """words: all of them stand in the template, none of `others` does.

    before, after: what becomes of messages before and after they are shaped as for every template.
    turn_end, turn: a prompt that ends with the first lacks the second, which opens an answer.
    has_bare_end: an answer without thoughts begins with what ends them.
    takes_schema: the template shows the schema of the answer, `response_format`.
    """

    words: tuple[str, ...]
    others: tuple[str, ...] = ()
    before: Shape = unchanged
    after: Shape = unchanged
    turn_end: str = ""
    turn: str = ""
    has_bare_end: bool = False
    takes_schema: bool = False


NO_QUIRK = Quirk(())
_GEMMA = ("'<|tool_call>call:'",)
_OPENAI_RESULTS = "{#- OpenAI Chat Completions:"
_STEPFUN = ("You have access to the following functions in JSONSchema format",)
_DEEPSEEK_V4 = ("dsml_token", "DSML", "tool_calls")
QUIRKS = (
    Quirk(_STEPFUN, before=trimmed),
    Quirk(
        _DEEPSEEK_V4,
        others=("function_calls",),
        after=in_order_of_calls,
        has_bare_end=True,
        takes_schema=True,
    ),
    Quirk((*_GEMMA, _OPENAI_RESULTS), turn_end=GEMMA_TURN_END, turn=GEMMA_TURN),
    Quirk(_GEMMA, after=with_results_inside, turn_end=GEMMA_TURN_END, turn=GEMMA_TURN),
)


def quirk_of(source: str) -> Quirk:
    """The first that fits this template."""
    for quirk in QUIRKS:
        has_words = all(word in source for word in quirk.words)
        if has_words and not any(word in source for word in quirk.others):
            return quirk
    return NO_QUIRK
