"""Every misuse has a defined result (COPY-12, HOST-6). Channel registers show this result, and the
amount of work since the channel's start."""

import cocotb

from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.hw.errors import Cause, Code
from signalbox.hw.methods import CeMethod, CopyLaunch, HostMethod, Reduction, SemOp, Userd, pack
from signalbox.tb.machine.cocotb_order import joined, until_started
from signalbox.tb.machine.testbench import Halt, MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.top import MEMORY_BYTES
from signalbox.tb.simulation.trace import Done, Error, Method, Start
from signalbox.tb.testbench.sample import some

LIMIT = {"timeout_time": 6, "timeout_unit": "ms"}

LAUNCH = int(CeMethod.LAUNCH_DMA)
EXECUTE = int(HostMethod.SEM_EXECUTE)


async def refused(
    tb: MachineTestbench,
    channel: RawChannel,
    other: RawChannel | None,
    commands: Pushbuffer,
    cause: Cause,
    method: int,
) -> Halt:
    """Submit commands whose last method is refused, while another channel works. The record must
    identify the method. The channel stays halted."""
    await channel.submit(commands)
    halt = await channel.until_halted(cause)
    assert (halt.method, halt.data) == (method, commands_data(commands)), halt
    if other:
        fence = tb.allocate(16)
        await other.submit(Pushbuffer().release(fence, 1))
        await tb.until_word(fence, 1)
        assert not (await other.status())["HALTED"]
    errors = await tb.events(Error)
    assert (errors[-1].channel, errors[-1].cause) == (channel.index, cause)
    return halt


def commands_data(commands: Pushbuffer) -> int:
    """Data of the last method: the last dword, or the data of an immediate header."""
    last = commands.dwords[-1]
    return last >> 16 & 0x1FFF if last >> 29 == 4 and last & 0xFFF == LAUNCH // 4 else last


async def pair(tb: MachineTestbench) -> tuple[RawChannel, RawChannel | None]:
    """A copy channel, and another channel if there is one."""
    built = await tb.control.read("CHANNELS")
    channel = await tb.copy_channel(0)
    return channel, await tb.channel(built - 1) if built > 1 else None


@cocotb.test(**LIMIT)
async def semaphore_errors(dut):
    """Underflow, overflow and unknown semaphores are errors. Retried after a repair, the operation
    takes effect; replaced by a NOP, it does not."""
    tb = await MachineTestbench.start(dut, counting=1)
    channel, other = await pair(tb)
    top = 0xFFFF_FFFF
    under, over = Cause.SEM_UNDERFLOW, Cause.SEM_OVERFLOW
    cases = [
        (0, Pushbuffer().add(semaphore(0), -1), under, 1, 0),
        (2, Pushbuffer().add(semaphore(0), -3), under, 3, 0),
        (0, Pushbuffer().reduce(semaphore(0), 9, Reduction.DEC), under, 4, 3),
        (top, Pushbuffer().add(semaphore(0), 1), over, 5, 6),
        (9, Pushbuffer().reduce(semaphore(0), 9, Reduction.INC), over, 8, 9),
    ]
    for value, commands, cause, mended, result in cases:
        for retried in (False, True):
            await tb.control.write_semaphore(0, value)
            halt = await refused(tb, channel, other, commands, cause, EXECUTE)
            assert halt.va == semaphore(0)
            assert await tb.control.read_semaphore(0) == value
            if retried:
                await tb.control.write_semaphore(0, mended)
                await channel.clear()
            else:
                await channel.replace(HostMethod.NOP)
            await tb.until_idle(channel)
            assert await tb.control.read_semaphore(0) == (result if retried else value)
    # A modular semaphore wraps.
    await channel.submit(Pushbuffer().add(semaphore(1), -1))
    await tb.until_idle(channel)
    assert await tb.control.read_semaphore(1) == top
    unknown = semaphore(await tb.control.read("SEMAPHORES"))
    for commands in (Pushbuffer().add(unknown, 1), Pushbuffer().acquire(unknown, 0)):
        halt = await refused(tb, channel, other, commands, Cause.SEM_UNKNOWN, EXECUTE)
        assert halt.va == unknown
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def launch_errors(dut):
    """Copies of no bytes and unmodelled modes are refused before anything is copied. The channel
    continues after the method is replaced or skipped."""
    tb = await MachineTestbench.start(dut)
    channel, other = await pair(tb)
    ((dst, src),) = tb.copies(1, 64)
    zero = [
        Pushbuffer().copy(dst, src, 0),
        Pushbuffer().copy_2d(dst, 64, src, 64, 0, 4),
        Pushbuffer().copy_2d(dst, 64, src, 64, 4, 0),
    ]
    for commands in zero:
        await refused(tb, channel, other, commands, Cause.COPY_ZERO, LAUNCH)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    for commands in zero:
        await refused(tb, channel, other, commands, Cause.COPY_ZERO, LAUNCH)
        await channel.skip()
        await tb.until_idle(channel)
    assert await tb.events(Start) == []
    # Replaced by the missing length, then launched again.
    await refused(tb, channel, other, zero[0], Cause.COPY_ZERO, LAUNCH)
    await channel.replace(CeMethod.LINE_LENGTH_IN, 64, subchannel=4)
    await channel.submit(Pushbuffer().launch(transfer=2, src_pitch=1, dst_pitch=1))
    await tb.until_idle(channel)
    assert tb.copied(dst, src, 64)


