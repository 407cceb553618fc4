"""Inline-to-memory of compute channels on the whole machine (HOST-14)."""

from typing import Any

import cocotb

from signalbox.driver.commands.pushbuffer import InlineFence, Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod
from signalbox.tb.machine.tasks import SUBCHANNEL, Computer, Space, launch, mark, spin
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.models.inline_transfer import Transfer, packed
from signalbox.tb.simulation import trace
from signalbox.tb.testbench.jobs import JOBS
from signalbox.tb.testbench.sample import fewer

LIMIT = {"timeout_time": 30, "timeout_unit": "ms"}

LINE_LENGTH, LAUNCH, DATA = 0x180, 0x1B0, 0x1B4
PLAIN = 1
WAIT_FOR_IDLE, SPA_VERSION = 0x110, 0x310
PLACE = 0x66_0000_0000
"""Virtual address of the memory that tests write to."""


def begin(transfer: Transfer, launch_data: int = PLAIN) -> Pushbuffer:
    """Settings of a transfer, and LAUNCH_DMA."""
    upper, lower = transfer.va >> 32, transfer.va & 0xFFFF_FFFF
    values = transfer.length, transfer.lines, upper, lower, transfer.pitch
    return Pushbuffer().inc(SUBCHANNEL, LINE_LENGTH, *values).inc(SUBCHANNEL, LAUNCH, launch_data)


def data(*dwords: int) -> Pushbuffer:
    """LOAD_INLINE_DATA."""
    return Pushbuffer().non_inc(SUBCHANNEL, DATA, *dwords)


def split(tb: MachineTestbench, transfer: Transfer, dwords: list[int]) -> list[list[int]]:
    """Segments with a transfer: groups of all forms, cut anywhere, with host methods between."""
    numbers, commands = tb.random, begin(transfer)
    left = [*dwords]
    if numbers.random() < 0.3:
        # LAUNCH_DMA and its data in one group, as public drivers have it.
        commands.dwords[-2:] = []
        commands.one_inc(SUBCHANNEL, LAUNCH, PLAIN, *left)
        left = []
    while left:
        count = numbers.choice((1, 2, 5, len(left)))
        part, left = left[:count], left[count:]
        if count == 1 and part[0] < 1 << 13:
            commands.immediate(SUBCHANNEL, DATA, part[0])
        elif count == 1:
            commands.inc(SUBCHANNEL, DATA, part[0])
        else:
            commands.raw(*data(*part).dwords)
        if numbers.random() < 0.2:
            commands.host(HostMethod.NOP, 1)
    cut = numbers.randrange(1, len(commands.dwords))
    return [commands.dwords[:cut], commands.dwords[cut:]]


def written(space: Space, transfer: Transfer, dwords: list[int], before: bytes, base: int) -> bytes:
    """Expected memory contents from `base` on after a transfer."""
    wanted = bytearray(before)
    for va, content in transfer.stores(dwords):
        wanted[va - base : va - base + len(content)] = content
    return bytes(wanted)


