"""What one rendering of a chat template may cost, and the filters and checks that see to it.

Steps (loop turns, calls, operators) up to `MAX_STEPS`, characters of a text up to `MAX_CHARS`,
items of a list up to `MAX_ITEMS`, seconds up to `MAX_RENDER_S`, looked at in every step. Sizes are
computed before anything is built. Whatever is too much raises SecurityError. Any thread: a
rendering keeps its budget in a context variable.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from jinja2 import Environment, Undefined, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter  # pyright: ignore[reportUnknownVariableType]

MAX_STEPS = 1_000_000
MAX_CHARS = 16 * 1024 * 1024
MAX_ITEMS = 1_000_000
MAX_RENDER_S = 5.0
MAX_BITS = 4096
"""Of a whole number."""
MAX_WIDTH = 100_000
"""Of padding and indentation, in characters."""
MAX_JSON_INDENT = 32
_SIZED_FILTERS = ("center", "indent", "wordwrap", "batch", "slice", "truncate")
_SIZED_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_ABSURD_FORMAT = re.compile(r"\d{6}|\*|\{[^{}]*\{")


class Budget:
    """What one rendering may still do. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deadline = clock() + MAX_RENDER_S
        self._n_steps = 0

    def step(self) -> None:
        self._n_steps += 1
        if self._n_steps > MAX_STEPS:
            raise SecurityError("it takes too many steps")
        if self._clock() > self._deadline:
            raise SecurityError("it takes too long")


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def budget() -> Generator[None]:
    """What this thread renders inside draws on one budget, that of an outer block if there is one."""
    if _budget.get() is not None:
        yield
        return
    token = _budget.set(Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def step() -> None:
    """Count one step. Raises SecurityError when there have been too many."""
    if (current := _budget.get()) is not None:
        current.step()


def install(filters: dict[str, Any]) -> None:
    """Put the bounded filters in the place of Jinja's."""
    filters.update(tojson=to_json, join=_join, replace=_replace, format=_format)
    filters.update(_counted=_counted, _concat=_concat, safe=str)
    filters.update({name: _sized(filters[name]) for name in _SIZED_FILTERS})
    filters.pop("random", None)


# ---- checks


def check_chars(n: int) -> None:
    if n > MAX_CHARS:
        raise SecurityError("it builds a text that is too long")


def check_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before a method of a string is called: would its result be too long?"""
    method = getattr(function, "__wrapped__", function)
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if not isinstance(owner, str):
        return
    if name in _SIZED_METHODS:
        _check_widths((*args, *kwargs.values()))
    elif name == "replace" and len(args) >= 2:
        _check_replaced(owner, str(args[0]), str(args[1]))
    elif name == "join" and args:
        _check_joined(owner, args[0])
    elif name in {"format", "format_map"}:
        _check_format(owner)


def check_binop(operator: str, left: Any, right: Any) -> None:
    """Before `+ * ** %`: would the result be too large?"""
    if operator == "**":
        raise SecurityError("powers are not for chat templates")
    if operator == "%" and isinstance(left, str):
        _check_format(left)
    if operator == "+":
        _check_sum(left, right)
    if operator == "*":
        _check_product(left, right)


def _check_sum(left: Any, right: Any) -> None:
    if isinstance(left, str) and isinstance(right, str):
        check_chars(len(left) + len(right))
    elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        _check_items(_items(left) + _items(right))


def _check_product(left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int):
            check_chars(len(value) * times if isinstance(value, str) else 0)
            _check_items(_items(value) * times)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def _items(value: object) -> int:
    return len(cast("list[object]", value)) if isinstance(value, (list, tuple)) else 0


def _check_items(n: int) -> None:
    if n > MAX_ITEMS:
        raise SecurityError("it builds a list that is too long")


def _check_bits(n: int) -> None:
    if n > MAX_BITS:
        raise SecurityError("it computes a number that is too large")


def _check_widths(values: Iterable[Any]) -> None:
    if any(isinstance(value, int) and abs(value) > MAX_WIDTH for value in values):
        raise SecurityError("a width is absurd")


def _check_replaced(text: str, old: str, new: str) -> None:
    n = text.count(old) if len(new) > len(old) else 0
    check_chars(len(text) + n * len(new))


def _check_joined(separator: str, values: Any) -> None:
    if isinstance(values, (list, tuple, str)):
        parts = cast("list[object]", values)
        sizes = (len(part) if isinstance(part, str) else 0 for part in parts)
        check_chars(sum(sizes) + len(separator) * len(parts))


def _check_format(text: str) -> None:
    if _ABSURD_FORMAT.search(text):
        raise SecurityError("a format is absurd")


# ---- filters


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson`: plain JSON, no HTML escapes, keys in their order."""
    if isinstance(indent, int) and indent > MAX_JSON_INDENT:
        raise SecurityError("an indentation is absurd")
    return json.dumps(
        value,
        ensure_ascii=bool(ensure_ascii),
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_json_value,
    )


def _json_value(value: Any) -> Any:
    """Missing values are null, what filters like `map` give is a list."""
    if isinstance(value, Undefined):
        return None
    if hasattr(value, "__next__"):
        return list(_steps(value))
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _sized(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses absurd widths; Jinja's marks on it (`pass_environment`) stay."""

    def bounded(*args: Any, **kwargs: Any) -> Any:
        numbers = [v for v in (*args, *kwargs.values()) if isinstance(v, int)]
        _check_widths(numbers)
        n_lines = max((v.count("\n") + 1 for v in args if isinstance(v, str)), default=0)
        check_chars(n_lines * max(numbers, default=0))
        return function(*args, **kwargs)

    bounded.__dict__.update(function.__dict__)
    return bounded


def _replace(text: Any, old: Any, new: Any, count: Any = None) -> str:
    whole, old, new = str(text), str(old), str(new)
    _check_replaced(whole, old, new)
    return whole.replace(old, new, -1 if count is None else int(count))


def _format(text: Any, *args: Any, **kwargs: Any) -> str:
    _check_format(str(text))
    return str(text) % (kwargs or args)


@pass_environment
def _join(environment: Environment, values: Any, d: Any = "", attribute: Any = None) -> str:
    items: Iterable[Any] = values
    if attribute is not None:
        items = map(make_attrgetter(environment, attribute), values)
    texts = [str(item) for item in _steps(items)]
    _check_joined(str(d), texts)
    return str(d).join(texts)


def _concat(values: list[Any]) -> str:
    """What `a ~ b` becomes; nothing and missing values are empty texts, as in llama.cpp."""
    texts = ["" if value is None else str(value) for value in values]
    check_chars(sum(map(len, texts)))
    return "".join(texts)


def _counted(values: Any) -> Any:
    """What a loop goes through: `values`, each one a step."""
    step()
    return _Counted(values) if hasattr(values, "__len__") else _steps(values)


class _Counted:
    """A collection of known length whose items are steps when a loop takes them."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return _steps(self._values)


def _steps(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        step()
        yield value
