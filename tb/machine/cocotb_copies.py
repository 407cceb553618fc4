"""Copy class C7B5 through the host (HOST-8; spec 4)."""

from typing import Any

import cocotb

from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import (
    CeMethod,
    CopyLaunch,
    HostMethod,
    Reduction,
    RemapSource,
    pack,
)
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import MachineTestbench, semaphore
from signalbox.tb.models.remap import Remap
from signalbox.tb.models.semaphores import reduce
from signalbox.tb.simulation.top import MEMORY_BYTES
from signalbox.tb.simulation.trace import Done, Method, Semaphore, Start

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

LINEAR = {"transfer": 2, "src_pitch": 1, "dst_pitch": 1}


@cocotb.test(**LIMIT)
async def linear_copies(dut):
    """Linear copies of random sizes and offsets, virtual and physical, pipelined or not, change
    exactly their destination."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0, privileged=True)
    numbers, work = tb.random, []
    ended = await channel.read("COPIES")
    for _ in range(24):
        size = numbers.choice((1, 2, 15, 16, 17, 63, 64, 255, 256, 257, 1000, 4096, 5000))
        src, data = tb.pattern(size + 64)
        dst = tb.allocate(size + 128)
        lead, skew = numbers.randrange(64), numbers.randrange(64)
        modes = {name: numbers.randrange(2) for name in ("src_physical", "dst_physical", "flush")}
        transfer = numbers.choice((1, 2))
        commands = Pushbuffer()
        for method in (CeMethod.SET_SRC_PHYS_MODE, CeMethod.SET_DST_PHYS_MODE):
            commands.inc(4, method, numbers.randrange(3))
        commands.copy(dst + lead, src + skew, size, transfer=transfer, **modes)
        channel.segment(commands)
        await channel.kick()
        if numbers.randrange(2):
            await tb.until_idle(channel)
        work.append((dst, lead, data[skew : skew + size]))
    await tb.until_idle(channel)
    for dst, lead, data in work:
        found = tb.machine.memory_read(dst, len(data) + 128)
        assert found == bytes(lead) + data + bytes(128 - lead)
    assert await channel.read("COPIES") == ended + len(work)


@cocotb.test(**LIMIT)
async def multi_line_copies(dut):
    """Lines are copied with pitches larger than, equal to and smaller than the line. A negative
    pitch is a large unsigned number, so the copy faults."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    for width, lines, pitch_in, pitch_out in (
        (33, 7, 40, 50),
        (64, 4, 64, 64),
        (1, 20, 3, 5),
        (100, 3, 10, 128),
        (16, 5, 0, 16),
        (20, 4, 24, -32),
    ):
        src, data = tb.pattern(width + lines * abs(pitch_in))
        span = lines * abs(pitch_out) + width
        area = tb.allocate(2 * span)
        dst = area + span - width
        commands = Pushbuffer().copy_2d(dst, pitch_out % (1 << 32), src, pitch_in, width, lines)
        if pitch_out < 0:
            # Pitches are unsigned 32-bit numbers, so the address exceeds 2^32 and faults.
            await channel.submit(commands)
            await channel.until_halted(Cause.COPY_WRITE_FAULT)
            await channel.clear()
            await tb.until_idle(channel)
            continue
        expected = bytearray(2 * span)
        for line in range(lines):
            at = dst - area + line * pitch_out
            expected[at : at + width] = data[line * pitch_in :][:width]
        await channel.submit(commands)
        await tb.until_idle(channel)
        assert tb.machine.memory_read(area, 2 * span) == expected


