"""After the faults: what must be true of every log, every answer and the broker."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schemas import subjects
from schemas.events import Cancelled, Event, Failed, Finished, Tokens
from schemas.generation import Generation, apply_entry
from schemas.lanes import SHARED
from services.bus.connection import Bus
from services.bus.jetstream import api
from services.bus.log import Entry, read_log
from services.streams.tape import render
from tests.faults.crowd import Seen
from tests.support.gateway import frames_of
from tests.support.nats_nodes import NatsNodes

MAX_INBOXES = 12
"""Reply inboxes of one connection: a fixed number, however much it has done."""


@dataclass(kw_only=True)
class Findings:
    """What was counted while checking."""

    ends: Counter[str] = field(default_factory=Counter)
    n_tokens: int = 0
    n_attempts: int = 0


async def audit_logs(bus: Bus, generation_ids: Iterable[str], seen: Seen) -> Findings:
    """Every log ended once, in order; every client has exactly its rendering."""
    findings = Findings()
    by_generation = {a.headers["x-generation-id"]: (body, a) for body, a in seen.answers}
    for generation_id in generation_ids:
        entries = await read_log(bus, generation_id)
        state = _check(generation_id, entries)
        findings.ends[_kind(state)] += 1
        findings.n_tokens += sum(state.n_tokens.values())
        findings.n_attempts += state.attempt
        if (found := by_generation.pop(generation_id, None)) is not None:
            _check_answer(found[1], entries, state, seen)
    assert not by_generation, f"accepted, but without a log: {list(by_generation)}"
    return findings


def _check(generation_id: str, entries: list[Entry]) -> Generation:
    state = Generation()
    events: list[Event] = []
    for entry in entries:
        assert entry.previous_seq in (-1, state.last_seq), generation_id
        state = apply_entry(state, entry.seq, entry.events)
        events += entry.events
    assert sum(isinstance(event, Finished | Failed | Cancelled) for event in events) == 1, events
    assert state.n_ignored == 0, f"{generation_id}: {state.n_ignored} events out of order"
    for choice, n_tokens in state.n_tokens.items():
        tokens = [e for e in events if isinstance(e, Tokens) and e.choice == choice]
        assert sum(len(event.ids) for event in tokens) == n_tokens
        assert all(len(event.ids) == len(event.texts) for event in tokens)
    return state


def _kind(state: Generation) -> str:
    match state.end:
        case Failed(problem=problem):
            return f"failed: {problem.message}"
        case Cancelled():
            return "cancelled"
        case _:
            return "finished"


def _check_answer(answer: Any, entries: list[Entry], state: Generation, seen: Seen) -> None:
    tape = render(answer.conversation, entries)
    whole = b""
    while chunk := tape.cut(len(whole)):
        whole += chunk
    assert answer.body == whole, f"{answer.conversation} read other bytes than its log renders"
    if answer.conversation not in seen.stopped:
        assert not isinstance(state.end, Cancelled), answer.conversation


def check_texts(seen: Seen, expected: dict[tuple[str, int], str]) -> int:
    """Finished answers say what an undisturbed engine says; how many were compared."""
    n_checked = 0
    for body, answer in seen.answers:
        frames = [json.loads(f) for f in frames_of(answer.body.decode()) if f[0] == "{"]
        if any("error" in frame for frame in frames) or answer.conversation in seen.stopped:
            continue
        text = "".join(f["content"] for f in frames if f.get("index", 0) == 0)
        assert expected[body["prompt"], body["seed"]].startswith(text), answer.conversation
        assert frames[-1]["tokens_predicted"] == body["n_predict"]
        n_checked += 1
    return n_checked


async def audit_broker(bus: Bus, nats: NatsNodes, model_key: str) -> None:
    """No consumer and no subscription is left but those that running services need."""
    durables = {subjects.tasks_durable(model_key, lane=lane) for lane in SHARED}
    durables |= {subjects.tasks_durable(model_key, ordinal) for ordinal in range(4)}
    durables.add(subjects.ARCHIVERS_DURABLE)
    names = (await api(bus, "STREAM.NAMES"))["streams"]
    for name in names:
        found = set((await api(bus, f"CONSUMER.NAMES.{name}"))["consumers"] or [])
        assert found <= durables, f"{name}: {found - durables}"
    for node in nats.nodes:
        for client, listened in node.subscriptions():
            live = [each for each in listened if each.startswith(subjects.LIVE_PREFIX)]
            assert not live, f"{client} still follows {live}"
            assert sum(each.startswith("_INBOX") for each in listened) <= MAX_INBOXES, client


def pauses(seen: Seen) -> tuple[float, float]:
    """The longest pause of each answer: p50 and p99 in seconds."""
    found = sorted(answer.longest_pause_s for _, answer in seen.answers) or [0.0]
    return statistics.median(found), found[min(len(found) - 1, int(len(found) * 0.99))]
