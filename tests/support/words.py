"""A vocabulary without a model: one token per character of a small alphabet."""

ALPHABET = "".join(map(chr, range(32, 127)))
BOS, EOS, N_VOCAB = 0, 1, 2 + len(ALPHABET)


class CharacterVocabulary:
    """Ids: 0 begins a text, 1 ends it, then the printable ASCII characters."""

    n_vocab = N_VOCAB
    eog = (EOS,)
    markers = ("<end>",)
    longest_piece_bytes = 1

    def __init__(self) -> None:
        self.n_tokenized = 0

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        self.n_tokenized += 1
        ids = tuple(2 + ALPHABET.index(c) for c in text if c in ALPHABET)
        return (BOS, *ids) if add_special else ids

    def detokenize(self, ids: tuple[int, ...]) -> str:
        return "".join(ALPHABET[i - 2] if i > 1 else "<s>" for i in ids)
