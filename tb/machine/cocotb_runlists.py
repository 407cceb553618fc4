"""Runlists on the whole machine (HOST-7): turns, slices, yields, failed acquires, lists that are
replaced or refused."""

import itertools
from collections import Counter

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.methods import HostMethod, SemOp, YieldOp
from signalbox.hw.registers import GLOBAL, Wait
from signalbox.hw.runlists import RunlistError
from signalbox.tb.machine.cocotb_order import nops
from signalbox.tb.machine.runlist_testbench import Group, RunlistTestbench, busy, turns
from signalbox.tb.machine.testbench import MachineTestbench, semaphore
from signalbox.tb.models.runlist import channel_entry, group_entry
from signalbox.tb.simulation.trace import Acquire, Done, Method, Semaphore, Served, Start
from signalbox.tb.testbench.goals import Rounds

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

SWITCH = 4
"""Maximum cycles from a group's last method to the next group's first one, if already fetched."""


@cocotb.test(**LIMIT)
async def turns_in_order(dut):
    """HOST-7: groups have their turns in the order of the list, each for its slice, and the next
    turn begins within 4 cycles."""
    groups = Group(7, (0,), 30), Group(3, (1, 2), 15, 1), Group(9, (3,), 50)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    for index in range(4):
        await busy(tb, index)
    # By then every channel has executed the header of its first segment.
    since = tb.now() + 2000
    await tb.wait(9000)
    found = await turns(tb, groups, since)
    assert len(found) > 12
    for turn, after in itertools.pairwise(found):
        place = groups.index(turn.group)
        assert after.group is groups[(place + 1) % 3]
        assert abs(turn.cycles - turn.group.cycles) <= SWITCH
        assert after.methods[0].cycle - turn.methods[-1].cycle <= SWITCH


@cocotb.test(**LIMIT)
async def listed_twice(dut):
    """HOST-7: a group that is listed twice has two turns in a round."""
    urgent, one, other = Group(1, (0,), 20), Group(2, (1,), 20), Group(3, (2,), 20)
    lists = await RunlistTestbench.start(dut, urgent, one, urgent, other)
    tb = lists.tb
    for index in range(3):
        await busy(tb, index)
    since = tb.now() + 500
    await tb.wait(6000)
    found = [turn.group for turn in await turns(tb, (urgent, one, other), since)]
    assert len(found) > 16
    share = Counter(found)
    assert abs(share[urgent] - share[one] - share[other]) <= 1
    assert all((a is urgent) != (b is urgent) for a, b in itertools.pairwise(found))


@cocotb.test(**LIMIT)
async def slices_within_a_group(dut):
    """HOST-7: channels share the slice of their group in proportion to their own slices."""
    groups = Group(1, (0, 1), 100), Group(2, (2,), 100)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    channels = [await busy(tb, index) for index in range(3)]
    for slices in ((100, 100), (50, 150), (200, 50)):
        for channel, cycles in zip(channels, slices, strict=False):
            await channel.write("SLICE", cycles)
        since = tb.now() + 500
        await tb.wait(6000)
        found = await turns(tb, groups, since)
        shared = [turn for turn in found if turn.group is groups[0]]
        assert len(shared) > 1
        for turn in shared:
            share = Counter(event.channel for event in turn.methods)
            part = share[0] / sum(share.values())
            assert abs(part - slices[0] / sum(slices)) < 0.1, (slices, share)


@cocotb.test(**LIMIT)
async def idle_groups_have_no_turn(dut):
    """HOST-7: groups without work are skipped; a group with no competitor keeps the turn; a group
    that gets work has its turn once the slice is over."""
    groups = Group(1, (0,), 40), Group(2, (1,), 40), Group(3, (2,), 40)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    await busy(tb, 0)
    await tb.wait(2000)
    assert await lists.turn() == 1
    late = await tb.channel(2)
    rung = tb.now()
    await late.submit(nops(1, 2, 3))
    await tb.until_idle(late)
    first = (await tb.events(Method, channel=2))[0]
    assert first.cycle < rung + 300 + groups[0].cycles
    assert not await tb.events(Served, channel=1)


