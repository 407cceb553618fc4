"""The rows of `tb.benchmarks.rows`, each measured in cycles from the trace of the whole machine.

No register is read during a measurement, as that would disturb it.
"""

import cocotb

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.methods import HostMethod, LaunchTransfer, SemaphoreExecute, SemOp, pack
from signalbox.tb.benchmarks.rows import BIG, OPERATIONS, PIPELINED_BIG, PIPELINED_PAGES
from signalbox.tb.benchmarks.scenes import HIGH, LOW, bound, report, request
from signalbox.tb.machine.cocotb_order import joined, nops
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore, setup
from signalbox.tb.simulation.trace import Acquire, Done, Doorbell, Method, Semaphore, Start

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

SLOT = 7
"""A semaphore that is not a counting one."""

FAR = 100
"""Memory latency in cycles for the efficiency of copies (page 70)."""

PAGE = 4096

SAMPLES, LOW_COPIES = 96, 320
"""Numbers of urgent and of low copies. Each urgent copy is submitted at a different time within a
low copy; there are enough low copies for all urgent ones."""


def one_nop() -> Pushbuffer:
    """A method of one dword."""
    return Pushbuffer().host(HostMethod.NOP)


async def prefetched(
    tb: MachineTestbench, first: RawChannel, second: RawChannel, end: Pushbuffer
) -> None:
    """`first` executes NOPs, then `end`. Meanwhile `second` has prefetched a NOP."""
    await first.submit(joined(nops(*range(600)), end))
    await second.submit(one_nop())
    await tb.wait(1000)


@cocotb.test(**LIMIT)
async def decode(dut):
    """1,000 methods of one group."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    await channel.submit(nops(*range(1000)))
    await tb.wait(1500)
    methods = await tb.events(Method, offset=int(HostMethod.NOP))
    assert [method.data for method in methods] == list(range(1000))
    report(decode=methods[-1].cycle - methods[0].cycle + 1)


@cocotb.test(**LIMIT)
async def semaphore_operations(dut):
    """On-chip releases of one channel, one after another; the first is offered in the cycle after
    the previous method."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    execute = pack(SemaphoreExecute, operation=SemOp.RELEASE)
    commands = Pushbuffer().inc(0, HostMethod.SEM_ADDR_LO, semaphore(SLOT) & 0xFFFF_FFFF)
    commands.inc(0, HostMethod.SEM_ADDR_HI, semaphore(SLOT) >> 32, 5, 0, execute)
    commands.non_inc(0, HostMethod.SEM_EXECUTE, *[execute] * OPERATIONS)
    await channel.submit(commands)
    await tb.wait(800)
    updates = [event.cycle for event in await tb.events(Semaphore, index=SLOT)]
    assert len(updates) == 1 + OPERATIONS
    (before,) = await tb.events(Method, offset=int(HostMethod.SEM_PAYLOAD_HI))
    report(
        semaphore_visible=updates[0] - (before.cycle + 1),
        semaphore_operations=updates[-1] - updates[1] + 1,
    )


async def switch(tb: MachineTestbench, first: RawChannel, target: int, payload: int) -> int:
    """Cycles from a failed acquire to the next method of another channel."""
    second = await tb.channel(1)
    await prefetched(tb, first, second, Pushbuffer().acquire(target, payload))
    (failed,) = await tb.events(Acquire, channel=0, passed=False)
    (following,) = await tb.events(Method, channel=1)
    return following.cycle - failed.cycle


@cocotb.test(**LIMIT)
async def switch_when_blocked(dut):
    """A failed acquire of any semaphore, and of a counting semaphore before a copy."""
    tb = await MachineTestbench.start(dut)
    report(switch_blocked=await switch(tb, await tb.channel(0), semaphore(SLOT), 1))
    tb = await MachineTestbench.start(dut, counting=1)
    await tb.control.write_semaphore(0, 1)
    report(switch_counting=await switch(tb, await tb.copy_channel(0), semaphore(0), 0))


@cocotb.test(**LIMIT)
async def switch_when_slice_is_over(dut):
    """Cycles from the last method of a slice to the first of the next channel."""
    tb = await MachineTestbench.start(dut)
    first, second = await tb.channel(0, slice_cycles=400), await tb.channel(1)
    await prefetched(tb, first, second, nops(*range(600)))
    (following,) = await tb.events(Method, channel=1)
    before = [e.cycle for e in await tb.events(Method, channel=0) if e.cycle < following.cycle]
    assert len(before) < 1200, "no slice ended"
    report(switch_slice=following.cycle - before[-1])


