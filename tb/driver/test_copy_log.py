"""Identification of a failed copy from METHODS, LAUNCH_DMA and an address."""

import pytest

from signalbox.driver.channel.copy_log import CopyLog, LaunchedCopy
from signalbox.driver.commands.disassembler import MethodReader
from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import CeMethod, HostMethod, LaunchTransfer, RemapSource, TertOp

PIPELINED = LaunchTransfer.PIPELINED
READ, WRITE, SEMAPHORE = Cause.COPY_READ_FAULT, Cause.COPY_WRITE_FAULT, Cause.COPY_SEMAPHORE
PER_COPY = 6
"""Methods of one copy."""


def submitted(*parts: Pushbuffer, subchannel: int = 4, object_class: int = 0xC7B5) -> CopyLog:
    log, reader = CopyLog(), MethodReader()
    for entry, part in enumerate([Pushbuffer().set_object(subchannel, object_class), *parts]):
        log.submitted(entry, reader.read(part.dwords))
    return log


def one(
    log: CopyLog, executed: int, word: int = 0x182, va: int = 0x1000, cause: Cause = WRITE
) -> LaunchedCopy:
    found = log.failed(executed, word, va, cause)
    assert found is not None
    return found


def test_last_of_those_that_wait_for_each_other():
    """State of later copies, set while the copy runs, does not count."""
    log = submitted(*(Pushbuffer().copy(0x1000, n << 20, n) for n in range(1, 5)))
    for number in range(1, 5):
        for more in range(PER_COPY):
            found = one(log, 1 + number * PER_COPY + more)
            assert found.sources == [(number << 20, number)]
            assert found.destinations == [(0x1000, number)]
    assert log.failed(1, 0x182, 0x1000, WRITE) is None


def test_pipelined():
    """Of the copies that may be in flight, the oldest matching one is found, then the next."""
    log = submitted(
        Pushbuffer().copy(0x1000, 0x9000, 1, transfer=PIPELINED),
        Pushbuffer().copy(0x1000, 0x2000, 2),
        Pushbuffer().copy(0x1000, 0x3000, 3, transfer=PIPELINED),
        Pushbuffer().copy(0x1000, 0x4000, 4, transfer=PIPELINED),
    )
    end, word = 1 + 4 * PER_COPY, 0x181
    first = one(log, end, word)
    assert first.sources == [(0x3000, 3)]
    assert one(log, end, word, 0x4FFF, READ).sources == [(0x4000, 4)]
    log.over(first)
    assert one(log, end, word).sources == [(0x4000, 4)]
    assert log.failed(end, word, 0x9000, READ) is None, "that one has ended"


def test_replaced_and_malformed():
    """A launch replaced by a NOP is not a copy, a retried one is; malformed headers are not
    methods."""
    copies = [Pushbuffer().copy(0x1000, at, 4) for at in (0x2000, 0x3000)]
    log = submitted(copies[0], Pushbuffer().raw(0xC000_0000), copies[1])
    log.resumed(PER_COPY, CeMethod.LAUNCH_DMA, 0x182)
    assert one(log, 1 + PER_COPY).sources == [(0x2000, 4)]
    log.resumed(PER_COPY, HostMethod.NOP, 0x182)
    assert one(log, 1 + 2 * PER_COPY).sources == [(0x3000, 4)]
    assert log.failed(1 + PER_COPY, 0x182, 0x1000, WRITE) is None


def test_masked_copies():
    """Methods that a sub-device mask excludes are not counted, even in later submissions."""
    log = submitted(
        Pushbuffer().sub_devices(TertOp.SET_SUB_DEV_MASK, 2).copy(0x1000, 0x2000, 1),
        Pushbuffer().copy(0x1000, 0x2000, 2).sub_devices(TertOp.SET_SUB_DEV_MASK, 3),
        Pushbuffer().copy(0x1000, 0x3000, 3),
    )
    assert one(log, 1 + PER_COPY).sources == [(0x3000, 3)]