@cocotb.test(**LIMIT)
async def copy_errors(dut):
    """After a copy from or to unmapped or refused memory, the channel halts at its end, with its
    LAUNCH_DMA on record, and does not repeat it; later methods wait until it is cleared."""
    tb = await MachineTestbench.start(dut)
    channel, other = await pair(tb)
    good, _ = tb.pattern(4096)
    bad = tb.allocate(8192, align=4096)
    dut.memory.error_lo.value = bad
    dut.memory.error_hi.value = bad + 4096
    outside = MEMORY_BYTES
    ended = await channel.read("COPIES")
    cases = [
        (good, outside, Cause.COPY_READ_FAULT, outside),
        (good, outside - 64, Cause.COPY_READ_FAULT, outside),
        (outside, good, Cause.COPY_WRITE_FAULT, outside),
        (outside + 17, good, Cause.COPY_WRITE_FAULT, None),
        (good, bad, Cause.COPY_READ_BUS, bad),
        (bad, good, Cause.COPY_WRITE_BUS, bad),
        (1 << 48, good, Cause.COPY_WRITE_FAULT, 1 << 48),
        (good, (1 << 49) - 256, Cause.COPY_READ_FAULT, (1 << 49) - 256),
    ]
    for number, (dst, src, cause, va) in enumerate(cases, 1):
        fence = tb.allocate(16)
        commands = Pushbuffer().copy(dst, src, 256)
        channel.segment(commands)
        channel.segment(Pushbuffer().host(HostMethod.NOP, number).release(fence, 1))
        await channel.kick()
        halt = await channel.until_halted(cause)
        assert (halt.method, halt.subchannel) == (LAUNCH, 4)
        assert halt.data == 0x182
        assert not halt.valid
        if va is not None:
            assert halt.va == va, hex(halt.va)
        await tb.wait(100)
        assert tb.word(fence) == 0
        if other:
            away = tb.allocate(16)
            await other.submit(Pushbuffer().release(away, 1))
            await tb.until_word(away, 1)
        done = (await tb.events(Done))[-1]
        assert done.failed and done.channel == 0
        await channel.clear()
        await tb.until_word(fence, 1)
        await tb.until_idle(channel)
        assert len(await tb.events(Start)) == number
        assert await channel.read("COPIES") == ended + number
    assert tb.word(bad, 256) == 0
    assert dut.irq.value == 0


