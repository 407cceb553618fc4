"""Host methods (HOST-3; spec 2)."""

import cocotb
from cocotb.triggers import RisingEdge, with_timeout

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, LegacySemaphore, MemOp, SemOp, YieldOp, pack
from signalbox.hw.registers import Wait
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import COPY_BYTES, MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.trace import Done, Doorbell, Method, Semaphore, Start

LIMIT = {"timeout_time": 6, "timeout_unit": "ms"}

LEGACY = {"acquire": 1, "release": 2, "acquire_geq": 4, "acquire_and": 8, "reduction": 16}


def nops(*values: int) -> Pushbuffer:
    """NOP methods with these data."""
    return Pushbuffer().non_inc(0, HostMethod.NOP, *values)


def legacy(operation: int, address: int, payload: int, **fields: int) -> Pushbuffer:
    """SEMAPHOREA-D as one group."""
    trigger = pack(LegacySemaphore, operation=operation, **fields)
    values = (address >> 32, address & 0xFFFF_FFFF, payload, trigger)
    return Pushbuffer().inc(0, HostMethod.SEMAPHOREA, *values)


async def offsets(tb: MachineTestbench, channel: int = 0) -> list[int]:
    """Byte offsets of the methods executed by a channel."""
    return [event.offset for event in await tb.events(Method, channel=channel)]


@cocotb.test(**LIMIT)
async def accepted_methods(dut):
    """Methods without effect are executed in order, also on unprivileged channels, and METHODS
    counts them."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    counted = await channel.read("METHODS")
    listed = [
        HostMethod.NOP,
        HostMethod.MEM_OP_A,
        HostMethod.MEM_OP_B,
        HostMethod.MEM_OP_C,
        HostMethod.FB_FLUSH,
        HostMethod.WFI,
        HostMethod.SEM_PAYLOAD_HI,
    ]
    commands = Pushbuffer()
    for method in listed:
        commands.inc(0, method, 0xFFFF_FFFE)
    for operation in YieldOp:
        commands.host(HostMethod.YIELD, operation)
    await channel.submit(commands)
    await tb.until_idle(channel)
    assert await offsets(tb) == [int(m) for m in listed] + [int(HostMethod.YIELD)] * 4
    assert await channel.read("METHODS") == counted + len(listed) + 4


@cocotb.test(**LIMIT)
async def undefined_methods(dut):
    """Every unlisted host method number is a METHOD error, and stays readable."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    unknown = sorted(set(range(0, 0x100, 4)) - {int(method) for method in HostMethod})
    assert 0x7C in unknown
    for offset in unknown:
        channel.segment(Pushbuffer().inc(3, offset, offset * 0x10101))
        await channel.kick()
        halt = await channel.until_halted(Cause.METHOD_UNDEFINED)
        assert (halt.method, halt.data, halt.subchannel) == (offset, offset * 0x10101, 3)
        assert halt.valid
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    assert await offsets(tb) == [int(HostMethod.NOP)] * len(unknown)


@cocotb.test(**LIMIT)
async def illegal_method(dut):
    """ILLEGAL is always a METHOD error, which repeats until it is replaced."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, privileged=True)
    await channel.submit(Pushbuffer().host(HostMethod.ILLEGAL, 77).host(HostMethod.NOP, 1))
    for _ in range(3):
        halt = await channel.until_halted(Cause.METHOD_ILLEGAL)
        assert (halt.method, halt.data) == (int(HostMethod.ILLEGAL), 77)
        await channel.clear()
    await channel.until_halted(Cause.METHOD_ILLEGAL)
    await channel.replace(HostMethod.NOP, 2)
    await tb.until_idle(channel)
    assert [event.data for event in await tb.events(Method)] == [2, 1]


@cocotb.test(**LIMIT)
async def privileged_methods(dut):
    """MEM_OP_D and CLEAR_FAULTED need a privileged channel; unknown operations are refused."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for method, data in (
        *((HostMethod.MEM_OP_D, op << 27) for op in MemOp),
        (HostMethod.CLEAR_FAULTED, 0),
    ):
        await channel.submit(Pushbuffer().inc(0, method, data))
        halt = await channel.until_halted(Cause.METHOD_PRIVILEGED)
        assert (halt.method, halt.data) == (int(method), data)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    await channel.write("CONTROL", ENABLE=0)
    await channel.open(privileged=True)
    channel.put = 0
    for operation in range(32):
        await channel.submit(Pushbuffer().inc(0, HostMethod.MEM_OP_A, 1, 2, 3, operation << 27))
        if operation not in set(MemOp):
            halt = await channel.until_halted(Cause.METHOD_UNDEFINED)
            assert halt.method == int(HostMethod.MEM_OP_D)
            await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    assert (await offsets(tb)).count(int(HostMethod.MEM_OP_D)) == len(MemOp)