@cocotb.test(**LIMIT)
async def only_listed_channels(dut):
    """HOST-7: an unlisted channel is not served; with an empty list none is; with flat scheduling
    again, all are."""
    group = Group(1, (0,))
    lists = await RunlistTestbench.start(dut, group)
    tb = lists.tb
    inside, outside = await tb.channel(0), await tb.channel(1)
    await outside.submit(nops(1))
    await inside.submit(nops(2))
    await tb.until_idle(inside)
    await lists.submit([])
    assert not (await tb.control.read_fields("RUNLIST_STATE"))["RUNNING"]
    await inside.submit(nops(3))
    await tb.wait(1000)
    assert [event.data for event in await tb.events(Method)] == [2]
    await tb.control.write("RUNLIST_CONTROL", ENABLE=0)
    await tb.until_idle(inside, outside)
    assert sorted(event.data for event in await tb.events(Method)) == [1, 2, 3]


@cocotb.test(**LIMIT)
async def failed_acquire_with_switch(dut):
    """HOST-5, HOST-7: a group whose channels all wait for acquires with ACQUIRE_SWITCH_TSG leaves
    early."""
    groups = Group(1, (0, 1), 200), Group(2, (2,), 20)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    waiting = [await tb.channel(index) for index in (0, 1)]
    for channel in waiting:
        commands = nops(1).semaphore(SemOp.ACQUIRE, semaphore(channel.index), 1, switch=True)
        await channel.submit(commands)
    await busy(tb, 2)
    await tb.wait(1000)
    found = await tb.events(Served, channel=2)
    assert found
    assert await lists.turn() == 2
    for channel in waiting:
        await tb.let_go(channel.index, 1)
        await channel.submit(nops(2))
    await tb.until_idle(*waiting)


@cocotb.test(**LIMIT)
async def failed_acquire_without_switch(dut):
    """HOST-5, HOST-7: a group with a failed acquire without ACQUIRE_SWITCH_TSG keeps its turn until
    its slice is over."""
    groups = Group(1, (0, 1), 200), Group(2, (2,), 20)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    first, second = await tb.channel(0), await tb.channel(1)
    await second.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, semaphore(1), 1, switch=True))
    await first.submit(nops(1).semaphore(SemOp.ACQUIRE, semaphore(0), 1, switch=False))
    await busy(tb, 2)
    await tb.wait(3 * groups[0].cycles)
    (begin,) = (
        event.cycle
        for event in await tb.events(Method, channel=0)
        if event.offset == HostMethod.NOP
    )
    held = [event.cycle for event in await tb.events(Method, channel=2)]
    after = next(cycle for cycle in held if cycle > begin)
    assert 0.9 * groups[0].cycles < after - begin <= groups[0].cycles + SWITCH


@cocotb.test(**LIMIT)
async def yields(dut):
    """HOST-3, HOST-7: YIELD of RUNLIST_TIMESLICE ends the group's slice; after YIELD of TSG another
    channel of the group is served, and the group keeps its turn (spec 2.6)."""
    groups = Group(1, (0, 1), 255, 4), Group(2, (2,), 20)
    lists = await RunlistTestbench.start(dut, groups[1])
    tb = lists.tb
    await busy(tb, 2)
    await tb.wait(500)
    channels = [await tb.channel(0), await tb.channel(1, slice_cycles=100)]
    first = nops(1).yield_slice(YieldOp.TSG).raw(*nops(2).dwords)
    first.yield_slice(YieldOp.RUNLIST_TIMESLICE).raw(*nops(3).dwords)
    channels[0].segment(first)
    channels[1].segment(nops(*range(10, 400)))
    for channel in channels:
        await channel.kick()
    await lists.submit(groups)  # now that both have work
    await tb.until_idle(*channels)
    found = [event for event in await tb.events(Method) if event.offset == HostMethod.NOP]
    at = {event.data: event.cycle for event in found if event.channel == 0}
    siblings = [event.cycle for event in found if event.channel == 1]
    others = [event.cycle for event in found if event.channel == 2]
    assert not any(at[1] < cycle < at[2] for cycle in others)
    assert any(at[1] < cycle < at[2] for cycle in siblings)
    assert any(at[2] < cycle < at[3] for cycle in others)