@cocotb.test(**LIMIT)
async def copy_semaphore_errors(dut):
    """A copy whose release is refused is complete, but its channel halts."""
    tb = await MachineTestbench.start(dut, counting=1)
    channel, other = await pair(tb)
    unknown = semaphore(await tb.control.read("SEMAPHORES"))
    aligned = tb.allocate(16)
    cases = [
        CopyFence(unknown, 1, timestamp=False),
        CopyFence(MEMORY_BYTES, 1),
        CopyFence(aligned + 4, 1, timestamp=True),
        CopyFence(semaphore(0), 1, timestamp=False, reduction=Reduction.DEC),
    ]
    for fence in cases:
        ((dst, src),) = tb.copies(1, 256)
        await channel.submit(Pushbuffer().copy(dst, src, 256, fence))
        halt = await channel.until_halted(Cause.COPY_SEMAPHORE)
        assert (halt.method, halt.valid) == (LAUNCH, False)
        assert tb.copied(dst, src, 256)
        if other:
            away = tb.allocate(16)
            await other.submit(Pushbuffer().release(away, 1))
            await tb.until_word(away, 1)
        await channel.clear()
        await tb.until_idle(channel)
    assert tb.word(aligned, 16) == 0
    assert await tb.control.read_semaphore(0) == 0


@cocotb.test(**LIMIT)
async def halted_channel_keeps_nothing_from_others(dut):
    """A channel that fails between its acquire and its copy releases the reserved engine; so does a
    failed copy. Another channel, or the only one once it continues, has the engine then."""
    tb = await MachineTestbench.start(dut, counting=1)
    one = await tb.copy_channel(0)
    two = await tb.copy_channel(1) if await tb.control.read("CHANNELS") > 1 else None
    for number in range(2):
        copies = tb.copies(2, 512)
        commands = Pushbuffer().acquire(semaphore(0), 0)
        commands.host(HostMethod.ILLEGAL) if number else commands.copy(
            MEMORY_BYTES, copies[0][1], 8
        )
        await one.submit(commands)
        await one.until_halted(Cause.METHOD_ILLEGAL if number else Cause.COPY_WRITE_FAULT)
        good = Pushbuffer().acquire(semaphore(0), 0).copy(*copies[1], 512)
        if two:
            await two.submit(good)
            await tb.until_idle(two)
        await (one.skip() if number else one.clear())
        if not two:
            await one.submit(good)
        await tb.until_idle(one)
        assert tb.copied(*copies[1], 512)


@cocotb.test(**LIMIT)
async def errors_of_several_channels(dut):
    """All channels halt at once for different reasons. Each has its own record, and the interrupt
    line stays 1 until the last is cleared."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    kinds = [
        (Pushbuffer().host(HostMethod.ILLEGAL, 1), Cause.METHOD_ILLEGAL, 0x04),
        (Pushbuffer().inc(0, 0x7C, 2), Cause.METHOD_UNDEFINED, 0x7C),
        (Pushbuffer().inc(1, 0x300, 3), Cause.OBJECT_UNBOUND, 0x300),
        (Pushbuffer().inc(0, 0x00, 4), Cause.OBJECT_CLASS, 0x00),
        (Pushbuffer().release(MEMORY_BYTES, 5), Cause.SEM_FAULT, EXECUTE),
    ]
    channels = [await tb.channel(i) for i in range(built)]
    chosen = [kinds[i % len(kinds)] for i in range(built)]
    for channel, (commands, _, _) in zip(channels, chosen, strict=True):
        await channel.submit(commands)
    for channel, (_, cause, method) in zip(channels, chosen, strict=True):
        halt = await channel.until_halted(cause)
        assert halt.method == method
    assert await tb.control.read("INTR_ERROR_LO") == (1 << built) - 1
    for channel in channels:
        assert dut.irq.value == 1
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
        mask = await tb.control.read("INTR_ERROR_LO")
        assert mask == (1 << built) - (2 << channel.index)
    assert dut.irq.value == 0
    for channel in channels:
        halt = await channel.halt()
        assert (halt.cause, halt.codes, halt.valid) == (Cause.NONE, 0, False)


@cocotb.test(**LIMIT)
async def registers_of_a_running_channel(dut):
    """METHOD0 and DATA0 cannot be written while a channel runs; clearing bits that are not set has
    no effect."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    await channel.write("METHOD0", ADDRESS=1, VALID=1)
    await channel.write("DATA0", 5)
    await channel.write("INTR_0", 0xFFFF_FFFF)
    await channel.write("INTR_1", 0xFFFF_FFFF)
    await channel.submit(Pushbuffer().host(HostMethod.NOP, 3))
    await tb.until_idle(channel)
    await channel.submit(Pushbuffer().host(HostMethod.ILLEGAL, 4))
    halt = await channel.until_halted(Cause.METHOD_ILLEGAL)
    await channel.write("INTR_0", ~halt.codes & 0xFFFF_FFFF)
    await channel.write("INTR_1", 0xFFFF_FFFF)
    await tb.wait(50)
    assert await channel.until_halted(Cause.METHOD_ILLEGAL) == halt
    await channel.replace(HostMethod.NOP, 9)
    await tb.until_idle(channel)
    assert [event.data for event in await tb.events(Method)] == [3, 9]


