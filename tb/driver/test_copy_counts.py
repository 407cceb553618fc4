"""Counts of a channel's copies, derived from its commands and METHODS."""

from signalbox.driver.channel.copy_counts import CopyCounts
from signalbox.driver.commands.disassembler import MethodReader
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.methods import HostMethod

SLOT, NEXT = 0xFF_FFFF_0000, 0xFF_FFFF_0010
OTHER = 0xFF_FFFF_0020
"""Two counting semaphores, and a non-counting one."""

PER_ADDITION = 5
"""Methods of one semaphore operation."""

ADD = Pushbuffer().add(SLOT, 1).dwords[-1]
"""SEM_EXECUTE data of an addition."""


def submitted(*parts: Pushbuffer) -> CopyCounts:
    counts, reader = CopyCounts((SLOT, NEXT)), MethodReader()
    for entry, part in enumerate(parts):
        counts.submitted(entry, reader.read(part.dwords))
    return counts


def test_from_count_to_end():
    """A copy is outstanding from the execution of its increment to that of its decrement."""
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
    """A refused increment does not count if another method was executed in its place."""
    for word, wanted in ((ADD, {SLOT: 1}), (0, {})):
        counts = submitted(Pushbuffer().add(SLOT, 1))
        counts.resumed(PER_ADDITION - 1, HostMethod.SEM_EXECUTE, word)
        assert counts.outstanding(PER_ADDITION) == wanted
    counts = submitted(Pushbuffer().add(SLOT, 1))
    counts.resumed(PER_ADDITION - 1, HostMethod.NOP, ADD)
    assert counts.outstanding(PER_ADDITION) == {}


def test_parameters_of_an_earlier_submission():
    """Semaphore parameters of an earlier submission still apply: a decrement that relies on them
    counts."""
    fewer = Pushbuffer().host(HostMethod.SEM_PAYLOAD_LO, (1 << 32) - 1)
    fewer.host(HostMethod.SEM_EXECUTE, ADD)
    counts = submitted(Pushbuffer().add(SLOT, 1), Pushbuffer(), fewer)
    assert counts.outstanding(PER_ADDITION + 1) == {SLOT: 1}
    assert counts.outstanding(PER_ADDITION + 2) == {}


def test_restarted():
    """Counts from before a start are outstanding until they are taken back, or forgotten; before
    that is submitted, METHODS may be that from before the start."""
    counts = submitted(Pushbuffer().host(HostMethod.NOP).add(SLOT, 3).add(NEXT, 1))
    counts.restarted(2 * PER_ADDITION + 1)
    for executed in (2 * PER_ADDITION + 1, 0):
        assert counts.outstanding(executed) == {SLOT: 3, NEXT: 1}
    counts.submitted(0, MethodReader().read(Pushbuffer().add(SLOT, -3).dwords))
    for executed in (0, PER_ADDITION - 1):
        assert counts.outstanding(executed) == {SLOT: 3, NEXT: 1}
    assert counts.outstanding(PER_ADDITION) == {NEXT: 1}
    counts.forget(NEXT)
    assert counts.outstanding(PER_ADDITION) == {}
