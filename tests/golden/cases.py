"""Logs whose rendering is held fixed by the golden files beside this module.

Each case is a list of events; its file holds the bytes of the streamed form, or the JSON body.
"""

from collections.abc import Callable

from schemas.errors import EXCEED_CONTEXT_SIZE, SERVER, Problem
from schemas.events import (
    Cancelled,
    ChoiceEnd,
    ChoiceStart,
    Claimed,
    Compat,
    Event,
    Failed,
    Finished,
    Heartbeat,
    Progress,
    Prompt,
    Requested,
    Started,
    Timings,
    TokenProbs,
    Tokens,
    TopProb,
    Usage,
)
from schemas.output_format import OBJECT, Calls, OutputFormat, Part, Tool, to_json
from schemas.params import GrammarTrigger, Limits, Output, Params, Sampling

GENERATION_ID = "01936b5e-4c00-7abc-8def-0123456789ab"
CREATED_AT_MS = 1_795_982_960_123
DIALECTS = (
    "openai.chat",
    "openai.completion",
    "native.completion",
    "anthropic.messages",
    "openai.responses",
)

Case = list[Event]


def requested(dialect: str, params: Params, **changes: object) -> Requested:
    fields: dict[str, object] = {
        "generation_id": GENERATION_ID,
        "dialect": dialect,
        "request": b"{}",
        "prompts": (Prompt(ids=(1, 432), text="<s> Once"),),
        "params": params,
        "model_key": "k",
        "model": "stories-tiny.gguf",
        "fingerprint": "b1-0c1e570",
        "created_at_ms": CREATED_AT_MS,
        "deadline_at_ms": CREATED_AT_MS + 60_000,
    }
    return Requested(**{**fields, **changes})  # type: ignore[arg-type]


def started(n_choices: int = 1, attempt: int = 1) -> Started:
    choices = tuple(
        ChoiceStart(choice=index, slot=index, seed=42, n_prompt=2, n_cached=1)
        for index in range(n_choices)
    )
    return Started(
        attempt=attempt, compat=Compat(model="m", n_ctx=256, build="b1"), choices=choices
    )


def end(choice: int = 0, *, n: int = 3, stop_type: str = "limit", **changes: object) -> ChoiceEnd:
    timings = Timings(n_cached=1, n_prompt=1, prompt_ms=3.555, n_predicted=n, predicted_ms=0.868)
    fields: dict[str, object] = {
        "choice": choice,
        "stop_type": stop_type,
        "n_predicted": n,
        "n_prompt": 2,
        "n_cached": 1,
        "n_context": 4,
        "slot": choice,
        "timings": timings,
    }
    return ChoiceEnd(**{**fields, **changes})  # type: ignore[arg-type]


WORDS = ((416, " upon"), (261, " a"), (418, ' "tïme\n'))


def token(index: int, choice: int = 0, ended: ChoiceEnd | None = None) -> Tokens:
    number, text = WORDS[index]
    return Tokens(
        choice=choice,
        index=index,
        ids=(number,),
        texts=(text,),
        elapsed_us=3_555 + 434 * index,
        prompt_us=3_555 if index == 0 else 0,
        end=ended,
    )


def finished() -> Finished:
    return Finished(usage=Usage(n_prompt=2, n_predicted=3, n_cached=1), at_ms=CREATED_AT_MS + 500)


def log(dialect: str, params: Params, *events: Event, **changes: object) -> Case:
    return [requested(dialect, params, **changes), Claimed(attempt=1, engine="e1"), *events]


def streamed(sampling: Sampling | None = None, n: int = 1, **output: object) -> Params:
    shown = Output(**{"stream": True, **output})  # type: ignore[arg-type]
    return Params(output=shown, sampling=sampling or Sampling(temperature=0.0), n_cmpl=n)


def simple(dialect: str) -> Case:
    return log(
        dialect, streamed(), started(), token(0), token(1), token(2, ended=end()), finished()
    )


def body(dialect: str) -> Case:
    params = Params(output=Output(return_tokens=True))
    return log(dialect, params, started(), token(0), token(1), token(2, ended=end()), finished())


