# pyright: basic
"""llama.cpp's own samplers as links of a chain, made from parameters in llama-server's order."""

import ctypes
import math
from collections.abc import Callable, Iterable
from typing import Any

from schemas.errors import RequestError
from schemas.params import Sampling
from services.engine.llama.candidates import Candidates
from services.engine.llama.library import lib, quick

_P = ctypes.c_void_p
_accept = quick("llama_sampler_accept", [_P, ctypes.c_int32], None)
apply_sampler = quick("llama_sampler_apply", [_P, ctypes.POINTER(lib.llama_token_data_array)], None)


class Chain:
    """Samplers of llama.cpp, one after the other. Owns C memory until `close`."""

    def __init__(self) -> None:
        params = lib.llama_sampler_chain_default_params()
        params.no_perf = True
        self.pointer = lib.llama_sampler_chain_init(params)

    def add(self, sampler: Any) -> None:
        """Take over a sampler."""
        lib.llama_sampler_chain_add(self.pointer, sampler)

    def apply(self, candidates: Candidates) -> None:
        apply_sampler(self.pointer, candidates.reference)

    def accept(self, token: int) -> None:
        _accept(self.pointer, token)

    def close(self) -> None:
        lib.llama_sampler_free(self.pointer)


class Xtc:
    """XTC, which has a random source of its own. n_draws: values taken from it so far."""

    def __init__(self, s: Sampling, seed: int) -> None:
        self._sampler = lib.llama_sampler_init_xtc(
            s.xtc_probability, s.xtc_threshold, s.min_keep, seed
        )
        self.n_draws = 0

    def apply(self, candidates: Candidates) -> None:
        self.n_draws += candidates.size > 1
        apply_sampler(self._sampler, candidates.reference)

    def accept(self, token: int) -> None:
        """It has no use for tokens."""

    def skip(self, n: int) -> None:
        """Go on as if `n` values had been drawn."""
        rows = (lib.llama_token_data * 2)()
        for _ in range(n):
            array = lib.llama_token_data_array(rows, 2, -1, False)
            apply_sampler(self._sampler, ctypes.byref(array))
        self.n_draws += n

    def close(self) -> None:
        lib.llama_sampler_free(self._sampler)


def check(s: Sampling) -> None:
    """Raise RequestError for parameters that make no chain."""
    penalties = (s.frequency_penalty, s.presence_penalty)
    if not math.isfinite(s.repeat_penalty) or s.repeat_penalty <= 0:
        raise RequestError.invalid("repeat_penalty must be greater than 0", "repeat_penalty")
    if not all(map(math.isfinite, penalties)):
        raise RequestError.invalid("penalties must be finite numbers")


def uses_xtc(s: Sampling) -> bool:
    """Whether XTC may draw; where it never does, llama.cpp leaves it out."""
    return (
        s.mirostat == 0 and "xtc" in s.samplers and s.xtc_probability > 0 and s.xtc_threshold <= 0.5
    )


def window(s: Sampling, n_ctx: int) -> int:
    """How many last tokens the chain looks at; 0 when nothing does."""
    penalties = (s.frequency_penalty, s.presence_penalty)
    has_penalties = s.repeat_penalty != 1 or any(penalties)
    has_dry = s.dry_multiplier != 0 and s.dry_base >= 1
    return max(
        _last_n(s.repeat_last_n, n_ctx) if has_penalties else 0,
        _last_n(s.dry_penalty_last_n, n_ctx) if has_dry else 0,
    )


def biases(vocab: int, s: Sampling, eog_ids: Iterable[int]) -> Any:
    """The request's, ignored ends, and what the model itself wants suppressed; None: there are none."""
    n_vocab = lib.llama_vocab_n_tokens(vocab)
    found = [(token, bias) for token, bias in s.logit_bias if 0 <= token < n_vocab]
    if s.ignore_eos:
        found += [(token, -math.inf) for token in eog_ids]
    found += [(token, -math.inf) for token in _suppressed(vocab)]
    if not found:
        return None
    array = (lib.llama_logit_bias * len(found))(*found)
    return lib.llama_sampler_init_logit_bias(n_vocab, len(found), array)


def _suppressed(vocab: int) -> Iterable[int]:
    n = ctypes.c_int32(0)
    ids = lib.llama_vocab_get_suppress_tokens(vocab, ctypes.byref(n))
    return [ids[i] for i in range(n.value)]


def _last_n(n: int, n_ctx: int) -> int:
    return n_ctx if n < 0 else n


def _penalties(vocab: int, s: Sampling, n_ctx: int) -> Any:
    return lib.llama_sampler_init_penalties(
        lib.llama_vocab_n_tokens(vocab),
        _last_n(s.repeat_last_n, n_ctx),
        s.repeat_penalty,
        s.frequency_penalty,
        s.presence_penalty,
    )


def _dry(vocab: int, s: Sampling, n_ctx: int) -> Any:
    breakers = [text.encode("utf-8", "replace") for text in s.dry_sequence_breakers]
    return lib.llama_sampler_init_dry(
        vocab,
        s.dry_multiplier,
        s.dry_base,
        s.dry_allowed_length,
        _last_n(s.dry_penalty_last_n, n_ctx),
        (ctypes.c_char_p * len(breakers))(*breakers),
        len(breakers),
    )


def _temperature(vocab: int, s: Sampling, n_ctx: int) -> Any:
    """At 0 and below all but the best candidate are dropped: greedy."""
    return lib.llama_sampler_init_temp_ext(s.temperature, s.dynatemp_range, s.dynatemp_exponent)


MAKERS: dict[str, Callable[[int, Sampling, int], Any]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda vocab, s, n_ctx: lib.llama_sampler_init_top_n_sigma(s.top_n_sigma),
    "top_k": lambda vocab, s, n_ctx: lib.llama_sampler_init_top_k(s.top_k),
    "typ_p": lambda vocab, s, n_ctx: lib.llama_sampler_init_typical(s.typical_p, s.min_keep),
    "top_p": lambda vocab, s, n_ctx: lib.llama_sampler_init_top_p(s.top_p, s.min_keep),
    "min_p": lambda vocab, s, n_ctx: lib.llama_sampler_init_min_p(s.min_p, s.min_keep),
    "temperature": _temperature,
}
"""By llama-server's names, those that need nothing of ours. Arguments: vocabulary, parameters, context size."""
