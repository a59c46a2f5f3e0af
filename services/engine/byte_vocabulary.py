"""A vocabulary without a model: every byte is a token, and so are some words. Pure Python.

Serves a simulated decoder that was given no GGUF file. It does what `llama.vocabulary.Vocabulary`
does, so nobody can tell them apart but by their size.
"""

import re
from collections.abc import Iterator, Sequence

from services.engine.fill_in import FillMarks

N_BYTES = 256
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
_TEXT = """
{word}
a about after again all always an and another any are as ask at away back be because been
before began better big black blue boat both boy bring but by call came can carry change
child city clear close cold come could country cut day did different do does done door
down draw dream dry each early earth easy eat end even ever every eye face fall far fast
father feel few field find fine fire first fish five fly follow food for form found four
friend from front full garden gave get girl give go gold good great green ground grow had
half hand hard has have he head hear heart help her here high hill him his hold home horse
hot hour house how idea if in into is it its just keep kind king knew know land large last
late laugh learn leave left less let letter life light like line listen little live long
look love low made make man many map mark may me mean might mile mind moon more morning
most mother mountain move much music must my name near need never new next night no north
not note nothing now number of off often old on once one only open or other our out over
own page paper part pass past people person picture piece place plain plan plant play
point port power press problem pull put question quick rain ran reach read real red rest
right river road rock room round run said sail same saw say school sea second see seem
set she ship short should show side sing six size sleep slow small snow so some song soon
sound south stand star start state stay step still stone stop story street strong such
sun sure table take talk tell ten than that the their them then there these they thing
think this those thought three through time to together told too took top town travel
tree true try turn two under until up upon us use very voice wait walk want warm was watch
water way we week well went were west what wheel when where which while white who whole
why wild will wind winter wish with woman wonder wood word work world would write year
yellow yes yet you young your
"""
WORDS = tuple(f" {word}" for word in _TEXT.split())
BOS, EOS = N_BYTES, N_BYTES + 3
FIRST_WORD = N_BYTES + len(SPECIAL)
_PIECES = (
    *(bytes([byte]) for byte in range(N_BYTES)),
    *(text.encode() for text in SPECIAL),
    *(text.encode() for text in WORDS),
)
_ID_OF_WORD = {_PIECES[i]: i for i in range(FIRST_WORD, len(_PIECES))}
_RUNS = re.compile(rb" [a-z]+|.", re.DOTALL)
_MARKERS = re.compile("|".join(map(re.escape, SPECIAL)))
N_CTX_TRAIN = 32_768
"""Tokens that a model with this vocabulary would have been trained on."""
TYPE_BYTE_LEVEL = 2
"""llama.cpp's number of byte-level vocabularies."""


class ByteVocabulary:
    """The interface of `llama.vocabulary.Vocabulary`. Thread-safe, no state."""

    n_vocab = len(_PIECES)
    vocab_type = TYPE_BYTE_LEVEL
    bos: int | None = BOS
    eos: int | None = EOS
    eot: int | None = EOS
    fill_marks = FillMarks()
    adds_bos = False
    adds_eos = False
    eog: tuple[int, ...] = (N_BYTES + 1, EOS)
    markers: tuple[str, ...] = SPECIAL
    longest_piece_bytes = max(map(len, _PIECES))
    n_params = 0
    n_bytes = 0

    def first_ids(self) -> tuple[int, ...]:
        """A text begins with none."""
        return ()

    def close(self) -> None:
        """Nothing to free."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Ids of `text`; a lone surrogate is U+FFFD. add_special: changes nothing here."""
        del add_special
        parts = _split(text) if parse_special else [text]
        return tuple(token for part in parts for token in _ids(part, parse_special))

    def is_valid(self, ids: Sequence[int]) -> bool:
        """Whether every id is in the vocabulary."""
        return not ids or (min(ids) >= 0 and max(ids) < self.n_vocab)

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """The bytes of one token; those of control tokens are empty unless `special`.

        Raises ValueError for an id out of range.
        """
        if not self.is_valid((token,)):
            raise ValueError(f"token ids must be between 0 and {self.n_vocab - 1}")
        is_control = N_BYTES <= token < FIRST_WORD
        return b"" if is_control and not special else _PIECES[token]

    def pieces(self, ids: Sequence[int]) -> tuple[bytes, ...]:
        """The bytes of each id, control tokens by name. Raises ValueError for an id out of range."""
        return tuple(self.piece(token) for token in ids)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD. Raises ValueError."""
        return b"".join(self.pieces(ids)).decode("utf-8", "replace")


def _split(text: str) -> Iterator[str]:
    """The text in pieces: names of control tokens, and what stands between them."""
    at = 0
    for match in _MARKERS.finditer(text):
        yield text[at : match.start()]
        yield match[0]
        at = match.end()
    yield text[at:]


def _ids(text: str, parse_special: bool) -> Iterator[int]:
    if parse_special and text in SPECIAL:
        yield N_BYTES + SPECIAL.index(text)
        return
    for run in _RUNS.findall(_utf8(text)):
        word = _ID_OF_WORD.get(run)
        if word is None:
            yield from run
        else:
            yield word


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
