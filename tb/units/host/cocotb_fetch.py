"""The fetch unit alone: order, pending, bad segments, rate (HOST-1, HOST-6)."""

from itertools import accumulate, product

import cocotb

from signalbox.hw.errors import Cause
from signalbox.hw.host.fetch.aging import ERA
from signalbox.hw.host.fetch.backlog import ENTRIES_AHEAD
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.units.host.fetch_testbench import CONFIG, FetchTestbench, Ring

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

BEAT = CONFIG.beat_dwords
BURST = min(8, CONFIG.prefetch_beats // 4) * BEAT
FULL = CONFIG.prefetch_beats * BEAT
"""Capacity of the prefetch buffer in dwords."""


@cocotb.test(**LIMIT)
async def segments_in_order(dut):
    """Segments of many lengths and alignments, of two channels, arrive in order despite stalls."""
    tb = await FetchTestbench(dut).start()
    for stalls in (False, True):
        tb = await tb.again()
        tb.stalls = stalls
        rings = [Ring(tb, 0), Ring(tb, CONFIG.channels - 1)]
        first = 0
        for ring in rings:
            await ring.open()
            first = 0
            for length in (1, 2, BEAT, BURST - 1, BURST, BURST + 1, 3 * BURST + 3, 1, 1):
                ring.arena += 4 * (length % 3)
                ring.segment(first, length)
                first += length
            ring.kick()
        await tb.until_rest(*(ring.channel for ring in rings))
        for ring in rings:
            assert tb.dwords[ring.channel] == list(range(first))
            assert not tb.causes[ring.channel]


@cocotb.test(**LIMIT)
async def pending_without_a_gap(dut):
    """A channel is pending in every cycle from its doorbell until everything is executed."""
    tb = await FetchTestbench(dut).start()
    for latency in (1, 5, 30):
        tb = await tb.again(latency)
        ring = Ring(tb, 0)
        await ring.open()
        await tb.until_rest(0)
        for lengths in ((1,), (3, 2 * BURST, 1), (1,) * (ENTRIES_AHEAD + 2)):
            total = len(tb.dwords[0]) + sum(lengths)
            for length in lengths:
                ring.segment(0, length)
            ring.kick()
            await tb.step()
            while len(tb.dwords[0]) < total:
                await tb.step()
                assert tb.pending[0], f"not pending with {total} dwords, latency {latency}"
            await tb.until_rest(0)


@cocotb.test(**LIMIT)
async def sync_waits_for_execution(dut):
    """A segment with SYNC = WAIT is read soon after everything before it was fetched and executed,
    and not earlier. No other segment and no other channel waits for this (spec 1.1)."""
    tb = await FetchTestbench(dut).start()
    ends = 0, CONFIG.channels - 1
    for latency, channels, length in product((1, 40), (ends, ends[::-1]), (1, BURST, 3 * BURST)):
        tb = await tb.again(latency)
        busy, idle = (Ring(tb, channel) for channel in channels)
        waiting: dict[int, int] = {}
        tb.executing.add(busy.channel)
        for ring in (busy, idle):
            await ring.open()
            ring.segment(0, length)
            ring.segment(length, 2)
            waiting[ring.channel] = ring.arena
            ring.segment(length + 2, 3, sync=True)
            ring.segment(length + 5, 1)
            ring.kick()
        before, after = list(range(length + 2)), list(range(length + 6))
        await tb.until(lambda b=tb, at=waiting[idle.channel]: b.asked(at), "the idle one's read")
        assert tb.dwords[idle.channel] == before
        await tb.until_rest(idle.channel)
        assert tb.dwords[idle.channel] == after
        await tb.steps(100 + 2 * latency)
        assert tb.dwords[busy.channel] == before and not tb.asked(waiting[busy.channel])
        tb.executing.clear()
        executed = tb.cycle
        await tb.until(lambda b=tb, at=waiting[busy.channel]: b.asked(at), "the busy one's read")
        assert tb.cycle - executed < 20
        await tb.until_rest(busy.channel)
        assert tb.dwords[busy.channel] == after


@cocotb.test(**LIMIT)
async def rest_of_a_bad_segment_is_dropped(dut):
    """Each bad segment, of any length, has one cause, followed by the next entry. Reading stops
    early."""
    tb = await FetchTestbench(dut).start()
    ring = Ring(tb, 0)
    await ring.open()
    tb.fail(range(0x100_0000, 0x200_0000), MemoryStatus.FAULT)
    tb.fail(range(0x80_0000, 0x90_0000), MemoryStatus.BUS)
    wrong = (Cause.FETCH_FAULT, 0x100_0000), (Cause.FETCH_BUS, 0x80_0000)
    for cause, start in wrong:
        for length in (1, BURST - 1, BURST, 3 * BURST, 5 * BURST + 1, 100_000):
            for good in (0, 1, BURST + 2):
                at, first = start - 4 * good, len(tb.dwords[0])
                ring.segment(first, good + 1, at, more=length - 1)
                ring.segment(first + good, 3)
                ring.kick()
                reads = tb.reads
                await tb.until(lambda: tb.causes[0], "the cause")
                await tb.steps(200)
                assert tb.causes[0] == [cause]
                assert len(tb.dwords[0]) == first + good
                tb.slow.clear()
                await tb.until_rest(0)
                assert tb.causes[0] == [cause], f"{length} dwords after {good}"
                expected = list(range(first, first + good + 3))
                assert tb.dwords[0][first:] == expected, f"{length} dwords after {good}"
                assert tb.reads < reads + 12 + CONFIG.prefetch_beats
                tb.causes[0].clear()


@cocotb.test(**LIMIT)
async def starts_from_an_empty_ring(dut):
    """A channel that starts again has none of its prefetched entries; entries of another channel
    remain, whatever was prefetched before."""
    tb = await FetchTestbench(dut).start()
    ring, other = Ring(tb, 0), Ring(tb, CONFIG.channels - 1)
    await other.open()
    first = 0
    for ahead in range(1, ENTRIES_AHEAD + 1):
        await ring.open()
        tb.slow |= {ring.channel, other.channel}
        lengths = [FULL + BURST, *[1] * ahead]
        firsts = [*accumulate(lengths, initial=first)]
        for one in (ring, other):
            for number, length in zip(firsts, lengths, strict=False):
                one.segment(number, length)
            one.kick()
        await tb.steps(300)
        tb.enabled.discard(ring.channel)
        await ring.open()
        ring.segment(1000, 3)
        ring.kick()
        tb.slow.clear()
        await tb.until_rest(ring.channel, other.channel)
        assert tb.dwords[ring.channel] == [1000, 1001, 1002]
        first = firsts[-1]
        assert tb.dwords[other.channel] == list(range(first))
        tb.dwords[ring.channel].clear()
        tb.enabled.discard(ring.channel)


@cocotb.test(**LIMIT)
async def goes_on_when_there_is_room(dut):
    """The next burst of a segment is read as soon as the prefetch buffer has room."""
    tb = await FetchTestbench(dut, latency=40).start()
    ring = Ring(tb, 0)
    await ring.open()
    tb.slow.add(0)
    ring.segment(0, 3 * FULL)
    ring.kick()
    await tb.until(lambda: tb.held(0) > CONFIG.prefetch_beats - BURST // BEAT, "a full one")
    for _ in range(BURST // BEAT + 2):
        await tb.steps(100)
        held, reads = tb.held(0), tb.reads
        tb.slow.clear()
        await tb.step()
        tb.slow.add(0)
        await tb.steps(20)
        fits = held - 1 <= CONFIG.prefetch_beats - BURST // BEAT
        assert tb.reads - reads == fits, f"{held - 1} beats"


@cocotb.test(**LIMIT)
async def failed_write_is_reported(dut):
    """A failed write to USERD halts the channel once, after the data fetched before."""
    tb = await FetchTestbench(dut).start()
    ring = Ring(tb, 0)
    await ring.open()
    await tb.until_rest(0)
    for first in (0, 3):
        ring.segment(first, 3)
        ring.kick()
        await tb.until(lambda n=first: len(tb.dwords[0]) == n + 3, "the segment")
        tb.unwritten.send(channel=0)
        await tb.steps(2)
        assert tb.pending[0]
        await tb.until(lambda: tb.causes[0], "the cause")
        tb.slow.clear()
        await tb.until_rest(0)
        assert tb.causes[0] == [Cause.USERD_WRITE]
        tb.causes[0].clear()


@cocotb.test(**LIMIT)
async def stamps_do_not_wrap(dut):
    """A doorbell whose GP_PUT is read late is not mistaken for a new one."""
    tb = await FetchTestbench(dut, latency=12 * ERA).start()
    ring = Ring(tb, 0)
    await ring.open()
    ring.segment(0, 1)
    ring.kick()
    await tb.step()
    for rung in range(11 * ERA):
        tb.doorbell.put({"channel": 1})
        await tb.step()
        if rung == 100:
            ring.kick()  # waits until the first GP_PUT has arrived
    tb.latency = 10
    for number in range(2):
        await tb.until(lambda n=number: len(tb.announced) > n, "the announcement")
        age = (tb.get("doorbells__now") - tb.announced[-1][2]) % (8 * ERA)
        assert 2 * ERA <= age < 4 * ERA, f"age {age}"
        if number == 0:
            ring.segment(1, 1)
            ring.write_put()


@cocotb.test(**LIMIT)
async def rate(dut):
    """A long segment is fetched at one dword per cycle if the prefetch buffer covers memory's
    latency."""
    tb = await FetchTestbench(dut).start()
    ahead = CONFIG.prefetch_beats * BEAT - BURST
    for latency in (1, 10, 100):
        tb = await tb.again(latency)
        ring = Ring(tb, 0)
        await ring.open()
        ring.segment(0, 4000)
        ring.kick()
        await tb.until(lambda b=tb: len(b.dwords[0]) >= 200, "the beginning")
        begin, count = tb.cycle, len(tb.dwords[0])
        await tb.until(lambda b=tb: len(b.dwords[0]) >= 600, "the middle")
        share = (len(tb.dwords[0]) - count) / (tb.cycle - begin)
        dut._log.info(f"latency {latency}: {share:.2f} dwords per cycle")
        assert share >= min(1, ahead / (latency + 16))


@cocotb.test(**LIMIT)
async def doorbells_in_every_visit(dut):
    """A channel that is rung before each of its visits fetches what earlier doorbells announced."""
    tb = await FetchTestbench(dut).start()
    for latency in (1, 10):
        tb = await tb.again(latency)
        rings = [Ring(tb, channel) for channel in range(CONFIG.channels)]
        for ring in rings:
            await ring.open()
            ring.segment(0, BURST)
            ring.kick()
        for _ in range(100 * CONFIG.channels):
            for ring in rings:
                ring.kick()
                await tb.step()
        for ring in rings:
            assert tb.dwords[ring.channel] == list(range(BURST)), f"{ring.channel}, {latency}"
