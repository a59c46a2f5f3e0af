"""Values of the flags to the parameters of a request that sets none. Raises UsageError."""

import json
import re

from schemas.errors import RequestError
from schemas.params import DEFAULT_SAMPLERS, Limits, Output, Params, Sampling
from services.cli.errors import UsageError
from services.cli.flags import Values
from services.cli.values import get, json_object, number, text_or_file, texts
from services.engine.constraints import AnyToken, check_grammar, grammar_of_schema
from services.engine.sampler_names import sampler_order

DRY_BASE = 1.75
SHOWS_ALL = 9
"""Above this verbosity answers say all that is known of them (`__verbose`), as llama-server's."""
NO_BREAKERS = "none"
_BIAS = re.compile(r"\s*(\d{1,9})\s*([+-])(.+)", re.ASCII)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def default_params(values: Values) -> Params:
    ping = get(values, "sse_ping_interval", int)
    return Params(
        sampling=_sampling(values),
        limits=Limits(
            n_predict=get(values, "n_predict", int),
            n_keep=get(values, "keep", int),
            n_cache_reuse=get(values, "cache_reuse", int),
            cache_prompt=get(values, "cache_prompt", bool),
            stop=tuple(_unescaped(values, text) for text in texts(values, "reverse_prompt")),
        ),
        output=Output(
            sse_ping_interval=ping,
            reasoning_format=get(values, "reasoning_format", str),
            verbose=get(values, "verbose", bool) or get(values, "log_verbosity", int) > SHOWS_ALL,
        ),
    )


def _sampling(values: Values) -> Sampling:
    dry_base = get(values, "dry_base", float)
    return Sampling(
        seed=get(values, "seed", int) & 0xFFFFFFFF,
        temperature=max(get(values, "temperature", float), 0.0),
        dynatemp_range=get(values, "dynatemp_range", float),
        dynatemp_exponent=get(values, "dynatemp_exp", float),
        top_k=get(values, "top_k", int),
        top_p=get(values, "top_p", float),
        min_p=get(values, "min_p", float),
        top_n_sigma=get(values, "top_n_sigma", float),
        xtc_probability=get(values, "xtc_probability", float),
        xtc_threshold=get(values, "xtc_threshold", float),
        typical_p=get(values, "typical_p", float),
        repeat_last_n=get(values, "repeat_last_n", int),
        repeat_penalty=get(values, "repeat_penalty", float),
        presence_penalty=get(values, "presence_penalty", float),
        frequency_penalty=get(values, "frequency_penalty", float),
        dry_multiplier=get(values, "dry_multiplier", float),
        dry_base=dry_base if dry_base >= 1 else DRY_BASE,
        dry_allowed_length=get(values, "dry_allowed_length", int),
        dry_penalty_last_n=get(values, "dry_penalty_last_n", int),
        dry_sequence_breakers=_breakers(values),
        mirostat=get(values, "mirostat", int),
        mirostat_tau=get(values, "mirostat_ent", float),
        mirostat_eta=get(values, "mirostat_lr", float),
        adaptive_target=get(values, "adaptive_target", float),
        adaptive_decay=get(values, "adaptive_decay", float),
        samplers=_samplers(values),
        logit_bias=tuple(_bias(item) for item in texts(values, "logit_bias")),
        ignore_eos=get(values, "ignore_eos", bool),
        grammar=_grammar(values),
        backend_sampling=get(values, "backend_sampling", bool),
        reasoning_budget_tokens=get(values, "reasoning_budget", int),
        reasoning_budget_message=get(values, "reasoning_budget_message", str),
    )


def template_kwargs(values: Values) -> str:
    """Variables of the chat template, as a JSON object."""
    kwargs: dict[str, object] = {"preserve_reasoning": get(values, "reasoning_preserve", bool)}
    kwargs |= json_object("--chat-template-kwargs", get(values, "chat_template_kwargs", str))
    if (thinks := get(values, "reasoning", str)) != "auto":
        kwargs["enable_thinking"] = thinks == "on"
    if (effort := get(values, "reasoning_effort", str)) != "default":
        kwargs["reasoning_effort"] = effort
    return json.dumps(kwargs)


def _grammar(values: Values) -> str:
    grammar = text_or_file(values, "grammar", "grammar_file")
    schema = text_or_file(values, "json_schema", "json_schema_file")
    if grammar and schema:
        raise UsageError("--grammar and --json-schema: give one of them")
    try:
        if schema:
            return grammar_of_schema("--json-schema", json_object("--json-schema", schema))
        if grammar:
            check_grammar("--grammar", grammar, AnyToken())
    except RequestError as error:
        flag, message = error.problem.param, error.problem.message
        raise UsageError(f"{flag}: {message.partition(': ')[2]}") from None
    return grammar


def _samplers(values: Values) -> tuple[str, ...]:
    names, letters = get(values, "samplers", str), get(values, "sampling_seq", str)
    by_name = sampler_order("samplers", names.split(";"))
    if by_name != DEFAULT_SAMPLERS:
        return by_name
    try:
        return sampler_order("sampling_seq", letters)
    except RequestError as error:
        raise UsageError(f"--sampling-seq: {error}") from None


def _breakers(values: Values) -> tuple[str, ...]:
    given = texts(values, "dry_sequence_breaker")
    if not given:
        return Sampling().dry_sequence_breakers
    last = max((n for n, text in enumerate(given, 1) if text == NO_BREAKERS), default=0)
    return tuple(_unescaped(values, text) for text in given[last:])


def _bias(item: str) -> tuple[int, float]:
    found = _BIAS.fullmatch(item)
    if found is None:
        raise UsageError(f"--logit-bias: {item!r} is not TOKEN_ID(+/-)BIAS, as 15043+1")
    bias = 1e9 if found[3].strip() == "inf" else number("--logit-bias", found[3])
    return int(found[1]), -bias if found[2] == "-" else bias


def _unescaped(values: Values, text: str) -> str:
    return _ESCAPE.sub(_replaced, text) if get(values, "escape", bool) else text


def _replaced(found: re.Match[str]) -> str:
    name = found[1]
    if len(name) == 3:
        return chr(int(name[1:], 16))
    return _ESCAPED.get(name, found[0])
