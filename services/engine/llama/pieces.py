# pyright: basic
"""The bytes of tokens, read from the vocabulary once each."""

import ctypes

from services.engine.llama.library import quick

_PIECE_BYTES = 256
_read = quick(
    "llama_token_to_piece",
    [ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, *[ctypes.c_int32] * 2, ctypes.c_bool],
    ctypes.c_int32,
)


class Pieces:
    """Pieces of one vocabulary. An id out of range aborts the process in C, so ids are checked here."""

    def __init__(self, vocab: int, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        self.vocab = vocab
        self._plain: dict[int, bytes] = {}
        self._special: dict[int, bytes] = {}

    def piece(self, token: int, *, is_special: bool = False) -> bytes:
        """Bytes of a token; a control token's are empty unless is_special. Raises ValueError."""
        cache = self._special if is_special else self._plain
        piece = cache.get(token)
        if piece is None:
            piece = cache[token] = self._lookup(token, is_special)
        return piece

    def all_special(self) -> list[bytes]:
        """The bytes of every token, control tokens by name; nothing of it is kept."""
        return [self._lookup(token, is_special=True) for token in range(self.n_vocab)]

    def _lookup(self, token: int, is_special: bool) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise ValueError(f"token id {token} is not below {self.n_vocab}")
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        n = _read(self.vocab, token, buffer, len(buffer), 0, is_special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = _read(self.vocab, token, buffer, len(buffer), 0, is_special)
        return buffer.raw[:n]