@cocotb.test(**LIMIT)
async def line_count_needs_multi_line(dut):
    """LINE_COUNT and the pitches apply only with MULTI_LINE."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    src, data = tb.pattern(256)
    dst = tb.allocate(256)
    for method, value in ((CeMethod.LINE_COUNT, 0), (CeMethod.PITCH_OUT, 7)):
        await channel.submit(Pushbuffer().inc(4, method, value))
    await channel.submit(Pushbuffer().copy(dst, src, 100))
    await tb.until_idle(channel)
    assert tb.machine.memory_read(dst, 256) == data[:100] + bytes(156)


@cocotb.test(**LIMIT)
async def releases(dut):
    """Releases of one and four words, with 32 and 64 bits, with and without a copy, in memory and
    on chip, become visible only after the copy."""
    tb = await MachineTestbench.start(dut, write_latency=150)
    channel = await tb.copy_channel(0)
    payload = 0x1122_3344_5566_7788
    for kind, wide, copies, on_chip in (
        (1, 0, 1, False),
        (1, 1, 1, False),
        (2, 0, 1, False),
        (2, 1, 0, False),
        (1, 0, 0, True),
        (2, 1, 1, True),
        (2, 0, 0, True),
    ):
        ((dst, src),) = tb.copies(1, 512)
        here = tb.allocate(16)
        tb.machine.memory_write(here, b"\xee" * 16)
        await tb.control.write_semaphore(9, 0xEEEE_EEEE_EEEE_EEEE)
        where = semaphore(9) if on_chip else here
        commands = Pushbuffer().inc(4, CeMethod.SET_SEMAPHORE_A, where >> 32, where & 0xFFFF_FFFF)
        commands.inc(4, CeMethod.SET_SEMAPHORE_PAYLOAD, payload & 0xFFFF_FFFF, payload >> 32)
        launch = {"semaphore": kind, "wide": wide, "flush": 1}
        if copies:
            commands.copy(dst, src, 512, **launch)
        else:
            commands.launch(**launch)
        before = await tb.control.read("TIME_0")
        await channel.submit(commands)
        upper = 0 if kind == 2 else 0xEEEE_EEEE
        expected = payload if wide else upper << 32 | payload & 0xFFFF_FFFF
        if on_chip:
            await tb.until_semaphore(9, expected)
        else:
            await tb.until(lambda h=here, e=expected: tb.word(h, 8) == e, "release", poll=1)
        assert not copies or tb.copied(dst, src, 512)
        await tb.until_idle(channel)
        if not on_chip:
            stamp = tb.word(here + 8, 8)
            after = await tb.control.read("TIME_0")
            assert before <= stamp <= after if kind == 2 else stamp == 0xEEEE_EEEE_EEEE_EEEE


@cocotb.test(**LIMIT)
async def reductions(dut):
    """The engine's reductions equal the model's, on chip and in memory."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    here = tb.allocate(16)
    for reduction in Reduction:
        for where in (here, semaphore(9)):
            unsigned = reduction in {Reduction.INC, Reduction.DEC} or bool(tb.random.randrange(2))
            value, payload = (tb.random.choice((0, 1, 5, 0x8000_0000, 0xFFFF_FFFF)) for _ in "ab")
            tb.set_word(here, value)
            await tb.control.write_semaphore(9, value)
            commands = Pushbuffer().inc(
                4, CeMethod.SET_SEMAPHORE_A, where >> 32, where & 0xFFFF_FFFF, payload
            )
            kind = {"reduction": int(reduction), "reduction_unsigned": int(unsigned)}
            commands.launch(semaphore=1, reduction_enable=1, **kind)
            await channel.submit(commands)
            await tb.until_idle(channel)
            result = reduce(reduction, value, payload, 32, unsigned)
            found = tb.word(here) if where == here else await tb.control.read_semaphore(9)
            assert found == result, (reduction, value, payload, unsigned)


