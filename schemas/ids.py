"""Identifiers. Generation ids are UUIDv7 (time-ordered); derived ones are UUIDv8."""

import hashlib
import os
import re
import time
import uuid


def new_generation_id() -> str:
    """A new UUIDv7 (RFC 9562) in canonical text form: 48 bits of Unix milliseconds, then random."""
    ms = time.time_ns() // 1_000_000
    rand = int.from_bytes(os.urandom(10), "big")
    value = (ms & (2**48 - 1)) << 80 | 0x7 << 76 | (rand >> 64 & 0xFFF) << 64
    value |= 0b10 << 62 | (rand & (2**62 - 1))
    return str(uuid.UUID(int=value))


def derived_generation_id(*parts: str) -> str:
    """The UUIDv8 of `parts`: equal parts (caller, idempotency key) give the equal id."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    value = int.from_bytes(digest[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return str(uuid.UUID(int=value))


def is_generation_id(text: str) -> bool:
    """Whether `text` is a canonical UUID, and so safe inside a subject."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def generation_id_of(shown: str, prefix: str = "") -> str | None:
    """The generation id that an id in an answer (`resp_<32 digits>`) derives from; None if it is none.

    prefix: what must stand before the digits.
    """
    digits = shown.removeprefix(prefix)
    if not shown.startswith(prefix) or re.fullmatch("[0-9a-f]{32}", digits) is None:
        return None
    return str(uuid.UUID(digits))


def new_short_id(prefix: str) -> str:
    """`prefix` and 10 random hexadecimal digits, for engines and hosts; safe inside a subject."""
    return f"{prefix}{os.urandom(5).hex()}"
