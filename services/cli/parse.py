"""Arguments and environment to values, and back. Pure: nothing is read or written here.

llama-server's manners: the command line wins over the environment, underscores in long names are
dashes, `LLAMA_ARG_NO_X` switches a pair off. Also accepted: `--flag=value`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from typing import cast

from services.cli.errors import UsageError
from services.cli.flags import ACTIONS, FLAGS, Flag, Value, Values
from services.cli.table.presets import PRESETS
from services.cli.table.row import NOT_YET, ON_OFF_AUTO

TRUE_WORDS = ("on", "enabled", "true", "1")
FALSE_WORDS = ("off", "disabled", "false", "0")
AUTO_WORDS = ("auto", "-1")

_BY_NAME: dict[str, tuple[Flag, bool]] = {
    name: (flag, is_positive)
    for flag in FLAGS
    for is_positive, names in ((True, flag.names), (False, flag.negatives))
    for name in names
}


def defaults() -> Values:
    return {flag.key: flag.default for flag in FLAGS}


def parse(arguments: Iterable[str], environment: Mapping[str, str]) -> Values:
    """All values: arguments, else environment, else defaults. Raises UsageError naming what is wrong."""
    given = parse_environment(environment) | _parse_arguments(arguments)
    return defaults() | _preset(given) | given


def _preset(given: Values) -> Values:
    """What flags that stand for several others say; what was given itself wins."""
    chosen = [key for key in PRESETS if given.pop(key, False)]
    return {key: value for name in chosen for key, value in PRESETS[name].items()}


def _parse_arguments(arguments: Iterable[str]) -> Values:
    values: Values = {}
    rest = iter(arguments)
    for argument in rest:
        name, has_value, inline = (
            argument.partition("=") if argument[:2] == "--" else (argument, "", "")
        )
        name = dashed(name)
        flag, is_positive = _find(name)
        value = _argument_value(
            flag, is_positive, name, chain([inline], rest) if has_value else rest, bool(has_value)
        )
        if flag.kind == "texts" and flag.key in values:
            value = (*_texts(values[flag.key]), *_texts(value))
        values[flag.key] = value
    return values


def dashed(name: str) -> str:
    """A long name with underscores is the same name with dashes."""
    return name.replace("_", "-") if name[:2] == "--" else name


def action_of(arguments: Iterable[str]) -> str:
    """Which of ACTIONS the line asks for, the first one; empty for none."""
    words = {dashed(argument) for argument in arguments}
    return next((action for action, names in ACTIONS.items() if words & set(names)), "")


def _texts(value: Value) -> tuple[str, ...]:
    return cast("tuple[str, ...]", value)


def _find(name: str) -> tuple[Flag, bool]:
    found = _BY_NAME.get(name)
    if found is None:
        near = get_close_matches(name, _BY_NAME, n=1, cutoff=0.7)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"invalid argument: {name}{hint}; --help lists them all")
    return found


def _argument_value(
    flag: Flag, is_positive: bool, name: str, rest: Iterator[str], has_value: bool
) -> Value:
    if flag.kind == "bool" and not has_value:
        return _built(flag, is_positive, name)
    text = next(rest, None)
    if text is None:
        raise UsageError(f"{name}: a value is missing ({flag.help})")
    value = (_read_text(text, name),) if flag.kind == "texts" else read(flag, text, name)
    return _built(flag, value if is_positive else not value, name)


def _built(flag: Flag, value: Value, source: str) -> Value:
    """`value`, if what it asks for exists; the default asks for nothing."""
    if flag.instead:
        raise UsageError(f"{source} has been removed: {flag.instead}")
    if not flag.is_built and value != flag.default:
        raise UsageError(f"{source} is {NOT_YET}")
    return value


def parse_environment(environment: Mapping[str, str]) -> Values:
    """The values that variables set. Raises UsageError naming the variable."""
    values: Values = {}
    for flag in FLAGS:
        if flag.negative_env and flag.negative_env != flag.env and flag.negative_env in environment:
            values[flag.key] = _built(flag, False, flag.negative_env)
        elif flag.env in environment:
            values[flag.key] = _built(flag, read(flag, environment[flag.env], flag.env), flag.env)
    return values


def read(flag: Flag, text: str, source: str) -> Value:
    """The value that `text` stands for. source: flag or variable, for the message of UsageError."""
    value = _READERS[flag.kind](text, source)
    if flag.kind == "choice":
        value = _canonical(flag, text)
    if isinstance(value, int | float) and not flag.low <= value <= flag.high:
        raise UsageError(f"{source}: {text} is out of range{_range(flag)}")
    if flag.choices and value not in flag.choices:
        raise UsageError(f"{source}: {text!r} is none of {', '.join(flag.choices)}")
    return value


def _canonical(flag: Flag, text: str) -> str:
    """One of the choices, where `text` is another word for one."""
    if flag.choices == ON_OFF_AUTO:
        for choice, words in zip(ON_OFF_AUTO, (TRUE_WORDS, FALSE_WORDS, AUTO_WORDS), strict=True):
            if text in words:
                return choice
    return text


def _range(flag: Flag) -> str:
    return f" ({flag.low:.15g} to {flag.high:.15g})" if flag.kind in ("int", "float") else ""


def _read_int(text: str, source: str) -> int:
    digits = text.strip().removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise UsageError(f"{source}: {text!r} is not a whole number")
    return int(text)


def _read_float(text: str, source: str) -> float:
    try:
        return float(text if "_" not in text else "no")
    except ValueError:
        raise UsageError(f"{source}: {text!r} is not a number") from None


def _read_bool(text: str, source: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE_WORDS + FALSE_WORDS:
        raise UsageError(f"{source}: {text!r} is neither on nor off")
    return word in TRUE_WORDS


def _read_list(text: str, source: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _read_text(text: str, source: str) -> str:
    if "\0" in text:
        raise UsageError(f"{source}: a zero byte is not allowed")
    return text


def _read_texts(text: str, source: str) -> tuple[str, ...]:
    try:
        items: object = json.loads(text)
    except ValueError:
        items = None
    if not isinstance(items, list):
        raise UsageError(f"{source}: expected a JSON list of texts")
    texts = cast("list[object]", items)
    if not all(isinstance(item, str) for item in texts):
        raise UsageError(f"{source}: expected a JSON list of texts")
    return tuple(cast("list[str]", texts))


_READERS: dict[str, Callable[[str, str], Value]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "onoff": _read_bool,
    "choice": _read_text,
    "list": _read_list,
    "texts": _read_texts,
    "text": _read_text,
}


def values_to_env(values: Values, services: Iterable[str] | None = None) -> dict[str, str]:
    """The variables that make a child see these values; those at their default are left out.

    services: only flags of these. Parsing the result gives the values back.
    """
    wanted = None if services is None else set(services)
    return {
        flag.env: _written(flag, values[flag.key])
        for flag in FLAGS
        if (wanted is None or not wanted.isdisjoint(flag.services))
        and values[flag.key] != flag.default
    }


def _written(flag: Flag, value: Value) -> str:
    if flag.kind == "texts":
        return json.dumps(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def own_variables() -> frozenset[str]:
    """Every variable that the table reads; a parent removes them before it sets its own."""
    return frozenset(chain((f.env for f in FLAGS), (f.negative_env for f in FLAGS))) - {""}