@cocotb.test(**LIMIT)
async def objects(dut):
    """SET_OBJECT binds one subchannel. Unbound and software subchannels are DEVICE errors, and so
    are engine methods and SET_OBJECT on subchannels 5 … 7 (HOST-18), but not host methods; an
    unknown class is HCE_ILLEGAL_CLASS, an unknown method of the class HCE_ILLEGAL_MTHD."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)

    async def fails(commands: Pushbuffer, cause: Cause, method: int, subchannel: int) -> None:
        await channel.submit(commands)
        halt = await channel.until_halted(cause)
        assert (halt.method, halt.subchannel, halt.valid) == (method, subchannel, True)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)

    for subchannel in range(8):
        cause = Cause.OBJECT_UNBOUND if subchannel < 5 else Cause.OBJECT_SOFTWARE
        for method in (0x100, 0x300, 0x3FFC):
            await fails(Pushbuffer().inc(subchannel, method, 1), cause, method, subchannel)
    for subchannel in (5, 6, 7):
        for data in (0xC7B5, 0x1F << 16, 0):
            commands = Pushbuffer().inc(subchannel, HostMethod.SET_OBJECT, data)
            await fails(commands, Cause.OBJECT_SOFTWARE, HostMethod.SET_OBJECT, subchannel)
        await channel.submit(Pushbuffer().inc(subchannel, HostMethod.SEM_ADDR_LO, 0, 0))
        await tb.until_idle(channel)
    for bad in (0, 0xC6C0, 0xC7C0, 0xC9C0, 0xC7B4, 0xC6B4, 0xFFFF):
        await fails(Pushbuffer().inc(2, 0, bad), Cause.OBJECT_CLASS, 0, 2)
    await fails(Pushbuffer().inc(2, 0x100, 0), Cause.OBJECT_UNBOUND, 0x100, 2)
    await channel.submit(Pushbuffer().set_object(4).inc(0, 0, 0x1F << 16 | 0x1234).set_object(1))
    await tb.until_idle(channel)
    for subchannel in (4, 1):
        await channel.submit(Pushbuffer().inc(subchannel, 0x100, 0))
        await tb.until_idle(channel)
        await fails(Pushbuffer().inc(subchannel, 0x104, 0), Cause.COPY_METHOD, 0x104, subchannel)
    await fails(Pushbuffer().inc(0, 0x100, 9), Cause.OBJECT_SOFTWARE, 0x100, 0)
    await fails(Pushbuffer().inc(3, 0x100, 9), Cause.OBJECT_UNBOUND, 0x100, 3)
    # Bound again.
    await channel.submit(Pushbuffer().set_object(0).inc(0, 0x100, 0))
    await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def bound_objects(dut):
    """HOST-13: class C6B5 copies as C7B5 does. The objects of all subchannels can be read back
    separately for each channel; a start clears them, and after the first SET_OBJECT only that
    object is shown."""
    tb = await MachineTestbench.start(dut)
    channels = [await tb.channel(index) for index in (0, 3)]
    names = [f"OBJECT{number}" for number in range(5)]

    async def shown(channel: RawChannel) -> list[int]:
        return [await channel.read(name) for name in names]

    bound = [0xC7B5, 0xC6B5, 0x1F << 16 | 0x1234, 0, 0xC6B5]
    for channel in channels:
        assert await shown(channel) == [0] * 5
    for number, data in enumerate(bound):
        if data:
            await channels[0].submit(Pushbuffer().inc(number, 0, data | 0xFFE0_0000))
    await channels[1].submit(Pushbuffer().set_object(3, 0xC7B5))
    ((dst, src),) = tb.copies(1)
    await channels[0].submit(Pushbuffer().copy(dst, src, COPY_BYTES))
    await tb.until_idle(*channels)
    assert tb.copied(dst, src)
    assert await shown(channels[0]) == bound
    assert await shown(channels[1]) == [0, 0, 0, 0xC7B5, 0]
    await channels[0].write("CONTROL", ENABLE=0)
    await channels[0].open()
    channels[0].put = 0
    assert await shown(channels[0]) == [0] * 5
    await channels[0].submit(Pushbuffer().set_object(1, 0xC7B5))
    await tb.until_idle(channels[0])
    assert await shown(channels[0]) == [0, 0xC7B5, 0, 0, 0]
    assert await shown(channels[1]) == [0, 0, 0, 0xC7B5, 0]


@cocotb.test(**LIMIT)
async def set_reference(dut):
    """SET_REFERENCE waits for the channel's copies, then is visible in REFERENCE and USERD."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1, 4096)
    commands = Pushbuffer().copy(dst, src, 4096)
    await channel.submit(commands.inc(0, HostMethod.SET_REFERENCE, 0xDEAD_BEEF))
    await tb.until_idle(channel)
    assert await channel.read("REFERENCE") == 0xDEAD_BEEF
    await tb.until_word(channel.userd + 0x48, 0xDEAD_BEEF, timeout=200)
    (done,) = await tb.events(Done)
    (method,) = await tb.events(Method, offset=int(HostMethod.SET_REFERENCE))
    assert method.cycle > done.cycle
    commands = Pushbuffer()
    for value in range(10):
        commands.host(HostMethod.SET_REFERENCE, value)
    await channel.submit(commands)
    await tb.until_idle(channel)
    await tb.until_word(channel.userd + 0x48, 9, timeout=200)
    assert await channel.read("REFERENCE") == 9


