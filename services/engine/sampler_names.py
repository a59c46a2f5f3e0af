"""The many ways to write a list of samplers (llama.cpp's names, aliases and letters). Pure."""

from typing import cast

from services.engine.param_values import MAX_WORDS, words, wrong

LETTERS = {
    "d": "dry",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "i": "infill",
    "e": "penalties",
    "a": "adaptive_p",
}
NAMES = frozenset(LETTERS.values())
_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"} | {
    name.replace("_", separator): name for name in NAMES for separator in ("-", "")
}
MAX_SAMPLERS = 64


def sampler_order(name: str, value: object) -> tuple[str, ...]:
    """Canonical names in order; unknown ones are left out, as in llama-server. Raises RequestError."""
    if isinstance(value, str):
        found = [LETTERS.get(letter) for letter in value[:MAX_WORDS]]
    elif isinstance(value, list):
        found = [_canonical(text) for text in words(name, cast("object", value))]
    else:
        raise wrong(name, "expected a list of sampler names or a string of their letters")
    known = tuple(sampler for sampler in found if sampler is not None)
    if len(known) > MAX_SAMPLERS:
        raise wrong(name, f"at most {MAX_SAMPLERS} samplers are taken")
    return known


def _canonical(text: str) -> str | None:
    lower = text.lower()
    return lower if lower in NAMES else _ALIASES.get(lower)
