"""Invalidations by MEM_OP on the whole machine: methods that wait, and methods that continue
(HOST-3)."""

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, MemOp
from signalbox.hw.registers import Wait
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.trace import Done, Method

LIMIT = {"timeout_time": 6, "timeout_unit": "ms"}

MEM_OP_D = int(HostMethod.MEM_OP_D)

SLOW = 1500
"""Read latency in cycles that delays an invalidation."""

PDB = 0x4000
"""An unbound page directory."""

FOREIGN = 2 << 10
"""MEM_OP_C: the page directory is in system memory."""


async def slow(tb: MachineTestbench, index: int) -> RawChannel:
    """A channel with an endless copy and slow reads, at least one of which is always in flight; an
    invalidation waits for older reads."""
    channel = await tb.copy_channel(index)
    await channel.submit(Pushbuffer().copy_2d(*tb.endless()))
    await until_started(tb, 1)
    tb.dut.memory.read_latency.value = SLOW
    await tb.wait(100)
    return channel


async def fast(tb: MachineTestbench, channel: RawChannel) -> None:
    """End the copy of a `slow` channel."""
    tb.dut.memory.read_latency.value = 2
    await channel.write("CONTROL", ENABLE=0)
    await channel.until_inactive()


async def when_let_go(
    tb: MachineTestbench, channel: RawChannel, slot: int, commands: Pushbuffer
) -> None:
    """Submit commands that the channel fetches at once, and executes when the semaphore becomes
    1."""
    await channel.submit(Pushbuffer().acquire(semaphore(slot), 1).raw(*commands.dwords))
    await tb.until_waits(channel, Wait.ONCHIP)


@cocotb.test(**LIMIT)
async def after_own_copies(dut):
    """Every operation of MEM_OP_D executes after the channel's copies, and before later methods."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0, privileged=True)
    for number, operation in enumerate(MemOp, 1):
        ((dst, src),) = tb.copies(1)
        commands = Pushbuffer().copy(dst, src, 1024).mem_op(operation)
        await channel.submit(commands.host(HostMethod.NOP, number))
        await tb.until_idle(channel)
        done = (await tb.events(Done))[-1]
        forgotten = (await tb.events(Method, offset=MEM_OP_D))[-1]
        following = (await tb.events(Method))[-1]
        assert following.data == number
        assert done.cycle < forgotten.cycle < following.cycle


@cocotb.test(**LIMIT)
async def others_go_on(dut):
    """During the invalidation of one channel, other channels execute, but its own later methods do
    not."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0, privileged=True), await tb.channel(1)
    invalidate = Pushbuffer().invalidate().release(semaphore(2), 1)
    await when_let_go(tb, one, 0, invalidate)
    await when_let_go(tb, two, 1, Pushbuffer().host(HostMethod.NOP, 5))
    copies = await slow(tb, 2)
    await tb.let_go(0, 1)
    await tb.until_waits(one, Wait.TRANSLATION, timeout=200)
    await tb.let_go(1, 1)
    await tb.until_idle(two, timeout=200)
    assert await tb.control.read_semaphore(2) == 0
    assert not await tb.events(Method, offset=MEM_OP_D)
    # The last older read may need a walk of four entries first.
    await tb.until_semaphore(2, 1, timeout=8 * SLOW)
    await fast(tb, copies)
    await tb.until_idle(one)
    (nop,) = await tb.events(Method, offset=int(HostMethod.NOP))
    (forgotten,) = await tb.events(Method, offset=MEM_OP_D)
    assert nop.cycle < forgotten.cycle


@cocotb.test(**LIMIT)
async def many_at_once(dut):
    """All channels invalidate at once, several times and with all scopes, between shared
    semaphores: each invalidation ends."""
    tb = await MachineTestbench.start(dut)
    channels, rounds = [], 4
    for index in range(await tb.control.read("CHANNELS")):
        channel = await tb.channel(index, privileged=True)
        commands = Pushbuffer()
        for number in range(rounds):
            commands.add(semaphore(1), 1).invalidate(PDB, 0x1000 * number)
            commands.add(semaphore(1), 1).invalidate(PDB).invalidate()
        await when_let_go(tb, channel, 0, commands)
        channels.append(channel)
    await tb.let_go(0, 1)
    await tb.until_idle(*channels, timeout=100_000)
    assert await tb.control.read_semaphore(1) == 2 * rounds * len(channels)
    for channel in channels:
        events = await tb.events(Method, channel=channel.index, offset=MEM_OP_D)
        assert len(events) == 3 * rounds


