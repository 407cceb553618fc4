"""Random runlists, and mutations of good ones."""

from collections.abc import Callable
from random import Random

from signalbox.tb.models.runlist import BYTES, channel_entry, group_entry

__all__ = ["MUTATIONS", "List", "heads", "random_group", "random_list"]

List = list[bytes]
"""Entries."""


def random_group(numbers: Random, channels: int, length: int) -> List:
    """A TSG with random channels and settings; bits without a meaning are random too."""
    tsgid, timeout, scale, noise = (numbers.getrandbits(bits) for bits in (12, 8, 4, 128))
    entries = [group_entry(length, tsgid, timeout, scale, noise)]
    for _ in range(length):
        chid, noise = numbers.randrange(channels), numbers.getrandbits(128)
        entries.append(channel_entry(chid, noise=noise))
    return entries


def random_list(numbers: Random, channels: int, groups: int) -> List:
    """A good list. Its TSGs are mostly small; few have 128 channels."""
    entries: List = []
    for _ in range(groups):
        length = 128 if numbers.random() < 0.03 else numbers.randint(1, 5)
        entries += random_group(numbers, channels, length)
    return entries


def heads(entries: List) -> list[int]:
    """Numbers of the headers; [0] of an empty list."""
    return [number for number, entry in enumerate(entries) if entry[0] & 1] or [0]


Mutation = Callable[[Random, List], List]


def flip(numbers: Random, entries: List) -> List:
    """Flip a bit of an entry."""
    place, bit = numbers.randrange(len(entries)), numbers.randrange(8 * BYTES)
    value = int.from_bytes(entries[place], "little") ^ 1 << bit
    return [*entries[:place], value.to_bytes(BYTES, "little"), *entries[place + 1 :]]


def relabel(numbers: Random, entries: List) -> List:
    """Flip a bit of a field that is checked."""
    place = numbers.randrange(len(entries))
    bit = numbers.choice((0, 1, *range(32, 40), *range(64, 76)))
    value = int.from_bytes(entries[place], "little") ^ 1 << bit
    return [*entries[:place], value.to_bytes(BYTES, "little"), *entries[place + 1 :]]


def resize(numbers: Random, entries: List) -> List:
    """Change the length of a TSG."""
    place = numbers.choice(heads(entries))
    entry = bytearray(entries[place])
    entry[4] = numbers.choice((0, entry[4] - 1, min(entry[4] + 1, 255), 128, 129, 255))
    return [*entries[:place], bytes(entry), *entries[place + 1 :]]


def exchange(numbers: Random, entries: List) -> List:
    """Exchange two entries."""
    one, two = (numbers.randrange(len(entries)) for _ in range(2))
    entries = [*entries]
    entries[one], entries[two] = entries[two], entries[one]
    return entries


def cut(numbers: Random, entries: List) -> List:
    """Remove the end of the list."""
    return entries[: numbers.randrange(len(entries))]


def extend(numbers: Random, entries: List) -> List:
    """Append further TSGs."""
    return entries + random_list(numbers, 1, numbers.randint(1, 3))


MUTATIONS: tuple[Mutation, ...] = (flip, relabel, relabel, resize, exchange, cut, extend)
