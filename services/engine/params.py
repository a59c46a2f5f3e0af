"""A request's JSON body, under llama-server's native names, as resolved `Params`. Pure.

What the body leaves out (or sets to null) comes from the engine's defaults. One table says name,
aliases, limits and place of every property; limits and messages follow llama-server's schema.
"""

from dataclasses import dataclass
from typing import Any, cast

import msgspec

from schemas.params import Limits, Output, Params, Sampling
from services.engine.constraints import with_constraint
from services.engine.logit_bias import Tokens, end_biases, read_biases
from services.engine.param_values import (
    FLOAT32_MAX,
    INT64_MAX,
    Reader,
    adapters,
    breakers,
    flag,
    one_of,
    positive,
    real,
    seed,
    stop_words,
    whole,
    words,
    wrong,
)
from services.engine.sampler_names import sampler_order
from services.engine.supported import JsonObject, check_supported

MAX_PENALTY = 1e6
"""Beyond it logits stop being finite numbers."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One property. part: of Params. attribute: there. aliases: taken when the name is absent."""

    name: str
    part: str
    attribute: str
    read: Reader
    aliases: tuple[str, ...] = ()


def _sampling(name: str, read: Reader, attribute: str = "", aliases: tuple[str, ...] = ()) -> Field:
    return Field(
        name=name, part="sampling", attribute=attribute or name, read=read, aliases=aliases
    )


def _limits(name: str, read: Reader, aliases: tuple[str, ...] = ()) -> Field:
    return Field(name=name, part="limits", attribute=name, read=read, aliases=aliases)


def _output(name: str, read: Reader) -> Field:
    return Field(name=name, part="output", attribute=name, read=read)


FIELDS = (
    _output("verbose", flag),
    _output("timings_per_token", flag),
    _output("stream", flag),
    _output("return_tokens", flag),
    _output("return_progress", flag),
    _output("sse_ping_interval", whole(-1)),
    _output("response_fields", words),
    _output("echo", flag),
    _output("parse_tool_calls", flag),
    _output("reasoning_format", one_of("none", "auto", "deepseek", "deepseek-legacy")),
    _limits("cache_prompt", flag),
    _limits("n_predict", whole(-1), aliases=("max_completion_tokens", "max_tokens")),
    _limits("n_indent", whole(0)),
    _limits("n_keep", whole(-1)),
    _limits("n_discard", whole(0)),
    _limits("n_cache_reuse", whole(0)),
    _limits("t_max_predict_ms", whole(-1, INT64_MAX)),
    _limits("stop", stop_words),
    _limits("lora", adapters),
    _sampling("top_k", whole(0, is_hard=False)),
    _sampling("top_p", real(0.0, 1.0)),
    _sampling("min_p", real(0.0, 1.0)),
    _sampling("top_n_sigma", real()),
    _sampling("xtc_probability", real(0.0, 1.0)),
    _sampling("xtc_threshold", real(0.0, 1.0)),
    _sampling("typical_p", real()),
    _sampling("temperature", real(0.0)),
    _sampling("dynatemp_range", real()),
    _sampling("dynatemp_exponent", real()),
    _sampling("repeat_last_n", whole(0)),
    _sampling("repeat_penalty", positive(MAX_PENALTY)),
    _sampling("frequency_penalty", real(-MAX_PENALTY, MAX_PENALTY)),
    _sampling("presence_penalty", real(-MAX_PENALTY, MAX_PENALTY)),
    _sampling("dry_multiplier", real(-MAX_PENALTY, MAX_PENALTY)),
    _sampling("dry_base", real(high=MAX_PENALTY)),
    _sampling("dry_allowed_length", whole(0)),
    _sampling("dry_penalty_last_n", whole(0)),
    _sampling("dry_sequence_breakers", breakers),
    _sampling("mirostat", whole(0, 2, is_hard=False)),
    _sampling("mirostat_tau", real()),
    _sampling("mirostat_eta", real()),
    _sampling("adaptive_target", real(-FLOAT32_MAX, 1.0)),
    _sampling("adaptive_decay", real(0.0, 0.99, is_hard=True)),
    _sampling("seed", seed),
    _sampling("n_probs", whole(0, is_hard=False), aliases=("logprobs",)),
    _sampling("min_keep", whole(0)),
    _sampling("backend_sampling", flag),
    _sampling("post_sampling_probs", flag),
    _sampling("ignore_eos", flag),
    _sampling("samplers", sampler_order),
)
"""Everything that needs neither vocabulary nor slots; the rest stands in `resolve`."""


