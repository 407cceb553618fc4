"""Counts of a channel's copies, known from its commands and METHODS."""

from signalbox.driver.channel.copy_counts import CopyCounts
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.methods import HostMethod

SLOT, NEXT = 0xFF_FFFF_0000, 0xFF_FFFF_0010
OTHER = 0xFF_FFFF_0020
"""Two counting semaphores, and one that is not."""

PER_ADDITION = 5
"""Methods of one semaphore operation."""


def submitted(*parts: Pushbuffer) -> CopyCounts:
    counts = CopyCounts((SLOT, NEXT))
    for entry, part in enumerate(parts):
        counts.submitted(entry, part.dwords)
    return counts


def test_from_count_to_end():
    """A copy is outstanding once its increment has executed, until its decrement has."""
    commands = Pushbuffer().add(SLOT, 1).add(OTHER, 1).host(HostMethod.NOP).add(SLOT, -1)
    counts = submitted(commands)
    for executed in range(3 * PER_ADDITION + 2):
        wanted = PER_ADDITION <= executed <= 3 * PER_ADDITION
        assert counts.outstanding(executed) == ({SLOT: 1} if wanted else {})


def test_of_entries_that_were_left():
    """Entries that have executed keep their sum; two semaphores are separate."""
    counts = submitted(Pushbuffer().add(SLOT, 1), Pushbuffer().add(NEXT, 2), Pushbuffer())
    counts.left(1)
    assert counts.outstanding(PER_ADDITION) == {SLOT: 1}
    counts.left(2)
    assert counts.outstanding(2 * PER_ADDITION) == {SLOT: 1, NEXT: 2}


def test_replaced():
    """A refused increment in whose place another method was executed does not count."""
    counts = submitted(Pushbuffer().add(SLOT, 1))
    counts.replaced(PER_ADDITION - 1)
    assert counts.outstanding(PER_ADDITION) == {}


def test_restarted():
    """Counts from before a start are outstanding until they are taken back; METHODS may be that
    from before for a while."""
    counts = submitted(Pushbuffer().host(HostMethod.NOP).add(SLOT, 3))
    counts.restarted(PER_ADDITION + 1)
    counts.submitted(0, Pushbuffer().add(SLOT, -3).dwords)
    for executed in (PER_ADDITION + 1, 0, PER_ADDITION - 1):
        assert counts.outstanding(executed) == {SLOT: 3}
    assert counts.outstanding(PER_ADDITION) == {}
