"""The decoder process: load, say so, decode until the front is gone."""

import logging
import signal
import socket

from services.engine.decoder.pipe import Pipe, PipeClosed
from services.engine.errors import ModelNotLoadable
from services.engine.protocol import DecoderConfig, LoadFailed

EXIT_MODEL = 78
"""The model cannot be loaded: starting again would not help (EX_CONFIG)."""


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
    try:
        _run(pipe.read_config(), pipe)
    except ModelNotLoadable as error:
        pipe.write([LoadFailed(message=str(error))])
        return EXIT_MODEL
    return 0


def _run(config: DecoderConfig, pipe: Pipe) -> None:
    """Each kind imports only what it needs: a simulation no llama.cpp."""
    if config.is_verbose:
        logging.getLogger().setLevel(logging.DEBUG)
    if config.simulate is None:
        from services.engine.decoder.computed import run_computed

        run_computed(config, pipe)
    else:
        from services.engine.decoder.simulated import run_simulated

        run_simulated(config, config.simulate, pipe)
