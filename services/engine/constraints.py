"""What a request (or a flag) wants the output to look like, as a grammar that has been checked. Pure.

`grammar`, `json_schema`, `response_format`, `grammar_lazy`, `grammar_triggers` and
`preserved_tokens`, in llama-server's forms. Everything raises RequestError (400) naming the property.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec.structs import replace

from schemas.errors import RequestError
from schemas.params import GrammarTrigger, Sampling
from services.engine.grammar.automaton import Automaton
from services.engine.grammar.errors import GrammarError, GrammarInvalid, SchemaInvalid
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_schema import to_grammar
from services.engine.grammar.triggers import KINDS, TOKEN, WORD, compile_triggers
from services.engine.param_values import flag, whole, words, wrong

JsonObject = dict[str, Any]
SCHEMA_PROPERTY = "json_schema_property"
"""Set by a dialect that has turned another property into `json_schema`: that one's name."""
_PROPERTIES = frozenset(
    {
        "json_schema",
        "response_format",
        "response_format.schema",
        "response_format.json_schema.schema",
    }
)
_FORMATS = ("text", "json_object", "json_schema")
MAX_TRIGGERS = 64


class Words(Protocol):
    """What of a vocabulary finds tokens by their names."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...


class AnyToken:
    """Stands for a vocabulary where none is loaded: every token that a grammar names is there."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        del text, add_special, parse_special
        return (0,)


def with_constraint(sampling: Sampling, body: JsonObject, vocabulary: Words) -> Sampling:
    """`sampling` with the grammar that the body asks for, or the engine's own."""
    preserved = sampling.preserved_tokens
    if (value := body.get("preserved_tokens")) is not None:
        preserved = _preserved(value, vocabulary)
    triggers = sampling.grammar_triggers
    if (value := body.get("grammar_triggers")) is not None:
        triggers = _triggers(value, preserved, vocabulary)
    given = body.get("grammar_lazy")
    is_lazy = sampling.grammar_lazy if given is None else flag("grammar_lazy", given)
    grammar = read_grammar(body, vocabulary)
    if (grammar or sampling.grammar) and is_lazy and not triggers:
        raise wrong("grammar_lazy", "a lazy grammar needs grammar_triggers")
    return replace(
        sampling,
        grammar=grammar or sampling.grammar,
        grammar_lazy=is_lazy,
        grammar_triggers=triggers,
        preserved_tokens=preserved,
    )


def read_grammar(body: JsonObject, vocabulary: Words) -> str:
    """The one grammar that the body asks for; empty for none."""
    grammar = body.get("grammar") or ""
    if not isinstance(grammar, str):
        raise wrong("grammar", "expected a string")
    found = _schema(body)
    if found is None:
        if grammar:
            check_grammar("grammar", grammar, vocabulary)
        return grammar
    name, schema = found
    if grammar:
        raise RequestError.invalid("Cannot use both json_schema and grammar", "grammar")
    return grammar_of_schema(name, schema)


def check_grammar(name: str, grammar: str, vocabulary: Words) -> None:
    """Raise RequestError naming a property unless a grammar can be followed from its start on."""
    try:
        start = Automaton(parse(grammar, token_finder(vocabulary))).start
        if not start.key.stacks:
            raise GrammarInvalid("it allows no text at all")
    except GrammarError as error:
        raise wrong(name, f"failed to parse grammar: {error}") from error


def grammar_of_schema(name: str, schema: object) -> str:
    """A JSON schema as a grammar."""
    try:
        return to_grammar(schema or {"type": "object"})
    except SchemaInvalid as error:
        raise wrong(name, f"JSON schema conversion failed: {error}") from error


def token_finder(vocabulary: Words) -> Callable[[str], int | None]:
    """How grammars find the tokens that they name."""

    def find(text: str) -> int | None:
        ids = vocabulary.tokenize(text, add_special=False, parse_special=True)
        return ids[0] if len(ids) == 1 else None

    return find


def schema_of(body: JsonObject) -> JsonObject | None:
    """The schema that a body asks for, None for none. Raises RequestError."""
    found = _schema(body)
    return None if found is None else cast(JsonObject, found[1])


def _schema(body: JsonObject) -> tuple[str, object] | None:
    """A schema and the property that it comes from."""
    if (schema := body.get("json_schema")) is not None:
        if not isinstance(schema, dict):
            raise wrong("json_schema", "expected an object")
        name = str(body.get(SCHEMA_PROPERTY, ""))
        return (name if name in _PROPERTIES else "json_schema"), cast(JsonObject, schema)
    wanted = body.get("response_format")
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise wrong("response_format", "expected an object")
    return _format_schema(cast(JsonObject, wanted))


def _format_schema(wanted: JsonObject) -> tuple[str, object] | None:
    kind = wanted.get("type") or "text"
    if kind not in _FORMATS:
        raise wrong("response_format", f"type must be one of {', '.join(_FORMATS)}")
    if kind == "text":
        return None
    outer = "response_format"
    if kind == "json_schema" and "json_schema" in wanted:
        outer = "response_format.json_schema"
        wanted = _object(wanted["json_schema"], outer)
    schema = wanted.get("schema")
    name = f"{outer}.schema"
    return name, {} if schema is None else _object(schema, name)


def _object(value: object, name: str) -> JsonObject:
    if not isinstance(value, dict):
        raise wrong(name, "expected an object")
    return cast(JsonObject, value)


# ---- lazy grammars


def _preserved(value: object, vocabulary: Words) -> tuple[int, ...]:
    """The tokens among these texts; texts of several tokens are left out, as in llama-server."""
    find = token_finder(vocabulary)
    found = (find(text) for text in words("preserved_tokens", value))
    return tuple(dict.fromkeys(token for token in found if token is not None))


def _triggers(
    value: object, preserved: tuple[int, ...], vocabulary: Words
) -> tuple[GrammarTrigger, ...]:
    if not isinstance(value, list):
        raise wrong("grammar_triggers", "expected a list of objects with 'type' and 'value'")
    items = cast("list[object]", value)
    if len(items) > MAX_TRIGGERS:
        raise wrong("grammar_triggers", f"at most {MAX_TRIGGERS} triggers are taken")
    triggers = tuple(_trigger(item, preserved, vocabulary) for item in items)
    try:
        compile_triggers(triggers)
    except GrammarError as error:
        raise wrong("grammar_triggers", str(error)) from error
    return triggers


def _trigger(item: object, preserved: tuple[int, ...], vocabulary: Words) -> GrammarTrigger:
    given = _object(item, "grammar_triggers")
    kind = KINDS[whole(0, len(KINDS) - 1)("grammar_triggers", given.get("type", -1))]
    text = given.get("value", "")
    if not isinstance(text, str) or not (text or kind == TOKEN):
        raise wrong("grammar_triggers", "a trigger needs a text as its 'value'")
    if kind == TOKEN:
        token = whole(0)("grammar_triggers", given.get("token"))
        return GrammarTrigger(kind=TOKEN, value=text, token=token)
    if kind != WORD:
        return GrammarTrigger(kind=kind, value=text)
    return _word(text, preserved, vocabulary)


def _word(text: str, preserved: tuple[int, ...], vocabulary: Words) -> GrammarTrigger:
    """A word that is one token must be preserved, since its text would not be seen otherwise."""
    token = token_finder(vocabulary)(text)
    if token is None:
        return GrammarTrigger(kind=WORD, value=text)
    if token not in preserved:
        raise wrong(
            "grammar_triggers",
            f"Grammar trigger word should be marked as preserved token: {text}",
        )
    return GrammarTrigger(kind=TOKEN, value=text, token=token)
