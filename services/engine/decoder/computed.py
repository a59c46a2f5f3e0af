"""The real decoder: loads a model with llama.cpp and decodes with it. One thread, and SidePrefill's."""

import gc
import logging
import os

from services.engine.decoder.loop import Loop
from services.engine.decoder.pipe import Pipe, PipeClosed
from services.engine.decoder.running import opener
from services.engine.errors import ModelNotLoadable
from services.engine.llama.context import Context
from services.engine.protocol import DecoderConfig, LoadProgress, Ready
from services.engine.scheduler import Scheduler, Sizes
from services.engine.side_prefill import SidePrefill

log = logging.getLogger(__name__)

PROGRESS_STEP = 0.01


def run_computed(config: DecoderConfig, pipe: Pipe) -> None:
    """Serve the front until it says Stop. Raises PipeClosed, ModelNotLoadable."""
    _pin(config.cpus)
    context = Context(config, _Progress(pipe).report)
    side = _side_prefill(context)
    try:
        scheduler = Scheduler(_sizes(config, context), context.memory)
        loop = Loop(context, opener(context), scheduler, pipe, context.memory, side)
        ready = Ready(n_ctx=context.n_ctx, n_ctx_slot=context.n_ctx_slot, n_slots=config.n_slots)
        pipe.write([ready])
        gc.collect()
        gc.freeze()  # what is loaded now stays: no collection needs to look at it again
        loop.run()
    except PipeClosed:
        _close(context, side)
        raise
    except Exception:
        log.exception("action=decoder_failed")
        _close(context, side, exit_code=1)
        raise
    _close(context, side)


def _close(context: Context, side: SidePrefill | None, exit_code: int = 0) -> None:
    """Free everything; or end the process at once, where a long call of `side` still uses it."""
    if side is not None and not side.close():
        os._exit(exit_code)
    context.close()


def _pin(cpus: tuple[int, ...]) -> None:
    """Run on those cores only, all threads that come; on all for ()."""
    if not cpus:
        return
    usable = os.sched_getaffinity(0) & set(cpus)
    if not usable:
        raise ModelNotLoadable(f"--cpu-mask, --cpu-range: this machine has no core {cpus[0]}")
    os.sched_setaffinity(0, usable)


class _Progress:
    """Tells the front how far loading is, in steps that are worth a frame."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._told = 0.0

    def report(self, fraction: float) -> bool:
        """False, which ends the loading, when the front is gone. Called from llama.cpp: never raises."""
        if self._pipe.is_closed():
            return False
        if fraction - self._told >= PROGRESS_STEP or fraction >= 1 > self._told:
            self._told = fraction
            try:
                self._pipe.write([LoadProgress(fraction=fraction)])
            except PipeClosed:
                return False
        return True


def _side_prefill(context: Context) -> SidePrefill | None:
    """None where long prompts go through the slots' own context."""
    if not context.n_side_threads:
        return None
    return SidePrefill(
        context.open_side,
        n_threads=context.n_side_threads,
        n_threads_alone=context.n_threads_batch,
        on_shared=context.divide_threads,
    )


def _sizes(config: DecoderConfig, context: Context) -> Sizes:
    return Sizes(
        n_slots=config.n_slots,
        n_ctx=context.n_ctx,
        n_ctx_slot=context.n_ctx_slot,
        n_batch=config.n_batch,
        n_ubatch=config.n_ubatch,
        has_float_weights=context.has_float_weights,
        has_bos=context.has_bos,
        is_flash=config.context.flash_attn != "off",
        has_side=context.n_side_threads > 0,
        caching=config.caching,
    )
