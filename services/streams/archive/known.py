"""What a sweep wants to know of an archived generation."""

from typing import NamedTuple


class Archived(NamedTuple):
    """ended_at_ms: Unix milliseconds. is_kept: its log can be read of the archive. is_erased: on
    somebody's order it cannot, nor shall it be anywhere else."""

    ended_at_ms: int
    is_kept: bool
    is_erased: bool = False
