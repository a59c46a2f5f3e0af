"""Continuing a choice in tests the way an engine does: by way of the log's events."""

from collections.abc import Sequence

from schemas.events import ChoiceStart, Compat, Controlled, Event, Prompt, Requested, Started
from schemas.generation import collect
from schemas.params import Params
from services.engine.jobs import build_admit
from services.engine.outbox import Outbox
from services.engine.protocol import Admit, ChoiceJob, Emitted, Output, ReasoningEnded


def requested(name: str, prompt: tuple[int, ...], params: Params) -> Requested:
    return Requested(
        generation_id=name,
        dialect="native.completion",
        request=b"{}",
        prompts=(Prompt(ids=prompt),),
        params=params,
        model_key="m",
        model="m",
        created_at_ms=0,
        deadline_at_ms=1,
    )


def fresh(name: str, prompt: tuple[int, ...], seed: int, params: Params) -> Admit:
    """A generation that nobody has begun."""
    job = ChoiceJob(choice=0, prompt=prompt, seed=seed)
    return Admit(generation_id=name, choices=(job,), params=params)


def cut(admit: Admit, start: ChoiceStart, outputs: Sequence[Output], n: int, name: str) -> Admit:
    """The job that an engine makes of a log which holds the first `n` tokens of a run."""
    job = admit.choices[0]
    asked = requested(name, job.prompt, admit.params)
    compat = Compat(model="m", template="t", n_ctx=512, build="b")
    started = Started(attempt=1, compat=compat, choices=(start,))
    again = build_admit(asked, collect([started, *_events(outputs, n)]), (0,))
    assert again is not None
    return again


def _events(outputs: Sequence[Output], n: int) -> list[Event]:
    """What was logged when `n` tokens had been, in entries of different sizes."""
    outbox = Outbox({}, frozenset({0}))
    events: list[Event] = []
    for output in outputs:
        if isinstance(output, Emitted) and output.index < n:
            outbox.add_token(output)
            if output.index % 3 == 2:
                events += outbox.drain()
        elif isinstance(output, ReasoningEnded) and output.index <= n:
            outbox.add_controlled(output)
    events += outbox.drain()
    assert all(not isinstance(event, Controlled) or event.index <= n for event in events)
    return events