@cocotb.test(**LIMIT)
async def reference_comes_before_what_follows(dut):
    """When a release or NON_STALL_INTERRUPT after SET_REFERENCE is visible, REF is in memory, even
    when many channels write theirs; no channel waits forever."""
    tb = await MachineTestbench.start(dut, write_latency=150)
    await tb.control.write("INTR_ENABLE", NOTIFY=1)
    channel = await tb.channel(0)
    commands = Pushbuffer().host(HostMethod.SET_REFERENCE, 77).non_stall_interrupt()
    await channel.submit(commands)
    await tb.until(lambda: dut.irq.value == 1, "interrupt", poll=1)
    assert tb.word(channel.userd + 0x48) == 77
    await tb.until_idle(channel)
    assert await channel.read("REFERENCE") == 77
    channels = [channel]
    for index in range(1, await tb.control.read("CHANNELS")):
        channels.append(await tb.channel(index))
    fences = [tb.allocate(16) for _ in channels]
    rounds = 6
    commands = [Pushbuffer() for _ in channels]
    for value in range(1, rounds + 1):
        for one, fence in zip(commands, fences, strict=True):
            one.host(HostMethod.SET_REFERENCE, value).release(fence, value)
    for one, work in zip(channels, commands, strict=True):
        await one.submit(work)
    last, end = [0] * len(channels), tb.now() + 40_000
    while min(last) < rounds:
        assert tb.now() < end, last
        for number, (one, fence) in enumerate(zip(channels, fences, strict=True)):
            last[number] = tb.word(fence)
            assert tb.word(one.userd + 0x48) >= last[number], (one.index, last)
        await tb.wait(1)
    await tb.until_idle(*channels)
    assert [await one.read("REFERENCE") for one in channels] == [rounds] * len(channels)