@cocotb.test(**LIMIT)
async def before_what_follows(dut: Any) -> None:
    """Data are in memory before a launch that reads them, a release without WFI, a copy, and the
    end of the channel's own wait, even if writes are slow; nothing is written before the last
    dword."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    await channel.submit(Pushbuffer().set_object())
    dut.memory.write_latency.value = 300
    task = space.task(JOBS[0])
    record = space.read(task.record_at, 256)
    space.write(task.record_at, bytes(256))
    commands = Pushbuffer().write_inline(task.record_at, record)
    await channel.submit(commands.raw(*launch(task).dwords))
    await computer.finish(channel)
    task.check()
    space.write(PLACE, bytes(512))
    content = tb.random.randbytes(77)
    follow = {
        "release": Pushbuffer().release(mark(channel), 1, wfi=False),
        "copy": Pushbuffer().copy(PLACE + 256, PLACE + 3, 77).release(mark(channel), 1),
        "report": Pushbuffer().report(mark(channel), 1),
        "wait": Pushbuffer().wait_own().release(mark(channel), 1, wfi=False),
    }
    for name, commands in follow.items():
        space.write(PLACE, bytes(512))
        tb.set_word(mark(channel), 0)
        inline = Pushbuffer().write_inline(PLACE + 3, content)
        channel.segment(inline.dwords[:-1])
        await channel.kick()
        await tb.until_idle(channel)
        assert space.read(PLACE, 100) == bytes(100), name
        channel.segment([inline.dwords[-1], *commands.dwords])
        await channel.kick()
        await tb.until_word(mark(channel), 1)
        assert space.read(PLACE, 83) == bytes(3) + content + bytes(3), name
        assert name != "copy" or space.read(PLACE + 256, 77) == content


@cocotb.test(**LIMIT)
async def transfers_of_channels(dut: Any) -> None:
    """Random transfers of four channels at once, each in its own address space, in groups of every
    form that span segments, while tasks run: exactly the transfers' bytes change."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    spaces = [await computer.space(index + 1, index) for index in range(4)]
    channels = [await computer.channel(index, index + 1) for index in range(4)]
    size, tasks = 3 * 4096, []
    for _ in range(fewer(6, 3)):
        wanted = []
        for space, channel in zip(spaces, channels, strict=True):
            length, lines = tb.random.choice(((tb.random.randint(1, 9), 3), (500, 1), (70, 5)))
            va = PLACE + tb.random.choice((1, 4096 - tb.random.randint(1, 90), 16))
            transfer = Transfer(va, length, lines, tb.random.randint(length, 900))
            before = tb.random.randbytes(size)
            space.write(PLACE, before)
            dwords = [tb.random.getrandbits(32) for _ in range(transfer.dwords)]
            for segment in split(tb, transfer, dwords):
                channel.segment(segment)
            wanted.append(written(space, transfer, dwords, before, PLACE))
            tasks.append(space.task(JOBS[len(tasks) % 2]))
            channel.segment(launch(tasks[-1]))
        for channel in channels:
            await channel.kick()
        await computer.finish(*channels)
        for space, content in zip(spaces, wanted, strict=True):
            assert space.read(PLACE, size) == content
    computer.check(tasks)


