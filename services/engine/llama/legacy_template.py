# pyright: basic
"""llama.cpp's own renderings of well-known chat templates, which need no Jinja (`--no-jinja`).

Any thread. `llama_chat_apply_template` recognises a template by its name or by words in its source.
"""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from services.engine.llama.library import lib
from services.engine.llama.vocabulary import to_utf8

_MAX_NAMES = 256


@lru_cache(maxsize=1)
def builtin_names() -> tuple[str, ...]:
    """Names that `--chat-template` takes, for example chatml or llama3."""
    names = (ctypes.c_char_p * _MAX_NAMES)()
    n = lib.llama_chat_builtin_templates(names, _MAX_NAMES)
    return tuple(name.decode() for name in names[: min(n, _MAX_NAMES)] if name)


def render(template: str, messages: Sequence[tuple[str, str]], opens_answer: bool) -> str | None:
    """The prompt of (role, text) pairs, None when llama.cpp does not know the template.

    opens_answer: whether the beginning of the assistant's turn follows. NUL characters are dropped:
    C would end the text there.
    """
    chat = (lib.llama_chat_message * max(len(messages), 1))()
    kept = [(_c_text(role), _c_text(text)) for role, text in messages]
    for slot, (role, text) in zip(chat, kept, strict=False):
        slot.role, slot.content = role, text
    room = 256 + 2 * sum(len(role) + len(text) for role, text in kept)
    n, buffer = _apply(template, chat, len(kept), opens_answer, room)
    if n > room:
        n, buffer = _apply(template, chat, len(kept), opens_answer, n)
    return None if n < 0 else buffer.raw[:n].decode("utf-8", "replace")


def _apply(template: str, chat, n_messages: int, opens_answer: bool, room: int):
    buffer: Any = ctypes.create_string_buffer(room)
    n = lib.llama_chat_apply_template(
        _c_text(template), chat, n_messages, opens_answer, buffer, room
    )
    return n, buffer


def _c_text(text: str) -> bytes:
    return to_utf8(text).replace(b"\0", b"")
