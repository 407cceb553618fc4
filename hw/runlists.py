"""Runlists in memory: time-slice groups (TSGs) and their channels (HOST-7, spec 3.4).

The only definition of their layout. A list is a sequence of TSGs, each a `GroupEntry` followed by
`length` × `ChannelEntry`. The same TSG can be listed several times.

Of a channel's entry only its number counts: ring, USERD and address space are set in the registers
of the channel.

Source: NVIDIA open-gpu-doc, manuals/ampere/ga100/dev_ram.ref.txt (NV_RAMRL_ENTRY_*).
"""

from amaranth.lib import data, enum

__all__ = [
    "ENTRY_BYTES",
    "MOST_CHANNELS",
    "MOST_ENTRIES",
    "ChannelEntry",
    "GroupEntry",
    "RunlistError",
]

ENTRY_BYTES = 16
"""Bytes per entry."""

MOST_CHANNELS = 128
"""Most channels of a TSG."""

MOST_ENTRIES = (1 << 16) - 1
"""Most entries of a list."""


class GroupEntry(data.Struct):
    """Header of a TSG. `kind` is 1. Time slice: `timeout` << `scale` units of 1,024 ns; `timeout` 0
    counts as 1. `length` channels follow, 1 … 128."""

    kind: 1
    reserved0: 3
    gfid: 8
    reserved1: 4
    scale: 4
    reserved2: 4
    timeout: 8
    length: 8
    reserved3: 24
    tsgid: 12
    reserved4: 52


class ChannelEntry(data.Struct):
    """Channel of a TSG. `kind` is 0. There is one runqueue, 0."""

    kind: 1
    runqueue: 1
    reserved0: 2
    inst_target: 2
    userd_target: 2
    userd_lo: 24
    userd_hi: 32
    chid: 12
    inst_lo: 20
    inst_hi: 32


class RunlistError(enum.IntEnum, shape=4):
    """Reason for refusing a runlist. Numbers up to 6 are public."""

    NONE = 0
    ZERO_LENGTH = 1
    """A TSG without channels."""
    MAX_EXCEEDED = 2
    """A TSG of more than 128 channels."""
    OVERFLOW = 3
    """The list ends inside a TSG."""
    EXPECTED_CHID = 4
    """A header inside a TSG."""
    EXPECTED_TSG = 5
    """A channel outside any TSG, or OFFSET names no header."""
    INVALID_RUNQUEUE = 6
    """A channel of a runqueue other than 0."""
    CHANNEL = 7
    """A channel that was not built."""
    ROOM = 8
    """More TSGs than RUNLIST_ENTRIES, or no runlists at all."""
    MEMORY = 9
    """The list cannot be read: a bus error, or no memory there."""
    PENDING = 10
    """Another list was being read."""
