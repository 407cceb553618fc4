"""Failed acquires: parking, retry, switching, time-out (HOST-5; spec 2.3, 2.4)."""

import itertools

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, SemOp
from signalbox.hw.registers import Wait
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore, setup
from signalbox.tb.simulation.trace import Acquire, Done, Error, Method, Semaphore, Served, Start
from signalbox.tb.testbench.sample import some

LIMIT = {"timeout_time": 6, "timeout_unit": "ms"}

SWITCH = 4
"""Maximum number of cycles between methods of two channels (page 70)."""

UNIT_CYCLES = 102.4
"""Cycles of 10 ns in a unit of 1,024 ns."""


@cocotb.test(**LIMIT)
async def retries_in_memory(dut):
    """A semaphore in memory is read again after each retry period, until the CPU writes it."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    where = tb.allocate(16)
    for man, exp in ((100, 0), (100, 1), (3, 6)):
        period = man << exp
        await channel.write("ACQUIRE", RETRY_MAN=man, RETRY_EXP=exp)
        tb.set_word(where, 0)
        await channel.submit(Pushbuffer().acquire(where, 5))
        await tb.until_waits(channel, Wait.RETRY)
        reads = tb.watch_reads()
        await tb.wait(10 * period)
        moments = [cycle for cycle, address in reads.stop() if address == where]
        gaps = [b - a for a, b in itertools.pairwise(moments)]
        assert len(gaps) >= 5
        assert min(gaps) >= period
        assert max(gaps) <= period + 60, gaps
        assert (await channel.status())["ACQUIRE_FAIL"] == 1
        tb.set_word(where, 5)
        released = tb.now()
        await tb.until_idle(channel)
        passed = (await tb.events(Acquire))[-1]
        assert passed.passed and passed.cycle - released <= period + 60
        assert (await channel.status())["ACQUIRE_FAIL"] == 0


@cocotb.test(**LIMIT)
async def others_go_on(dut):
    """While one channel waits, on chip or in memory, another wakes up and executes as if it were
    alone, in any cycle between two retries. A retry that has just begun costs one switch, but never
    the latency of memory (COPY-7)."""
    tb = await MachineTestbench.start(dut)
    waiting, other = await tb.channel(0, retry=20), await tb.channel(1)

    async def cycles(number: int, moment: int) -> tuple[int, ...]:
        """Cycles in which `other` executes prefetched methods, counted from the update that wakes
        it."""
        commands = Pushbuffer().acquire(semaphore(4), number)
        await other.submit(commands.non_inc(0, HostMethod.NOP, *range(8)))
        await tb.until_waits(other, Wait.ONCHIP)
        await tb.wait(100 + moment)
        await tb.let_go(4, number)
        await tb.until_idle(other)
        woken = (await tb.events(Semaphore, index=4))[-1].cycle
        nops = (await tb.events(Method, channel=1, offset=8))[-8:]
        assert [event.data for event in nops] == list(range(8))
        return tuple(event.cycle - woken for event in nops)

    numbers = itertools.count(1)
    alone = await cycles(next(numbers), 0)
    for where in (semaphore(3), tb.allocate(16)):
        await waiting.submit(Pushbuffer().acquire(where, 1).host(HostMethod.NOP, 9))
        await tb.until_waits(waiting, Wait.ONCHIP if where == semaphore(3) else Wait.RETRY)
        before = len(await tb.events(Acquire, channel=0, passed=False))
        for moment in some(range(60), 6):
            first, *others = await cycles(next(numbers), moment)
            assert first == alone[0] or (where != semaphore(3) and first <= alone[0] + SWITCH)
            assert others == [first + n for n in range(1, 8)]
        failed = len(await tb.events(Acquire, channel=0, passed=False)) - before
        assert failed == 0 if where == semaphore(3) else failed > 10
        assert not await tb.events(Method, channel=0, offset=8, data=9)
        await waiting.write("CONTROL", ENABLE=0)
        await waiting.open(retry=20)
        waiting.put = 0


@cocotb.test(**LIMIT)
async def release_by_another_channel(dut):
    """In memory: a release by another channel is seen at the next retry, with either SWITCH bit."""
    tb, period = await MachineTestbench.start(dut), 100
    one, two = await tb.channel(0, retry=period), await tb.channel(1)
    where = tb.allocate(32)
    for number, switch in enumerate((False, True), 1):
        commands = Pushbuffer().acquire(where, number, SemOp.ACQ_CIRC_GEQ, switch=switch)
        await one.submit(commands.release(where + 16, number))
        await tb.until_waits(one, Wait.RETRY)
        await two.submit(Pushbuffer().release(where, number).acquire(where + 16, number))
        await tb.until(lambda n=number: tb.word(where) == n, "the release", poll=1)
        released = tb.now()
        await tb.until_idle(one, two)
        failed, passed = (await tb.events(Acquire, channel=0))[-2:]
        assert (failed.passed, passed.passed) == (False, True)
        assert failed.cycle <= released + 60 and passed.cycle <= released + period + 60


async def times_out(tb: MachineTestbench, channel: RawChannel, units: int, since: int) -> None:
    """Check that the channel halts because of its time-out, `units` after cycle `since`."""
    halt = await channel.until_halted(Cause.ACQUIRE_TIMEOUT)
    assert (halt.method, halt.valid) == (int(HostMethod.SEM_EXECUTE), True)
    error = (await tb.events(Error, channel=channel.index))[-1]
    waited = (error.cycle - since) / UNIT_CYCLES
    assert units - 1 <= waited <= units + 1.5, waited


@cocotb.test(**LIMIT)
async def time_out(dut):
    """An acquire fails with ACQUIRE after the time-out and keeps the method. Clearing restarts the
    time. The channel continues after the CPU releases the semaphore and clears the error, or
    replaces the method by a NOP. On chip and in memory."""
    tb = await MachineTestbench.start(dut)
    other = await tb.channel(1)
    for where in (semaphore(3), tb.allocate(16)):
        on_chip = where == semaphore(3)
        channel = await tb.channel(0, timeout_units=10)
        channel.put = 0
        for _ in range(2):
            seen = len(await tb.events(Acquire, channel=0))
            await channel.submit(Pushbuffer().acquire(where, 7).host(HostMethod.NOP, 1))
            for _ in range(2):
                await tb.until_waits(channel, Wait.ONCHIP if on_chip else Wait.RETRY)
                failed = (await tb.events(Acquire, channel=0))[seen]
                await times_out(tb, channel, 10, failed.cycle)
                assert (await channel.halt()).va == where
                await other.submit(Pushbuffer().host(HostMethod.NOP, 2))
                await tb.until_idle(other)
                seen = len(await tb.events(Acquire, channel=0))
                await channel.clear()
            await channel.until_halted(Cause.ACQUIRE_TIMEOUT)
            await channel.replace(HostMethod.NOP)
            await tb.until_idle(channel)
        await channel.submit(Pushbuffer().acquire(where, 7).host(HostMethod.NOP, 1))
        await channel.until_halted(Cause.ACQUIRE_TIMEOUT)
        if on_chip:
            await tb.control.write_semaphore(3, 7)
        else:
            tb.set_word(where, 7)
        await channel.clear()
        await tb.until_idle(channel)
        await channel.write("CONTROL", ENABLE=0)


@cocotb.test(**LIMIT)
async def time_out_despite_updates(dut):
    """The time counts from the first failed evaluation; updates after which the condition still
    fails do not restart it."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, timeout_units=10)
    await channel.submit(Pushbuffer().acquire(semaphore(3), 7))
    await tb.until_waits(channel, Wait.ONCHIP)
    (first,) = await tb.events(Acquire, channel=0)
    for value in range(1, 4):
        await tb.wait(round(2 * UNIT_CYCLES))
        await tb.let_go(3, value)
    await times_out(tb, channel, 10, first.cycle)
    assert len(await tb.events(Acquire, channel=0, passed=False)) == 5


