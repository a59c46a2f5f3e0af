"""Reads a model's file once in its life: digest and header, on a thread of its own."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from services.logs import event
from services.models.files import FileFacts, FileIdentity, inspect

log = logging.getLogger(__name__)


class Librarian:
    """One file at a time. Event-loop thread; the reading happens on a thread of lowest priority."""

    def __init__(self) -> None:
        self._is_given_up = threading.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="librarian")

    async def study(self, file: FileIdentity) -> FileFacts | None:
        """Digest and header of the file; None if it cannot be read or `stop` was called meanwhile."""
        if self._is_given_up.is_set():
            return None
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._thread, inspect, file.path, self._is_given_up.is_set
            )
        except OSError as error:
            event(log, "model_unreadable", level=logging.WARNING, path=file.path, error=str(error))
            return None

    def stop(self) -> None:
        """Let the thread end at its next piece of the file."""
        self._is_given_up.set()
        self._thread.shutdown(wait=False)
