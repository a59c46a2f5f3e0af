# pyright: basic
"""The vocabulary of a model, without its weights.

Nothing reaches C unchecked: ids are compared with the vocabulary's size (an id out of range aborts
the process), text becomes valid UTF-8 first. All calls are read-only on llama.cpp's side, so any
thread may make them, several at a time; they release the GIL. Rough cost: 1 MB of text 0.1–1 s, so
large inputs belong in a thread pool. Text of many characters that a SentencePiece vocabulary lacks
takes quadratic time (100,000 of them: 4 s): bound it before.
"""

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from services.engine.errors import ModelNotLoadable
from services.engine.fill_in import FillMarks
from services.engine.llama.library import LOG, lib
from services.engine.llama.tuning import ModelParams
from services.engine.options import ModelOptions

NO_TOKEN = -1
_INT32_MAX = 2**31 - 1
_PIECE_BYTES = 256


def to_utf8(text: str) -> bytes:
    """UTF-8 of any Python string: surrogate pairs are joined, lone surrogates become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


class Vocabulary:
    """Tokenizer and special tokens of one GGUF file. Raises ModelNotLoadable when it cannot be loaded.

    ids are ints in 0 ≤ id < n_vocab; the special ones are None where the model has none.
    """

    def __init__(
        self, path: str, *, is_verbose: bool = False, options: ModelOptions | None = None
    ) -> None:
        LOG.is_verbose = is_verbose
        if not Path(path).is_file():
            raise ModelNotLoadable(f"the model file {path} does not exist")
        params = ModelParams(options or ModelOptions(), is_vocab_only=True)
        self._model: Any = lib.llama_model_load_from_file(path.encode(), params.value)
        if not self._model:
            raise ModelNotLoadable(f"llama.cpp cannot load {path}: {LOG.last_error()}")
        self._vocab: Any = lib.llama_model_get_vocab(self._model)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self._vocab)
        self.vocab_type: int = lib.llama_vocab_type(self._vocab)
        if self.vocab_type == lib.LLAMA_VOCAB_TYPE_NONE or not self.n_vocab:
            self.close()
            raise ModelNotLoadable(f"{path} has no vocabulary")

    def close(self) -> None:
        """Free the model; no other call may follow or be under way."""
        if self._model:
            lib.llama_model_free(self._model)
        self._model = self._vocab = None

    # ---- special tokens

    def _special(self, token: Any) -> int | None:
        return token if 0 <= token < self.n_vocab else None

    @property
    def fill_marks(self) -> FillMarks:
        """The marks around a gap that is to be filled in."""
        return FillMarks(
            prefix=self._special(lib.llama_vocab_fim_pre(self._vocab)),
            suffix=self._special(lib.llama_vocab_fim_suf(self._vocab)),
            middle=self._special(lib.llama_vocab_fim_mid(self._vocab)),
            repository=self._special(lib.llama_vocab_fim_rep(self._vocab)),
            file=self._special(lib.llama_vocab_fim_sep(self._vocab)),
        )

    @cached_property
    def bos(self) -> int | None:
        return self._special(lib.llama_vocab_bos(self._vocab))

    @cached_property
    def eos(self) -> int | None:
        return self._special(lib.llama_vocab_eos(self._vocab))

    @cached_property
    def eot(self) -> int | None:
        return self._special(lib.llama_vocab_eot(self._vocab))

    @cached_property
    def adds_bos(self) -> bool:
        """Whether `add_special` puts the first token in front."""
        return bool(lib.llama_vocab_get_add_bos(self._vocab))

    def first_ids(self) -> tuple[int, ...]:
        """What `add_special` puts in front of a text: one id, or none."""
        return (self.bos,) if self.adds_bos and self.bos is not None else ()

    @cached_property
    def adds_eos(self) -> bool:
        return bool(lib.llama_vocab_get_add_eos(self._vocab))

    @property
    def eog(self) -> tuple[int, ...]:
        """Every id that ends a generation, ascending."""
        return self._eog

    @cached_property
    def _eog(self) -> tuple[int, ...]:
        ids = range(self.n_vocab)
        return tuple(i for i in ids if lib.llama_vocab_is_eog(self._vocab, i))

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        ids = {token for token in (self.bos, self.eos, self.eot, *self._eog) if token is not None}
        control = (token for token in ids if lib.llama_vocab_is_control(self._vocab, token))
        return tuple(
            filter(None, (self.piece(token).decode("utf-8", "replace") for token in control))
        )

    @property
    def markers(self) -> tuple[str, ...]:
        """Names of the control tokens that begin and end turns: each in a text is a token of its own."""
        return self._markers

    @property
    def longest_piece_bytes(self) -> int:
        """No token stands for more bytes than this: `bytes / longest` bounds a text's tokens."""
        return self._longest_piece_bytes

    @cached_property
    def _longest_piece_bytes(self) -> int:
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        return max(abs(self._read_piece(i, buffer)) for i in range(self.n_vocab)) or 1

    # ---- text to ids

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Ids of `text`. add_special: BOS (and EOS) as the model wants them. parse_special: names of
        control tokens in the text become those tokens. Raises ValueError beyond 2 GB of text."""
        data = to_utf8(text)
        if len(data) > _INT32_MAX - 16:
            raise ValueError("the text is too long")
        room = len(data) + 2
        n, ids = self._tokenize(data, room, add_special, parse_special)
        if n < 0:
            n, ids = self._tokenize(data, -n, add_special, parse_special)
        return tuple(ids[: max(n, 0)])

    def _tokenize(self, data: bytes, room: int, add_special: bool, parse_special: bool):
        ids = (lib.llama_token * room)()
        n = lib.llama_tokenize(self._vocab, data, len(data), ids, room, add_special, parse_special)
        return n, ids

    # ---- ids to text

    def is_valid(self, ids: Sequence[int]) -> bool:
        """Whether every id is in the vocabulary."""
        return not ids or (min(ids) >= 0 and max(ids) < self.n_vocab)

    def _check(self, ids: Sequence[int]) -> None:
        if not self.is_valid(ids):
            raise ValueError(f"token ids must be between 0 and {self.n_vocab - 1}")

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """The bytes of one token; those of control tokens are empty unless `special`.

        Raises ValueError for an id out of range.
        """
        self._check((token,))
        buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        n = self._read_piece(token, buffer, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = self._read_piece(token, buffer, special)
        return buffer.raw[:n]

    def _read_piece(self, token: int, buffer, special: bool = True) -> int:
        return lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)

    def pieces(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id, control tokens by name. Raises ValueError for an id out of range."""
        self._check(ids)
        known = {token: self.piece(token) for token in set(ids)}
        return tuple(known[token] for token in ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text that `ids` were made from (control tokens by name); bytes that are no UTF-8 become
        U+FFFD. Raises ValueError for an id out of range."""
        self._check(ids)
        array = (lib.llama_token * len(ids))(*ids)
        n, buffer = self._detokenize(array, max(16, 8 * len(ids)))
        if n < 0:
            n, buffer = self._detokenize(array, -n)
        return buffer.raw[: max(n, 0)].decode("utf-8", "replace")

    def _detokenize(self, array, room: int):
        buffer: Any = ctypes.create_string_buffer(room)
        n = lib.llama_detokenize(self._vocab, array, len(array), buffer, room, False, True)
        return n, buffer

    # ---- the model

    @property
    def n_params(self) -> int:
        return lib.llama_model_n_params(self._model)

    @property
    def n_bytes(self) -> int:
        """Of all tensors."""
        return lib.llama_model_size(self._model)


def ftype_name(file_type: int) -> str:
    """llama.cpp's name of `general.file_type`, for example "Q4_1" or "all F32"."""
    name = lib.llama_ftype_name(file_type)
    return name.decode() if name else ""
