"""Sets of numbers as bit masks, such as the value of a port with one bit per channel."""

from collections.abc import Iterable

__all__ = ["mask", "members"]


def mask(numbers: Iterable[int]) -> int:
    """Word in which the bits with these numbers are 1, and all others 0."""
    return sum(1 << number for number in {*numbers})


def members(word: int) -> frozenset[int]:
    """Numbers of the bits that are 1."""
    return frozenset(number for number in range(word.bit_length()) if word >> number & 1)
