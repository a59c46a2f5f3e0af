"""What an engine has done, counted from its decoder's outputs: plain numbers, a few per token.

Counted as llama-server counts: a choice's first token comes from the prompt's logits, so it takes no
step of its own.
"""

import time
from dataclasses import dataclass

from schemas.rpc import BusFigures, MetricsDescription
from services.engine.protocol import Broken, Emitted, Ended, Output, PromptProgress, SlotsStarted


@dataclass(slots=True)
class _Running:
    """A choice in its slot. n_processed: prompt tokens, cached ones included. last_us: of its last
    token, since the slot's start; 0 before the first one."""

    n_processed: int
    last_us: int = 0


class Meter:
    """Event-loop thread only."""

    def __init__(self) -> None:
        self._started_at_s = int(time.time())
        self._running: dict[tuple[str, int], _Running] = {}
        self._n_prompt = self._n_prompt_cached = self._prompt_us = 0
        self._n_predicted = self._n_steps = self._predicted_us = 0
        self._n_decodes = self._n_busy = self._n_context_max = 0

    def take(self, outputs: tuple[Output, ...]) -> None:
        """Everything of one report, which is one decode call if it holds tokens or progress."""
        n_running, has_decoded = len(self._running), False
        for output in outputs:
            match output:
                case Emitted():
                    has_decoded = True
                    self._on_token(output)
                case PromptProgress():
                    has_decoded = True
                    self._on_progress(output)
                case SlotsStarted():
                    self._on_started(output)
                case Ended():
                    self._n_context_max = max(self._n_context_max, output.end.n_context)
                    self._running.pop((output.generation_id, output.end.choice), None)
                case Broken():
                    self.forget(output.generation_id)
                case _:
                    pass
        if has_decoded:
            self._n_decodes += 1
            self._n_busy += max(n_running, len(self._running))

    def forget(self, generation_id: str) -> None:
        """It runs no more; nothing of it will be reported."""
        for key in [key for key in self._running if key[0] == generation_id]:
            del self._running[key]

    def reset(self) -> None:
        """The decoder died: nothing runs. What was counted stays."""
        self._running.clear()

    def describe(self, engine: str, bus: BusFigures) -> MetricsDescription:
        return MetricsDescription(
            engine=engine,
            started_at_s=self._started_at_s,
            n_prompt=self._n_prompt,
            n_prompt_cached=self._n_prompt_cached,
            prompt_us=self._prompt_us,
            n_predicted=self._n_predicted,
            n_predicted_steps=self._n_steps,
            predicted_us=self._predicted_us,
            n_decodes=self._n_decodes,
            n_busy_slots=self._n_busy,
            n_context_max=self._n_context_max,
            n_processing=len(self._running),
            bus=bus,
        )

    def _on_started(self, output: SlotsStarted) -> None:
        for start in output.choices:
            self._running[output.generation_id, start.choice] = _Running(start.n_cached)
            self._n_prompt_cached += start.n_cached

    def _on_progress(self, output: PromptProgress) -> None:
        running = self._running.get((output.generation_id, output.choice))
        if running is not None:
            self._n_prompt += max(0, output.n_processed - running.n_processed)
            running.n_processed = output.n_processed
            self._n_context_max = max(self._n_context_max, output.n_processed)

    def _on_token(self, output: Emitted) -> None:
        self._n_predicted += 1
        running = self._running.get((output.generation_id, output.choice))
        if running is None:
            return
        if running.last_us:
            self._n_steps += 1
            self._predicted_us += output.elapsed_us - running.last_us
        else:
            self._prompt_us += output.prompt_us
        running.last_us = output.elapsed_us
