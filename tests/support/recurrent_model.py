"""Writes a tiny model with a recurrent state (Mamba): random weights, bytes for a vocabulary."""

import random
import struct
from collections.abc import Iterable
from pathlib import Path

Shape = tuple[int, ...]

N_LAYERS, N_EMBD, N_INNER, N_STATE, N_RANK, N_CONV = 2, 32, 64, 8, 4, 4
TOKENS = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)))
KINDS = (2, 3, 3, *[6] * 256)
ALIGNMENT = 32
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5

METADATA: dict[str, int | float | str] = {
    "general.architecture": "mamba",
    "mamba.context_length": 4096,
    "mamba.embedding_length": N_EMBD,
    "mamba.feed_forward_length": 0,
    "mamba.block_count": N_LAYERS,
    "mamba.attention.head_count": 0,
    "mamba.attention.layer_norm_rms_epsilon": 1e-5,
    "mamba.ssm.conv_kernel": N_CONV,
    "mamba.ssm.inner_size": N_INNER,
    "mamba.ssm.state_size": N_STATE,
    "mamba.ssm.time_step_rank": N_RANK,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def shapes() -> dict[str, Shape]:
    found: dict[str, Shape] = {
        "token_embd.weight": (N_EMBD, len(TOKENS)),
        "output_norm.weight": (N_EMBD,),
    }
    for layer in range(N_LAYERS):
        found |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm.weight": (N_EMBD,),
                "ssm_in.weight": (N_EMBD, 2 * N_INNER),
                "ssm_conv1d.weight": (N_CONV, N_INNER),
                "ssm_conv1d.bias": (N_INNER,),
                "ssm_x.weight": (N_INNER, N_RANK + 2 * N_STATE),
                "ssm_dt.weight": (N_RANK, N_INNER),
                "ssm_dt.bias": (N_INNER,),
                "ssm_a": (N_STATE, N_INNER),
                "ssm_d": (N_INNER,),
                "ssm_out.weight": (N_INNER, N_EMBD),
            }.items()
        }
    return found


def write_model(path: Path) -> str:
    """Write it; its path as a string."""
    source, tensors = random.Random(7), shapes()
    pairs = [_pair(key, value) for key, value in METADATA.items()]
    pairs += [
        _array("tokenizer.ggml.tokens", STRING, (_text(token) for token in TOKENS)),
        _array("tokenizer.ggml.scores", F32, (struct.pack("<f", 0.0) for _ in TOKENS)),
        _array("tokenizer.ggml.token_type", I32, (struct.pack("<i", kind) for kind in KINDS)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs)
    data = b""
    for name, shape in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += _padded(_weights(name, shape, source))
    path.write_bytes(_padded(head) + data)
    return str(path)


def _weights(name: str, shape: Shape, source: random.Random) -> bytes:
    """A decays (it is negative), norms are 1, all else is small."""
    n = 1
    for size in shape:
        n *= size
    if name.endswith("norm.weight"):
        values = [1.0] * n
    elif name.endswith("ssm_a"):
        values = [-1.0 - i % N_STATE for i in range(n)]
    else:
        values = [source.gauss(0, 0.3) for _ in range(n)]
    return struct.pack(f"<{n}f", *values)


def _pair(key: str, value: float | str) -> bytes:
    match value:
        case str():
            return _text(key) + struct.pack("<I", STRING) + _text(value)
        case float():
            return _text(key) + struct.pack("<If", F32, value)
        case _:
            return _text(key) + struct.pack("<II", U32, value)


def _array(key: str, kind: int, items: Iterable[bytes]) -> bytes:
    packed = list(items)
    head = struct.pack("<IIQ", ARRAY, kind, len(packed))
    return _text(key) + head + b"".join(packed)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
