"""What the decode loop drives: a model that runs batches, and the choices that sample from them.

The real one is llama.cpp's context; the simulated one needs no model. One thread.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from schemas.events import ChoiceEnd
from schemas.params import Params
from services.engine.batches import Batch
from services.engine.decoder.job import Choice, Place
from services.engine.decoder.pipe import HasFileno
from services.engine.protocol import ChoiceJob, Command, Emitted, Output


class Running(Protocol):
    """A choice in its slot. end: set at once where the log that it continues holds all of it."""

    choice: Choice
    end: ChoiceEnd | None

    def sample(self, row: int, clock_us: int) -> tuple[Emitted, ChoiceEnd | None]:
        """The next token, from the logits of a batch row; and the end, if it is the last one."""
        ...

    def end_reasoning(self) -> bool:
        """Force the end of thinking from the next token on; False where it does not think."""
        ...

    def close(self) -> None:
        """Free what it holds outside Python."""
        ...


OpenChoice = Callable[[ChoiceJob, Params, Place], Running]
"""Makes a running choice. Raises RequestError where its parameters or its log make no sense."""


class Model(Protocol):
    """Sizes as in DecoderConfig; ids are below n_vocab."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def n_ctx_slot(self) -> int: ...
    def decode(self, batch: Batch) -> int:
        """Run one batch: DECODED, KV_FULL (nothing happened), or another number: it failed. Blocks."""
        ...


class Channel(Protocol):
    """The way to the front and back; see `Pipe`. Reading and writing raise PipeClosed when it is gone."""

    def read_commands(self, *, can_wait: bool) -> list[Command]: ...
    def wait(self, timeout_s: float | None = None, other: HasFileno | None = None) -> None: ...
    def write(self, outputs: Iterable[Output]) -> None: ...
