"""The GGUF header: small good files, damaged ones, the real one that the tests carry."""

import io
import struct
from pathlib import Path

import pytest

from services.gguf import Array, NotGguf, count_weights, read_header
from services.models.files import plain

MODEL = Path(__file__).resolve().parents[1] / "models" / "stories-tiny.gguf"


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def gguf(*pairs: bytes, n_pairs: int | None = None, version: int = 3) -> bytes:
    n = len(pairs) if n_pairs is None else n_pairs
    return b"GGUF" + struct.pack("<IQQ", version, 5, n) + b"".join(pairs)


def header(data: bytes) -> dict[str, object]:
    return plain(read_header(io.BytesIO(data)))


def test_values_of_every_kind() -> None:
    words = struct.pack("<IQ", 8, 2) + text("a") + text("bc")
    numbers = struct.pack("<IQ", 4, 3) + struct.pack("<III", 1, 2, 3)
    nested = struct.pack("<IQ", 9, 1) + numbers
    found = header(
        gguf(
            pair("name", 8, text("tiny")),
            pair("layers", 4, struct.pack("<I", 6)),
            pair("epsilon", 6, struct.pack("<f", 0.5)),
            pair("is_good", 7, b"\x01"),
            pair("words", 9, words),
            pair("numbers", 9, numbers),
            pair("nested", 9, nested),
        )
    )
    assert found == {
        "gguf.version": 3,
        "gguf.n_tensors": 5,
        "name": "tiny",
        "layers": 6,
        "epsilon": 0.5,
        "is_good": True,
        "words": {"n": 2},
        "numbers": {"n": 3},
        "nested": {"n": 1},
    }


def test_a_real_file() -> None:
    with MODEL.open("rb") as file:
        found = read_header(file)
        n_weights = count_weights(file, found.n_tensors)
    assert found.metadata["general.architecture"] == "llama"
    tokens = found.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, Array)
    assert tokens.n > 100
    assert MODEL.stat().st_size / 8 < n_weights < MODEL.stat().st_size


def test_long_text_is_cut() -> None:
    found = header(gguf(pair("template", 8, text("x" * 5000))))
    assert len(str(found["template"])) == 200


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        b"GGML" + bytes(40),
        gguf(version=1),
        gguf(n_pairs=1),
        gguf(n_pairs=1 << 60),
        gguf(pair("k", 99, b"")),
        gguf(pair("k", 8, struct.pack("<Q", 1 << 40))),
        gguf(pair("k", 9, struct.pack("<IQ", 4, 1 << 40))),
        gguf(pair("k", 9, struct.pack("<IQ", 9, 1) * 50)),
        gguf(pair("k", 9, struct.pack("<IQ", 99, 1))),
        gguf(pair("k", 10, b"\x00")),
    ],
    ids=range(12),
)
def test_damage_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(NotGguf):
        header(data)


def test_every_cut_of_a_good_file_is_damage() -> None:
    whole = gguf(pair("name", 8, text("tiny")), pair("n", 4, struct.pack("<I", 6)))
    assert header(whole)
    for length in range(len(whole)):
        with pytest.raises(NotGguf):
            header(whole[:length])


def tensor(name: str, *shape: int) -> bytes:
    n = len(shape)
    return text(name) + struct.pack(f"<I{n}QIQ", n, *shape, 0, 0)


def test_the_weights_of_all_tensors_are_counted() -> None:
    file = io.BytesIO(tensor("a", 3, 4) + tensor("b", 5) + b"weights")
    assert count_weights(file, 2) == 17
    assert file.read() == b"weights"


@pytest.mark.parametrize("data", [tensor("a", 3)[:-1], text("a") + struct.pack("<I", 9)])
def test_a_damaged_tensor(data: bytes) -> None:
    with pytest.raises(NotGguf):
        count_weights(io.BytesIO(data), 1)