@cocotb.test(**LIMIT)
async def all_groups_wait(dut):
    """HOST-5: RUNLIST_ACQUIRE is raised once when every group with work has given up its turn
    because of failed acquires with ACQUIRE_SWITCH_TSG (spec 2.3)."""
    groups = Group(1, (0,)), Group(2, (1, 2)), Group(3, (3,))
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    await tb.control.write("INTR_ENABLE", RUNLIST=1)
    channels = [await tb.channel(index) for index in (0, 1)]
    for channel in channels:
        assert not (await lists.status())["ACQUIRE"]
        commands = Pushbuffer().semaphore(SemOp.ACQUIRE, semaphore(channel.index), 1, switch=True)
        channel.segment(commands)
    await channels[0].kick()
    await channels[1].kick()
    await tb.until(lambda: dut.irq.value == 1, "RUNLIST_ACQUIRE")
    assert (await tb.interrupts())["RUNLIST"]
    await tb.wait(200)
    status = await lists.status()
    assert status == {"ERROR": 0, "ACQUIRE": 1, "ACQUIRE_AND_ENG_IDLE": 1}
    await tb.control.write("RUNLIST_STATUS", ACQUIRE=1, ACQUIRE_AND_ENG_IDLE=1)
    await tb.wait(1000)
    assert dut.irq.value == 0
    for channel in channels:
        await tb.let_go(channel.index, 1)
    await tb.until_idle(*channels)


@cocotb.test(**LIMIT)
async def all_groups_poll(dut):
    """HOST-5: RUNLIST_ACQUIRE is also raised for acquires in memory, which are repeated; not while
    another group works, nor for an acquire without ACQUIRE_SWITCH_TSG."""
    groups = Group(1, (0,)), Group(2, (1,)), Group(3, (2,))
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    words = [tb.allocate(16) for _ in range(3)]
    channels = [await tb.channel(index) for index in range(3)]
    for channel, word in zip(channels, words, strict=True):
        switch = channel.index < 2
        commands = Pushbuffer().semaphore(SemOp.ACQUIRE, word, 1, switch=switch)
        await channel.submit(commands.raw(*nops(*range(20)).dwords))
    await tb.wait(2000)
    assert not (await lists.status())["ACQUIRE"]
    tb.set_word(words[2], 1)
    await tb.until_idle(channels[2])
    await tb.wait(500)
    assert (await lists.status())["ACQUIRE"]
    for _ in range(10):
        await tb.control.write("RUNLIST_STATUS", ACQUIRE=1, ACQUIRE_AND_ENG_IDLE=1)
        await tb.wait(200)
        assert not (await lists.status())["ACQUIRE"]
    for word in words[:2]:
        tb.set_word(word, 1)
    await tb.until_idle(*channels)


@cocotb.test(**LIMIT)
async def polls_take_no_turns(dut):
    """HOST-5: a group that polls with ACQUIRE_SWITCH_TSG keeps the turn only for its methods, not
    for the latency of memory."""
    groups = Group(1, (0,), 200), Group(2, (1,), 1)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    word, poller = tb.allocate(16), await tb.channel(0)
    await poller.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, word, 1, switch=True))
    await busy(tb, 1)
    await tb.wait(1000)
    since = tb.now()
    await tb.wait(2000)
    ran = [event for event in await tb.events(Method, channel=1) if event.cycle >= since]
    assert len(await tb.events(Acquire, channel=0)) > 20
    assert len(ran) > 1000
    tb.set_word(word, 1)
    await tb.until_idle(poller)