@cocotb.test(**LIMIT)
async def switched_off_meanwhile(dut):
    """A channel disabled during its invalidation is not active. Started again at any time, it works
    like any other, and its new invalidations are not confused with earlier ones."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, privileged=True)
    await when_let_go(tb, channel, 0, Pushbuffer().invalidate().release(semaphore(3), 7))
    copies = await slow(tb, 2)
    await tb.let_go(0, 1)
    await tb.until_waits(channel, Wait.TRANSLATION, timeout=200)
    await channel.write("CONTROL", ENABLE=0)
    assert not (await channel.status())["ACTIVE"]
    await fast(tb, copies)
    for number, pause in enumerate((0, 10, 40, 100, 300, 600)):
        await channel.open(privileged=True)
        channel.put = 0
        before = len(await tb.events(Method, offset=MEM_OP_D))
        await channel.submit(Pushbuffer().invalidate(PDB).release(semaphore(2), number))
        await tb.until_idle(channel)
        assert len(await tb.events(Method, offset=MEM_OP_D)) == before + 1
        assert await tb.control.read_semaphore(2) == number
        # Again, without waiting for it.
        await channel.submit(Pushbuffer().invalidate().invalidate())
        await tb.wait(pause)
        await channel.write("CONTROL", ENABLE=0)
        await channel.until_inactive()
    assert await tb.control.read_semaphore(3) == 0


@cocotb.test(**LIMIT)
async def replaced_after_a_refusal(dut):
    """A page directory outside this machine's memory is a METHOD error of MEM_OP_D. The error
    repeats until the method is replaced, if only by another invalidation. For all page directories
    it is not an error."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, privileged=True)
    for operation in (MemOp.MMU_TLB_INVALIDATE, MemOp.MMU_TLB_INVALIDATE_TARGETED):
        for aperture in (1, 2, 3):
            await channel.submit(Pushbuffer().mem_op(operation, c=PDB | aperture << 10))
            for _ in range(2):
                halt = await channel.until_halted(Cause.METHOD_UNDEFINED)
                assert (halt.method, halt.data) == (MEM_OP_D, operation << 27)
                await channel.clear()
            await channel.until_halted(Cause.METHOD_UNDEFINED)
            await channel.replace(MEM_OP_D, MemOp.MEMBAR << 27)
            await tb.until_idle(channel)
            await channel.submit(Pushbuffer().mem_op(operation, c=1 | aperture << 10))
            await tb.until_idle(channel)
    await channel.submit(Pushbuffer().mem_op(MemOp.MMU_TLB_INVALIDATE, c=FOREIGN))
    await channel.until_halted(Cause.METHOD_UNDEFINED)
    await channel.replace(HostMethod.MEM_OP_C, PDB)
    await tb.until_idle(channel)
    await channel.submit(Pushbuffer().host(HostMethod.MEM_OP_D, MemOp.MMU_TLB_INVALIDATE << 27))
    await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def arguments_of_each_channel(dut):
    """MEM_OP_A … C keep their values until the channel is started again, regardless of other
    channels."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0, privileged=True), await tb.channel(1, privileged=True)
    trigger = Pushbuffer().host(HostMethod.MEM_OP_D, MemOp.MMU_TLB_INVALIDATE << 27)
    await one.submit(Pushbuffer().host(HostMethod.MEM_OP_C, FOREIGN))
    await tb.until_idle(one)
    await two.submit(Pushbuffer().host(HostMethod.MEM_OP_C, PDB).raw(*trigger.dwords))
    await tb.until_idle(two)
    await one.submit(trigger)
    await one.until_halted(Cause.METHOD_UNDEFINED)
    await one.write("CONTROL", ENABLE=0)
    await one.until_inactive()
    await one.open(privileged=True)
    one.put = 0
    await one.submit(trigger)
    await tb.until_idle(one)
