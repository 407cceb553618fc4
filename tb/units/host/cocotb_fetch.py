"""The fetch unit alone: order, pending, bad segments, rate (HOST-1, HOST-6)."""

from itertools import accumulate

import cocotb

from signalbox.hw.errors import Cause
from signalbox.hw.host.fetch.aging import ERA
from signalbox.hw.host.fetch.backlog import ENTRIES_AHEAD
from signalbox.tb.units.host.fetch_testbench import CONFIG, Fetching, Ring

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

BEAT = CONFIG.beat_dwords
BURST = min(8, CONFIG.prefetch_beats // 4) * BEAT
FULL = CONFIG.prefetch_beats * BEAT
"""Capacity of the prefetch buffer in dwords."""


@cocotb.test(**LIMIT)
async def segments_in_order(dut):
    """Segments of many lengths and alignments, of two channels, arrive in order despite stalls."""
    bench = await Fetching.start(dut)
    for stalls in (False, True):
        bench = await bench.reset()
        bench.stalls = stalls
        rings = [Ring(bench, 0), Ring(bench, CONFIG.channels - 1)]
        first = 0
        for ring in rings:
            await ring.open()
            first = 0
            for length in (1, 2, BEAT, BURST - 1, BURST, BURST + 1, 3 * BURST + 3, 1, 1):
                ring.arena += 4 * (length % 3)
                ring.segment(first, length)
                first += length
            ring.kick()
        await bench.until_rest(*(ring.channel for ring in rings))
        for ring in rings:
            assert bench.dwords[ring.channel] == list(range(first))
            assert not bench.causes[ring.channel]


@cocotb.test(**LIMIT)
async def pending_without_a_gap(dut):
    """A channel is pending in every cycle from its doorbell until everything is executed."""
    bench = await Fetching.start(dut)
    for latency in (1, 5, 30):
        bench = await bench.reset(latency)
        ring = Ring(bench, 0)
        await ring.open()
        await bench.until_rest(0)
        for lengths in ((1,), (3, 2 * BURST, 1), (1,) * (ENTRIES_AHEAD + 2)):
            total = len(bench.dwords[0]) + sum(lengths)
            for length in lengths:
                ring.segment(0, length)
            ring.kick()
            await bench.step()
            while len(bench.dwords[0]) < total:
                await bench.step()
                assert bench.pending[0], f"not pending with {total} dwords, latency {latency}"
            await bench.until_rest(0)


@cocotb.test(**LIMIT)
async def rest_of_a_bad_segment_is_dropped(dut):
    """Each bad segment, of any length, has one cause, followed by the next entry. Reading stops
    early."""
    bench = await Fetching.start(dut)
    ring = Ring(bench, 0)
    await ring.open()
    bench.unmapped.append(range(0x100_0000, 0x200_0000))
    bench.bad.append(range(0x80_0000, 0x90_0000))
    wrong = (Cause.FETCH_FAULT, 0x100_0000), (Cause.FETCH_BUS, 0x80_0000)
    for cause, start in wrong:
        for length in (1, BURST - 1, BURST, 3 * BURST, 5 * BURST + 1, 100_000):
            for good in (0, 1, BURST + 2):
                at, first = start - 4 * good, len(bench.dwords[0])
                ring.segment(first, good + 1, at)
                bench.memory[ring.base + 8 * ((ring.put - 1) % 32) + 4] += length - 1 << 10
                ring.segment(first + good, 3)
                ring.kick()
                reads = bench.reads
                await bench.until(lambda: bench.causes[0], "the cause")
                await bench.until(lambda n=bench.cycle + 200: bench.cycle > n, "time")
                assert bench.causes[0] == [cause]
                assert len(bench.dwords[0]) == first + good
                bench.slow.clear()
                await bench.until_rest(0)
                assert bench.causes[0] == [cause], f"{length} dwords after {good}"
                expected = list(range(first, first + good + 3))
                assert bench.dwords[0][first:] == expected, f"{length} dwords after {good}"
                assert bench.reads < reads + 12 + CONFIG.prefetch_beats
                bench.causes[0].clear()


@cocotb.test(**LIMIT)
async def starts_from_an_empty_ring(dut):
    """A channel that starts again has none of the prefetched entries; those of another channel
    remain, regardless of what was prefetched before."""
    bench = await Fetching.start(dut)
    ring, other = Ring(bench, 0), Ring(bench, CONFIG.channels - 1)
    await other.open()
    first = 0
    for ahead in range(1, ENTRIES_AHEAD + 1):
        await ring.open()
        bench.slow |= {ring.channel, other.channel}
        lengths = [FULL + BURST, *[1] * ahead]
        firsts = [*accumulate(lengths, initial=first)]
        for one in (ring, other):
            for number, length in zip(firsts, lengths, strict=False):
                one.segment(number, length)
            one.kick()
        await bench.until(lambda n=bench.cycle + 300: bench.cycle > n, "time")
        bench.enabled &= ~(1 << ring.channel)
        await ring.open()
        ring.segment(1000, 3)
        ring.kick()
        bench.slow.clear()
        await bench.until_rest(ring.channel, other.channel)
        assert bench.dwords[ring.channel] == [1000, 1001, 1002]
        first = firsts[-1]
        assert bench.dwords[other.channel] == list(range(first))
        bench.dwords[ring.channel].clear()
        bench.enabled &= ~(1 << ring.channel)


@cocotb.test(**LIMIT)
async def goes_on_when_there_is_room(dut):
    """The next burst of a segment is read as soon as the prefetch buffer has room for it."""
    bench = await Fetching.start(dut, latency=40)
    ring = Ring(bench, 0)
    await ring.open()
    bench.slow.add(0)
    ring.segment(0, 3 * FULL)
    ring.kick()
    await bench.until(lambda: bench.held(0) > CONFIG.prefetch_beats - BURST // BEAT, "a full one")
    for _ in range(BURST // BEAT + 2):
        await bench.until(lambda n=bench.cycle + 100: bench.cycle > n, "time")
        held, reads = bench.held(0), bench.reads
        bench.slow.clear()
        await bench.step()
        bench.slow.add(0)
        await bench.until(lambda n=bench.cycle + 20: bench.cycle > n, "time")
        fits = held - 1 <= CONFIG.prefetch_beats - BURST // BEAT
        assert bench.reads - reads == fits, f"{held - 1} beats"


@cocotb.test(**LIMIT)
async def failed_write_is_reported(dut):
    """A failed write to USERD halts the channel once, after the data fetched before."""
    bench = await Fetching.start(dut)
    ring = Ring(bench, 0)
    await ring.open()
    await bench.until_rest(0)
    for first in (0, 3):
        ring.segment(first, 3)
        ring.kick()
        await bench.until(lambda n=first: len(bench.dwords[0]) == n + 3, "the segment")
        bench.drive("unwritten", channel=0)
        await bench.step()
        bench.dut.unwritten.value = 0
        await bench.step()
        assert bench.pending[0]
        await bench.until(lambda: bench.causes[0], "the cause")
        bench.slow.clear()
        await bench.until_rest(0)
        assert bench.causes[0] == [Cause.USERD_WRITE]
        bench.causes[0].clear()


@cocotb.test(**LIMIT)
async def stamps_do_not_wrap(dut):
    """A doorbell whose GP_PUT is read late is not mistaken for a new one."""
    bench = await Fetching.start(dut, latency=12 * ERA)
    ring = Ring(bench, 0)
    await ring.open()
    ring.segment(0, 1)
    ring.kick()
    await bench.step()
    for rung in range(11 * ERA):
        bench.doorbells.append(1)
        await bench.step()
        if rung == 100:
            ring.kick()  # waits until the first GP_PUT has arrived
    bench.latency = 10
    for number in range(2):
        await bench.until(lambda n=number: len(bench.announced) > n, "the announcement")
        age = (int(dut.now.value) - bench.announced[-1][2]) % (8 * ERA)
        assert 2 * ERA <= age < 4 * ERA, f"age {age}"
        if number == 0:
            ring.segment(1, 1)
            bench.memory[ring.userd + 0x8C] = ring.put


@cocotb.test(**LIMIT)
async def rate(dut):
    """A long segment is fetched at one dword per cycle if the prefetch buffer covers memory's
    latency."""
    bench = await Fetching.start(dut)
    ahead = CONFIG.prefetch_beats * BEAT - BURST
    for latency in (1, 10, 100):
        bench = await bench.reset(latency)
        ring = Ring(bench, 0)
        await ring.open()
        ring.segment(0, 4000)
        ring.kick()
        await bench.until(lambda b=bench: len(b.dwords[0]) >= 200, "the beginning")
        begin, count = bench.cycle, len(bench.dwords[0])
        await bench.until(lambda b=bench: len(b.dwords[0]) >= 600, "the middle")
        share = (len(bench.dwords[0]) - count) / (bench.cycle - begin)
        dut._log.info(f"latency {latency}: {share:.2f} dwords per cycle")
        assert share >= min(1, ahead / (latency + 16))