@cocotb.test(**LIMIT)
async def non_stall_interrupt(dut):
    """NON_STALL_INTERRUPT sets the channel's bit and the line after the channel's copies. The
    channel continues; writing 1 clears the bit."""
    tb = await MachineTestbench.start(dut)
    await tb.control.write("INTR_ENABLE", NOTIFY=1)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1)
    commands = Pushbuffer().copy(dst, src, 1024).non_stall_interrupt(5).host(HostMethod.NOP)
    await channel.submit(commands)
    if dut.irq.value == 0:
        await with_timeout(RisingEdge(dut.irq), 20, "us")
    assert tb.copied(dst, src)
    await tb.until_idle(channel)
    shown = {"ERROR": 0, "NOTIFY": 1, "COPY": 0, "FAULT": 0, "TASK": 0, "RUNLIST": 0}
    assert await tb.interrupts() == shown
    assert await tb.control.read("INTR_NOTIFY_LO") == 1
    await tb.control.write("INTR_NOTIFY_LO", 2)
    assert dut.irq.value == 1
    await tb.control.write("INTR_NOTIFY_LO", 1)
    await tb.wait(4)
    assert dut.irq.value == 0
    shown = {"ERROR": 0, "NOTIFY": 0, "COPY": 0, "FAULT": 0, "TASK": 0, "RUNLIST": 0}
    assert await tb.interrupts() == shown


@cocotb.test(**LIMIT)
async def waits_for_idle(dut):
    """WFI waits for the channel's own copies; with scope ALL, also for other channels' copies."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.copy_channel(0), await tb.copy_channel(1)
    for scope in (0, 1):
        ((dst, src), (dst2, src2)) = tb.copies(2, 4096)
        began = tb.now()
        await one.submit(Pushbuffer().copy(dst, src, 4096).host(HostMethod.NOP, 1))
        await two.submit(Pushbuffer().host(HostMethod.WFI, scope).host(HostMethod.NOP, 2))
        await tb.until_idle(one, two)
        methods = [event for event in await tb.events(Method) if event.cycle > began]
        (wfi,) = (event for event in methods if event.offset == 0x78)
        done = (await tb.events(Done))[-1]
        assert (wfi.cycle > done.cycle) == bool(scope)
        commands = Pushbuffer().copy(dst2, src2, 4096).host(HostMethod.WFI, scope)
        await one.submit(commands)
        await tb.until_idle(one)
        wfi = (await tb.events(Method, offset=0x78))[-1]
        assert wfi.cycle > (await tb.events(Done))[-1].cycle


@cocotb.test(**LIMIT)
async def wait_for_all_is_a_snapshot(dut):
    """WFI with scope ALL ends although others continue to copy and poll: only work in flight
    counts, not work that begins later."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.copy_channel(0), await tb.channel(1)
    pollers = [await tb.channel(index, retry=1) for index in (2, 3, 4)]
    fence = tb.allocate(16)
    for poller in pollers:
        await poller.submit(Pushbuffer().acquire(fence, 1))
    commands = Pushbuffer()
    for copy in tb.copies(24):
        commands.copy(*copy, 1024, transfer=1)
    await one.submit(commands)
    await until_started(tb, 3)
    await two.submit(Pushbuffer().wait_idle())
    await tb.until_idle(two)
    (wfi,) = await tb.events(Method, offset=0x78)
    (rung,) = await tb.events(Doorbell, channel=1)
    begun = sum(event.cycle < rung.cycle for event in await tb.events(Start))
    await tb.until_idle(one)
    ended = sum(event.cycle < wfi.cycle for event in await tb.events(Done))
    # At most two epochs, with the few copies that an engine queues.
    assert begun <= ended < 16, (begun, ended)
    for _ in range(4):
        await two.submit(Pushbuffer().wait_idle())
        await tb.until_idle(two)
    assert len(await tb.events(Method, offset=0x78)) == 5
    tb.set_word(fence, 1)
    await tb.until_idle(*pollers)


