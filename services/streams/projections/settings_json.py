"""`generation_settings`: every resolved parameter under llama-server's name."""

import ctypes

from schemas.params import GrammarTrigger, Limits, Output, Params, Sampling
from services.streams.projections.shapes import Json

TRIGGER_TYPES = {"token": 0, "word": 1, "pattern": 2, "pattern_full": 3}
"""llama.cpp's numbers of its grammar trigger kinds."""


def generation_settings(params: Params, seed: int) -> Json:
    """All fields, in llama-server's order."""
    sampling, limits, output = params.sampling, params.limits, params.output
    return {
        "seed": seed,
        **_sampler_fields(sampling),
        **_limit_fields(sampling, limits, output),
        **_grammar_fields(sampling),
        **_output_fields(sampling, output),
        "lora": [{"id": index, "scale": single(scale)} for index, scale in limits.lora],
    }


def single(value: float) -> float:
    """`value` as llama-server prints it: it went through a 32-bit float."""
    return ctypes.c_float(value).value


def _sampler_fields(sampling: Sampling) -> Json:
    return {
        "temperature": single(sampling.temperature),
        "dynatemp_range": single(sampling.dynatemp_range),
        "dynatemp_exponent": single(sampling.dynatemp_exponent),
        "top_k": sampling.top_k,
        "top_p": single(sampling.top_p),
        "min_p": single(sampling.min_p),
        "top_n_sigma": single(sampling.top_n_sigma),
        "xtc_probability": single(sampling.xtc_probability),
        "xtc_threshold": single(sampling.xtc_threshold),
        "typical_p": single(sampling.typical_p),
        "repeat_last_n": sampling.repeat_last_n,
        "repeat_penalty": single(sampling.repeat_penalty),
        "presence_penalty": single(sampling.presence_penalty),
        "frequency_penalty": single(sampling.frequency_penalty),
        "dry_multiplier": single(sampling.dry_multiplier),
        "dry_base": single(sampling.dry_base),
        "dry_allowed_length": sampling.dry_allowed_length,
        "dry_penalty_last_n": sampling.dry_penalty_last_n,
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "mirostat": sampling.mirostat,
        "mirostat_tau": single(sampling.mirostat_tau),
        "mirostat_eta": single(sampling.mirostat_eta),
        "adaptive_target": single(sampling.adaptive_target),
        "adaptive_decay": single(sampling.adaptive_decay),
    }


def _limit_fields(sampling: Sampling, limits: Limits, output: Output) -> Json:
    biases = [{"bias": _bias(bias), "token": token} for token, bias in sampling.logit_bias]
    return {
        "stop": list(limits.stop),
        "max_tokens": limits.n_predict,
        "n_predict": limits.n_predict,
        "n_keep": limits.n_keep,
        "n_discard": limits.n_discard,
        "ignore_eos": sampling.ignore_eos,
        "stream": output.stream,
        "logit_bias": biases,
        "n_probs": sampling.n_probs,
        "min_keep": sampling.min_keep,
    }


def _bias(bias: float) -> float | None:
    """A forbidden token's bias is −∞, which JSON writes as null."""
    return None if bias == float("-inf") else single(bias)


def _grammar_fields(sampling: Sampling) -> Json:
    return {
        "grammar": sampling.grammar,
        "grammar_lazy": sampling.grammar_lazy,
        "grammar_triggers": [_trigger_json(trigger) for trigger in sampling.grammar_triggers],
        "preserved_tokens": list(sampling.preserved_tokens),
    }


def _trigger_json(trigger: GrammarTrigger) -> Json:
    kind = TRIGGER_TYPES.get(trigger.kind, 0)
    fields: Json = {"type": kind, "value": trigger.value}
    return fields | ({"token": trigger.token} if trigger.kind == "token" else {})


def _output_fields(sampling: Sampling, output: Output) -> Json:
    return {
        "chat_format": output.chat_format,
        "reasoning_format": output.reasoning_format,
        "reasoning_in_content": output.reasoning_in_content,
        "generation_prompt": output.generation_prompt,
        "samplers": list(sampling.samplers),
        "speculative.types": "none",
        "timings_per_token": output.timings_per_token,
        "post_sampling_probs": sampling.post_sampling_probs,
        "backend_sampling": sampling.backend_sampling,
    }
