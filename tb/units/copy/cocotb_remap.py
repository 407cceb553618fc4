"""Remapped copies (HOST-16): fills, swizzles, conversions, against the reference."""

import itertools

import cocotb

from signalbox.tb.models.remap import Remap
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.units.copy.cocotb_copy import RELEASES, edges, random_copy, run
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
EVERYTHING = range(1 << 49)
NUMBERS = (1, 2, 3, 4)
ELEMENTS = (1, 2, 4, 8, 16)


def random_remap(
    tb: CopyTestbench, size: int, sources: int, targets: int, names: str = ""
) -> Remap:
    """A remap of this shape, with contents from `names`; default: all possible contents."""
    rng = tb.random
    pool = [*(names or "XYZW"[:sources] + "AB"), "no"]
    return Remap(
        tuple(rng.choice(pool) for _ in range(targets)),
        size,
        sources,
        rng.getrandbits(32),
        rng.getrandbits(32),
        tuple(rng.choice(("X", "W", "A", "reserved")) for _ in range(4 - targets)),
    )


def block(names: str, size: int = 1, sources: int = 1) -> Remap:
    return Remap((*names,), size, sources, 0xA3A2A1A0, 0xB3B2B1B0)


@cocotb.test()
async def fills(dut) -> None:
    """A fill of each shape is correct at any byte address and number of elements; its source, which
    is unreadable, is not read."""
    tb = await CopyTestbench(dut, latency=(1, 4)).start()
    asid = itertools.cycle(range(ASIDS))
    copies = []
    for size, targets, target in itertools.product(NUMBERS, NUMBERS, edges()):
        for count in (1, 2, tb.random.randint(3, 5 * BEAT)):
            remap = random_remap(tb, size, tb.random.choice(NUMBERS), targets, "AB")
            source = tb.random.randrange(1 << 40)
            copies.append(Copy(next(asid), source, 0x9000 + target, count, remap=remap))
    for number in range(ASIDS):
        tb.memory.failing.append(Failing((number, 0), EVERYTHING, FAULT, write=False))
    await run(tb, copies)
    assert not tb.read.bursts
    assert {copy.error for copy in copies} == {NONE}
    tb.check_memory()


@cocotb.test()
async def shapes(dut) -> None:
    """Copies of every shape, with random contents, are correct at any address."""
    tb = await CopyTestbench(dut, latency=(1, 6)).start()
    asid = itertools.cycle(range(ASIDS))
    copies = []
    for size, sources, targets in itertools.product(NUMBERS, NUMBERS, NUMBERS):
        for _ in range(3):
            source, target = tb.random.choice(edges()), tb.random.choice(edges())
            remap = random_remap(tb, size, sources, targets)
            count = tb.random.choice((1, 2, tb.random.randint(3, 12)))
            copies.append(Copy(next(asid), 0x5000 + source, 0x9000 + target, count, remap=remap))
    await run(tb, copies)
    assert {copy.error for copy in copies} == {NONE}
    tb.check_memory()