@cocotb.test(**LIMIT)
async def wait_for_all_counts_fences(dut):
    """WFI with scope ALL waits for another channel's release in memory that is in flight."""
    tb = await MachineTestbench.start(dut, write_latency=1000)
    one, two = await tb.channel(0), await tb.channel(1)
    fence = tb.allocate(16)
    await one.submit(Pushbuffer().release(fence, 5))
    await tb.until_waits(one, Wait.FENCE)
    await two.submit(Pushbuffer().wait_idle().release(semaphore(3), 1))
    await tb.until_semaphore(3, 1)
    assert tb.word(fence) == 5


@cocotb.test(**LIMIT)
async def wait_for_all_starts_anew(dut):
    """A wait abandoned when its channel is disabled does not affect the next wait."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.copy_channel(0), await tb.channel(1)
    first, second = tb.copies(2, 0x4000)
    await one.submit(Pushbuffer().copy(*first, 0x4000))
    await until_started(tb, 1)
    await two.submit(Pushbuffer().wait_idle())
    await tb.until_waits(two, Wait.ALL_IDLE)
    await two.write("CONTROL", ENABLE=0)
    await two.open()
    two.put = 0
    await tb.until_idle(one)
    await one.submit(Pushbuffer().copy(*second, 0x4000))
    await until_started(tb, 2)
    await two.submit(Pushbuffer().wait_idle())
    await tb.until_idle(one, two)
    (wfi,) = await tb.events(Method, offset=0x78)
    assert wfi.cycle > (await tb.events(Done))[-1].cycle


@cocotb.test(**LIMIT)
async def yields(dut):
    """YIELD of a time slice or of the group lets another channel execute before the channel's next
    method. The NOP forms do not. A channel with no competitor continues."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0), await tb.channel(1)
    for operation in YieldOp:
        # Both wait until they have everything; then the first one rung goes first.
        for channel in (one, two):
            commands = Pushbuffer().acquire(semaphore(3), 1)
            for value in range(3):
                commands.host(HostMethod.NOP, value).host(HostMethod.YIELD, operation)
            await channel.submit(commands)
            await tb.until_waits(channel, Wait.ONCHIP)
        before = len(await tb.events(Method, offset=8))
        await tb.let_go(3, 1)
        await tb.until_idle(one, two)
        await tb.let_go(3, 0)
        found = (await tb.events(Method, offset=8))[before:]
        order = [event.channel for event in found]
        gives_up = operation in {YieldOp.RUNLIST_TIMESLICE, YieldOp.TSG}
        assert order == ([0, 1] * 3 if gives_up else [0] * 3 + [1] * 3), operation
    await one.submit(Pushbuffer().yield_slice().host(HostMethod.NOP, 9))
    await tb.until_idle(one)
    assert (await tb.events(Method))[-1].data == 9


@cocotb.test(**LIMIT)
async def clear_faulted(dut):
    """CLEAR_FAULTED of a privileged channel resumes another channel, after its own copies; an idle
    or unknown channel is not an error."""
    tb = await MachineTestbench.start(dut, counting=2)
    chief, other = await tb.copy_channel(0, privileged=True), await tb.channel(1)
    await other.submit(Pushbuffer().add(semaphore(0), -1).host(HostMethod.NOP, 5))
    await other.until_halted(Cause.SEM_UNDERFLOW)
    ((dst, src),) = tb.copies(1, 2048)
    commands = Pushbuffer().add(semaphore(0), 1).copy(dst, src, 2048)
    commands.host(HostMethod.CLEAR_FAULTED, 1).host(HostMethod.CLEAR_FAULTED, 100)
    await chief.submit(commands.host(HostMethod.CLEAR_FAULTED, 0))
    await tb.until_idle(chief, other)
    assert await tb.control.read_semaphore(0) == 0
    resumed = (await tb.events(Method, channel=1))[-1]
    assert resumed.data == 5
    assert resumed.cycle > (await tb.events(Done))[-1].cycle
    await tb.wait(4)
    assert dut.irq.value == 0


