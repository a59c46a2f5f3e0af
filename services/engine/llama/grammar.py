# pyright: basic
"""What grammars need of a vocabulary."""

import ctypes

from services.engine.grammar.constraint import Grammars
from services.engine.grammar.tokens import TokenTable
from services.engine.llama.context import Context
from services.engine.llama.library import lib, quick
from services.engine.llama.pieces import Pieces

_UNKNOWN, _CONTROL = 1, 8
_attributes = quick("llama_vocab_get_attr", [ctypes.c_void_p, ctypes.c_int32], ctypes.c_int32)


def grammars_of(context: Context, pieces: Pieces) -> Grammars:
    """The grammars of a decoder. The first one that is asked for takes as long as reading the whole
    vocabulary: about 0.2 s for 50,000 tokens."""

    def make_table() -> TokenTable:
        return TokenTable(pieces.all_special(), context.eog_ids)

    return Grammars(make_table, lambda text: _find_token(pieces.vocab, text))


def hidden_ids(pieces: Pieces) -> frozenset[int]:
    """Tokens whose text is not shown unless a request preserves them."""
    ids = range(pieces.n_vocab)
    return frozenset(i for i in ids if _attributes(pieces.vocab, i) & (_UNKNOWN | _CONTROL))


def _find_token(vocab: int, text: str) -> int | None:
    data = text.encode("utf-8", "replace")
    ids = (lib.llama_token * 2)()
    n = lib.llama_tokenize(vocab, data, len(data), ids, len(ids), False, True)
    return ids[0] if n == 1 else None
