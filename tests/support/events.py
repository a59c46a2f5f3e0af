"""Events that tests write into logs."""

from schemas import ids, subjects
from schemas.events import ChoiceStart, Claimed, Compat, Prompt, Requested, Started, Tokens
from schemas.params import Params

MODEL = "tiny"
MODEL_KEY = subjects.model_key(MODEL)
CREATED_AT_MS = 1_700_000_000_000


def new_id() -> str:
    return ids.new_generation_id()


def requested(generation_id: str, **changes: object) -> Requested:
    fields: dict[str, object] = {
        "generation_id": generation_id,
        "dialect": "openai.chat",
        "request": b"{}",
        "prompts": (Prompt(ids=(1, 2, 3), text="abc"),),
        "params": Params(),
        "model_key": MODEL_KEY,
        "model": MODEL,
        "fingerprint": "b1-test",
        "created_at_ms": CREATED_AT_MS,
        "deadline_at_ms": CREATED_AT_MS + 60_000,
    }
    return Requested(**{**fields, **changes})  # type: ignore[arg-type]


def claimed(attempt: int = 1, engine: str = "e1") -> Claimed:
    return Claimed(attempt=attempt, engine=engine)


def started(attempt: int = 1, n_choices: int = 1) -> Started:
    choices = tuple(ChoiceStart(choice=i, slot=i, seed=42, n_prompt=3) for i in range(n_choices))
    return Started(attempt=attempt, compat=Compat(model="m", n_ctx=256, build="b"), choices=choices)


def token(index: int, text: str = "a", choice: int = 0) -> Tokens:
    return Tokens(choice=choice, index=index, ids=(index + 10,), texts=(text,))
