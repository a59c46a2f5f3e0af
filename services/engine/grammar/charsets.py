"""Sets of code points as sorted, separate, inclusive ranges."""

from bisect import bisect_right
from collections.abc import Iterable

MAX_CODE_POINT = 0x10FFFF
Range = tuple[int, int]
CharSet = tuple[Range, ...]

EVERYTHING: CharSet = ((0, MAX_CODE_POINT),)


def charset(ranges: Iterable[Range]) -> CharSet:
    """The union of ranges; those that run backwards are empty."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def of_text(text: str) -> CharSet:
    """The characters of a text."""
    return charset((ord(char), ord(char)) for char in text)


def complement(chars: CharSet) -> CharSet:
    """Every other code point."""
    found: list[Range] = []
    start = 0
    for low, high in chars:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE_POINT:
        found.append((start, MAX_CODE_POINT))
    return tuple(found)


def intersection(first: CharSet, second: CharSet) -> CharSet:
    found: list[Range] = []
    i = j = 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low <= high:
            found.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def difference(first: CharSet, second: CharSet) -> CharSet:
    return intersection(first, complement(second))


def has(chars: CharSet, code_point: int) -> bool:
    return overlaps(chars, code_point, code_point)


def overlaps(chars: CharSet, low: int, high: int) -> bool:
    """Whether any member lies between low and high. Logarithmic."""
    at = bisect_right(chars, (high, MAX_CODE_POINT + 1)) - 1
    return at >= 0 and chars[at][1] >= low