@cocotb.test(**LIMIT)
async def polls_of_an_idle_machine(dut):
    """HOST-5: while all groups wait for failed acquires, these are repeated after the pause of
    RUNLIST_ACQ_PRETEST; after ACQUIRE.RETRY if that is longer, without ACQUIRE_SWITCH_TSG, while
    another group works, and in the flat way. An acquire on chip wakes up as ever."""
    lists = await RunlistTestbench.start(dut, Group(1, (0,)), Group(2, (1,)), Group(3, (2,), 1))
    tb = lists.tb
    word = tb.allocate(16)
    poller, sleeper = await tb.channel(0, retry=20), await tb.channel(1)

    async def gaps(cycles: int) -> list[int]:
        """Cycles from one read of the word to the next, during so many cycles."""
        await tb.wait(cycles)
        reads = tb.watch_reads()
        await tb.wait(5 * cycles)
        found = [cycle for cycle, address in reads.stop() if address == word]
        assert len(found) >= 4
        return [later - cycle for cycle, later in itertools.pairwise(found)]

    for number, (switch, timeout, scale, least) in enumerate(
        ((True, 8, 0, 20), (True, 200, 2, 800), (True, 0, 15, 20), (False, 200, 2, 20)), 1
    ):
        await tb.control.write("RUNLIST_ACQ_PRETEST", TIMEOUT=timeout, TIMESCALE=scale)
        await poller.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, word, number, switch=switch))
        found = await gaps(1000)
        assert least <= min(found) and max(found) <= least + 100, found
        tb.set_word(word, number)
        await tb.until_idle(poller)
    await tb.control.write("RUNLIST_ACQ_PRETEST", TIMEOUT=200, TIMESCALE=2)
    await poller.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, word, 9, switch=True))
    await sleeper.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, semaphore(4), 1, switch=True))
    await tb.until_waits(sleeper, Wait.ONCHIP)
    await tb.wait(500)
    await tb.let_go(4, 1)
    await tb.until_idle(sleeper)
    woken = (await tb.events(Semaphore, index=4))[-1].cycle
    passed = (await tb.events(Acquire, channel=1, passed=True))[-1].cycle
    assert passed - woken <= 10
    for enable in (0, 1):
        await tb.control.write("RUNLIST_CONTROL", ENABLE=enable)
        assert (max(await gaps(1000)) < 200) == (not enable)
    await busy(tb, 2)
    assert max(await gaps(1000)) < 200
    tb.set_word(word, 9)
    await tb.until_idle(poller)


@cocotb.test(**LIMIT)
async def waiting_list_replaced(dut):
    """HOST-7: of lists that wait for the end of a slice, the latest becomes active."""
    first, last = Group(1, (0,), 255), Group(3, (2,))
    lists = await RunlistTestbench.start(dut, first)
    tb = lists.tb
    for index in range(3):
        await busy(tb, index)
    await tb.wait(500)
    await lists.submit([Group(2, (1,))], wait=False)
    await lists.submit([last], wait=False)
    info = await tb.control.read_fields("RUNLIST_INFO")
    assert info == {"READING": 0, "PENDING": 1, "GROUPS": 1}
    assert await lists.turn() == 1
    await tb.wait(first.cycles)
    assert await lists.turn() == 3
    assert not await tb.events(Method, channel=1)
    assert (await lists.status())["ERROR"] == 0


REFUSED = {
    RunlistError.ZERO_LENGTH: ([group_entry(0)], 0),
    RunlistError.MAX_EXCEEDED: ([group_entry(129)], 0),
    RunlistError.OVERFLOW: ([group_entry(2), channel_entry(1)], 2),
    RunlistError.EXPECTED_CHID: ([group_entry(1)] * 2, 1),
    RunlistError.EXPECTED_TSG: ([channel_entry(1)], 0),
    RunlistError.INVALID_RUNQUEUE: ([group_entry(1), channel_entry(1, runqueue=1)], 1),
    RunlistError.CHANNEL: ([group_entry(1), channel_entry(999)], 1),
}
"""Entries of bad lists, and the number of the bad entry."""


@cocotb.test(**LIMIT)
async def bad_lists(dut):
    """HOST-7: a bad list is refused with its code, and the active list stays in use."""
    groups = Group(1, (0,), 20), Group(2, (1,), 20)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    await tb.control.write("INTR_ENABLE", RUNLIST=1)
    for index in range(2):
        await busy(tb, index)
    cases = [*REFUSED.items(), (RunlistError.ROOM, (Group(5, (1,)).entries() * 17, 32))]
    for error, (entries, place) in cases:
        since = tb.now()
        await lists.submit_entries(entries)
        found = await tb.control.read_fields("RUNLIST_ERROR")
        assert found == {"CODE": error.value, "ENTRY": place}, error
        assert dut.irq.value == 1
        await tb.control.write("RUNLIST_STATUS", ERROR=1)
        await tb.wait(1000)
        assert {turn.group for turn in await turns(tb, groups, since)} == {*groups}
        assert dut.irq.value == 0
    info = await tb.control.read_fields("RUNLIST_INFO")
    assert info == {"READING": 0, "PENDING": 0, "GROUPS": 2}