@cocotb.test(**LIMIT)
async def error_amid_pipelined_copies(dut):
    """If a copy fails while later copies of its channel are in flight, the error is recorded when
    the copy ends, the later copies end, and after clearing the channel continues after them."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    copies = tb.copies(3, 512)
    commands = Pushbuffer().copy(*copies[0], 512, transfer=1)
    commands.copy(MEMORY_BYTES, copies[1][1], 512, transfer=1)
    commands.copy(*copies[2], 512, transfer=1).semaphore(SemOp.RELEASE, semaphore(3), 1)
    await channel.submit(commands)
    await channel.until_halted(Cause.COPY_WRITE_FAULT)
    await tb.wait(300)
    starts, (failed,) = await tb.events(Start), await tb.events(Done, failed=True)
    (error,) = await tb.events(Error)
    assert starts[2].cycle < failed.cycle <= error.cycle
    assert len(await tb.events(Done)) == 3
    await channel.clear()
    await tb.until_idle(channel)
    assert tb.copied(*copies[0], 512)
    assert tb.copied(*copies[2], 512)
    assert await tb.control.read_semaphore(3) == 1


@cocotb.test(**LIMIT)
async def refusals_wait_for_earlier_copies(dut):
    """COPY-1: a refused method after a copy halts its channel only when the copy has ended; so the
    copy's own error comes first, and neither is lost."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((_, src),) = tb.copies(1, 1024)
    for behind, cause in (
        (Pushbuffer().host(HostMethod.ILLEGAL, 0), Cause.METHOD_ILLEGAL),
        (Pushbuffer().host(HostMethod.SEM_EXECUTE, 7), Cause.SEM_UNSUPPORTED),
        (Pushbuffer().copy(src, src, 0), Cause.COPY_ZERO),
        (Pushbuffer().raw(6 << 29), Cause.HEADER_RESERVED),
    ):
        commands = Pushbuffer().copy(MEMORY_BYTES - 512, src, 1024)
        await channel.submit(joined(commands, behind))
        await channel.until_halted(Cause.COPY_WRITE_FAULT)
        await channel.clear()
        await channel.until_halted(cause)
        await channel.skip()
        await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def several_failures_amid_pipelined_copies(dut):
    """The record describes the first failed copy, with that copy's data and subchannel even if
    later copies were launched before it ended. It also indicates that others have failed. Clearing
    it shows the record of the next failed copy."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    await channel.submit(Pushbuffer().set_object(3))
    for failing in (2, 1):
        good = tb.copies(3, 4096)
        first, second = tb.copies(2, 512)
        commands = Pushbuffer().copy(*good[0], 4096, transfer=1)
        commands.copy(MEMORY_BYTES, first[1], 512, transfer=1, flush=0)
        launch = pack(CopyLaunch, transfer=1, flush=1, src_pitch=1, dst_pitch=1, semaphore=1)
        if failing == 2:
            commands.inc(3, CeMethod.OFFSET_IN_UPPER, 0, MEMORY_BYTES, 0, second[0])
        else:
            commands.inc(3, CeMethod.OFFSET_IN_UPPER, 0, second[1], 0, second[0])
        commands.inc(3, CeMethod.SET_SEMAPHORE_A, 0xFF, semaphore(7) & 0xFFFF_FFFF, 9)
        await channel.submit(commands.inc(3, CeMethod.LAUNCH_DMA, launch))
        await channel.until_halted(Cause.COPY_WRITE_FAULT)
        launched = (await tb.events(Method, offset=LAUNCH))[-2:]
        assert launched[1].data == launch != launched[0].data
        await tb.wait(600)
        assert (await channel.status())["COPIES"] == 0
        halt = await channel.until_halted(Cause.COPY_WRITE_FAULT)
        assert (halt.method, halt.subchannel, halt.data) == (LAUNCH, 4, launched[0].data)
        assert (halt.va, halt.valid, halt.more) == (MEMORY_BYTES, False, failing == 2)
        await channel.clear()
        if failing == 2:
            halt = await channel.until_halted(Cause.COPY_READ_FAULT)
            assert (halt.method, halt.subchannel, halt.data) == (LAUNCH, 3, launch)
            assert (halt.va, halt.valid, halt.more) == (MEMORY_BYTES, False, False)
            await channel.clear()
        await tb.until_idle(channel)
        assert await tb.control.read_semaphore(7) == (0 if failing == 2 else 9)


@cocotb.test(**LIMIT)
async def more_failures_than_records(dut):
    """If three copies fail before any is cleared, two have a record, and both indicate further
    failures; nothing remains afterwards."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    for failing in (3, 1):
        source = tb.copies(1, 4096)[0]
        commands = Pushbuffer().copy(*source, 4096, transfer=1)
        for number in range(failing):
            commands.copy(MEMORY_BYTES + 4096 * number, source[1], 64, transfer=1, flush=0)
        await channel.submit(commands)
        await channel.until_halted(Cause.COPY_WRITE_FAULT)
        await until_ended(channel)
        halt = await channel.until_halted(Cause.COPY_WRITE_FAULT)
        assert (halt.va, halt.more) == (MEMORY_BYTES, failing > 1)
        if failing > 1:
            assert len(await tb.events(Done, failed=True)) == failing
            await channel.clear()
            halt = await channel.until_halted(Cause.COPY_WRITE_FAULT)
            assert (halt.va, halt.more) == (MEMORY_BYTES + 4096, True)
        await channel.clear()
        await tb.until_idle(channel)
        assert dut.irq.value == 0