@cocotb.test()
async def swizzles_in_beats(dut) -> None:
    """Elements whose size is a power of two are swizzled correctly, aligned or not at the source,
    and with any destination."""
    tb = await CopyTestbench(dut, latency=(1, 6)).start()
    asid = itertools.cycle(range(ASIDS))
    copies = []
    for size, number in itertools.product((1, 2, 4), (1, 2, 4)):
        element = size * number
        for target, names in itertools.product(edges(), ("", "XYZW"[:number])):
            remap = random_remap(tb, size, number, number, names)
            source = 0x5000 + element * tb.random.randrange(9) + tb.random.choice((0, 0, 0, 1))
            count = tb.random.randint(1, 3 * CHUNK_BYTES // element) if source % 2 == 0 else 5
            copies.append(Copy(next(asid), source, 0x9000 + target, count, remap=remap))
    await run(tb, copies)
    tb.check_memory()


@cocotb.test()
async def known_results(dut) -> None:
    """Examples with results worked out by hand: memset of 1, 4 and 8 bytes, BGRA from RGBA, alpha
    added and removed, one channel written, 12-byte elements."""
    tb = await CopyTestbench(dut).start()
    source = bytes(range(0x10, 0x40))
    tb.memory.write((0, 0), 0x5000, source)
    tb.reference.write((0, 0), 0x5000, source)
    old = bytes(range(0x80, 0xC0))
    examples = [
        (block("B"), 3, bytes.fromhex("b0b0b0 83")),
        (block("A", 4), 2, bytes.fromhex("a0a1a2a3a0a1a2a3 88")),
        (block("AB", 4), 1, bytes.fromhex("a0a1a2a3b0b1b2b3 88")),
        (block("ZYXW", 1, 4), 2, bytes.fromhex("12111013 16151417 88")),
        (block("XYZA", 1, 3), 2, bytes.fromhex("101112a0 131415a0 88")),
        (block("XYZ", 1, 4), 2, bytes.fromhex("101112 141516 86")),
        (block("YX", 2, 2), 2, bytes.fromhex("12131011 16171415 88")),
        (Remap(("no", "X"), 2, 2), 2, bytes.fromhex("80811011 84851415 88")),
        (block("YXA", 4, 2), 1, bytes.fromhex("14151617 10111213 a0a1a2a3 8c")),
        (block("ABA", 3), 1, bytes.fromhex("a0a1a2b0b1b2a0a1a2 89")),
    ]
    for index, (remap, count, wanted) in enumerate(examples):
        target = 0x9001 + 0x100 * index
        for memory in (tb.memory, tb.reference):
            memory.write((0, 0), target, old)
        await run(tb, [Copy(0, 0x5000, target, count, remap=remap)])
        found = tb.memory.read((0, 0), target, len(old))
        assert found == wanted + old[len(wanted) :], f"{remap}: {found.hex()}"
    tb.check_memory()


@cocotb.test()
async def lines_and_pitches(dut) -> None:
    """Multi-line copies of each way are correct; pitches are in bytes, even if they misalign
    elements."""
    tb = await CopyTestbench(dut, latency=(1, 30)).start()
    shapes = [
        block("A", 4),
        block("ABA", 3),
        block("AB", 4),
        block("YX", 2, 2),
        block("WZYX", 1, 4),
        block("XYZ", 4, 3),
        block("XYZA", 1, 3),
        Remap(("Z", "no", "X"), 3, 3),
    ]
    copies = []
    for index, remap in enumerate(shapes):
        for number, (pitch_in, pitch_out) in enumerate((
            (0, 200),
            (64, 160),
            (33, 131),
            (2, 97),
            ((1 << 32) - 64, 200),
        )):
            copies.append(
                Copy(
                    (5 * index + number) % ASIDS,
                    0x6000 + 4 * number,
                    0x9000 + tb.random.randrange(BEAT),
                    tb.random.randint(1, 8),
                    # With a pitch of 33, a fifth line is aligned as the first is.
                    5 if pitch_in == 33 else tb.random.randint(2, 5),
                    pitch_in,
                    pitch_out,
                    remap=remap,
                )
            )
    await run(tb, copies)
    tb.check_memory()


@cocotb.test()
@cocotb.parametrize(size=NUMBERS, number=NUMBERS)
async def fill_rate(dut, size: int, number: int) -> None:
    """A fill writes a full beat per cycle, whatever its element."""
    tb = await CopyTestbench(dut, latency=(20, 20)).start()
    count = 120 * BEAT // (size * number)
    await run(tb, [Copy(0, 0, 0x80000, count, remap=block("ABAB"[:number], size))])
    beats = -(-count * size * number // BEAT)
    assert len(tb.write_cycles) == beats
    assert tb.write_cycles[-1] - tb.write_cycles[0] + 1 == beats
    tb.check_memory()


@cocotb.test()
@cocotb.parametrize(target=[0, 3])
async def swizzle_rate(dut, target: int) -> None:
    """A swizzle of elements that divide the beat is as fast as a copy."""
    cycles = set()
    remaps = [None, block("YX", 2, 2), block("YXWZ", 1, 4), block("XYZ", 1, 3)]
    for remap in remaps:
        tb = await CopyTestbench(dut, latency=(20, 20)).start()
        element = remap.target_bytes if remap else 1
        count = 120 * BEAT // element
        await run(tb, [Copy(0, 0x10000, 0x80000 + target, count, remap=remap)])
        cycles.add(tb.write_cycles[-1] - tb.write_cycles[0] + 1)
        tb.check_memory()
    assert len(cycles) == 1, cycles


@cocotb.test()
async def run_rate(dut) -> None:
    """Other shapes take at most 3 cycles per run of components, plus memory latency."""
    tb = await CopyTestbench(dut, latency=(20, 20)).start()
    await run(tb, [Copy(0, 0x10001, 0x80000, 100, remap=block("ZYXA", 1, 3))])
    print(f"width {CONFIG.data_width}: 100 elements of 3 runs in {tb.cycle} cycles")
    assert tb.cycle <= 3 * 300 + 200
    tb.check_memory()


@cocotb.test()
async def fixed_cycles(dut) -> None:
    """A remapped copy requests its first read 2 cycles later than others; from near memory, its
    last write comes at most 12 cycles later."""
    requests, ends = [], []
    for remap in (None, block("XY", 2, 2), block("YX", 2, 2), block("A", 4)):
        tb = await CopyTestbench(dut, latency=(1, 1)).start()
        length = 4 * BEAT // (remap.target_bytes if remap else 1)
        tb.submit(Copy(0, 0x1000, 0x8000, length, remap=remap))
        accepted = 0
        while not tb.ended:
            await tb.step()
            accepted = accepted or (tb.cycle if tb.accepted else 0)
        requests.append(tb.read.bursts[0].cycle - accepted if tb.read.bursts else None)
        ends.append(tb.write_cycles[-1] - accepted)
    copy, late = requests[0], ends[0]
    assert copy is not None and requests == [copy, copy + 2, copy + 2, None]
    assert ends[1] == late + 2 and late + 2 <= ends[2] <= late + 12 and ends[3] <= late + 12


@cocotb.test()
async def failures(dut) -> None:
    """Failed accesses of each way are reported at their address, and release nothing; copies behind
    them succeed, and nothing else is written."""
    tb = await CopyTestbench(dut, latency=(1, 25)).start()
    ways = [block("A", 4), block("YX", 2, 2), block("XY", 2, 2), block("XYA", 1, 3)]
    expected = []
    copies = []
    for index, (remap, write, status) in enumerate(
        itertools.product(ways, (False, True), (BUS, FAULT))
    ):
        copy = Copy(index, 0x5000, 0x9000, 300, semaphore=RELEASES[0], remap=remap)
        low = copy.dst if write else copy.src
        tb.memory.failing.append(Failing((index, 0), range(low, low + 1), status, write))
        code = ((READ_BUS, READ_FAULT), (WRITE_BUS, WRITE_FAULT))[write][status is FAULT]
        expected.append((code, low) if write or remap.source_bytes else (NONE, None))
        copies += [copy, Copy(32 + index, 0x101, 0x2003, 20, remap=remap)]
    await run(tb, copies)
    for copy, (code, va) in zip(copies[::2], expected, strict=True):
        assert copy.error is code and va in (None, copy.va), copy
        content = tb.memory.read(copy.source_space, copy.src, copy.source_bytes)
        old = tb.reference.read(copy.target_space, copy.dst, copy.target_bytes)
        found = tb.memory.read(copy.target_space, copy.dst, copy.target_bytes)
        for number, byte in enumerate(copy.line(content, old)):
            assert found[number] in {byte, old[number]}, f"byte {number} of {copy}"
        tb.reference.write(copy.target_space, copy.dst, found)
    assert {copy.error for copy in copies[1::2]} == {NONE}
    assert len(tb.released) == sum(code is NONE for code, _ in expected)
    tb.check_memory()


@cocotb.test()
async def failure_stops_the_copy(dut) -> None:
    """Copies of 64 GiB end soon after their first failure."""
    tb = await CopyTestbench(dut, latency=(5, 5)).start()
    most = (1 << 32) - 1
    ways = [block("ABAB", 4), block("YX", 2, 2), block("ZYX", 4, 3), block("XYA", 1, 3)]
    copies = [Copy(index, 0x1000, 0x5003, most, remap=remap) for index, remap in enumerate(ways)]
    copies.append(Copy(4, 0x1000, 0x5003, most, most, 64, 64, remap=ways[3]))
    copies.append(Copy(5, 0x1003, 0x5005, 16))
    for asid in range(5):
        tb.memory.failing.append(Failing((asid, 0), EVERYTHING, FAULT, write=True))
    for copy in copies:
        tb.submit(copy)
    await tb.finish(limit=6000)
    assert [copy.error for copy in copies] == [WRITE_FAULT] * 5 + [NONE]
    assert [copy.va for copy in copies[:5]] == [0x5003] * 5


@cocotb.test()
async def long_lines(dut) -> None:
    """A line whose number of bytes needs more than 32 bits is written until it fails."""
    tb = await CopyTestbench(dut, latency=(5, 5)).start()
    copy = tb.submit(Copy(0, 0, 0x5000, (1 << 28) + 1, remap=block("ABAB", 4)))
    await tb.steps(3000)
    assert not tb.ended and len(tb.write_cycles) > 2500
    tb.memory.failing.append(Failing((0, 0), EVERYTHING, BUS, write=True))
    await tb.finish(limit=2000)
    assert copy.error is WRITE_BUS


@cocotb.test()
async def queued(dut) -> None:
    """Queued copies with different remaps, each with its own contents, are read and written in
    order, even behind a copy that moves nothing."""
    tb = await CopyTestbench(dut, latency=(60, 60), host_share=0.2).start()
    ways = [None, block("A", 4), block("YX", 2, 2), block("BA", 3), block("XYA", 1, 3), block("B")]
    copies = []
    for index in range(36):
        remap = tb.random.choice(ways)
        semaphore = RELEASES[0] if index % 3 else {}
        copies.append(
            Copy(
                index,
                0x1000,
                0x8000 + tb.random.randrange(BEAT),
                tb.random.randint(1, 40),
                transfer=index % 7 != 3,
                semaphore=semaphore,
                remap=remap,
            )
        )
    await run(tb, copies)
    assert tb.ended == copies
    tb.check_memory()


def random_remapped(tb: CopyTestbench, index: int) -> Copy:
    """A random copy, usually remapped, and mostly in one of the fast ways."""
    rng = tb.random
    copy = random_copy(tb, index, CHUNK_BYTES)
    if rng.random() < 0.3:
        return copy
    size, sources, targets = (rng.choice(NUMBERS) for _ in range(3))
    names = ""
    match rng.randrange(4):
        case 0:
            names = "AB"
        case 1:
            size, sources = rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
            targets = sources
            copy.src &= ~15
            copy.pitch_in &= ~15
        case 2:
            targets = sources
            names = "XYZW"[:sources]
    copy.remap = random_remap(tb, size, sources, targets, names)
    copy.length = max(1, min(copy.length, 400) // (copy.remap.target_bytes * (1 if names else 4)))
    copy.pitch_out = max(copy.pitch_out, copy.target_bytes)
    return copy


async def _random(dut, share: float, host_share: float, count: int) -> None:
    tb = await CopyTestbench(dut, share=share, host_share=host_share, latency=(1, 60)).start()
    copies = [random_remapped(tb, index) for index in range(count)]
    for copy in copies:
        tb.submit(copy)
    await tb.finish(limit=400_000)
    for copy in copies:
        assert copy.error is (SEMAPHORE if copy.refuse else NONE), copy
    tb.check_memory()


@cocotb.test()
@cocotb.parametrize(pace=["keen", "slow memory", "slow host"])
async def random_remaps(dut, pace: str) -> None:
    """Random copies, remapped or not, are correct."""
    shares = {"keen": (1.0, 1.0), "slow memory": (0.5, 0.9), "slow host": (0.9, 0.1)}[pace]
    await _random(dut, *shares, count=80)
