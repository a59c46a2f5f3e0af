"""Tokenizers of real GGUF files: counts, round trips, and what must not reach C."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.engine.errors import ModelNotLoadable
from services.engine.llama import legacy_template
from services.engine.llama.gguf import read_gguf
from services.engine.llama.vocabulary import Vocabulary, ftype_name, to_utf8
from services.gguf import Array
from tools.demo_model import demo_model

TINY = Path(__file__).parents[2] / "models" / "stories-tiny.gguf"
TEXTS = st.text(st.characters(), max_size=60)
"""Lone surrogates and NUL among them."""


@pytest.fixture(scope="module")
def tiny() -> Iterator[Vocabulary]:
    vocabulary = Vocabulary(str(TINY))
    yield vocabulary
    vocabulary.close()


@pytest.fixture(scope="module")
def smol() -> Iterator[Vocabulary]:
    path = demo_model()
    assert path is not None, "the demo model is missing: run `make setup`"
    vocabulary = Vocabulary(str(path))
    yield vocabulary
    vocabulary.close()


@pytest.fixture(scope="module")
def smol_lacks(smol: Vocabulary) -> set[int]:
    """Bytes without a token of their own."""
    pieces = {smol.piece(token) for token in range(smol.n_vocab)}
    return {byte for byte in range(256) if bytes([byte]) not in pieces}


def test_tiny_is_what_its_readme_says(tiny: Vocabulary) -> None:
    assert (tiny.n_vocab, tiny.bos, tiny.eos, tiny.eog) == (674, 1, 2, (2,))
    assert (tiny.adds_bos, tiny.adds_eos) == (True, False)
    assert (tiny.n_params, tiny.n_bytes) == (529_536, 2_118_144)


def test_smol_has_chat_tokens(smol: Vocabulary) -> None:
    assert smol.n_vocab == 49_152
    assert not smol.adds_bos
    assert smol.piece(1) == b"<|im_start|>"
    assert {"<|im_start|>", "<|im_end|>"} <= set(smol.markers)
    assert smol.eos in smol.eog


@pytest.mark.parametrize(
    ("text", "n_tokens"),
    [("I believe the meaning of life is", 18), ("", 1)],
)
def test_counts_of_llama_servers_tests(tiny: Vocabulary, text: str, n_tokens: int) -> None:
    ids = tiny.tokenize(text, add_special=True, parse_special=True)
    assert len(ids) == n_tokens
    assert ids[0] == tiny.bos
    assert tiny.detokenize(ids).removeprefix("<s>").strip() == text


def test_a_space_goes_before_the_first_word_only(tiny: Vocabulary) -> None:
    once = tiny.tokenize("the cat", add_special=False, parse_special=True)
    assert tiny.piece(once[0]).startswith(b" ")
    assert tiny.detokenize(once) == "the cat"


def test_control_tokens_are_parsed_only_when_asked(smol: Vocabulary) -> None:
    text = "<|im_start|>"
    assert smol.tokenize(text, add_special=False, parse_special=True) == (1,)
    assert len(smol.tokenize(text, add_special=False, parse_special=False)) > 1
    assert smol.piece(1, special=False) == b""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_any_text_survives_the_round_trip(tiny: Vocabulary, text: str) -> None:
    sent = to_utf8(text)
    ids = tiny.tokenize(text, add_special=False, parse_special=False)
    assert tiny.is_valid(ids)
    assert b"".join(tiny.pieces(ids)) == (b" " + sent if sent else b"")
    assert tiny.detokenize(ids) == sent.decode()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXTS)
def test_a_vocabulary_leaves_out_only_bytes_that_it_lacks(
    smol: Vocabulary, smol_lacks: set[int], text: str
) -> None:
    sent = to_utf8(text)
    known = bytes(byte for byte in sent if byte not in smol_lacks)
    ids = smol.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(smol.pieces(ids)) == known
    smol.detokenize(ids)


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 673), max_size=40))
def test_any_ids_have_a_text(tiny: Vocabulary, ids: list[int]) -> None:
    tiny.detokenize(ids)
    assert len(tiny.pieces(ids)) == len(ids)


@pytest.mark.parametrize("token", [-1, 674, 2**31, -(2**63), 10**30])
def test_an_id_out_of_range_never_reaches_c(tiny: Vocabulary, token: int) -> None:
    assert not tiny.is_valid([token])
    with pytest.raises(ValueError, match="between 0 and 673"):
        tiny.piece(token)
    with pytest.raises(ValueError, match="between 0 and 673"):
        tiny.detokenize([1, token])
    with pytest.raises(ValueError, match="between 0 and 673"):
        tiny.pieces([1, token])


def test_every_piece_is_within_the_longest(tiny: Vocabulary) -> None:
    lengths = [len(tiny.piece(token)) for token in range(tiny.n_vocab)]
    assert max(lengths) == tiny.longest_piece_bytes


def test_surrogates_are_joined_or_replaced() -> None:
    assert to_utf8("\ud83d\ude00") == "😀".encode()
    assert to_utf8("a\ud800b\udc00") == "a\ufffdb\ufffd".encode()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 64, b"no model at all"])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelNotLoadable):
        Vocabulary(str(path))
    with pytest.raises(ModelNotLoadable, match="is not a GGUF model file"):
        read_gguf(str(path))


def test_a_missing_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotLoadable, match="does not exist"):
        Vocabulary(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotLoadable, match="cannot read"):
        read_gguf(str(tmp_path / "none.gguf"))


def test_header_of_a_real_model(smol: Vocabulary) -> None:
    header = read_gguf(str(demo_model()))
    assert (header.architecture, header.n_ctx_train, header.n_embd) == ("llama", 8192, 576)
    assert header.n_params == smol.n_params
    assert ftype_name(header.number("general.file_type")) == "Q4_1"
    assert "<|im_start|>" in header.text("tokenizer.chat_template")
    assert header.metadata["tokenizer.ggml.tokens"] == Array(smol.n_vocab)
    assert 0 < header.n_header_bytes < header.n_file_bytes


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    at=st.integers(0, 3000), damage=st.binary(min_size=1, max_size=12), cut=st.integers(0, 20_000)
)
def test_a_damaged_header_is_read_or_refused(
    tmp_path: Path, at: int, damage: bytes, cut: int
) -> None:
    data = bytearray(TINY.read_bytes()[: cut or None])
    data[at : at + len(damage)] = damage
    path = tmp_path / "damaged.gguf"
    path.write_bytes(data)
    try:
        assert read_gguf(str(path)).n_file_bytes == len(data)
    except ModelNotLoadable as error:
        assert "damaged.gguf" in str(error)  # noqa: PT017


def test_llama_cpp_renders_known_templates() -> None:
    chat = [("system", "Be\0 good"), ("user", "Hi \ud800")]
    assert {"chatml", "llama3", "command-r"} <= set(legacy_template.builtin_names())
    assert legacy_template.render("chatml", chat, True) == (
        "<|im_start|>system\nBe good<|im_end|>\n<|im_start|>user\nHi \ufffd<|im_end|>\n<|im_start|>assistant\n"
    )
    assert legacy_template.render("{{ mystery }}", chat, True) is None
    assert legacy_template.render("chatml", [], False) == ""
    long = legacy_template.render("llama3", [("user", "x" * 100_000)], True)
    assert long is not None
    assert len(long) > 100_000
