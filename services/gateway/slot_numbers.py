"""Slots of several engines under one numbering, as clients see them. Pure.

Engine `ordinal` has the numbers from ordinal × n_slots on. Numbers wrap around, as llama-server's do.
"""

from collections.abc import Collection
from typing import NamedTuple


class SlotAddress(NamedTuple):
    """One slot of one engine."""

    ordinal: int
    slot: int


def number_of(address: SlotAddress, n_slots: int) -> int:
    """n_slots: of each engine."""
    return address.ordinal * n_slots + address.slot


def address_of(number: int, n_slots: int, ordinals: Collection[int]) -> SlotAddress:
    """Where slot `number` is. ordinals: of the engines that are there, at least one."""
    number %= (max(ordinals) + 1) * n_slots
    return SlotAddress(number // n_slots, number % n_slots)