async def wake(
    tb: MachineTestbench, channel: RawChannel, slot: int, before: int, after: int
) -> int:
    """Cycles from the update of a semaphore to the next evaluation of an acquire of `after`."""
    await tb.control.write_semaphore(slot, before)
    await channel.submit(Pushbuffer().acquire(semaphore(slot), after))
    await tb.wait(200)
    await tb.control.write_semaphore(slot, after)
    await tb.wait(50)
    update = (await tb.events(Semaphore, index=slot, value=after))[-1]
    (passed,) = await tb.events(Acquire, channel=channel.index, passed=True)
    return passed.cycle - update.cycle


@cocotb.test(**LIMIT)
async def wake_up(dut):
    """The CPU writes the semaphore that a channel waits for."""
    tb = await MachineTestbench.start(dut)
    report(wake=await wake(tb, await tb.channel(0), SLOT, 0, 1))
    tb = await MachineTestbench.start(dut, counting=1)
    report(wake_counting=await wake(tb, await tb.copy_channel(0), 0, 1, 0))


@cocotb.test(**LIMIT)
async def doorbell(dut):
    """Cycles from a doorbell to the first method of an idle channel, with near and far memory."""
    for name, latency in (("doorbell_near", 2), ("doorbell_far", FAR)):
        tb = await MachineTestbench.start(dut, read_latency=latency)
        channel = await tb.channel(0)
        for _ in range(2):  # the first misses in the TLBs
            await channel.submit(one_nop())
            await tb.until_idle(channel)
        _, rung = await tb.events(Doorbell)
        _, method = await tb.events(Method)
        report(**{name: method.cycle - rung.cycle})


async def copies(dut, count: int, size: int) -> tuple[int, int]:
    """Returns the cycles from the end of the first of `count` pipelined copies to the end of the
    last, and the cycles of the first alone. `size` : bytes of a copy."""
    tb = await MachineTestbench.start(dut, read_latency=FAR, write_latency=FAR)
    channel = await tb.channel(0)
    ((dst, src),) = tb.copies(1, size)
    await channel.submit(setup().copy(dst, src, 1))  # misses in the TLBs
    await tb.until_idle(channel)
    commands = setup()
    for _ in range(count):
        commands.copy(dst, src, size, transfer=LaunchTransfer.PIPELINED)
    await channel.submit(commands)
    await tb.wait(1000 + count * (size // 16 + 100))
    starts = (await tb.events(Start))[1:]
    ends = (await tb.events(Done, failed=False))[1:]
    assert len(ends) == count
    assert tb.copied(dst, src, size)
    return ends[-1].cycle - ends[0].cycle, ends[0].cycle - starts[0].cycle


@cocotb.test(**LIMIT)
async def copy_efficiency(dut):
    """Pipelined copies, without the first one and its memory latency."""
    pages, _ = await copies(dut, 1 + PIPELINED_PAGES, PAGE)
    big, alone = await copies(dut, 1 + PIPELINED_BIG, BIG)
    report(copy_pages=pages, copy_big=big, copy_alone=alone)


def beyond(moment: int, start: int, runs: list[tuple[int, int]]) -> int:
    """Cycles from `moment` to `start`, not counting the remainder of a low copy running at
    `moment`."""
    ends = [end for begin, end in runs if begin <= moment < end]
    return start - max([moment, *ends])


@cocotb.test(**LIMIT)
async def priority_wait(dut):
    """The longest wait of urgent copies while the low channel is saturated."""
    tb = await MachineTestbench.start(dut, counting=1)
    policy = bound(PriorityPolicy(2))
    low, high = await tb.copy_channel(LOW), await tb.copy_channel(HIGH)
    lows, urgent = tb.copies(2, PAGE)
    await low.submit(joined(*[request(policy, LOW, *lows, PAGE) for _ in range(LOW_COPIES)]))
    for sample in range(SAMPLES):
        await tb.wait(700 + 37 * sample % 400)
        await high.submit(request(policy, HIGH, *urgent, 512))
    await tb.wait(2000)
    rung = [e.cycle for e in await tb.events(Doorbell, channel=HIGH)][-SAMPLES:]
    counted = [e.cycle for e in await tb.events(Semaphore, index=0, value=1)]
    started = [e.cycle for e in await tb.events(Start, channel=HIGH)]
    begins = [e.cycle for e in await tb.events(Start, channel=LOW)]
    ends = [e.cycle for e in await tb.events(Done, channel=LOW)]
    assert len(rung) == len(counted) == len(started) == SAMPLES
    assert begins[-1] > started[-1], "the low channel was not saturated"
    runs = list(zip(begins, ends, strict=False))
    requests = list(zip(rung, counted, started, strict=True))
    for _, count, start in requests:
        assert not [begin for begin in begins if count < begin < start], "a low copy overtakes"
    report(
        priority_wait=max(beyond(count, start, runs) for _, count, start in requests),
        priority_count=max(count - ring for ring, count, _ in requests),
        priority_doorbell=max(beyond(ring, start, runs) for ring, _, start in requests),
    )
