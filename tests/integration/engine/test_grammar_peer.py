"""Our grammars against llama.cpp's own: at every step both allow the same tokens of real vocabularies."""

import ctypes
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from services.engine.grammar.constraint import Constraint, Grammar
from services.engine.grammar.gbnf import parse
from services.engine.grammar.json_schema import to_grammar
from services.engine.grammar.tokens import TokenTable
from services.engine.llama.library import lib
from tests.support.decoder_client import STORIES
from tests.support.platform import demo_model

JSON = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "car"]},
        "n": {"type": "integer", "minimum": -5, "maximum": 120},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
    },
    "required": ["kind"],
}
GRAMMARS = [
    JSON,
    to_grammar(SCHEMA),
    'root ::= ("x"*)* "y"',
    'root ::= [a-z]{2,5} (" " [a-z]{2,5}){0,3} "."',
    'root ::= a | b\na ::= "foo" c\nb ::= "fo" [^\\n]+ "\\n"\nc ::= a | "" | [à-ÿ]+',
    'root ::= "1. " .{3,} "\\n"',
    'root ::= "ab"{2,3} "x"? ("q" | "r"){0}',
    "root ::= [日-本é]+",
    'root ::= "a" [^"]{0,100} "!"',
    'root ::= ([a-z ]{17,40} "." " "?){2,3}',
]
NEVER = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Bytes of no text at all; llama.cpp lets some of them pass."""


class Peer:
    """A vocabulary, and llama.cpp's grammar sampler over it."""

    def __init__(self, path: str) -> None:
        params = lib.llama_model_default_params()
        params.vocab_only = True
        self._model = lib.llama_model_load_from_file(path.encode(), params)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self._vocab)
        self.ends = [i for i in range(self.n_vocab) if lib.llama_vocab_is_eog(self._vocab, i)]
        self.table = TokenTable([self._piece(i) for i in range(self.n_vocab)], self.ends)
        self.sampler: Any = None

    def start(self, grammar: str) -> None:
        self.stop()
        self.sampler = lib.llama_sampler_init_grammar(self._vocab, grammar.encode(), b"root")
        assert self.sampler, "llama.cpp takes the grammar"

    def allowed(self) -> list[int]:
        data = (lib.llama_token_data * self.n_vocab)()
        rows = np.ctypeslib.as_array(data)
        rows["id"], rows["logit"] = np.arange(self.n_vocab), 1.0
        array = lib.llama_token_data_array(data, self.n_vocab, -1, False)
        lib.llama_sampler_apply(self.sampler, ctypes.byref(array))
        found = np.flatnonzero(rows["logit"] > 0).tolist()
        return [token for token in found if not NEVER.intersection(self.table.pieces[token])]

    def accept(self, token: int) -> None:
        lib.llama_sampler_accept(self.sampler, token)

    def stop(self) -> None:
        if self.sampler:
            lib.llama_sampler_free(self.sampler)
        self.sampler = None

    def close(self) -> None:
        self.stop()
        lib.llama_model_free(self._model)

    def _piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        n = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[:n]


@pytest.fixture(scope="module", params=["tiny", "smol"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    found = Peer(STORIES if request.param == "tiny" else str(demo_model()))
    yield found
    found.close()


@pytest.mark.parametrize("grammar", GRAMMARS, ids=[g.strip()[:40] for g in GRAMMARS])
@pytest.mark.parametrize("seed", [1, 2])
def test_both_allow_the_same_tokens(peer: Peer, grammar: str, seed: int) -> None:
    rnd = random.Random(seed)
    ours = Constraint(Grammar(parse(grammar), peer.table))
    peer.start(grammar)
    for _ in range(12):
        allowed = ours.allowed().tolist()
        assert allowed == peer.allowed()
        short = [t for t in allowed if t not in peer.ends and _is_short_text(peer.table.pieces[t])]
        if not short:
            return
        token = rnd.choice(short)
        assert ours.allows(token)
        ours.accept(token)
        peer.accept(token)


def _is_short_text(piece: bytes) -> bool:
    """Whole characters: llama.cpp also allows some that are written with too many bytes."""
    return len(piece) < 4 and "\ufffd" not in piece.decode("utf-8", "replace")