@cocotb.test(**LIMIT)
async def no_interrupt_without_completion(dut):
    """A copy that fails, or is stopped because its channel is disabled, raises no interrupt."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1, 512)
    await channel.submit(Pushbuffer().copy(MEMORY_BYTES, src, 512, interrupt=2))
    await channel.until_halted(Cause.COPY_WRITE_FAULT)
    assert await tb.control.read("INTR_COPY_LO") == 0
    await channel.clear()
    endless = Pushbuffer().copy_2d(dst, 0, src, 0, 512, (1 << 32) - 1, interrupt=2)
    await channel.submit(endless)
    await until_started(tb, 2)
    await channel.write("CONTROL", ENABLE=0)
    await channel.until_inactive()
    assert (await channel.status())["COPIES"] == 0
    await tb.wait(10)
    assert await tb.control.read("INTR_COPY_LO") == 0


@cocotb.test(**LIMIT)
async def interrupts(dut):
    """Blocking and non-blocking interrupts of a copy come when its data is visible; a copy without
    an interrupt raises none."""
    tb = await MachineTestbench.start(dut, write_latency=100)
    await tb.control.write("INTR_ENABLE", COPY=1)
    channel = await tb.copy_channel(0)
    for kind in (0, 1, 2):
        ((dst, src),) = tb.copies(1, 512)
        await channel.submit(Pushbuffer().copy(dst, src, 512, interrupt=kind))
        if kind:
            await tb.until(lambda: tb.dut.irq.value == 1, "interrupt", poll=1)
            assert tb.copied(dst, src, 512)
        await tb.until_idle(channel)
        assert await tb.control.read("INTR_COPY_LO") == int(kind > 0)
        await tb.control.write("INTR_COPY_LO", 1)
        await tb.wait(4)
        assert dut.irq.value == 0
        assert await tb.control.read("INTR_COPY_LO") == 0


@cocotb.test(**LIMIT)
async def refused_modes(dut):
    """Modes that are not modelled are refused, never executed wrongly: block-linear, conditional
    interrupts, other reductions, protected regions, peer memory, kinds, reserved
    values."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1, 64)
    await channel.submit(Pushbuffer().copy(dst, src, 64))
    await tb.until_idle(channel)
    tb.machine.memory_write(dst, bytes(64))
    bad = [
        LINEAR | {"src_pitch": 0},
        LINEAR | {"dst_pitch": 0},
        LINEAR | {"transfer": 3},
        LINEAR | {"semaphore": 3},
        LINEAR | {"interrupt": 3},
        LINEAR | {"vpr_mode": 1},
        LINEAR | {"reserved": 1},
        LINEAR | {"reserved": 8},
        *(
            LINEAR | {"semaphore": 1, "reduction_enable": 1, "reduction": kind}
            for kind in (8, 10, 11, 12, 15)
        ),
    ]
    for launch in bad:
        word = pack(CopyLaunch, **launch)
        await channel.submit(Pushbuffer().inc(4, CeMethod.LAUNCH_DMA, word))
        halt = await channel.until_halted(Cause.COPY_MODE)
        assert (halt.method, halt.data, halt.subchannel) == (0x300, word, 4)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    for mode, field in (
        (CeMethod.SET_SRC_PHYS_MODE, "src_physical"),
        (CeMethod.SET_DST_PHYS_MODE, "dst_physical"),
    ):
        # Peer memory; each bit of BASIC_KIND.
        for value in (3, 1 << 2, 1 << 3, 1 << 4 | 2, 1 << 5):
            await channel.submit(Pushbuffer().inc(4, mode, value).launch(**(LINEAR | {field: 1})))
            await channel.until_halted(Cause.COPY_MODE)
            # The same state is legal for a virtual copy, and another target repairs it.
            await channel.replace(mode, 0, subchannel=4)
            await tb.until_idle(channel)
    for mode in (0, 2, 3, 4):
        await channel.submit(Pushbuffer().inc(4, CeMethod.SET_RENDER_ENABLE_C, mode))
        await channel.until_halted(Cause.COPY_MODE)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    assert tb.word(dst, 64) == 0
    assert len(await tb.events(Start)) == 1
    await channel.submit(Pushbuffer().inc(4, CeMethod.SET_RENDER_ENABLE_C, 1).launch(**LINEAR))
    await tb.until_idle(channel)
    assert tb.copied(dst, src, 64)