@cocotb.test(**LIMIT)
async def list_that_cannot_be_read(dut):
    """HOST-7: a list outside memory is refused, without any other effect on the machine."""
    lists = await RunlistTestbench.start(dut, Group(1, (0,)))
    tb = lists.tb
    last = (await tb.control.read64("MEMORY_BYTES")) & ~0xFFF
    await tb.control.write("RUNLIST_BASE_LO", last & 0xFFFF_FFFF)
    await tb.control.write("RUNLIST_BASE_HI", last >> 32)
    await tb.control.write("RUNLIST_SUBMIT", LENGTH=4)
    await tb.wait(200)
    found = await tb.control.read_fields("RUNLIST_ERROR")
    assert found == {"CODE": RunlistError.MEMORY.value, "ENTRY": 0}
    channel = await tb.channel(0)
    await channel.submit(nops(1))
    await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def first_turn(dut):
    """HOST-7: the first turn is that of the group at OFFSET."""
    groups = [Group(index, (index,), 200) for index in range(4)]
    lists = await RunlistTestbench.start(dut)
    tb = lists.tb
    for index in range(4):
        await busy(tb, index)
    for first in (2, 0, 3, 1):
        await lists.submit([])
        since = tb.now()
        await lists.submit(groups, OFFSET=2 * first)
        await tb.wait(1000)
        found = await turns(tb, groups, since, whole=False)
        assert found[0].group is groups[first]


@cocotb.test(**LIMIT)
async def replaced_under_load(dut):
    """HOST-7: lists are replaced while channels work: every channel executes all of its methods in
    order, and is served only if a list names it."""
    lists = await RunlistTestbench.start(dut)
    tb = lists.tb
    built = await tb.control.read("CHANNELS")
    channels = [await tb.channel(index, slice_cycles=50) for index in range(built)]
    expected: dict[int, list[int]] = {index: [] for index in range(built)}
    groups: list[Group] = []
    swaps = 0
    rounds = Rounds(6)
    while rounds.more(swaps > 10, swaps):
        for channel in tb.random.sample(channels, 4):
            values = [tb.random.getrandbits(32) for _ in range(tb.random.randrange(1, 200))]
            expected[channel.index] += values
            await channel.submit(nops(*values))
        for _ in range(2):
            groups = random_list(tb, built)
            since = tb.now()
            await lists.submit(groups)
            swaps += 1
            await tb.wait(tb.random.randrange(600))
            named = {index for group in groups for index in group.channels}
            late = [one for one in await tb.events(Served) if one.cycle > since + 700]
            assert {one.channel for one in late} <= named | {None}
    await lists.submit([Group(index, (index,), 3) for index in range(built)])
    await tb.until_idle(*channels)
    found = await tb.events(Method)
    for index, values in expected.items():
        assert [event.data for event in found if event.channel == index] == values


def random_list(tb: MachineTestbench, channels: int) -> list[Group]:
    """A list of some of the channels, in which a group can have several turns."""
    numbers = [*range(channels)]
    tb.random.shuffle(numbers)
    groups = []
    while numbers:
        some = [numbers.pop() for _ in range(min(len(numbers), tb.random.randrange(1, 4)))]
        groups.append(Group(len(groups), tuple(some), tb.random.randrange(6)))
    order = [tb.random.choice(groups) for _ in range(tb.random.randrange(1, 12))]
    return order


@cocotb.test(**LIMIT)
async def fair_while_replaced(dut):
    """HOST-7: lists that are replaced more often than a slice lasts take no group's turn."""
    groups = [Group(index, (index,), 40) for index in range(3)]
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    for index in range(3):
        await busy(tb, index)
    since = tb.now() + 1000
    while tb.now() < since + 12_000:
        await lists.submit(groups, wait=False)
        await tb.wait(tb.random.randrange(100))
    share = Counter(event.channel for event in await tb.events(Method) if event.cycle >= since)
    assert min(share.values()) > 0.8 * max(share.values()), share
    assert len(share) == 3


