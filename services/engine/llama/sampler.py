# pyright: basic
"""The sampler chain of one choice, in llama-server's order."""

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from schemas.errors import RequestError
from schemas.params import Sampling
from services.engine.llama.library import lib, quick

_P = ctypes.c_void_p
_sample = quick("llama_sampler_sample", [_P, _P, ctypes.c_int32], ctypes.c_int32)
_accept = quick("llama_sampler_accept", [_P, ctypes.c_int32], None)
_apply = quick("llama_sampler_apply", [_P, ctypes.POINTER(lib.llama_token_data_array)], None)


class Sampler:
    """Chooses tokens. One per choice; owns C memory until `close`.

    seed: concrete, 32 bits. n_ctx: what `-1` means for windows of last tokens. eog_ids: what
    ignore_eos forbids. Raises RequestError for parameters that make no chain.
    """

    def __init__(
        self, vocab: int, sampling: Sampling, *, seed: int, n_ctx: int, eog_ids: Iterable[int]
    ) -> None:
        _check(sampling)
        self._vocab = vocab
        self._n_vocab = lib.llama_vocab_n_tokens(vocab)
        self._window = _window(sampling, n_ctx)
        params = lib.llama_sampler_chain_default_params()
        params.no_perf = True
        self._chain = lib.llama_sampler_chain_init(params)
        self._add_biases(sampling, eog_ids)
        for name in sampling.samplers:
            if (make := _MAKERS.get(name)) is not None:
                lib.llama_sampler_chain_add(self._chain, make(vocab, sampling, n_ctx, seed))
        self._dist = lib.llama_sampler_init_dist(seed)
        lib.llama_sampler_chain_add(self._chain, self._dist)

    def sample(self, context: int, row: int) -> int:
        """Choose a token from the logits of a batch row, and accept it. 0.1–0.2 ms."""
        return _sample(self._chain, context, row)

    def choose(self, candidates: Any) -> int:
        """Choose from given candidates (left behind as the chain saw them last), and accept it."""
        _apply(self._chain, ctypes.byref(candidates))
        token = candidates.data[candidates.selected].id
        _accept(self._chain, token)
        return token

    def accept(self, ids: Sequence[int]) -> None:
        """Take tokens as history, as if they had been chosen; only as many as anything looks at."""
        for token in ids[max(0, len(ids) - self._window) :] if self._window else ():
            _accept(self._chain, token)

    def skip_draws(self, n: int) -> None:
        """Advance the random source as `n` choices would."""
        candidate = lib.llama_token_data(id=0, logit=0.0, p=0.0)
        array = lib.llama_token_data_array(ctypes.pointer(candidate), 1, -1, False)
        for _ in range(n):
            _apply(self._dist, ctypes.byref(array))

    def close(self) -> None:
        lib.llama_sampler_free(self._chain)

    def _add_biases(self, sampling: Sampling, eog_ids: Iterable[int]) -> None:
        """The request's, ignored ends, and what the model itself wants suppressed: first in the chain."""
        biases = [
            (token, bias) for token, bias in sampling.logit_bias if 0 <= token < self._n_vocab
        ]
        if sampling.ignore_eos:
            biases += [(token, -math.inf) for token in eog_ids]
        biases += [(token, -math.inf) for token in self._suppressed()]
        if biases:
            array = (lib.llama_logit_bias * len(biases))(*biases)
            bias = lib.llama_sampler_init_logit_bias(self._n_vocab, len(biases), array)
            lib.llama_sampler_chain_add(self._chain, bias)

    def _suppressed(self) -> Iterable[int]:
        n = ctypes.c_int32(0)
        ids = lib.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(n))
        return [ids[i] for i in range(n.value)]


def _check(sampling: Sampling) -> None:
    if sampling.mirostat:
        raise RequestError.not_supported("mirostat is not supported yet; remove `mirostat`")
    if sampling.grammar:
        raise RequestError.not_supported("grammars are not supported yet; remove `grammar`")
    if "adaptive_p" in sampling.samplers:
        raise RequestError.not_supported("the sampler adaptive_p is not supported yet")
    penalties = (sampling.frequency_penalty, sampling.presence_penalty)
    if not math.isfinite(sampling.repeat_penalty) or sampling.repeat_penalty <= 0:
        raise RequestError.invalid("repeat_penalty must be greater than 0", "repeat_penalty")
    if not all(map(math.isfinite, penalties)):
        raise RequestError.invalid("penalties must be finite numbers")


def _last_n(n: int, n_ctx: int) -> int:
    return n_ctx if n < 0 else n


def _window(sampling: Sampling, n_ctx: int) -> int:
    """How many last tokens the chain looks at; 0 when nothing does."""
    penalties = (sampling.frequency_penalty, sampling.presence_penalty)
    has_penalties = sampling.repeat_penalty != 1 or any(penalties)
    has_dry = sampling.dry_multiplier != 0 and sampling.dry_base >= 1
    return max(
        _last_n(sampling.repeat_last_n, n_ctx) if has_penalties else 0,
        _last_n(sampling.dry_penalty_last_n, n_ctx) if has_dry else 0,
    )


def _penalties(vocab: int, s: Sampling, n_ctx: int, seed: int):
    return lib.llama_sampler_init_penalties(
        lib.llama_vocab_n_tokens(vocab),
        _last_n(s.repeat_last_n, n_ctx),
        s.repeat_penalty,
        s.frequency_penalty,
        s.presence_penalty,
    )


def _dry(vocab: int, s: Sampling, n_ctx: int, seed: int):
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


def _temperature(vocab: int, s: Sampling, n_ctx: int, seed: int):
    """At 0 and below all but the best candidate are dropped: greedy."""
    return lib.llama_sampler_init_temp_ext(s.temperature, s.dynatemp_range, s.dynatemp_exponent)


_MAKERS: dict[str, Callable] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_top_n_sigma(s.top_n_sigma),
    "top_k": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_top_k(s.top_k),
    "typ_p": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_typical(s.typical_p, s.min_keep),
    "top_p": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_top_p(s.top_p, s.min_keep),
    "min_p": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_min_p(s.min_p, s.min_keep),
    "xtc": lambda vocab, s, n_ctx, seed: lib.llama_sampler_init_xtc(
        s.xtc_probability, s.xtc_threshold, s.min_keep, seed
    ),
    "temperature": _temperature,
}
"""By llama-server's names; names that it does not know either are ignored."""