def resolve(
    body: JsonObject, defaults: Params, vocabulary: Tokens, *, n_slots: int, n_ctx: int
) -> Params:
    """The parameters of a request on an engine with `n_slots` slots of `n_ctx` tokens.

    Raises RequestError: 400 naming the property at fault, 501 for what is not built yet.
    """
    parts = _read_fields(body)
    sampling = _sampling_of(body, defaults.sampling, parts["sampling"], vocabulary)
    params = Params(
        sampling=_bounded(sampling, vocabulary.n_vocab, n_ctx),
        limits=_limits_of(body, defaults.limits, parts["limits"], n_slots),
        output=_output_of(body, defaults.output, parts["output"]),
        n_cmpl=_n_choices(body, defaults.n_cmpl, n_slots),
    )
    check_supported(body, params)
    return params


def _read_fields(body: JsonObject) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {"sampling": {}, "limits": {}, "output": {}}
    for field in FIELDS:
        for name in (field.name, *field.aliases):
            if (value := body.get(name)) is not None:
                parts[field.part][field.attribute] = field.read(name, value)
                break
    return parts


def _limits_of(body: JsonObject, defaults: Limits, given: JsonObject, n_slots: int) -> Limits:
    if not given.get("stop"):
        given.pop("stop", None)
    if (id_slot := body.get("id_slot")) is not None:
        given["id_slot"] = whole(-1)("id_slot", id_slot)
        if given["id_slot"] >= 0:
            given["id_slot"] %= n_slots  # llama-server lets ids wrap around
    return msgspec.structs.replace(defaults, **given)


def _sampling_of(
    body: JsonObject, defaults: Sampling, given: JsonObject, vocabulary: Tokens
) -> Sampling:
    if given.get("dry_base", 1.0) < 1.0:
        del given["dry_base"]
    biases = defaults.logit_bias
    if (value := body.get("logit_bias")) is not None:
        biases = read_biases("logit_bias", value, vocabulary)
    sampling = msgspec.structs.replace(defaults, **given)
    if sampling.samplers.count("xtc") > 1 and sampling.xtc_probability > 0:
        raise wrong("samplers", "xtc can be named once")
    if sampling.ignore_eos:
        biases += end_biases(vocabulary, biases)
    sampling = msgspec.structs.replace(sampling, logit_bias=biases)
    return with_constraint(sampling, body, vocabulary)


def _bounded(sampling: Sampling, n_vocab: int, n_ctx: int) -> Sampling:
    """What llama.cpp allocates memory for, as large as it can matter and no larger."""
    return msgspec.structs.replace(
        sampling,
        n_probs=min(sampling.n_probs, n_vocab),
        min_keep=min(sampling.min_keep, n_vocab),
        repeat_last_n=min(sampling.repeat_last_n, n_ctx),
        dry_penalty_last_n=min(sampling.dry_penalty_last_n, n_ctx),
    )


def _output_of(body: JsonObject, defaults: Output, given: JsonObject) -> Output:
    options = body.get("stream_options")
    if isinstance(options, dict):
        wanted = cast(JsonObject, options).get("include_usage")
        if wanted is not None:
            given["include_usage"] = flag("stream_options.include_usage", wanted)
    output = msgspec.structs.replace(defaults, **given)
    in_content = output.stream and output.reasoning_format == "deepseek-legacy"
    return msgspec.structs.replace(output, reasoning_in_content=in_content)


def _n_choices(body: JsonObject, default: int, n_slots: int) -> int:
    for name in ("n_cmpl", "n"):
        if (value := body.get(name)) is not None:
            return whole(1, n_slots)(name, value)
    return default