def resumable(dialect: str) -> Case:
    """With a conversation: numbered frames, a ping among them; merged tokens; a second attempt."""
    merged = Tokens(index=1, ids=(261, 418), texts=(" a", " time"), elapsed_us=4_423, end=end())
    return log(
        dialect,
        streamed(include_usage=True),
        started(),
        Heartbeat(elapsed_us=1),
        token(0),
        Claimed(attempt=2, engine="e2"),
        started(attempt=2),
        merged,
        finished(),
        conversation="talk",
    )


def everything(dialect: str) -> Case:
    """Progress, timings per token, probabilities, verbose."""
    sampling = Sampling(temperature=0.0, n_probs=2)
    params = streamed(sampling, return_progress=True, timings_per_token=True, verbose=True)
    return log(
        dialect,
        params,
        started(),
        Progress(choice=0, n_total=2, n_cached=1, n_processed=1, elapsed_us=0, is_shown=True),
        Progress(choice=0, n_total=2, n_cached=1, n_processed=2, elapsed_us=3_527, is_shown=True),
        _with_probs(token(0)),
        _with_probs(Tokens(index=1, ids=(261,), texts=("",), elapsed_us=3_989)),
        _with_probs(Tokens(index=2, ids=(418,), texts=(" a time",), elapsed_us=4_423, end=end())),
        finished(),
    )


def _with_probs(event: Tokens) -> Tokens:
    probs = tuple(
        TokenProbs(
            piece=text.encode() or b" a",
            logprob=-0.25,
            top=(
                TopProb(id=number, piece=text.encode(), logprob=-0.25),
                TopProb(id=349, piece=b"\xf0\x9f\x98", logprob=float("-inf")),
            ),
        )
        for number, text in zip(event.ids, event.texts, strict=True)
    )
    return Tokens(
        index=event.index,
        ids=event.ids,
        texts=event.texts,
        probs=probs,
        elapsed_us=event.elapsed_us,
        prompt_us=event.prompt_us,
        end=event.end,
    )


def stop_word_body(dialect: str) -> Case:
    """Not streamed, with probabilities, ended by a stop word whose tokens are left out of them."""
    ended = end(stop_type="word", stopping_word='"tïme', has_new_line=True)
    params = Params(sampling=Sampling(n_probs=2), limits=Limits(stop=('"tïme',)))
    events = [_with_probs(token(index)) for index in range(2)]
    last = Tokens(index=2, ids=(418,), texts=("",), probs=_with_probs(token(2)).probs, end=ended)
    return log(dialect, params, started(), *events, last, finished())


def held_back_tail(dialect: str) -> Case:
    """Text held back for a stop string comes out at the end."""
    held = Tokens(index=1, ids=(261,), texts=("",), elapsed_us=3_989)
    last = Tokens(
        index=2, ids=(2,), texts=("",), elapsed_us=4_423, end=end(stop_type="eos", tail=" a")
    )
    return log(dialect, streamed(), started(), token(0), held, last, finished())


def stop_word(dialect: str) -> Case:
    """The frame that completed a stop word shows timings, as llama-server's does."""
    ended = end(n=2, stop_type="word", stopping_word="a little")
    last = Tokens(index=1, ids=(261,), texts=(" ",), elapsed_us=3_989, end=ended)
    return log(dialect, streamed(), started(), token(0), last, finished())


def two_choices(dialect: str) -> Case:
    return log(
        dialect,
        streamed(n=2, include_usage=True),
        started(n_choices=2),
        token(0, 0),
        token(0, 1),
        token(1, 0, end(0, n=2)),
        token(1, 1, end(1, n=2)),
        finished(),
    )


def two_prompts_body(dialect: str) -> Case:
    prompts = (Prompt(ids=(1, 432), text="<s> Once"), Prompt(ids=(1, 7), text="<s> Twice"))
    params = Params(sampling=Sampling(seed=7), n_cmpl=2)
    choices = [token(0, index, end(index, n=1)) for index in range(4)]
    return log(dialect, params, started(n_choices=4), *choices, finished(), prompts=prompts)


