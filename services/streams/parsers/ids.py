"""Ids of tool calls that a model gave none. Pure: derived from the generation."""

from hashlib import sha256

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
N_CHARS = 32
"""As long as llama-server's, where the template demands no length."""


def call_id(seed: str, call: int, n_chars: int = 0) -> str:
    """Letters and digits. seed: what the ids of one choice are derived from."""
    number = int.from_bytes(sha256(f"{seed}/{call}".encode()).digest(), "big")
    chars: list[str] = []
    for _ in range(n_chars or N_CHARS):
        number, digit = divmod(number, len(ALPHABET))
        chars.append(ALPHABET[digit])
    return "".join(chars)