@cocotb.test(**LIMIT)
async def legacy_semaphores(dut):
    """SEMAPHOREA-D: releases of 4 and 16 bytes, acquires and reductions work on chip and in
    memory."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    here = tb.allocate(64)
    tb.machine.memory_write(here, b"\xff" * 64)
    for base in (here, semaphore(4)):
        commands = legacy(LEGACY["release"], base, 0x11, one_word=1)
        commands.raw(*legacy(LEGACY["release"], base + 16, 0x8000_0000).dwords)
        commands.raw(*legacy(LEGACY["acquire"], base, 0x11).dwords)
        commands.raw(*legacy(LEGACY["acquire_geq"], base + 16, 0x7FFF_FFFF).dwords)
        commands.raw(*legacy(LEGACY["acquire_and"], base, 0x10).dwords)
        add = legacy(LEGACY["reduction"], base, 0x100, reduction=5, unsigned=1, one_word=1)
        await channel.submit(commands.raw(*add.dwords))
        await tb.until_idle(channel)
    assert tb.word(here, 16) == 0x111 | (1 << 128) - (1 << 32)
    assert tb.word(here + 16, 8) == 0x8000_0000
    time = tb.word(here + 24, 8)
    assert 0 < time < 10 * (tb.now() - tb.began + 100)
    assert await tb.control.read_semaphore(4) == 0x111
    assert await tb.control.read_semaphore(5) == 0x8000_0000
    for operation in (0, 3, 5, 31):
        await channel.submit(legacy(operation, here, 1))
        halt = await channel.until_halted(Cause.SEM_UNSUPPORTED)
        assert (halt.method, halt.data, halt.va) == (0x1C, operation, here)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def legacy_acquire_blocks(dut):
    """Legacy acquires block like SEM_EXECUTE ones; RELEASE_WFI is inverted, and with either value a
    release comes after the channel's copies."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for name, payload, passing in (
        ("acquire", 5, 5),
        ("acquire_geq", 9, 10),
        ("acquire_and", 6, 2),
    ):
        await tb.control.write_semaphore(2, 0)
        await channel.submit(legacy(LEGACY[name], semaphore(2), payload))
        await tb.until_waits(channel, Wait.ONCHIP)
        await tb.control.write_semaphore(2, passing)
        await tb.until_idle(channel)
    await channel.submit(Pushbuffer().set_object())
    for no_wfi in (0, 1):
        ((dst, src),) = tb.copies(1)
        commands = Pushbuffer().copy(dst, src, 1024)
        trigger = legacy(LEGACY["release"], semaphore(2), 77, release_no_wfi=no_wfi, one_word=1)
        await channel.submit(commands.raw(*trigger.dwords))
        await tb.until_idle(channel)
        done, released = (await tb.events(Done))[-1], (await tb.events(Semaphore))[-1]
        assert released.value == 77 and released.cycle > done.cycle


@cocotb.test(**LIMIT)
async def state_methods_take_effect_at_once(dut):
    """Methods that only set state are executed while the channel's copy runs; the operation that
    they prepare waits for its end."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    ((dst, src),) = tb.copies(1, 4096)
    where = tb.allocate(16)
    commands = Pushbuffer().copy(dst, src, 4096)
    await channel.submit(commands.semaphore(SemOp.RELEASE, where, 3))
    await tb.until_idle(channel)
    (start,), (done,) = await tb.events(Start), await tb.events(Done)
    (prepared,) = await tb.events(Method, offset=int(HostMethod.SEM_PAYLOAD_HI))
    (released,) = await tb.events(Method, offset=int(HostMethod.SEM_EXECUTE))
    assert start.cycle < prepared.cycle < done.cycle < released.cycle
    assert tb.word(where) == 3
