"""Grammar rules for tool calls, by the patterns of an output format."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, cast

from schemas import output_format as fmt
from schemas.output_format import Calls, Part
from services.engine.grammar.rules import Rules, either, literal
from services.engine.messages import JsonObject
from services.engine.output_format.texts import (
    arguments_rule,
    arguments_schema,
    exact,
    members_of,
    space,
)
from services.engine.output_format.values import listed, quoted_object, value_rule

MAX_IN_ANY_ORDER = 4
"""Required parameters up to this may come in any order."""
_IN_JSON = (fmt.OBJECT, fmt.ARGUMENTS)


class CallRules:
    """Writes the rules of one request's calls. tools: those that may be called."""

    def __init__(self, rules: Rules, calls: Calls, tools: Sequence[JsonObject]) -> None:
        self._rules = rules
        self._calls = calls
        self._tools = [cast("dict[str, Any]", tool["function"]) for tool in tools]
        self._arguments: dict[str, str] = {}

    def section(
        self,
        patterns: Sequence[tuple[Part, ...]],
        *,
        is_parallel: bool,
        skips: str = "",
        without_start: bool = False,
    ) -> str:
        """The rule for one call or several, with what stands around them.

        skips: what of the beginning stands in front of the text already. without_start: models leave
        out what stands in front of all calls.
        """
        has_start = bool(self._calls.start.strip()) and not without_start
        first = self._one_of(patterns, "" if has_start else skips)
        body = first
        if is_parallel:
            later = self._one_of(patterns, "") if skips and not has_start else first
            body = f"{first} ({self._between()} {later})*"
        if not has_start:
            return self._rules.add("calls", body)
        start = exact(self._calls.start.strip().removeprefix(skips))
        return self._rules.add("calls", f"{start} {space(self._rules)} {body} {self._end()}")

    def _one_of(self, patterns: Sequence[tuple[Part, ...]], skips: str) -> str:
        options = (self._call(pattern, skips) for pattern in patterns)
        return self._rules.add("call", " | ".join(options))

    def _end(self) -> str:
        """What stands behind all calls; behind the bracket of a list there may be whitespace."""
        end = self._calls.end.strip()
        if not end.startswith("]"):
            return self._loose(end)
        return f'{space(self._rules)} "]" {self._loose(end[1:])}'

    def _between(self) -> str:
        separator = self._calls.separator
        return self._loose(separator) if separator.strip() else space(self._rules)

    def _loose(self, text: str) -> str:
        """A text with any whitespace around it."""
        gap = space(self._rules)
        return f"{gap} {exact(text.strip())} {gap}" if text.strip() else gap

    def _call(self, pattern: tuple[Part, ...], skips: str) -> str:
        options = [self._call_of(pattern, tool, skips) for tool in self._tools]
        return either(options)

    def _call_of(self, pattern: tuple[Part, ...], tool: JsonObject, skips: str) -> str:
        elements: list[str] = []
        for number, part in enumerate(pattern):
            before = pattern[number - 1].kind if number else ""
            after = pattern[number + 1].kind if number + 1 < len(pattern) else ""
            text = part.text.lstrip().removeprefix(skips) if not number else part.text
            elements.append(self._part(part.kind, text, tool, before, after))
        return self._rules.add(f"call-{tool['name']}", " ".join(elements))

    def _part(self, kind: str, text: str, tool: JsonObject, before: str, after: str) -> str:
        match kind:
            case fmt.TEXT:
                return self._text(text, is_after=before in _IN_JSON, is_before=after in _IN_JSON)
            case fmt.NAME:
                return literal(tool["name"])
            case fmt.ID:
                return self._id()
            case fmt.INDEX:
                return "[0-9]{1,4}"
            case fmt.ANY:
                return "[^\\n]{0,64}"
            case fmt.OBJECT:
                return self._object(tool)
            case fmt.ARGUMENTS:
                return self._arguments_of(tool)
            case _:
                return self._parameters(tool)

    def _text(self, text: str, *, is_after: bool, is_before: bool) -> str:
        """A text; beside JSON its whitespace may differ."""
        gap = space(self._rules)
        core = text.lstrip() if is_after else text
        core = core.rstrip() if is_before else core
        parts = [gap if is_after else "", exact(core), gap if is_before else ""]
        return " ".join(part for part in parts if part)

    def _id(self) -> str:
        n = self._calls.id_chars
        return f"[a-zA-Z0-9]{{{n}}}" if n else "[a-zA-Z0-9_-]{1,64}"

    # ---- calls in JSON

    def _arguments_of(self, tool: JsonObject) -> str:
        name = tool["name"]
        if name not in self._arguments:
            schema = tool.get("parameters")
            if self._calls.notation == fmt.QUOTED:
                own = arguments_schema(schema)
                body = quoted_object(self._rules, own, own, self._calls.quote)
                self._arguments[name] = self._rules.add(f"arguments-{name}", body)
            else:
                self._arguments[name] = arguments_rule(self._rules, schema, f"arguments-{name}")
        return self._arguments[name]

    def _object(self, tool: JsonObject) -> str:
        calls = self._calls
        if not calls.name_keys:
            return self._braced([(tool["name"], self._arguments_of(tool))])
        name = literal(f'"{tool["name"]}"')
        members = [(calls.name_keys, name), (calls.arguments_keys, self._arguments_of(tool))]
        if calls.id_keys:
            place = len(members) if calls.has_late_id else 0
            members.insert(place, (calls.id_keys, self._quoted_id()))
        return self._nested(members)

    def _quoted_id(self) -> str:
        digits = "[0-9]{1,4}" if self._calls.id_is_number else self._id()
        return f'"\\"" {digits} "\\""'

    def _nested(self, members: list[tuple[tuple[str, ...], str]]) -> str:
        """An object with members at paths; those below one key stand in an object of their own."""
        found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        for path, element in members:
            found.setdefault(path[0], []).append((path[1:], element))
        return self._braced(
            [
                (key, inner[0][1] if not inner[0][0] else self._nested(inner))
                for key, inner in found.items()
            ]
        )

    def _braced(self, members: list[tuple[str, str]]) -> str:
        gap = space(self._rules)
        texts = [f'{literal(_quoted(key))} {gap} ":" {gap} {element}' for key, element in members]
        inside = f' {gap} "," {gap} '.join(texts)
        return f'"{{" {gap} {inside} {gap} "}}"'

    # ---- parameters one by one

    def _parameters(self, tool: JsonObject) -> str:
        how = self._calls.parameters
        assert how is not None, "a pattern with parameters says how they are written"
        schema = arguments_schema(tool.get("parameters"))
        properties, wanted = members_of(schema)
        members: dict[str, str] = {}
        for key, own in properties.items():
            hint = f"{tool['name']}-{key}"
            value = value_rule(self._rules, how, own, schema, hint, key)
            word = how.types.get(_first_type(own, how.types), "")
            body = f"{self._head(key, word)} {value}"
            members[key] = self._rules.add(hint, body)
        if how.separator.strip():
            return listed(self._rules, members, wanted, self._loose(how.separator))
        required = [rule for key, rule in members.items() if key in wanted]
        optional = [rule for key, rule in members.items() if key not in wanted]
        return self._in_any_order(required, optional)

    def _head(self, key: str, word: str) -> str:
        how = self._calls.parameters
        assert how is not None
        texts = {fmt.KEY: key, fmt.TYPE: word}
        return exact("".join(texts.get(part.kind, part.text) for part in how.head).lstrip())

    def _in_any_order(self, required: list[str], optional: list[str]) -> str:
        gap = space(self._rules)
        parts = [self._permuted(required)] if required else []
        if optional:
            parts.append(f"({gap} {either(optional)})*")
        return " ".join([gap, *parts, gap])

    def _permuted(self, names: list[str]) -> str:
        """All of them: in any order where they are few."""
        gap = space(self._rules)
        if len(names) == 1 or len(names) > MAX_IN_ANY_ORDER:
            return f" {gap} ".join(names)
        known: dict[tuple[str, ...], str] = {(name,): name for name in names}
        for n in range(2, len(names) + 1):
            for chosen in combinations(names, n):
                options = [
                    f"{name} {gap} {known[tuple(other for other in chosen if other != name)]}"
                    for name in chosen
                ]
                known[chosen] = self._rules.add("parameters", " | ".join(options))
        return known[tuple(names)]


def _quoted(key: str) -> str:
    return f'"{key}"'


def _first_type(schema: object, types: dict[str, str]) -> str:
    """The JSON type whose word a value gets; texts where anything may stand."""
    own = cast(JsonObject, schema) if isinstance(schema, dict) else {}
    kind = own.get("type")
    return kind if isinstance(kind, str) and kind in types else "string"