async def execute(
    tb: MachineTestbench, channel: Any, commands: Pushbuffer, work: list[tuple[int, bytes]]
) -> None:
    """Execute `commands` and check `work`: addresses and their contents, each followed by 32 bytes
    of 0."""
    channel.segment(commands)
    await channel.kick()
    await tb.until_idle(channel)
    for place, wanted in work:
        assert tb.machine.memory_read(place, len(wanted) + 32) == wanted + bytes(32)


@cocotb.test(**LIMIT)
async def fills(dut):
    """HOST-16: public memsets of 1, 4 and 8 bytes, and one of 16 bytes in lines, write exactly
    their destination, and read nothing: their source is not mapped."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    hole = 1 << 45
    commands, work = Pushbuffer(), []
    commands.inc(4, CeMethod.OFFSET_IN_UPPER, hole >> 32, hole & 0xFFFF_FFFF)
    for unit, pattern in ((1, 0xA5), (2, 0x1234), (4, 0xDEAD_BEEF), (8, 0x0123_4567_89AB_CDEF)):
        count, lead = tb.random.randint(1, 300), tb.random.randrange(32)
        dst = tb.allocate(8 * 300 + 64)
        commands.fill(dst + lead, pattern, unit, count, transfer=tb.random.choice((1, 2)))
        work.append((dst, bytes(lead) + pattern.to_bytes(unit, "little") * count))
    dst = tb.allocate(1024)
    element = [number.to_bytes(4, "little") for number in (0x3F80_0000, 7)]
    constants = {"const_a": 0x3F80_0000, "const_b": 7}
    a, b, no = RemapSource.CONST_A, RemapSource.CONST_B, RemapSource.NO_WRITE
    commands.remap(a, b, no, a, size=4, **constants)
    commands.copy_2d(dst, 100, hole, 0, 5, 3, remap=1)
    line = (element[0] + element[1] + bytes(4) + element[0]) * 5 + bytes(20)
    work.append((dst, line * 3))
    await execute(tb, channel, commands, work)


@cocotb.test(**LIMIT)
async def swizzles(dut):
    """HOST-16: components are exchanged, dropped and added as in the model; settings apply only to
    later copies with REMAP_ENABLE."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    numbers, work, commands = tb.random, [], Pushbuffer()
    for _ in range(16):
        sources, size = numbers.randint(1, 4), numbers.randint(1, 4)
        names = [*"XYZW"[:sources], "A", "B", "no"]
        targets = tuple(numbers.choice(names) for _ in range(numbers.randint(1, 4)))
        remap = Remap(targets, size, sources, numbers.getrandbits(32), numbers.getrandbits(32))
        count = numbers.randint(1, 20)
        src, data = tb.pattern(count * size * sources + 64)
        dst, lead, skew = tb.allocate(count * 16 + 64), *(numbers.randrange(16) for _ in "ab")
        commands.inc(4, CeMethod.SET_REMAP_CONST_A, remap.const_a, remap.const_b, remap.word)
        commands.copy(dst + lead, src + skew, count, remap=1, transfer=numbers.choice((1, 2)))
        old = bytes(count * remap.target_bytes)
        work.append((dst, bytes(lead) + remap.line(data[skew:], old)))
        plain = tb.allocate(64)
        commands.copy(plain, src, 9, transfer=1)
        work.append((plain, data[:9]))
    await execute(tb, channel, commands, work)


