"""What every frame of one answer shares, taken from `requested` and the first `started`."""

from functools import cached_property

from schemas.errors import SchemaError
from schemas.events import Finished, Prompt, Requested, Started
from schemas.output_format import OutputFormat, from_json
from schemas.params import RANDOM_SEED, Params
from services.streams.parsers import AnswerParser
from services.streams.parsers.deltas import MessageParser, PlainText

NO_PROMPT = Prompt(ids=())


class Context:
    """id, created (Unix seconds), model, fingerprint: as the answer shows them. params: resolved.
    completed: Unix seconds, None until it is finished."""

    def __init__(self, requested: Requested) -> None:
        self.requested = requested
        self.params: Params = requested.params
        self.id = f"chatcmpl-{self.hex_id}"
        self.created = requested.created_at_ms // 1000
        self.model = requested.model
        self.fingerprint = requested.fingerprint
        self.completed: int | None = None

    def on_started(self, started: Started) -> None:
        """The engine's word on the parameters counts; only the first attempt is asked."""
        self.params = started.params or self.params

    def on_finished(self, finished: Finished) -> None:
        self.completed = (finished.at_ms or self.requested.created_at_ms) // 1000

    @property
    def hex_id(self) -> str:
        """The generation id as 32 digits: what all ids in an answer are made of."""
        return self.requested.generation_id.replace("-", "")

    def new_parser(self, choice: int = 0, *, is_whole: bool = False) -> MessageParser:
        """A parser for the text of one choice, as this model writes its messages.

        is_whole: the message shall hold its beginning that the client sent itself, too.
        """
        if self._output_format is None:
            return PlainText()
        seed = f"{self.requested.generation_id}/{choice}"
        return AnswerParser(self._output_format, seed=seed, is_whole=is_whole)

    @cached_property
    def has_thoughts(self) -> bool:
        """Whether this model thinks in a way that can be told from its answer."""
        return self._output_format is not None and self._output_format.thought_end != ""

    @cached_property
    def _output_format(self) -> OutputFormat | None:
        """None where all text is content; so is that of a model whose way of writing nobody can read."""
        try:
            data = self.requested.output_format
            return from_json(data) if data else None
        except SchemaError:
            return None

    def prompt_of(self, choice: int) -> Prompt:
        """Choices are numbered prompt by prompt, n_cmpl of each."""
        index = choice // max(1, self.params.n_cmpl)
        prompts = self.requested.prompts
        return prompts[index] if index < len(prompts) else NO_PROMPT

    def seed_of(self, choice: int) -> int:
        """The seed that llama-server reports: further choices of a prompt count up from it."""
        seed = self.params.sampling.seed
        offset = choice % max(1, self.params.n_cmpl)
        return seed if seed == RANDOM_SEED else (seed + offset) & 0xFFFFFFFF