@cocotb.test(**LIMIT)
async def no_time_out(dut):
    """Without TIMEOUT_EN an acquire waits indefinitely; an acquire that passes in time never times
    out."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    await channel.write("ACQUIRE", RETRY_MAN=8, TIMEOUT_MAN=1)
    await channel.submit(Pushbuffer().acquire(semaphore(3), 7))
    await tb.wait(1000)
    assert (await channel.status())["HALTED"] == 0
    await tb.control.write_semaphore(3, 7)
    await tb.until_idle(channel)
    await channel.write("ACQUIRE", RETRY_MAN=8, TIMEOUT_MAN=8, TIMEOUT_ENABLE=1)
    for number in range(8, 14):
        await channel.submit(Pushbuffer().acquire(semaphore(3), number))
        await tb.wait(500)
        await tb.control.write_semaphore(3, number)
        await tb.until_idle(channel)
    assert await tb.events(Error) == []


@cocotb.test(**LIMIT)
async def in_copy_channels(dut):
    """A copy after an acquire in memory starts only after the acquire has passed, whichever channel
    uses the engine in the meantime."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.copy_channel(0), await tb.copy_channel(1)
    where = tb.allocate(16)
    copies = tb.copies(6, 2048)
    commands = Pushbuffer().acquire(where, 3)
    await one.submit(commands.copy(*copies[0], 2048))
    await tb.wait(300)
    for dst, src in copies[1:5]:
        await two.submit(Pushbuffer().copy(dst, src, 2048))
    await tb.wait(300)
    assert (await tb.events(Start, channel=0)) == []
    tb.set_word(where, 3)
    await tb.until_idle(one, two)
    (start,) = await tb.events(Start, channel=0)
    assert start.cycle > (await tb.events(Acquire, channel=0, passed=True))[0].cycle
    assert all(tb.copied(dst, src, 2048) for dst, src in copies[:5])