def test_equal_class():
    """Copies of class C6B5 are recognized like those of C7B5 (HOST-13)."""
    log = submitted(Pushbuffer().copy(0x1000, 0x2000, 9), object_class=0xC6B5)
    assert one(log, 1 + PER_COPY).sources == [(0x2000, 9)]


def test_other_objects():
    """Methods of subchannels without the copy class are ignored."""
    log = submitted(Pushbuffer().inc(3, 0x400, 0, 9, 0, 9).inc(3, 0x300, 0x182))
    assert log.failed(99, 0x182, 0, WRITE) is None


def test_old_ones_are_forgotten():
    log = submitted(*(Pushbuffer().copy(0x1000, 0, 1) for _ in range(100)))
    log.left(80)
    assert len(log._copies) == 16 + 21
    assert log.failed(1 + PER_COPY, 0x182, 0x1000, WRITE) is None
    assert one(log, 1 + 70 * PER_COPY).entry == 70


def test_lines_and_semaphore():
    commands = Pushbuffer().copy_2d(
        0x10_0000, 0x2000, (1 << 49) - 0x1000, 0x800, 0x100, 4, CopyFence(0x50_0010, 5)
    )
    launch = one(submitted(commands), 99, 0x386 | 2 << 3, 0x50_0000, SEMAPHORE)
    assert launch.destinations == [(0x10_0000 + line * 0x2000, 0x100) for line in range(4)]
    assert [start for start, _ in launch.sources] == [
        (1 << 49) - 0x1000,
        (1 << 49) - 0x800,
        0,
        0x800,
    ]
    assert (launch.semaphore, launch.payload) == (0x50_0010, 5)
    reached = {
        READ: (((1 << 49) - 1, 0xFFF), (0x1000, (1 << 49) - 0x1001, 0x10_0000, 0x50_0010)),
        WRITE: ((0x10_0000, 0x10_6FFF), (0x10_7000, 0xF_FFFF, 0xFFF, 0x50_0010)),
        SEMAPHORE: ((0x50_0000, 0x50_0FFF), (0x50_1000, 0x4F_FFFF, 0x10_0000, 0xFFF)),
    }
    for cause, (inside, outside) in reached.items():
        assert [launch.reaches(va, cause) for va in inside] == [True] * len(inside)
        assert not any(launch.reaches(va, cause) for va in outside)
        assert all(map(launch.touches, inside))
    assert not any(map(launch.touches, (0x1000, 0x10_7000, 0xF_FFFF, 0x50_1000, 0x4F_FFFF)))


def test_remapped():
    """Lines of a remapped copy have the bytes of its elements; a fill has no source."""
    swizzle = Pushbuffer().remap(
        RemapSource.SRC_Y, RemapSource.SRC_X, RemapSource.CONST_A, size=2, sources=2
    )
    swizzle.copy_2d(0x10_0000, 0x100, 0x20_0000, 0x200, 10, 2, remap=1)
    found = one(submitted(swizzle), 99, 0x782, 0x10_0000)
    assert found.sources == [(0x20_0000, 40), (0x20_0200, 40)]
    assert found.destinations == [(0x10_0000, 60), (0x10_0100, 60)]
    fill = one(submitted(swizzle, Pushbuffer().fill(0x1000, 1, 8, 0x201)), 99, 0x582, 0x1FFF)
    assert fill.sources == [] and fill.destinations == [(0x1000, 0x1008)]
    assert fill.reaches(0x2000, WRITE) and not fill.reaches(0x3000, WRITE)
    assert not any(fill.reaches(va, READ) for va in (0x2000, 0x20_0000))


@pytest.mark.parametrize("size", [1, 4096, 4097])
def test_pages(size: int):
    launch = one(submitted(Pushbuffer().copy(0x1F_F800, 0x9_0000, size)), 99, va=0x1F_F000)
    assert launch.reaches(0x20_0000, WRITE) == (size > 0x800)
    assert launch.reaches(0x20_1000, WRITE) == (size > 0x1800)
    assert not launch.touches(0), "the copy has no semaphore"
