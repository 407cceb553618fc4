"""Runlists and flat scheduling: shares, changes of turn, loading, urgent work."""

import itertools
from collections import Counter
from collections.abc import Sequence

import cocotb

from signalbox.driver.channel.interleave import GroupSettings, Interleave, interleaved
from signalbox.tb.benchmarks import runlists
from signalbox.tb.benchmarks.runlists import (
    BUSY_GROUPS,
    FAR,
    FLAT_PAIRS,
    LEVELS,
    LISTS,
    MOMENTS,
    SHORT,
    SLICE,
    SLICES,
    key,
)
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.machine.cocotb_order import nops
from signalbox.tb.machine.runlist_testbench import (
    UNIT,
    Group,
    RunlistTestbench,
    Turn,
    busy,
    turns,
)
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.simulation.trace import Doorbell, Method

LIMIT = {"timeout_time": 50, "timeout_unit": "ms"}

SETTLED = 4000
"""Cycles after which all channels are beyond the header of their first segment."""


def group(number: int, cycles: int = SLICE) -> Group:
    """A group of one channel."""
    return Group(number, (number,), cycles // UNIT)


def in_order(levels: Sequence[Interleave]) -> list[Group]:
    """Groups of these levels in the order of a round."""
    groups = {group(number): GroupSettings(level=level) for number, level in enumerate(levels)}
    return interleaved(groups)


async def busy_turns(dut, order: Sequence[Group], cycles: int) -> list[Turn]:
    """Turns of busy groups during `cycles` cycles."""
    lists = await RunlistTestbench.start(dut, *order)
    for number in sorted({one.tsgid for one in order}):
        await busy(lists.tb, number)
    since = lists.tb.now() + SETTLED
    await lists.tb.wait(SETTLED + cycles)
    return await turns(lists.tb, order, since)


async def shares(dut, order: Sequence[Group]) -> dict[int, int]:
    """Share of each group in the methods of whole rounds, in thousandths. Rounds are counted from
    the first turn of the rarest group on, as the trace merges consecutive turns of a group."""
    found = await busy_turns(dut, order, 8 * len(order) * SLICE)
    count = Counter(one.tsgid for one in order)
    rarest = min(count, key=lambda tsgid: count[tsgid])
    at = [place for place, turn in enumerate(found) if turn.group.tsgid == rarest]
    whole = found[at[0] : at[-1]]
    methods: Counter[int] = Counter()
    for turn in whole:
        methods[turn.group.tsgid] += len(turn.methods)
    return {tsgid: round(1000 * n / methods.total()) for tsgid, n in methods.items()}


@cocotb.test(**LIMIT)
@cocotb.parametrize(place=range(len(LEVELS)))
async def by_level(dut, place: int):
    """Shares of groups by their interleave levels."""
    levels = LEVELS[place]
    found = await shares(dut, in_order(levels))
    report(**{runlists.level_key(levels, number): share for number, share in found.items()})


@cocotb.test(**LIMIT)
async def by_slice(dut):
    """Shares of groups by their slices."""
    found = await shares(dut, [group(number, cycles) for number, cycles in enumerate(SLICES)])
    report(**{runlists.slice_key(SLICES[number]): share for number, share in found.items()})


@cocotb.test(**LIMIT)
@cocotb.parametrize(far=FAR, cycles=(SHORT, SLICE))
async def gaps(dut, far: int, cycles: int):
    """Changes of turn between two busy groups."""
    one, other, idle = group(0, cycles), group(1, cycles), group(7)
    order = [one, *[idle] * (far - 1), other, *[idle] * (far - 1)]
    lists = await RunlistTestbench.start(dut, *order)
    tb = lists.tb
    for number in (0, 1):
        await busy(tb, number)
    since = tb.now() + SETTLED
    await tb.wait(SETTLED + 16 * cycles)
    found = await turns(tb, order, since)
    pairs = itertools.pairwise(found)
    gap = max(after.methods[0].cycle - turn.methods[-1].cycle for turn, after in pairs)
    report(**{key("gap", far, cycles): gap})
    if cycles == SHORT:
        report(**{key("turn", far, cycles): max(len(turn.methods) for turn in found)})


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=LISTS)
async def loading(dut, count: int):
    """Cycles from the submission of a list to the first method."""
    lists = await RunlistTestbench.start(dut)
    tb = lists.tb
    channel = await tb.channel(0)
    await channel.submit(nops(1))
    await tb.wait(500)
    begun = tb.now()
    await lists.submit([group(0), *[group(7)] * (count - 1)])
    await tb.until_idle(channel)
    report(**{key("submit to first method", count): (await tb.events(Method))[0].cycle - begun})


