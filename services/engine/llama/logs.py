# pyright: basic
"""What llama.cpp may write to stderr. Set once per process, before the first model is loaded."""

import sys
from ctypes import c_void_p

from llama_cpp import llama_cpp as lib


def _quiet(level: int, text: bytes, user_data: object) -> None:
    """Drop every line."""


def _loud(level: int, text: bytes, user_data: object) -> None:
    sys.stderr.write(text.decode("utf-8", "replace"))


_CALLBACKS = {False: lib.llama_log_callback(_quiet), True: lib.llama_log_callback(_loud)}
"""Kept alive for the life of the process: C holds pointers to them."""


def set_log(is_verbose: bool) -> None:
    """Send llama.cpp's log to stderr, or nowhere. Any thread; affects the whole process."""
    lib.llama_log_set(_CALLBACKS[is_verbose], c_void_p(0))