@cocotb.test(**LIMIT)
async def reservations_end_with_the_turn(dut):
    """HOST-7, COPY-13: a channel keeps no engine beyond its turn; its copy starts in its next
    turn."""
    mine, others = Group(1, (0,), 30), Group(2, (1,), 30)
    lists = await RunlistTestbench.start(dut, mine)
    tb = lists.tb
    await tb.control.write("SEM_COUNTING", COUNT=4)
    own, other = tb.copies(2)
    keeper, copier = await tb.copy_channel(0), await tb.channel(1)
    late = Pushbuffer().acquire(semaphore(0), 0).raw(*nops(*range(3000)).dwords)
    await keeper.submit(late.copy(*own, 1024))
    while not await tb.events(Acquire, channel=0, passed=True):
        await tb.wait(50)
    await lists.submit([others])
    await copier.submit(Pushbuffer().set_object().copy(*other, 1024))
    await tb.until_idle(copier)
    assert tb.copied(*other)
    assert not await tb.events(Start, channel=0)
    await lists.submit([mine, others])
    await tb.until_idle(keeper)
    assert tb.copied(*own)


@cocotb.test(**LIMIT)
async def copies_let_higher_ones_run(dut):
    """HOST-7, COPY-13: a copy whose acquires have passed, but no longer hold, yields the turn to
    the group on which it depends."""
    low, high = Group(1, (0,), 200), Group(2, (1,), 200)
    lists = await RunlistTestbench.start(dut, low, high)
    tb = lists.tb
    await tb.control.write("SEM_COUNTING", COUNT=4)
    ((dst, src),) = tb.copies(1)
    channels = [await tb.copy_channel(0), await tb.channel(1)]
    commands = Pushbuffer().acquire(semaphore(0), 0).raw(*nops(*range(500)).dwords)
    await channels[0].submit(commands.copy(dst, src, 1024))
    while not await tb.events(Acquire, channel=0, passed=True):
        await tb.wait(20)
    await tb.let_go(0, 1)
    await channels[1].submit(Pushbuffer().add(semaphore(0), -1))
    await tb.until_idle(*channels)
    assert tb.copied(dst, src)
    last = max(event.cycle for event in await tb.events(Method, channel=0) if event.data == 499)
    first = (await tb.events(Method, channel=1))[0].cycle
    assert last < first < last + 200


@cocotb.test(**LIMIT)
async def copies_of_groups(dut):
    """HOST-7: copies outlast the turn of their group, and complete."""
    groups = Group(1, (0,), 10), Group(2, (1,), 10), Group(3, (2,), 10)
    lists = await RunlistTestbench.start(dut, *groups)
    tb = lists.tb
    channels = [await tb.copy_channel(index) for index in range(3)]
    done = []
    for _ in range(4):
        for channel in channels:
            size = tb.random.randrange(64, 6000)
            ((dst, src),) = tb.copies(1, size)
            await channel.submit(Pushbuffer().copy(dst, src, size))
            done.append((dst, src, size))
    await tb.until_idle(*channels)
    assert all(tb.copied(*copy) for copy in done)
    ran = await tb.events(Method)
    spans = zip(await tb.events(Start), await tb.events(Done), strict=True)
    assert any(
        one.channel != start.channel
        for start, end in spans
        for one in ran
        if start.cycle < one.cycle < end.cycle
    )


@cocotb.test(**LIMIT)
@cocotb.parametrize(after=[False, True])
async def without_a_runlist_nothing_changes(dut, after: bool):
    """HOST-7: flat scheduling works as on page 10: the slices of channels follow each other, even
    after a list was used."""
    tb = await MachineTestbench.start(dut)
    assert GLOBAL["RUNLIST_CONTROL"].reset == 0
    if after:
        tb = (await RunlistTestbench.start(dut, Group(0, (0,)))).tb
        await tb.wait(300)
        await tb.control.write("RUNLIST_CONTROL", ENABLE=0)
    for index in range(2):
        channel = await busy(tb, index)
        await channel.write("SLICE", 200)
    since = tb.now() + 500
    await tb.wait(3000)
    found = await turns(tb, (Group(0, (0,)), Group(1, (1,))), since)
    assert len(found) > 8
    assert all(190 < turn.cycles <= 201 for turn in found), [turn.cycles for turn in found]
