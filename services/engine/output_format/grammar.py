"""The grammar of a chat's answer: thoughts, then calls or a JSON answer, and when it begins to hold.

Without need a grammar is lazy: it begins at a marker of calls, so free text stays free. A call that
must come, and an answer by a schema, are held to it from the first token on.
"""

import json
import re
from typing import NamedTuple

from schemas.output_format import NAME, OBJECT, TEXT, Calls, OutputFormat, Part
from schemas.params import GrammarTrigger
from services.engine.grammar.rules import Rules, either
from services.engine.messages import JsonObject
from services.engine.output_format.call_rules import CallRules
from services.engine.output_format.texts import embedded, exact, space, until

WORD = "word"
PATTERN = "pattern"
ROOT = "root"
_SPACE = r"(?: |\n{1,2}[ \t]{0,20})?"
"""What the rule `space` allows."""


class AnswerGrammar(NamedTuple):
    """GBNF text, and where a lazy one begins: at the first of the triggers."""

    text: str
    is_lazy: bool = False
    triggers: tuple[GrammarTrigger, ...] = ()


def lazy_calls(
    description: OutputFormat, tools: list[JsonObject], *, is_parallel: bool
) -> AnswerGrammar | None:
    """The grammar of calls that may come. None: nothing shows where they begin."""
    calls = description.calls
    assert calls is not None, "the request offers tools"
    triggers = [GrammarTrigger(kind=WORD, value=word) for word in triggers_of(calls, tools)]
    begun = _begun(calls, description.prefix)
    triggers += _begun_triggers(calls, tools, begun) or _object_triggers(calls, tools, triggers)
    if not triggers:
        return None
    rules = Rules()
    rules.reserve(ROOT)
    written = CallRules(rules, calls, tools)
    is_parallel = is_parallel and calls.is_parallel
    patterns = [calls.patterns[0]] if calls.start.strip() else calls.patterns
    sections = [written.section(patterns, is_parallel=is_parallel)]
    if _has_own_mark(calls):
        sections.append(written.section(patterns, is_parallel=is_parallel, without_start=True))
    if begun:
        sections.append(written.section(patterns[:1], is_parallel=is_parallel, skips=begun))
    rules.set(ROOT, " | ".join(sections))
    return AnswerGrammar(rules.text(), True, tuple(triggers))


def _has_own_mark(calls: Calls) -> bool:
    """Whether a call can be told without what stands in front of all."""
    first = calls.patterns[0][0]
    return bool(calls.start.strip()) and first.kind == TEXT and first.text.strip()[:2] == "<|"


def _begun_triggers(calls: Calls, tools: list[JsonObject], begun: str) -> list[GrammarTrigger]:
    """Calls whose beginning stands in the prompt begin the text."""
    if not begun:
        return []
    names = [str(tool["function"]["name"]) for tool in tools]
    words = [word.removeprefix(begun) for word in _words(calls.patterns[0], names, is_main=False)]
    return [GrammarTrigger(kind=PATTERN, value=f"^({re.escape(word)})") for word in words if word]


def _object_triggers(
    calls: Calls, tools: list[JsonObject], others: list[GrammarTrigger]
) -> list[GrammarTrigger]:
    """A call that nothing marks is an object which begins the answer and names a tool."""
    if others or calls.patterns[0][0].kind != OBJECT or not calls.name_keys:
        return []
    names = "|".join(
        re.escape(json.dumps(str(tool["function"]["name"]), ensure_ascii=False)) for tool in tools
    )
    key = re.escape(json.dumps(calls.name_keys[0]))
    begin = rf"\{{{_SPACE}{key}{_SPACE}:{_SPACE}(?:{names})"
    return [GrammarTrigger(kind=PATTERN, value=f"^\\s*({begin})")]


def required_calls(
    description: OutputFormat, tools: list[JsonObject], *, is_parallel: bool
) -> AnswerGrammar:
    """The grammar of an answer that is a call, after thoughts where the model has some."""
    calls = description.calls
    assert calls is not None, "the request offers tools"
    rules = Rules()
    rules.reserve(ROOT)
    written = CallRules(rules, calls, tools)
    skips = _begun(calls, description.prefix)
    section = written.section(
        [calls.patterns[0]], is_parallel=is_parallel and calls.is_parallel, skips=skips
    )
    rules.set(ROOT, section if skips else f"{_thoughts(rules, description)} {section}")
    return AnswerGrammar(rules.text())


def json_answer(description: OutputFormat, grammar: str) -> AnswerGrammar:
    """The grammar of an answer that is JSON by the grammar of a schema, after thoughts."""
    rules = Rules()
    rules.reserve(ROOT)
    answer = embedded(rules, grammar, "answer")
    before = _thoughts(rules, description)
    markers = [marker.strip() for marker in description.content_starts]
    is_open = any(marker in description.prefix for marker in markers)
    starts = [exact(marker.removeprefix(description.prefix)) for marker in markers]
    start = either(starts) if starts and not is_open else ""
    end = f"{exact(description.content_end)}?" if markers and description.content_end else ""
    gap = space(rules)
    rules.set(ROOT, f"{before} {start} {gap} {answer} {gap} {end}")
    return AnswerGrammar(rules.text())


def triggers_of(calls: Calls, tools: list[JsonObject]) -> list[str]:
    """The words at which calls begin; a word that is no tag counts together with a name."""
    if calls.start.strip():
        own = [calls.patterns[0][0].text.strip()] if _has_own_mark(calls) else []
        return [calls.start.strip(), *own]
    names = [str(tool["function"]["name"]) for tool in tools]
    words: list[str] = []
    for number, pattern in enumerate(calls.patterns):
        words += _words(pattern, names, is_main=not number)
    return list(dict.fromkeys(words))


def _words(pattern: tuple[Part, ...], names: list[str], *, is_main: bool) -> list[str]:
    first = pattern[0]
    if first.kind != TEXT or not first.text.strip():
        return []
    text = first.text.strip()
    is_tag = is_main and text[0] in "<[" and len(text) > 1
    if is_tag or pattern[1].kind == OBJECT:
        return [text]
    if pattern[1].kind != NAME:
        return []
    after = pattern[2].text[:1] if len(pattern) > 2 else ""
    return [f"{text}{name}{after.strip()}" for name in names]


def _thoughts(rules: Rules, description: OutputFormat) -> str:
    """What may come before the answer itself, as far as the prompt has not said it."""
    start, end = description.thought_start.strip(), description.thought_end.strip()
    gap = space(rules)
    if not end or end in description.prefix:
        return gap
    next_part = exact(description.turns[0]) if _has_turns(description) else ""
    closed = f"{until(rules, end)} {exact(end)} {next_part} {gap}"
    if not start or start in description.prefix:
        return rules.add("thoughts", closed)
    count = "*" if _has_turns(description) else "?"
    return rules.add("thoughts", f"{gap} ({exact(start)} {closed}){count}")


def _has_turns(description: OutputFormat) -> bool:
    return bool(description.turns) and description.has_many_thoughts


def _begun(calls: Calls, prefix: str) -> str:
    """The part of the calls' beginning that stands at the end of the prompt."""
    opening = calls.start.strip() or calls.patterns[0][0].text.strip()
    if opening[:1].isalnum():
        return ""
    beginnings = (opening[:n] for n in range(len(opening), 0, -1))
    return next((text for text in beginnings if prefix.endswith(text)), "")