def two_failures(tb: MachineTestbench) -> Pushbuffer:
    """Pipelined copies; two of them fail some hundred cycles apart."""
    good = tb.copies(3, 4096)
    commands = Pushbuffer().copy(*good[0], 4096, transfer=1)
    commands.copy(MEMORY_BYTES, good[1][1], 64, transfer=1, flush=0)
    # Its source extends beyond the end of memory; half of it can be read.
    return commands.copy(good[2][0], MEMORY_BYTES - 2048, 4096, transfer=1, flush=0)


@cocotb.test(**LIMIT)
async def failure_after_the_record_was_read(dut):
    """A copy that fails after an error record was read and before it is cleared is not lost: the
    channel stays halted, with the new record."""
    tb = await MachineTestbench.start(dut, read_latency=200)
    channel = await tb.copy_channel(0)
    fence = tb.allocate(16)
    await channel.submit(two_failures(tb).release(fence, 1))
    first = await channel.until_halted(Cause.COPY_WRITE_FAULT)
    assert not first.more
    assert (await channel.status())["COPIES"] == 1
    await until_ended(channel)
    await channel.write("INTR_0", first.codes)
    second = await channel.until_halted(Cause.COPY_READ_FAULT)
    assert (second.va, second.valid, second.more) == (MEMORY_BYTES, False, False)
    assert dut.irq.value == 1
    await tb.wait(100)
    assert tb.word(fence) == 0
    await channel.clear()
    await tb.until_word(fence, 1)
    await tb.until_idle(channel)
    assert dut.irq.value == 0