@cocotb.test(**LIMIT)
@cocotb.parametrize(level=list(Interleave))
async def urgent(dut, level: Interleave):
    """Cycles from the doorbell of a group to its first method, while others are busy."""
    levels = [*[Interleave.LOW] * BUSY_GROUPS, level]
    tb = (await RunlistTestbench.start(dut, *in_order(levels))).tb
    for number in range(BUSY_GROUPS):
        await busy(tb, number)
    channel = await tb.channel(BUSY_GROUPS)
    await tb.wait(SETTLED)
    for moment in range(MOMENTS):
        await channel.submit(nops(moment))
        await tb.until_idle(channel)
        await tb.wait(SLICE + moment * SLICE // MOMENTS)
    await report_waits(tb, "urgent", level.name)


async def report_waits(tb: MachineTestbench, *where: str) -> None:
    """Report the times from a doorbell of the urgent channel to its method."""
    rung = [event.cycle for event in await tb.events(Doorbell, channel=BUSY_GROUPS)]
    ran = [event.cycle for event in await tb.events(Method, channel=BUSY_GROUPS)]
    waits = [end - begin for begin, end in zip(rung, ran, strict=True)]
    mean = round(sum(waits) / len(waits))
    report(**{key(*where, "mean"): mean, key(*where, "most"): max(waits)})


# -- flat ------------------------------------------------------------------------------------------


async def flat_busy(dut, slices: Sequence[int]) -> MachineTestbench:
    """Flat scheduling of busy channels with these slices, beyond their first commands."""
    tb = await MachineTestbench.start(dut)
    for number, cycles in enumerate(slices):
        channel = await busy(tb, number)
        await channel.write("SLICE", cycles)
    await tb.wait(SETTLED)
    return tb


async def flat_turns(tb: MachineTestbench, count: int, cycles: int) -> list[Turn]:
    """Turns of `count` channels during `cycles` cycles."""
    since = tb.now()
    await tb.wait(cycles)
    return await turns(tb, [group(number) for number in range(count)], since)


def flat_shares(found: Sequence[Turn], count: int) -> list[int]:
    """Shares of the channels in these turns, in thousandths."""
    methods: Counter[int] = Counter()
    for turn in found:
        methods[turn.group.tsgid] += len(turn.methods)
    return [round(1000 * methods[number] / methods.total()) for number in range(count)]


def rounds_of(found: list[Turn]) -> list[Turn]:
    """The turns of complete rounds: all before the last turn of the group that has the first."""
    first = [place for place, turn in enumerate(found) if turn.group is found[0].group]
    return found[: first[-1]]


@cocotb.test(**LIMIT)
@cocotb.parametrize(pair=FLAT_PAIRS)
async def flat_by_slice(dut, pair: tuple[int, int]):
    """Shares of two channels by their slices."""
    tb = await flat_busy(dut, pair)
    found = rounds_of(await flat_turns(tb, 2, 16 * sum(pair)))
    report(**{runlists.pair_key(pair): flat_shares(found, 2)[0]})


@cocotb.test(**LIMIT)
async def flat_by_arrival(dut):
    """Shares of equal channels with commands that were all received at once."""
    tb = await flat_busy(dut, [SLICE] * 3)
    found = await flat_turns(tb, 3, 24 * SLICE)
    shares = flat_shares(rounds_of(found), 3)
    report(**{runlists.arrival_key(place): share for place, share in enumerate(shares)})


@cocotb.test(**LIMIT)
@cocotb.parametrize(cycles=(SHORT, SLICE))
async def flat_gaps(dut, cycles: int):
    """Changes between two busy channels."""
    tb = await flat_busy(dut, [cycles] * 2)
    pairs = itertools.pairwise(await flat_turns(tb, 2, 16 * cycles))
    gap = max(after.methods[0].cycle - turn.methods[-1].cycle for turn, after in pairs)
    report(**{key("flat, gap", cycles): gap})


async def fed(tb: MachineTestbench, slices: Sequence[int]) -> None:
    """Set up channels with these slices. Each gets a further command of `SLICE` methods as soon as
    it has begun its last one."""
    dwords = nops(*range(SLICE)).dwords
    channels = [
        await tb.channel(number, slice_cycles=cycles) for number, cycles in enumerate(slices)
    ]
    places = {channel: channel.place(dwords) for channel in channels}

    async def feed() -> None:
        for channel in itertools.cycle(channels):
            if await channel.read("GP_GET") == channel.put:
                await channel.submit(dwords, at=places[channel])

    cocotb.start_soon(feed())


@cocotb.test(**LIMIT)
async def flat_by_command(dut):
    """Shares of channels with different slices that get their commands one by one."""
    tb = await MachineTestbench.start(dut)
    await fed(tb, SLICES)
    await tb.wait(SETTLED)
    found = await flat_turns(tb, len(SLICES), 48 * SLICE)
    shares = flat_shares(found, len(SLICES))
    report(**{
        runlists.command_key(cycles): share for cycles, share in zip(SLICES, shares, strict=True)
    })


@cocotb.test(**LIMIT)
async def flat_urgent(dut):
    """Cycles from the doorbell of a channel to its first method, while others are busy."""
    tb = await MachineTestbench.start(dut)
    await fed(tb, [SLICE] * BUSY_GROUPS)
    channel = await tb.channel(BUSY_GROUPS)
    await tb.wait(SETTLED)
    for moment in range(MOMENTS):
        await channel.submit(nops(moment))
        await tb.until_idle(channel)
        await tb.wait(SLICE + moment * SLICE // MOMENTS)
    await report_waits(tb, "flat, urgent")
