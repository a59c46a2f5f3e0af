"""Arguments and environment to values, and back. Pure: nothing is read or written here.

llama-server's manners: the command line wins over the environment, underscores in long names are
dashes, `LLAMA_ARG_NO_X` switches a pair off. Also accepted: `--flag=value`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain

from services.cli.errors import UsageError
from services.cli.flags import FLAGS, Flag, Value, Values

TRUE_WORDS = ("on", "enabled", "true", "1")
FALSE_WORDS = ("off", "disabled", "false", "0")

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
    values = defaults() | parse_environment(environment)
    rest = iter(arguments)
    for argument in rest:
        name, has_value, inline = (
            argument.partition("=") if argument[:2] == "--" else (argument, "", "")
        )
        name = name.replace("_", "-") if name[:2] == "--" else name
        flag, is_positive = _find(name)
        values[flag.key] = _argument_value(
            flag, is_positive, name, chain([inline], rest) if has_value else rest, bool(has_value)
        )
    return values


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
        return is_positive
    text = next(rest, None)
    if text is None:
        raise UsageError(f"{name}: a value is missing ({flag.help})")
    value = read(flag, text, name)
    return value if is_positive else not value


def parse_environment(environment: Mapping[str, str]) -> Values:
    """The values that variables set. Raises UsageError naming the variable."""
    values: Values = {}
    for flag in FLAGS:
        if flag.negative_env and flag.negative_env != flag.env and flag.negative_env in environment:
            values[flag.key] = False
        elif flag.env in environment:
            values[flag.key] = read(flag, environment[flag.env], flag.env)
    return values


def read(flag: Flag, text: str, source: str) -> Value:
    """The value that `text` stands for. source: flag or variable, for the message of UsageError."""
    value = _READERS[flag.kind](text, source)
    if isinstance(value, int | float) and not flag.low <= value <= flag.high:
        raise UsageError(f"{source}: {text} is out of range{_range(flag)}")
    if flag.choices and value not in flag.choices:
        raise UsageError(f"{source}: {text!r} is none of {', '.join(flag.choices)}")
    return value


def _range(flag: Flag) -> str:
    return f" ({flag.low:.15g} to {flag.high:.15g})" if flag.kind != "bool" else ""


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


_READERS: dict[str, Callable[[str, str], Value]] = {
    "int": _read_int,
    "float": _read_float,
    "bool": _read_bool,
    "list": _read_list,
    "text": _read_text,
}


def values_to_env(values: Values, services: Iterable[str] | None = None) -> dict[str, str]:
    """The variables that make a child see these values; those at their default are left out.

    services: only flags of these. Parsing the result gives the values back.
    """
    wanted = None if services is None else set(services)
    return {
        flag.env: _written(values[flag.key])
        for flag in FLAGS
        if (wanted is None or not wanted.isdisjoint(flag.services))
        and values[flag.key] != flag.default
    }


def _written(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def own_variables() -> frozenset[str]:
    """Every variable that the table reads; a parent removes them before it sets its own."""
    return frozenset(chain((f.env for f in FLAGS), (f.negative_env for f in FLAGS))) - {""}