@cocotb.test(**LIMIT)
async def refused_remaps(dut):
    """HOST-16: the launch refuses a destination component with reserved contents, or with a source
    component that elements do not have. Destination components that elements do not have are
    ignored."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    dst = tb.allocate(64)
    for word in (0x0000_0001, 0x0000_0007, 0x0112_0020, 0x0333_7210, 0x0322_3210):
        commands = Pushbuffer().inc(4, CeMethod.SET_REMAP_COMPONENTS, word)
        await channel.submit(commands.copy(dst, dst, 4, remap=1))
        halt = await channel.until_halted(Cause.COPY_REMAP)
        assert (halt.method, halt.subchannel) == (0x300, 4)
        await channel.replace(CeMethod.SET_REMAP_COMPONENTS, 0x7774, subchannel=4)
        await tb.until_idle(channel)
    assert not await tb.events(Start)
    await channel.submit(Pushbuffer().copy(dst, dst, 4, remap=1))
    await tb.until_idle(channel)
    assert len(await tb.events(Start)) == 1


@cocotb.test(**LIMIT)
async def unmapped_fill(dut):
    """HOST-16: a fill of an unmapped page halts its channel and records the address; another
    channel's fill continues."""
    tb = await MachineTestbench.start(dut)
    one, other = await tb.copy_channel(0), await tb.copy_channel(1)
    await one.submit(Pushbuffer().fill(MEMORY_BYTES - 40, 0x55, 1, 100))
    halt = await one.until_halted(Cause.COPY_WRITE_FAULT)
    assert halt.va == MEMORY_BYTES
    dst = tb.allocate(128)
    await other.submit(Pushbuffer().fill(dst, 0x77, 1, 100))
    await tb.until_idle(other)
    assert tb.machine.memory_read(dst, 128) == b"\x77" * 100 + bytes(28)
    await one.clear()
    await tb.until_idle(one)


@cocotb.test(**LIMIT)
async def physical_addresses_need_a_privileged_channel(dut):
    """Copies from or to physical addresses are refused before they begin on an unprivileged
    channel."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1, 64)
    for field in ("src_physical", "dst_physical"):
        await channel.submit(Pushbuffer().copy(dst, src, 64, **{field: 1}))
        halt = await channel.until_halted(Cause.METHOD_PRIVILEGED)
        assert halt.method == CeMethod.LAUNCH_DMA
        await channel.skip()
        await tb.until_idle(channel)
    assert tb.word(dst, 64) == 0 and not await tb.events(Start)
    await channel.submit(Pushbuffer().copy(dst, src, 64))
    await tb.until_idle(channel)
    assert tb.copied(dst, src, 64)


@cocotb.test(**LIMIT)
async def unknown_methods(dut):
    """Unknown method numbers of the class give HCE_ILLEGAL_MTHD; known ones are accepted."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    known = sorted(set(CeMethod) - {CeMethod.LAUNCH_DMA, CeMethod.SET_RENDER_ENABLE_C})
    commands = Pushbuffer()
    for method in known:
        commands.inc(4, method, 0)
    await channel.submit(commands)
    await tb.until_idle(channel)
    for offset in (0x104, 0x23C, 0x250, 0x268, 0x2FC, 0x304, 0x420, 0x70C, 0xFFC, 0x1100, 0x3FFC):
        await channel.submit(Pushbuffer().inc(4, offset, 1))
        halt = await channel.until_halted(Cause.COPY_METHOD)
        assert (halt.method, halt.subchannel) == (offset, 4)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    found = [event.offset for event in await tb.events(Method, subchannel=4)]
    assert found == [0, *(int(method) for method in known)]


@cocotb.test(**LIMIT)
async def release_between_copies(dut):
    """Each of several copies is followed by its release before the next copy's release."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    commands = Pushbuffer()
    for number, copy in enumerate(tb.copies(4, 700), 1):
        fence = CopyFence(semaphore(9), number, timestamp=False)
        commands.copy(*copy, 700, fence, transfer=1)
    await channel.submit(commands)
    await tb.until_idle(channel)
    values = await tb.events(Semaphore)
    dones = await tb.events(Done)
    assert [event.value for event in values] == [1, 2, 3, 4]
    assert all(v.cycle <= d.cycle for v, d in zip(values, dones, strict=True))
    assert all(d.cycle < v.cycle for d, v in zip(dones, values[1:], strict=False))