@cocotb.test(**LIMIT)
async def completions(dut: Any) -> None:
    """The semaphore of a transfer is released after its last byte, with one word or four; the
    interrupt is raised; FLUSH_ONLY and FLUSH_DISABLE release nothing."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    space.write(PLACE, bytes(1024))
    one, four = mark(channel, 1), mark(channel, 2)
    tb.set_word(one + 4, 0x1234)
    content = tb.random.randbytes(700)
    commands = Pushbuffer().write_inline(PLACE, content, InlineFence(one, 5, timestamp=False))
    await channel.submit(commands)
    await tb.until_word(one, 5)
    assert space.read(PLACE, 700) == content
    assert tb.word(one + 4) == 0x1234
    await channel.submit(Pushbuffer().write_inline(PLACE, b"x", InlineFence(four, 6)))
    await tb.until_word(four, 6)
    assert space.read(PLACE, 2) == b"x" + content[1:2] and tb.word(four + 8, 8) > 0
    assert await tb.control.read("INTR_NOTIFY_LO") == 0
    word = Transfer(PLACE, 4)
    for bits in (PLAIN | 1 << 8, PLAIN | 1 << 4 | 1 << 8):
        await channel.submit(begin(word, bits).raw(*data(9).dwords))
        await computer.finish(channel)
        assert await tb.control.read("INTR_NOTIFY_LO") == 1
        await tb.control.write("INTR_NOTIFY_LO", 1)
    assert tb.word(one) == 5 and tb.word(four) == 6
    bad = Pushbuffer().write_inline(PLACE, b"abcd", InlineFence(0x7700_0000, 6))
    await channel.submit(bad)
    halt = await channel.until_halted(Cause.SEM_FAULT)
    assert (halt.va, halt.method, space.read(PLACE, 4)) == (0x7700_0000, DATA, b"abcd")
    await channel.skip()
    await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def errors(dut: Any) -> None:
    """A transfer that cannot be written halts its channel at the failing dword and records the
    address. It continues once the page is mapped and the method repeated; if the method is skipped,
    the rest is dropped and counted. Unmodelled modes, data without a transfer, and other methods
    inside a transfer are refused. Other channels continue."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space, other_space = await computer.space(1, 0), await computer.space(2, 1)
    channel, other = await computer.channel(0, 1), await computer.channel(1, 2)
    await other.submit(launch(other_space.task(spin(20_000))))
    space.write(PLACE, bytes(4096))
    content = tb.random.randbytes(600)
    transfer = Transfer(PLACE + 4096 - 100, len(content))
    await channel.submit(begin(transfer).raw(*data(*packed([content])).dwords))
    halt = await channel.until_halted(Cause.INLINE_FAULT)
    assert (halt.va, halt.method) == (PLACE + 4096, DATA)
    space.write(PLACE + 4096, bytes(4096))
    await channel.clear()
    await tb.until_idle(channel)
    assert space.read(transfer.va, 600) == content
    nowhere = Transfer(0x77_0000_0FFE, 601)
    for after, others in ((b"skips", False), (b"other", True)):
        base = await tb.control.read("IGNORED")
        commands = begin(nowhere).raw(*data(*range(nowhere.dwords)).dwords)
        await channel.submit(commands.raw(*data_of(space, after).dwords))
        halt = await channel.until_halted(Cause.INLINE_FAULT)
        assert (halt.va, halt.method) == (nowhere.va, DATA)
        if others:  # of another object, at the same offset
            await channel.replace(DATA, 0, subchannel=SUBCHANNEL + 1)
            await channel.until_halted(Cause.OBJECT_UNBOUND)
        await channel.skip()
        await tb.until_idle(channel)
        assert space.read(PLACE, 5) == after
        assert await tb.control.read("IGNORED") - base == nowhere.dwords - halt.data - 1
    cases = [
        (begin(Transfer(PLACE, 4), 0), Cause.COMPUTE_MODE, LAUNCH),
        (begin(Transfer(PLACE, 4), PLAIN | 2), Cause.COMPUTE_MODE, LAUNCH),
        (begin(Transfer(PLACE, 0)), Cause.INLINE_ZERO, LAUNCH),
        (data_of(space, b"whole").raw(*data(1).dwords), Cause.INLINE_ORDER, DATA),
        (begin(Transfer(PLACE, 4)).inc(SUBCHANNEL, WAIT_FOR_IDLE, 0), Cause.INLINE_ORDER, None),
        (begin(Transfer(PLACE, 8)).raw(*begin(Transfer(PLACE, 4)).dwords), Cause.INLINE_ORDER, 0),
    ]
    for commands, cause, method in cases:
        await channel.submit(commands.raw(*data(7, 7).dwords) if method != DATA else commands)
        halt = await channel.until_halted(cause)
        assert halt.method == method or not method, halt
        while (await channel.status())["HALTED"]:
            await channel.skip()
            await tb.wait(100)
        await tb.until_idle(channel)
    await channel.submit(data_of(space, b"again"))
    await tb.until_idle(channel)
    assert space.read(PLACE, 5) == b"again"
    status = await other.status()
    assert status["TASKS"] == 1 and not status["HALTED"]
    await computer.finish(other)


def data_of(space: Space, content: bytes) -> Pushbuffer:
    """A transfer to `PLACE`."""
    return Pushbuffer().write_inline(PLACE, content)


@cocotb.test(**LIMIT)
async def started_anew(dut: Any) -> None:
    """A channel that is restarted in the middle of a transfer abandons it, and writes none of
    it."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    space.write(PLACE, bytes(64))
    await channel.submit(begin(Transfer(PLACE, 12)).raw(*data(1, 2).dwords))
    await tb.until_idle(channel)
    await channel.write("CONTROL", ENABLE=0)
    await channel.until_inactive()
    channel = await computer.channel(0, 1)
    await channel.submit(data(3))
    halt = await channel.until_halted(Cause.INLINE_ORDER)
    assert halt.method == DATA and space.read(PLACE, 64) == bytes(64)
    await channel.skip()
    await channel.submit(Pushbuffer().inc(SUBCHANNEL, LAUNCH, PLAIN))
    await channel.until_halted(Cause.INLINE_ZERO)


@cocotb.test(**LIMIT)
async def cycles(dut: Any) -> None:
    """Cycles per dword of a long transfer on an idle machine."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    content = tb.random.randbytes(4096)
    space.write(PLACE, bytes(4096))
    for _ in range(2):  # the first one misses in the TLBs
        await channel.submit(Pushbuffer().write_inline(PLACE, content))
        await tb.until_idle(channel)
    assert space.read(PLACE, 4096) == content
    loads = [one for one in await tb.events(trace.Method) if one.offset == DATA][1024:]
    assert len(loads) == 1024
    taken = loads[-1].cycle - loads[0].cycle
    print(f"4 KiB in {taken} cycles: {taken / 1023:.2f} per dword")
    assert taken < 4.2 * 1023