@cocotb.test(**LIMIT)
async def early_waits(dut):
    """With EARLY_WAITS, an acquire unrelated to priorities needs no engine: it passes, and the
    following increment is executed, while all engines run other copies. Acquires of counting
    semaphores still wait for an engine (COPY-13)."""
    tb = await MachineTestbench.start(dut, counting=1)
    engines = await tb.control.read("COPY_ENGINES")
    busy = [await tb.copy_channel(i) for i in range(engines)]
    early = await tb.copy_channel(engines, early_waits=True)
    for where in (semaphore(9), tb.allocate(16)):
        await tb.control.write_semaphore(9, 0)
        started, ended = len(await tb.events(Start)), len(await tb.events(Done))
        written = await tb.events(Semaphore, index=2)
        long = tb.copies(engines, 8192)
        for channel, copy in zip(busy, long, strict=True):
            await channel.submit(Pushbuffer().copy(*copy, 8192))
        await until_started(tb, started + engines)
        ((dst, src),) = tb.copies(1, 512)
        commands = Pushbuffer().acquire(where, 3).add(semaphore(2), 1).acquire(semaphore(0), 0)
        await early.submit(commands.copy(dst, src, 512))
        await tb.wait(60)
        assert await tb.events(Semaphore, index=2) == written
        if where == semaphore(9):
            await tb.control.write_semaphore(9, 3)
        else:
            tb.set_word(where, 3)
        await tb.until_idle(*busy, early)
        first, second = (await tb.events(Acquire, channel=engines, passed=True))[-2:]
        counted = (await tb.events(Semaphore, index=2))[-1]
        done = (await tb.events(Done))[ended]
        assert first.cycle < counted.cycle < done.cycle <= second.cycle
        assert tb.copied(dst, src, 512)