def failed_early(dialect: str) -> Case:
    problem = Problem(code=EXCEED_CONTEXT_SIZE, message="too long", n_prompt_tokens=300, n_ctx=256)
    return log(dialect, Params(), Failed(problem=problem, by="engine"))


def failed_late(dialect: str) -> Case:
    problem = Problem(code=SERVER, message="the engine is lost")
    return log(dialect, streamed(), started(), token(0), Failed(problem=problem, by="engine"))


def cancelled_late(dialect: str) -> Case:
    ended = Cancelled(by="gateway", reason="client_gone")
    return log(dialect, streamed(), started(), token(0), ended)


def all_settings(dialect: str) -> Case:
    """Every parameter that is a list, and a choice of response fields is not made."""
    sampling = Sampling(
        logit_bias=((5, 1.5), (6, float("-inf"))),
        grammar='root ::= "a"',
        grammar_lazy=True,
        grammar_triggers=(
            GrammarTrigger(kind="word", value="<tool>"),
            GrammarTrigger(kind="token", value="<t>", token=9),
        ),
        preserved_tokens=(9,),
        samplers=("top_k", "temperature"),
        post_sampling_probs=True,
    )
    params = Params(sampling=sampling, limits=Limits(stop=("x",), lora=((0, 0.5),), n_predict=3))
    return log(dialect, params, started(), token(0, ended=end(n=1)), finished())


def response_fields(dialect: str) -> Case:
    wanted = ("content", "generation_settings/n_predict", "nope", "timings/predicted_n", "index/x")
    params = Params(output=Output(response_fields=wanted), limits=Limits(n_predict=3))
    return log(dialect, params, started(), token(0), token(1), token(2, ended=end()), finished())


TOOL_FORMAT = OutputFormat(
    thought_start="<think>",
    thought_end="</think>",
    calls=Calls(
        start="<tool_call>",
        end="</tool_call>",
        patterns=((Part(kind=OBJECT),),),
        name_keys=("name",),
        arguments_keys=("arguments",),
    ),
    tools=(Tool(name="ls"),),
)
TOOL_TEXTS = (
    "<think>Hm",
    "m.</th",
    "ink>\nI look.",
    '\n<tool_call>\n{"name": "ls", ',
    '"arguments": {"path": "."',
    "}}\n</tool_call>",
)


def thoughts_and_calls(dialect: str, params: Params | None = None) -> Case:
    """A model that thinks, says something and calls a tool, as many do."""
    ended = end(n=len(TOOL_TEXTS), stop_type="eos")
    tokens = [
        Tokens(
            index=index,
            ids=(index,),
            texts=(text,),
            elapsed_us=4_000 + index,
            end=ended if index == len(TOOL_TEXTS) - 1 else None,
        )
        for index, text in enumerate(TOOL_TEXTS)
    ]
    format_ = to_json(TOOL_FORMAT)
    return log(dialect, params or streamed(), started(), *tokens, finished(), output_format=format_)


def thoughts_and_calls_body(dialect: str) -> Case:
    return thoughts_and_calls(dialect, Params())


MESSAGES = ("openai.chat", "anthropic.messages", "openai.responses")
_EVERYWHERE: tuple[Callable[[str], Case], ...] = (
    simple,
    body,
    resumable,
    everything,
    stop_word_body,
    held_back_tail,
    stop_word,
    two_choices,
    two_prompts_body,
    failed_early,
    failed_late,
    cancelled_late,
)
CASES: dict[str, Case] = (
    {f"{make.__name__}.{dialect}": make(dialect) for make in _EVERYWHERE for dialect in DIALECTS}
    | {
        f"{make.__name__}.native.completion": make("native.completion")
        for make in (all_settings, response_fields)
    }
    | {
        f"{make.__name__}.{dialect}": make(dialect)
        for make in (thoughts_and_calls, thoughts_and_calls_body)
        for dialect in MESSAGES
    }
)
