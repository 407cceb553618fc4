"""Tests of `hw.copy.engine.CopyEngine` against the reference."""

import itertools

import cocotb

from signalbox.hw.config import VA_BITS
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.servers import BURST_BEATS
from signalbox.tb.units.copy.model import Copy
from signalbox.tb.units.copy.testbench import (
    BUS,
    CHUNK_BYTES,
    CONFIG,
    FAULT,
    NONE,
    READ_BUS,
    READ_FAULT,
    SEMAPHORE,
    WRITE_BUS,
    WRITE_FAULT,
    CopyTestbench,
)

BEAT = CONFIG.beat_bytes
ASIDS = CONFIG.asids
BURST = CHUNK_BYTES

RELEASES = [
    {"semaphore": 1, "semaphore_va": 0x1234, "payload": 0x89ABCDEF},
    {"semaphore": 1, "semaphore_va": (1 << VA_BITS) - 8, "payload": (1 << 64) - 2, "wide": 1},
    {"semaphore": 2, "semaphore_va": 0xFF_FFFF_0010, "payload": 7},
    {
        "semaphore": 1,
        "semaphore_va": 0x40,
        "payload": 3,
        "reduction_enable": 1,
        "reduction": 5,
        "reduction_unsigned": 1,
    },
    {
        "semaphore": 2,
        "semaphore_va": 0x80,
        "payload": 1 << 40,
        "wide": 1,
        "reduction_enable": 1,
        "reduction": 1,
    },
]


