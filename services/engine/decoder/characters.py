"""Where UTF-8 characters end. Pure."""


def is_whole(piece: bytes) -> bool:
    """Whether a piece does not end inside a character (judged by its last character alone)."""
    for n in range(1, min(4, len(piece)) + 1):
        byte = piece[-n]
        if byte & 0xC0 != 0x80:
            return n >= _n_bytes(byte)
    return not piece


def _n_bytes(first: int) -> int:
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
