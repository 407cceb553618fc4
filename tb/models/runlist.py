"""Runlists in memory, and the result of loading their bytes (HOST-7, spec 3.4).

The bytes are written and parsed here, from the specification alone.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from signalbox.hw.runlists import RunlistError

__all__ = ["BYTES", "Reading", "Word", "channel_entry", "group_entry", "read_list"]

BYTES = 16
"""Bytes per entry."""

MOST = 128
"""Maximum number of channels of a TSG."""


@dataclass(frozen=True)
class Word:
    """A TSG of a list; `channels` has one bit per channel."""

    tsgid: int
    timeout: int
    scale: int
    channels: int


@dataclass
class Reading:
    """Result of reading a list.

    Members
    -------
    words : complete TSGs, in order; of a bad list, those before the bad entry.
    error, entry : cause for which the list is refused (NONE if it is good), and the number of the
        entry reported with it.
    looked : number of entries that must be read.
    start : number of the TSG that has the first turn.
    channels : mask of the channels that are in a TSG.
    """

    words: list[Word] = field(default_factory=list)
    error: RunlistError = RunlistError.NONE
    entry: int = 0
    looked: int = 0
    start: int = 0
    channels: int = 0


def group_entry(
    length: int, tsgid: int = 0, timeout: int = 0, scale: int = 0, noise: int = 0
) -> bytes:
    """Entry of 16 bytes: header of a TSG. `noise` : supplies the bits without a meaning."""
    meaning = 0xFFF << 64 | 0xFF << 32 | 0xFF << 24 | 0xF << 16 | 1
    value = tsgid << 64 | length << 32 | timeout << 24 | scale << 16 | 1
    return (noise & ~meaning | value).to_bytes(BYTES, "little")


def channel_entry(chid: int, runqueue: int = 0, noise: int = 0) -> bytes:
    """Entry of 16 bytes: channel of a TSG. `noise` : supplies the other bits, such as pointers and
    targets."""
    meaning = 0xFFF << 64 | 0b11
    return (noise & ~meaning | chid << 64 | runqueue << 1).to_bytes(BYTES, "little")


def read_list(
    content: bytes,
    offset: int,
    *,
    channels: int,
    room: int,
    unreadable: Collection[int] = (),
) -> Reading:
    """Read a list.

    Parameters
    ----------
    content : bytes of the entries.
    offset : number of the header entry of the TSG that has the first turn.
    channels : number of channels of the machine.
    room : maximum number of TSGs.
    unreadable : numbers of entries that memory does not return.
    """
    reading = Reading()
    heads: dict[int, int] = {}  # number of the TSG, by number of its header entry
    lacks = 0
    head = mask = 0
    for number in range(len(content) // BYTES):
        entry = content[BYTES * number : BYTES * (number + 1)]
        reading.looked = number + 1
        check = _bad_header if entry[0] & 1 else _bad_channel
        error = RunlistError.MEMORY if number in unreadable else RunlistError.NONE
        error = error or check(entry, bool(lacks), len(reading.words) == room, channels)
        if error:
            reading.error, reading.entry = error, number
            return reading
        if entry[0] & 1:
            heads[number] = len(reading.words)
            head, lacks, mask = number, entry[4], 0
            continue
        mask |= 1 << _low12(entry)
        lacks -= 1
        if not lacks:
            reading.words.append(_word(content[BYTES * head :], mask))
            reading.channels |= mask
    count = len(content) // BYTES
    if lacks:
        reading.error, reading.entry = RunlistError.OVERFLOW, count
    elif offset not in (heads or {0: 0}):
        reading.error, reading.entry = RunlistError.EXPECTED_TSG, offset
    else:
        reading.start = heads.get(offset, 0)
    return reading


def _bad_header(entry: bytes, inside: bool, full: bool, channels: int) -> RunlistError:
    if inside:
        return RunlistError.EXPECTED_CHID
    if entry[4] == 0:
        return RunlistError.ZERO_LENGTH
    if entry[4] > MOST:
        return RunlistError.MAX_EXCEEDED
    return RunlistError.ROOM if full else RunlistError.NONE


def _bad_channel(entry: bytes, inside: bool, full: bool, channels: int) -> RunlistError:
    if not inside:
        return RunlistError.EXPECTED_TSG
    if entry[0] & 2:
        return RunlistError.INVALID_RUNQUEUE
    return RunlistError.CHANNEL if _low12(entry) >= channels else RunlistError.NONE


def _word(header: bytes, mask: int) -> Word:
    return Word(tsgid=_low12(header), timeout=header[3], scale=header[2] & 0xF, channels=mask)


def _low12(entry: bytes) -> int:
    """Bits 11:0 of dword 2."""
    return entry[8] | (entry[9] & 0xF) << 8
