"""The decoder process: load, say so, decode until the front is gone."""

import gc
import logging
import signal
import socket

from services.engine.decoder.loop import Loop
from services.engine.decoder.pipe import Pipe, PipeClosed
from services.engine.decoder.running import opener
from services.engine.errors import ModelNotLoadable
from services.engine.llama.context import Context
from services.engine.protocol import DecoderConfig, LoadFailed, LoadProgress, Ready
from services.engine.scheduler import Scheduler, Sizes

EXIT_MODEL = 78
"""The model cannot be loaded: starting again would not help (EX_CONFIG)."""
PROGRESS_STEP = 0.01

log = logging.getLogger(__name__)


def run_decoder(fd: int) -> int:
    """Serve the front at the other end of the socket `fd` until it closes or says Stop.

    Ignores SIGINT and SIGTERM: the front decides. Returns the exit code: 0, or 78 if the model
    cannot be loaded.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=fd) as connection:
        connection.setblocking(True)
        try:
            return _serve(Pipe(connection))
        except PipeClosed:
            return 0


def _serve(pipe: Pipe) -> int:
    config = pipe.read_config()
    try:
        context = Context(config, _Progress(pipe).report)
    except ModelNotLoadable as error:
        pipe.write([LoadFailed(message=str(error))])
        return EXIT_MODEL
    try:
        ready = Ready(n_ctx=context.n_ctx, n_ctx_slot=context.n_ctx_slot, n_slots=config.n_slots)
        pipe.write([ready])
        gc.collect()
        gc.freeze()  # what is loaded now stays: no collection needs to look at it again
        Loop(context, opener(context), Scheduler(_sizes(config, context), context), pipe).run()
    finally:
        context.close()
    return 0


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


def _sizes(config: DecoderConfig, context: Context) -> Sizes:
    return Sizes(
        n_slots=config.n_slots,
        n_batch=config.n_batch,
        n_ubatch=config.n_ubatch,
        has_float_weights=context.has_float_weights,
    )