def edges() -> list[int]:
    """Critical byte positions within a beat."""
    return sorted({0, 1, 3, BEAT // 2 - 1, BEAT // 2, BEAT // 2 + 1, BEAT - 2, BEAT - 1})


async def run(tb: CopyTestbench, copies: list[Copy]) -> None:
    for copy in copies:
        tb.submit(copy)
    await tb.finish(limit=2000 + 200 * len(copies) + 40 * sum(cost(one) for one in copies))


def cost(copy: Copy) -> int:
    return copy.lines * (copy.length // BEAT + 4)


@cocotb.test()
async def alignment_and_length(dut) -> None:
    """Copies are correct for every pair of ends within a beat, short lengths, and lengths around a
    burst."""
    tb = await CopyTestbench(dut, latency=(1, 4)).start()
    asid = itertools.cycle(range(ASIDS))
    copies = []
    for source, target in itertools.product(edges(), edges()):
        lengths = [1, 2, BEAT - 1, BEAT, BEAT + 1, 2 * BEAT, tb.random.randint(2, 5 * BEAT)]
        for length in lengths:
            copies.append(Copy(next(asid), 0x5000 + source, 0x9000 + target, length))
    for _ in range(24):
        source, target = tb.random.choices(edges(), k=2)
        length = BURST + tb.random.choice([-BEAT, 0, BEAT]) + tb.random.choice([-1, 0, 1])
        copies.append(Copy(next(asid), 0x5000 + source, 0x9000 + target, length))
    await run(tb, copies)
    tb.check_memory()


@cocotb.test()
async def pages(dut) -> None:
    """Copies across 4 KiB boundaries on either side, and across the end of the address space, are
    correct."""
    tb = await CopyTestbench(dut).start()
    asid = itertools.cycle(range(ASIDS))
    top = 1 << VA_BITS
    copies = []
    for before in (1, BEAT, 2 * BEAT + 3, BURST - 1, BURST + 5):
        copies += [
            Copy(next(asid), 0x7000 - before, 0x20000 + 3, 2 * before + 7),
            Copy(next(asid), 0x7001, 0x21000 - before, 2 * before + 7),
            Copy(next(asid), top - before, 0x21000 + before, 2 * before),
            Copy(next(asid), 0x3000 + before, top - before, 2 * before),
        ]
    await run(tb, copies)
    tb.check_memory()


@cocotb.test()
async def lines_and_pitches(dut) -> None:
    """Multi-line copies are correct: narrow and wide, pitch 0, overlapping, negative by wrapping,
    large."""
    tb = await CopyTestbench(dut, latency=(1, 30)).start()
    huge = (1 << 32) - 5
    copies = [
        Copy(0, 0x1000, 0x8000, 16, 40, 16, 16),
        Copy(1, 0x1003, 0x8005, 16, 40, 64, 48),
        Copy(2, 0x1003, 0x8005, 1, 30, 1, 3),
        Copy(3, 0x1007, 0x8001, 3 * BEAT + 1, 12, 0, 4 * BEAT + 2),
        Copy(4, 0x1007, 0x8001, BEAT + 2, 9, BEAT // 2, 3 * BEAT),
        Copy(5, 0x1007, 0x8001, BEAT + 2, 9, huge, huge),
        Copy(6, (1 << VA_BITS) - huge, 0x8001, 50, 4, huge, 100),
        Copy(7, 0x1FF9, 0x8FFD, BURST + 9, 3, BURST + 11, BURST + 13),
        Copy(8, 0x1FF9, 0x8FFD, 2 * BEAT, 20, 0x1001, 0x0FFF, src_physical=1),
        Copy(9, 0x1FF9, 0x8FFD, 2 * BEAT, 20, 0x0FFF, 0x1001, dst_physical=1),
    ]
    await run(tb, copies)
    tb.check_memory()


@cocotb.test()
async def narrow_lines_rate(dut) -> None:
    """Lines of 16 bytes take 3 cycles each, plus memory latency."""
    tb = await CopyTestbench(dut, latency=(20, 20)).start()
    await run(tb, [Copy(1, 0x1000, 0x8000, 16, 200, 256, 256)])
    print(f"width {CONFIG.data_width}: 200 lines of 16 bytes in {tb.cycle} cycles")
    assert tb.cycle <= 3 * 200 + 2 * 20 + 67
    tb.check_memory()


@cocotb.test()
async def releases(dut) -> None:
    """Every kind of release works, alone and after a copy; a refused one is an error."""
    tb = await CopyTestbench(dut, share=0.7).start()
    copies = []
    for index, semaphore in enumerate(RELEASES):
        alone = Copy(2 * index, transfer=0, length=0, lines=0, semaphore=semaphore, channel=index)
        after = Copy(2 * index + 1, 0x33, 0x5555, 5 * BEAT, semaphore=semaphore, channel=index)
        refused = Copy(20 + index, 0x33, 0x5555, 9, semaphore=semaphore, refuse=index + 1)
        copies += [alone, after, refused]
    copies.append(Copy(40, transfer=0))
    await run(tb, copies)
    assert len(tb.released) == 3 * len(RELEASES)
    for copy in copies:
        assert copy.error is (SEMAPHORE if copy.refuse else NONE)
        assert not copy.refuse or copy.va == copy.semaphore["semaphore_va"]
    tb.check_memory()


@cocotb.test()
async def failed_reads(dut) -> None:
    """A bus error or a fault on any beat is reported, and copies before and after are complete."""
    tb = await CopyTestbench(dut, latency=(1, 25)).start()
    copies = []
    for index in range(24):
        status = (BUS, FAULT)[index % 2]
        source, target = tb.random.choices(edges(), k=2)
        copy = Copy(index, 0x1800 + source, 0x9800 + target, 3 * BURST, semaphore=RELEASES[0])
        one = BURST_BEATS
        at = tb.random.choice([0, 0, 1, one - 2, one - 1, one, one + 1, 2 * one, 3 * one - 2])
        low = (copy.src // BEAT + at) * BEAT
        tb.memory.failing.append(Failing((index, 0), range(low, low + BEAT), status, write=False))
        good = Copy(32 + index, 0x101, 0x2003, tb.random.randint(1, 3 * BEAT))
        copies += [copy, good]
    await run(tb, copies)
    for copy in copies[::2]:
        tb.check_failed(copy)
    assert not tb.released
    assert all(copy.error is NONE for copy in copies[1::2])
    tb.check_memory()


@cocotb.test()
async def failed_writes(dut) -> None:
    """A bus error or a fault of a write is reported, also if a read of the copy fails, and copies
    before and after are complete."""
    tb = await CopyTestbench(dut, latency=(1, 40)).start()
    copies = []
    for index in range(24):
        status = (BUS, FAULT)[index % 2]
        source, target = tb.random.choices(edges(), k=2)
        copy = Copy(index, 0x1800 + source, 0x9800 + target, 4 * BURST, semaphore=RELEASES[0])
        low = copy.dst + tb.random.choice([0, 0, BURST, 2 * BURST])
        tb.memory.failing.append(Failing((index, 0), range(low, low + 1), status, write=True))
        if index % 3 == 0:
            low = copy.src + tb.random.choice([0, BURST, 3 * BURST])
            tb.memory.failing.append(Failing((index, 0), range(low, low + 1), FAULT, write=False))
        copies += [copy, Copy(32 + index, 0x101, 0x2003, tb.random.randint(1, 3 * BEAT))]
    await run(tb, copies)
    for copy in copies[::2]:
        tb.check_failed(copy)
    assert {WRITE_BUS, WRITE_FAULT} <= {copy.error for copy in copies}
    assert not tb.released
    assert all(copy.error is NONE for copy in copies[1::2])
    tb.check_memory()


@cocotb.test()
async def failure_stops_the_copy(dut) -> None:
    """A copy of 4 GiB ends soon after its first failure, with one line or many."""
    tb = await CopyTestbench(dut, latency=(5, 5)).start()
    everything = range(1 << VA_BITS)
    size = (1 << 32) - 1
    copies = [
        Copy(0, 0x1003, 0x5005, size),
        Copy(1, 0x1003, 0x5005, size),
        Copy(2, 0x1003, 0x5005, 16, size, 64, 64),
        Copy(3, 0x1003, 0x5005, 16, size, 64, 64),
        Copy(4, 0x1003, 0x5005, 16),
    ]
    for asid in range(4):
        status = (BUS, FAULT)[asid // 2]
        tb.memory.failing.append(Failing((asid, 0), everything, status, write=asid % 2 == 1))
    for copy in copies:
        tb.submit(copy)
    await tb.finish(limit=6000)
    assert [copy.error for copy in copies] == [
        READ_BUS,
        WRITE_BUS,
        READ_FAULT,
        WRITE_FAULT,
        NONE,
    ]
    assert [copy.va for copy in copies[:4]] == [0x1003, 0x5005, 0x1003, 0x5005]
    print(f"width {CONFIG.data_width}: four failed copies ended after {tb.cycle} cycles")
    assert len(tb.read.bursts) < 200


@cocotb.test()
async def overlap(dut) -> None:
    """A copy is read while the previous one is being written; copies end in order."""
    tb = await CopyTestbench(dut, latency=(60, 60), host_share=0.2).start()
    copies = [Copy(index, 0x1000, 0x8000, 4096, semaphore=RELEASES[0]) for index in range(20)]
    await run(tb, copies)
    assert tb.ended == copies
    reads = [burst.request["asid"] for burst in tb.read.bursts]
    assert reads == sorted(reads)
    beats = 4096 // BEAT
    assert len(tb.read_cycles) == len(tb.write_cycles) == 20 * beats
    for end in range(beats, 20 * beats, beats):
        assert tb.read_cycles[end] < tb.write_cycles[end - 1], "read when all was written"
    tb.check_memory()


@cocotb.test()
async def fixed_cycles(dut) -> None:
    """The fixed cycles are within their bounds: from command to first read, from the last read beat
    to the write request, and from the last written beat to the end of the copy."""
    tb = await CopyTestbench(dut, latency=(1, 1)).start()
    copy = tb.submit(Copy(0, 0x1000, 0x8000, 4 * BEAT))
    marks: dict[str, int] = {}
    while not tb.ended:
        await tb.step()
        for name, hit in (
            ("command", tb.accepted),
            ("read request", tb.read.bursts),
            ("last read beat", len(tb.read_cycles) == 4),
            ("write request", tb.write.bursts),
            ("first write beat", tb.write_cycles),
            ("last write beat", len(tb.write_cycles) == 4),
            ("done", tb.ended),
        ):
            if hit:
                marks.setdefault(name, tb.cycle)
    print(f"width {CONFIG.data_width}: {marks}")
    assert copy.error is NONE
    assert marks["read request"] - marks["command"] <= 9
    assert marks["write request"] - marks["last read beat"] <= 14
    assert marks["done"] - marks["last write beat"] <= 13


TARGETS = 0x200000
"""Base of random destinations, beyond all sources: 17 lines at a pitch below 64 KiB end earlier."""


def random_copy(tb: CopyTestbench, index: int, longest: int) -> Copy:
    rng = tb.random
    length = min(longest, rng.choice([1, 4, BEAT, 3 * BEAT, 12 * BEAT, BURST, 3 * BURST]))
    length = rng.randint(1, length)
    lines = rng.choice([1, 1, 1, 2, 5, 17]) if length <= 12 * BEAT else rng.choice([1, 1, 2])
    near = [0x10000, 0x10000 - rng.randint(0, length), rng.randrange(0x10000)]
    pitch = [length, length + rng.randint(0, 3 * BEAT), max(0x1000, length), 4 * BEAT + length]
    copy = Copy(
        index % ASIDS,
        rng.choice(near),
        TARGETS + rng.choice(near),
        length,
        lines,
        rng.choice([0, *pitch, rng.randrange(1 << 16)]),
        rng.choice(pitch),
        transfer=rng.random() < 0.9,
        src_physical=rng.random() < 0.2,
        dst_physical=rng.random() < 0.2,
        semaphore=rng.choice([{}, {}, *RELEASES]),
        channel=rng.randrange(CONFIG.channels),
        subchannel=rng.randrange(8),
        data=rng.getrandbits(32),
    )
    copy.refuse = rng.randrange(1, 8) if copy.semaphore and rng.random() < 0.2 else 0
    return copy


async def _random(dut, *, share: float, host_share: float, count: int) -> None:
    tb = await CopyTestbench(dut, share=share, host_share=host_share, latency=(1, 60)).start()
    copies = [random_copy(tb, index, 3 * BURST) for index in range(count)]
    await run(tb, copies)
    for copy in copies:
        assert copy.error is (SEMAPHORE if copy.refuse else NONE), copy
    tb.check_memory()


@cocotb.test()
@cocotb.parametrize(pace=["keen", "slow memory", "slow host"])
async def random_copies(dut, pace: str) -> None:
    shares = {"keen": (1.0, 1.0), "slow memory": (0.5, 0.9), "slow host": (0.9, 0.1)}[pace]
    await _random(dut, share=shares[0], host_share=shares[1], count=100)


@cocotb.test()
async def random_failures(dut) -> None:
    """Linear copies, almost half of which access bad memory on one side or both, report their first
    error; the others are complete."""
    tb = await CopyTestbench(dut, share=0.8, latency=(1, 60)).start()
    rng = tb.random
    copies = []
    spoiled: set[int] = set()
    for index in range(ASIDS):
        length = rng.choice([rng.randint(1, 4 * BEAT), rng.randint(1, 5 * BURST)])
        semaphore = rng.choice([{}, RELEASES[0]])
        copy = Copy(
            index,
            rng.randrange(0x1000, 0x3000),
            rng.randrange(0x11000, 0x13000),
            length,
            semaphore=semaphore,
        )
        copies.append(copy)
        for write in (False, True):
            if rng.random() < 0.25:
                low = (copy.dst if write else copy.src) + rng.randrange(length)
                status = rng.choice([BUS, FAULT])
                tb.memory.failing.append(Failing((index, 0), range(low, low + 1), status, write))
                spoiled.add(index)
    await run(tb, copies)
    for copy in copies:
        if copy.asid in spoiled:
            tb.check_failed(copy)
        else:
            assert copy.error is NONE, copy
    good = [copy for copy in copies if copy.semaphore and copy.asid not in spoiled]
    assert len(tb.released) == len(good)
    tb.check_memory()