@cocotb.test(**LIMIT)
async def failure_amid_clearing(dut):
    """As before, with clearing in every cycle around the failure: both errors are always seen."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    fence = tb.allocate(16)
    apart = 0
    for early in some(range(40, -1, -1), 4):
        tb.set_word(fence, 0)
        await channel.submit(two_failures(tb).release(fence, 1))
        await tb.until(lambda: dut.irq.value == 1, "error", poll=1)
        await tb.wait(max(apart - early, 0))
        await channel.write("INTR_0", 1 << Code.DEVICE)
        await until_ended(channel)
        halt = await channel.until_halted(Cause.COPY_READ_FAULT)
        assert (halt.va, halt.more) == (MEMORY_BYTES, False), early
        assert tb.word(fence) == 0
        await channel.clear()
        await tb.until_word(fence, 1)
        await tb.until_idle(channel)
        first, second = (await tb.events(Done, failed=True))[-2:]
        apart = second.cycle - first.cycle
        assert apart > 40


async def until_ended(channel: RawChannel) -> None:
    """Wait until no copy of the channel is in flight and all its errors are recorded."""
    while (await channel.status())["COPIES"]:
        pass


@cocotb.test(**LIMIT)
async def failure_of_a_stopped_channel(dut):
    """A copy that fails after its channel was disabled also leaves a record, which can be cleared;
    the channel then starts without it. A failure while a start waits for the copy is not lost."""
    tb = await MachineTestbench.start(dut, read_latency=300)
    bad, dst = tb.allocate(4096, align=4096), tb.allocate(256)
    dut.memory.error_lo.value = bad
    dut.memory.error_hi.value = bad + 4096
    for number, story in enumerate(("cleared", "started", "started at once"), 1):
        channel = await tb.copy_channel(0)
        await channel.submit(Pushbuffer().copy(dst, bad, 256))
        await until_started(tb, number)
        await tb.wait(50)
        await channel.write("CONTROL", ENABLE=0)
        assert (await channel.status())["COPIES"] == 1
        if story != "started at once":
            await channel.until_inactive()
            await channel.until_halted(Cause.COPY_READ_BUS)
            assert not (await channel.status())["ENABLED"]
        if story == "cleared":
            await channel.clear()
            assert dut.irq.value == 0
            status = await channel.status()
            assert (status["HALTED"], status["ENABLED"]) == (0, 0)
        await channel.write("CONTROL", ENABLE=1)
        channel.put = 0
        if story == "started at once":
            halt = await channel.until_halted(Cause.COPY_READ_BUS)
            assert (halt.va, halt.more) == (bad, False)
            await channel.clear()
        assert dut.irq.value == 0
        assert (await channel.halt()).cause is Cause.NONE
        await channel.submit(Pushbuffer().host(HostMethod.NOP, number))
        await tb.until_idle(channel)
        assert (await tb.events(Method, channel=0))[-1].data == number


@cocotb.test(**LIMIT)
async def reference_that_cannot_be_written(dut):
    """SET_REFERENCE is not complete until its value is in memory: if the write fails, the channel
    halts at it, before later methods. It can be retried, retried with another value, or skipped."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    fence, place = tb.allocate(16), channel.userd + Userd.REF
    tb.dut.memory.error_lo.value = place & ~15
    for number, story in enumerate(("again", "replaced", "skipped", "again"), 1):
        tb.dut.memory.error_hi.value = (place & ~15) + 16
        before = tb.word(place), *(await tallies(channel))
        commands = Pushbuffer().host(HostMethod.SET_REFERENCE, number)
        await channel.submit(commands.release(fence, number))
        for attempt in range(2):
            halt = await channel.until_halted(Cause.USERD_WRITE)
            assert (halt.method, halt.data) == (HostMethod.SET_REFERENCE, number)
            assert halt.valid and halt.va == 0
            await tb.wait(100)
            assert tb.word(fence) == number - 1
            assert (tb.word(place), *(await tallies(channel))) == before
            if not attempt:
                await channel.clear()
        tb.dut.memory.error_hi.value = 0
        match story:
            case "again":
                await channel.clear()
            case "replaced":
                await channel.replace(HostMethod.SET_REFERENCE, 0x55)
            case "skipped":
                await channel.skip()
        await tb.until_idle(channel)
        assert tb.word(fence) == number
        expected = {"replaced": 0x55, "skipped": 0x55}.get(story, number)
        assert tb.word(place) == await channel.read("REFERENCE") == expected