@cocotb.test(**LIMIT)
async def pollers_keep_nobody_out(dut):
    """Semaphore operations in memory take turns: while all other channels poll as often as
    possible, a later channel can release the awaited semaphore."""
    tb = await MachineTestbench.start(dut, read_latency=100)
    built = await tb.control.read("CHANNELS")
    where = tb.allocate(16)
    pollers = [await tb.channel(i, retry=1) for i in range(built - 1)]
    late = await tb.channel(built - 1)
    for channel in pollers:
        await channel.submit(Pushbuffer().acquire(where, 5, SemOp.ACQ_CIRC_GEQ))
    await tb.wait(3000)
    began = tb.now()
    await late.submit(Pushbuffer().release(where, 5))
    await tb.until_word(where, 5)
    # An operation reads and writes, and waits for at most one of each channel.
    assert tb.now() - began < 400 * (built + 1)
    await tb.until_idle(late, *pollers)


@cocotb.test(**LIMIT)
async def time_out_without_engine(dut):
    """An acquire before a copy also times out while another channel's copy uses the engine, and
    when its condition becomes false while it waits for an engine."""
    tb = await MachineTestbench.start(dut, counting=1)
    engines = await tb.control.read("COPY_ENGINES")
    busy = [await tb.copy_channel(i) for i in range(engines)]
    waiting = engines
    for first in (1, 0):
        low = await tb.copy_channel(waiting, timeout_units=10)
        await tb.control.write_semaphore(0, first)
        ((dst, src),) = tb.copies(1, 64)
        commands = Pushbuffer().acquire(semaphore(0), 0).copy(dst, src, 64)
        long = Pushbuffer().copy_2d(*tb.endless())
        started = len(await tb.events(Start))
        if first:
            await low.submit(commands)
            await tb.until_waits(low, Wait.ENGINE)
        for channel in busy:
            await channel.submit(long)
        await until_started(tb, started + engines)
        if not first:
            await low.submit(commands)
            await tb.until_waits(low, Wait.ENGINE_TIMED)
            await tb.control.write_semaphore(0, 1)
        await low.until_halted(Cause.ACQUIRE_TIMEOUT)
        assert (await low.halt()).va == semaphore(0)
        for channel in busy:
            await channel.write("CONTROL", ENABLE=0)
        busy = [await tb.copy_channel(i) for i in range(engines)]


@cocotb.test(**LIMIT)
async def acquire_in_vain_holds_up_no_copy(dut):
    """After an acquire before a copy has timed out and was replaced or skipped, the copy starts
    although the condition is false; other acquires of its group still count. On chip, and in memory
    at an address whose low bits are those of an on-chip semaphore."""
    tb = await MachineTestbench.start(dut, counting=2)
    for skips, in_vain in (
        (False, semaphore(1)),
        (True, semaphore(1)),
        (True, tb.allocate(16, align=1 << 16)),
    ):
        await tb.control.write_semaphore(0, 0)
        await tb.control.write_semaphore(1, 1)
        channel = await tb.copy_channel(0, timeout_units=10)
        channel.put = 1
        ((dst, src),) = tb.copies(1, 64)
        both = Pushbuffer().acquire(semaphore(0), 0).acquire(in_vain, 0 if in_vain >> 32 else 1)
        await channel.submit(both.copy(dst, src, 64))
        await channel.until_halted(Cause.ACQUIRE_TIMEOUT)
        await tb.control.write_semaphore(0, 1)
        await (channel.skip() if skips else channel.replace(HostMethod.NOP))
        await tb.until_waits(channel, Wait.ENGINE)
        await tb.control.write_semaphore(0, 0)
        await tb.until_idle(channel)
        assert tb.copied(dst, src, 64)
        await channel.write("CONTROL", ENABLE=0)


@cocotb.test(**LIMIT)
async def acquires_that_hold_pass(dut):
    """An acquire whose condition is true passes if an engine is idle, regardless of an earlier
    acquire of its channel; otherwise these two channels would wait for each other."""
    tb = await MachineTestbench.start(dut, counting=1)
    one, two = await tb.copy_channel(0), await tb.copy_channel(1)
    commands = Pushbuffer().acquire(semaphore(0), 0).release(semaphore(4), 1)
    await one.submit(commands.acquire(semaphore(5), 1).release(semaphore(6), 1))
    await tb.until_semaphore(4, 1)
    commands = Pushbuffer().add(semaphore(0), 1).release(semaphore(5), 1)
    await two.submit(commands.acquire(semaphore(6), 1).add(semaphore(0), -1))
    await tb.until_idle(one, two)


