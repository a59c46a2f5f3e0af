# pyright: basic
"""llama.cpp's shared library: loaded once, its log tamed, short calls without the GIL dance.

`lib` is the raw binding: its functions release the GIL, which is right for calls that take long.
`quick` gives the same function holding the GIL, for calls of microseconds, where no other thread of Python waits for more than that.
"""

import contextlib
import ctypes
import os
import sys
from typing import Any

os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # else an abort forks a debugger

from llama_cpp import llama_cpp

lib: Any = llama_cpp
_LEVEL_ERROR = 3
_LEVEL_CONTINUED = 5
_holding = ctypes.PyDLL(lib._lib._name)


def quick(name: str, argtypes: list, restype):
    """A function of the library that is called with the GIL held: cheaper where nobody waits for it."""
    function = getattr(_holding, name)
    function.argtypes, function.restype = argtypes, restype
    return function


class Log:
    """Where llama.cpp's log goes: to stderr when verbose, else nowhere. The last errors are kept."""

    def __init__(self) -> None:
        self.is_verbose = False
        self.errors: list[str] = []
        self._callback = lib.llama_log_callback(self._on_line)  # must live as long as the process
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))
        self._level = 0

    def _on_line(self, level: int, text: bytes, _: object) -> None:
        if level != _LEVEL_CONTINUED:
            self._level = level
        line = text.decode("utf-8", "replace")
        if self._level == _LEVEL_ERROR and line.strip():
            self.errors = [*self.errors[-3:], line.strip()]
        if self.is_verbose:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line)

    def last_error(self) -> str:
        """The newest error line, without the function name that llama.cpp puts before it."""
        line = self.errors[-1] if self.errors else ""
        return line.split(": ", 1)[-1]


LOG = Log()
