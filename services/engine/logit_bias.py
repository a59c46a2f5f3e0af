"""`logit_bias` in all its forms, and the biases that keep a generation from ending. Pure."""

import math
import re
from collections.abc import Iterable
from typing import Protocol, cast

from services.engine.param_values import wrong

MAX_BIAS = 1e30
"""Enough for certainty; sums of a few stay finite."""
MAX_ENTRIES = 100_000
MAX_TEXT_CHARS = 4096
_WHOLE = re.compile(r"\s*[+-]?\d+", re.ASCII)

Biases = tuple[tuple[int, float], ...]


class Tokens(Protocol):
    """What of a vocabulary decides parameters."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def eog(self) -> tuple[int, ...]: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]: ...


def read_biases(name: str, value: object, vocabulary: Tokens) -> Biases:
    """A list of [token, bias] pairs or an object from token to bias; `false` bans the token.

    A token is an id or a text (each token of it). As in llama-server, ids outside the vocabulary
    and entries of another shape are left out. Raises RequestError for another type of `value`.
    """
    entries = list(_entries(name, value))
    if len(entries) > MAX_ENTRIES:
        raise wrong(name, f"at most {MAX_ENTRIES} entries are taken")
    return tuple(
        (token, bias)
        for key, given in entries
        if (bias := _bias(given)) is not None
        for token in _ids(name, key, vocabulary)
    )


def end_biases(vocabulary: Tokens, given: Biases) -> Biases:
    """What `ignore_eos` adds to the given ones: no end token can be chosen."""
    present = set(given)
    return tuple((t, -math.inf) for t in vocabulary.eog if (t, -math.inf) not in present)


def _entries(name: str, value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, dict):
        mapping = cast("dict[str, object]", value)
        return ((_key(key), bias) for key, bias in mapping.items())
    if isinstance(value, list):
        items = cast("list[object]", value)
        pairs = (cast("list[object]", item) for item in items if isinstance(item, list))
        return ((pair[0], pair[1]) for pair in pairs if len(pair) == 2)
    raise wrong(name, "expected a list of [token, bias] pairs or an object")


def _key(key: str) -> object:
    """An object's key: digits are an id."""
    return int(key) if len(key) < 20 and _WHOLE.fullmatch(key) else key


def _bias(value: object) -> float | None:
    if isinstance(value, bool):
        return None if value else -math.inf
    if not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(min(max(value, -MAX_BIAS), MAX_BIAS))


def _ids(name: str, key: object, vocabulary: Tokens) -> tuple[int, ...]:
    if isinstance(key, bool):
        return ()
    if isinstance(key, int):
        return (key,) if 0 <= key < vocabulary.n_vocab else ()
    if not isinstance(key, str):
        return ()
    if len(key) > MAX_TEXT_CHARS:
        raise wrong(name, f"texts of at most {MAX_TEXT_CHARS} characters are taken")
    return vocabulary.tokenize(key, add_special=False, parse_special=False)