@cocotb.test(**LIMIT)
async def waiting_for_an_engine_is_no_failure(dut):
    """A time-out begins when the condition is found to be false: an on-chip acquire of either kind
    that lacks only an engine waits indefinitely, and passes when it gets one."""
    tb = await MachineTestbench.start(dut, counting=1)
    engines = await tb.control.read("COPY_ENGINES")
    waiting = await tb.copy_channel(engines, timeout_units=3)
    for slot, wait in ((0, Wait.ENGINE_TIMED), (9, Wait.ENGINE_ONLY)):
        busy = [await tb.copy_channel(i) for i in range(engines)]
        started = len(await tb.events(Start))
        for channel in busy:
            await channel.submit(Pushbuffer().copy_2d(*tb.endless()))
        await until_started(tb, started + engines)
        await waiting.submit(Pushbuffer().acquire(semaphore(slot), 0))
        await tb.until_waits(waiting, wait)
        served = len(await tb.events(Served, channel=engines))
        await tb.wait(round(10 * UNIT_CYCLES))
        await tb.until_waits(waiting, wait)
        assert (await waiting.status())["ACQUIRE_FAIL"] == 0
        assert not await tb.events(Acquire, channel=engines, passed=False)
        assert len(await tb.events(Served, channel=engines)) == served
        for channel in busy:
            await channel.write("CONTROL", ENABLE=0)
        await tb.until_idle(waiting)


@cocotb.test(**LIMIT)
async def time_out_of_other_acquires_without_engine(dut):
    """A failed acquire of a non-counting semaphore also times out while no engine is available;
    after clearing, it waits for an engine and is not evaluated earlier."""
    tb = await MachineTestbench.start(dut, counting=1)
    engines = await tb.control.read("COPY_ENGINES")
    busy = [await tb.copy_channel(i) for i in range(engines)]
    waiting = await tb.copy_channel(engines, timeout_units=10)
    await waiting.submit(Pushbuffer().acquire(semaphore(9), 5))
    await tb.until_waits(waiting, Wait.ONCHIP)
    (failed,) = await tb.events(Acquire, channel=engines)
    for channel in busy:
        await channel.submit(Pushbuffer().copy_2d(*tb.endless()))
    await until_started(tb, engines)
    await times_out(tb, waiting, 10, failed.cycle)
    await waiting.clear()
    await tb.until_waits(waiting, Wait.ENGINE_ONLY)
    served = len(await tb.events(Served, channel=engines))
    await tb.wait(round(20 * UNIT_CYCLES))
    assert len(await tb.events(Served, channel=engines)) == served
    await tb.control.write_semaphore(9, 5)
    for channel in busy:
        await channel.write("CONTROL", ENABLE=0)
    await tb.until_idle(waiting)


@cocotb.test(**LIMIT)
async def time_out_switched_off(dut):
    """If TIMEOUT_EN becomes 0 while an acquire waits on chip, the acquire is evaluated once more
    when the time is over, and then only when its semaphore is written."""
    tb = await MachineTestbench.start(dut, counting=1)
    for copies, slot, wait in ((False, 9, Wait.ONCHIP), (True, 0, Wait.ENGINE)):
        await tb.control.write_semaphore(slot, 2)
        channel = await tb.channel(0, timeout_units=5)
        channel.put = 0
        commands = setup() if copies else Pushbuffer()
        await channel.submit(commands.acquire(semaphore(slot), 0))
        await tb.until_waits(channel, wait)
        await channel.write("ACQUIRE", RETRY_MAN=8)
        await tb.wait(round(10 * UNIT_CYCLES))
        seen = len(await tb.events(Acquire, channel=0))
        await tb.wait(500)
        assert len(await tb.events(Acquire, channel=0)) == seen
        await tb.control.write_semaphore(slot, 0)
        await tb.until_idle(channel)
        await channel.write("CONTROL", ENABLE=0)
    assert await tb.events(Error) == []