@cocotb.test(**LIMIT)
async def endless_copy_is_stopped(dut):
    """A copy of 2^32 - 1 overlapping lines occupies its engine until the channel is disabled. Then
    it ends without release or error, others get the engine, and the channel can be enabled
    again."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    engines = min(built, await tb.control.read("COPY_ENGINES"))
    endless = Pushbuffer().copy_2d(*tb.endless(), fence=CopyFence(semaphore(3), 1))
    for index in range(engines):
        channel = await tb.copy_channel(index)
        await channel.submit(joined(endless, Pushbuffer().release(semaphore(4), 1)))
    await until_started(tb, engines)
    others = [await tb.copy_channel(index) for index in range(engines, built)]
    work = tb.copies(built, 700)
    for other, copy in zip(others, work, strict=False):
        await other.submit(Pushbuffer().copy(*copy, 700))
    await tb.wait(10_000)
    assert await tb.events(Done) == []
    for index in range(engines):
        await tb.control.write_channel(index, "CONTROL", ENABLE=0)
    await tb.until_idle(*others)
    for index, copy in zip(range(engines), reversed(work), strict=False):
        channel = await tb.copy_channel(index)
        assert (await channel.halt()).cause == Cause.NONE
        await channel.submit(Pushbuffer().copy(*copy, 700))
        await tb.until_idle(channel)
    assert all(tb.copied(*copy, 700) for copy in work)
    assert len(await tb.events(Done)) == engines + built
    assert [await tb.control.read_semaphore(slot) for slot in (3, 4)] == [0, 0]


TALLIES = ("METHODS", "COPIES", "REFERENCE")


async def tallies(channel: RawChannel) -> list[int]:
    """METHODS, COPIES and REFERENCE."""
    return [await channel.read(name) for name in TALLIES]


@cocotb.test(**LIMIT)
async def counts_begin_with_the_channel(dut):
    """METHODS, COPIES and REFERENCE count from the channel's start, and are 0 after a reset; the
    registers of other channels do not change. Back-to-back methods are all counted."""
    tb = await MachineTestbench.start(dut)
    channel, other = await pair(tb)
    ((dst, src),) = tb.copies(1, 64)
    commands = Pushbuffer().copy(dst, src, 64)
    for number in range(1, 41):
        commands.host(HostMethod.SET_REFERENCE, 0x1F00 + number)
    both = [one for one in (channel, other) if one]
    for one in both:
        await one.submit(Pushbuffer().set_object())
        await one.submit(commands)
    await tb.until_idle(*both)
    found = [await tallies(one) for one in both]
    for one, (methods, *rest) in zip(both, found, strict=True):
        assert methods == len(await tb.events(Method, channel=one.index))
        assert rest == [1, 0x1F28]

    await channel.open()
    channel.put = 0
    assert await tallies(channel) == [0, 0, 0]
    await channel.submit(Pushbuffer().inc(0, HostMethod.NOP, 1).inc(0, HostMethod.NOP, 2))
    await tb.until_idle(channel)
    assert await tallies(channel) == [2, 0, 0]
    if other:
        assert await tallies(other) == found[1]

    tb = await tb.again()
    for one in both:
        assert await tallies(RawChannel(tb, one.index)) == [0, 0, 0]
    channel = await tb.channel(0)
    await channel.submit(Pushbuffer().host(HostMethod.SET_REFERENCE, 5))
    await tb.until_idle(channel)
    assert await tallies(channel) == [1, 0, 5]


@cocotb.test(**LIMIT)
async def many_are_resumed_at_once(dut):
    """CLEAR_FAULTED of one channel after another, one method per cycle, resumes each of them."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    chief = await tb.channel(built - 1, privileged=True)
    halted = [await tb.channel(index) for index in range(built - 1)]
    for channel in halted:
        await channel.submit(Pushbuffer().host(HostMethod.ILLEGAL, 1).host(HostMethod.NOP, 2))
    for channel in halted:
        await channel.until_halted(Cause.METHOD_ILLEGAL)
        await channel.write("METHOD0", VALID=0)
    targets = [channel.index for channel in halted]
    commands = Pushbuffer().non_inc(0, HostMethod.CLEAR_FAULTED, *targets) if targets else None
    await chief.submit(commands or Pushbuffer().host(HostMethod.CLEAR_FAULTED, 0))
    await tb.until_idle(chief, *halted)
    for channel in halted:
        assert (await tb.events(Method, channel=channel.index))[-1].data == 2
