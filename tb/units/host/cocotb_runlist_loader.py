"""Runlists from memory (HOST-7): every list is offered unchanged, or refused with its first bad
entry."""

from typing import Any

import cocotb

from signalbox.hw.config import PA_BITS
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.runlists import RunlistError
from signalbox.tb.models.runlist import BYTES, Reading, Word, channel_entry, group_entry
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer, some
from signalbox.tb.units.host import runlists
from signalbox.tb.units.host.runlist_loader_testbench import (
    BURST,
    CONFIG,
    LoaderTestbench,
    contents,
)
from signalbox.tb.units.host.runlists import MUTATIONS, List, heads

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

ROOM = CONFIG.runlist_entries
LAST = CONFIG.channels - 1
MOST_ENTRIES = (1 << 16) - 1


async def begin(dut: Any) -> LoaderTestbench:
    return await LoaderTestbench(dut).start()


def random_group(tb: LoaderTestbench, length: int) -> List:
    return runlists.random_group(tb.random, CONFIG.channels, length)


def random_list(tb: LoaderTestbench, groups: int) -> List:
    return runlists.random_list(tb.random, CONFIG.channels, groups)


def full(tb: LoaderTestbench) -> List:
    """A good list of small TSGs that fills the room; of few if there is much room."""
    groups = (random_group(tb, tb.random.randint(1, 5)) for _ in range(min(ROOM, 9)))
    return [entry for group in groups for entry in group]


@cocotb.test(**LIMIT)
async def good_lists(dut):
    """A good list is offered once, after all of its words; its turns may begin at any of its
    TSGs."""
    tb = await begin(dut)
    for groups in [*range(min(ROOM, 8) + 1), ROOM]:
        entries = random_list(tb, groups)
        first = heads(entries)
        for offset in {first[0], first[-1], *tb.random.sample(first, min(5, len(first)))}:
            assert not (await tb.check(entries, offset)).error
        tb.vary()


@cocotb.test(**LIMIT)
async def rate(dut):
    """An entry takes two cycles once its data have arrived; a burst takes the memory latency
    besides, and one more cycle with a 64-bit bus; a list, two cycles, and one from its submission
    to its first read."""
    tb = await begin(dut)
    for latency in (1, 2, 30):
        tb.hurry()
        tb.memory.latency = lambda latency=latency: latency
        for bursts in (1, 2, 5, 32):
            start = tb.cycle
            assert not (await tb.check(random_group(tb, 4 * bursts - 1))).error
            each = latency + 8 + (CONFIG.data_width == 64)
            assert tb.lists.taken[-1][0] - start == 1 + each * bursts + 2


@cocotb.test(**LIMIT)
async def most_channels(dut):
    """A TSG has up to 128 channel entries, several of which may name the same channel. Empty and
    longer TSGs are refused at their header."""
    tb = await begin(dut)
    for length in (0, 1, 2, 127, 128, 129, 160, 255):
        error = {True: RunlistError.ZERO_LENGTH, False: RunlistError.NONE}[length == 0]
        error = RunlistError.MAX_EXCEEDED if length > 128 else error
        one = [group_entry(length, 5, 6, 7), *[channel_entry(LAST)] * length]
        found = await tb.check(one)
        assert (found.error, found.entry) == (error, 0)
        if ROOM > 1:
            found = await tb.check([group_entry(1), channel_entry(0), *one], 2)
            assert found.error is error and found.entry == (2 if error else 0)
            assert error or found.start == 1
        assert error or found.words[-1] == Word(5, 6, 7, 1 << LAST)


@cocotb.test(**LIMIT)
async def cut_short(dut):
    """A list that ends inside a TSG is an overflow, at its length; shortened to whole TSGs it is
    good. With one more channel entry, it is refused for a channel outside any TSG."""
    tb = await begin(dut)
    entries = full(tb)
    whole = {*heads(entries), 0}
    for length in some(range(len(entries)), 4):
        found = await tb.check(entries[:length])
        error = RunlistError.NONE if length in whole else RunlistError.OVERFLOW
        assert (found.error, found.entry) == (error, 0 if length in whole else length)
        tb.vary()
    found = await tb.check([*entries, channel_entry(0)])
    assert (found.error, found.entry) == (RunlistError.EXPECTED_TSG, len(entries))


@cocotb.test(**LIMIT)
async def wrong_kinds(dut):
    """A header inside a TSG, and a channel outside any TSG, are refused, wherever they are."""
    tb = await begin(dut)
    entries = full(tb)
    first = {*heads(entries)}
    for number in some(range(len(entries)), 4):
        wrong = channel_entry(0) if number in first else group_entry(1)
        error = RunlistError.EXPECTED_TSG if number in first else RunlistError.EXPECTED_CHID
        found = await tb.check([*entries[:number], wrong, *entries[number + 1 :]])
        assert (found.error, found.entry) == (error, number)
        tb.vary()


@cocotb.test(**LIMIT)
async def wrong_channels(dut):
    """Channels of another runqueue, or that were not built, are refused, wherever they are."""
    tb = await begin(dut)
    entries = full(tb)
    channels = {*range(len(entries))} - {*heads(entries)}
    unbuilt = [CONFIG.channels, 0x800, 0xFFF]
    if CONFIG.channels & CONFIG.channels - 1:
        unbuilt.append((1 << CONFIG.channel_bits) - 1)
    for number in some(sorted(channels), 4):
        wrong = channel_entry(tb.random.choice(unbuilt), noise=tb.random.getrandbits(128))
        found = await tb.check([*entries[:number], wrong, *entries[number + 1 :]])
        assert (found.error, found.entry) == (RunlistError.CHANNEL, number)
        wrong = channel_entry(LAST, runqueue=1)
        found = await tb.check([*entries[:number], wrong, *entries[number + 1 :]])
        assert (found.error, found.entry) == (RunlistError.INVALID_RUNQUEUE, number)
        tb.vary()


@cocotb.test(**LIMIT)
async def room(dut):
    """A list has at most as many TSGs as were built; the header of a further one is refused."""
    tb = await begin(dut)
    most = [entry for _ in range(ROOM) for entry in random_group(tb, 1)]
    for more in (0, 1, 3):
        found = await tb.check(most + random_list(tb, more), heads(most)[-1])
        error = RunlistError.ROOM if more else RunlistError.NONE
        assert (found.error, found.entry) == (error, len(most) if more else 0)
        assert len(found.words) == ROOM


@cocotb.test(**LIMIT)
async def several_pages(dut):
    """A list of several pages of memory is read to its end."""
    tb = await begin(dut)
    groups = [random_group(tb, 128) for _ in range(min(ROOM, 9))]
    found = await tb.check([entry for group in groups for entry in group], 129 * (len(groups) - 1))
    assert not found.error and found.start == len(groups) - 1


@cocotb.test(**LIMIT)
async def offsets(dut):
    """OFFSET names a header of the list; any other offset is refused, and reported as the entry.
    For a list without entries, it is 0."""
    tb = await begin(dut)
    assert (await tb.check([])).words == []
    entries = full(tb)
    length = len(entries)
    first = heads(entries)
    places = {*first, length, length + 1, 0x8000, 0xFFFF, *tb.random.choices(range(length), k=5)}
    for offset in sorted(places | {1 << 8 | first[-1], 1 << 15 | first[-1]}):
        found = await tb.check(entries, offset)
        if offset in first:
            assert not found.error and found.start == first.index(offset)
        else:
            assert (found.error, found.entry) == (RunlistError.EXPECTED_TSG, offset)
    for offset in (1, 2, 0x100, 0xFFFF):
        found = await tb.check([], offset)
        assert (found.error, found.entry) == (RunlistError.EXPECTED_TSG, offset)


@cocotb.test(**LIMIT)
async def order_of_errors(dut):
    """Of several reasons for refusing an entry, the first in the order of `read_list` counts; an
    earlier entry precedes a later one, and a bad entry precedes a bad offset."""
    tb = await begin(dut)
    inside = [group_entry(2), channel_entry(0)]
    most = [entry for _ in range(ROOM) for entry in random_group(tb, 1)]
    wrong = channel_entry(0xFFF, runqueue=1)
    for entries, error in (
        ([*inside, group_entry(0)], RunlistError.EXPECTED_CHID),
        ([*inside, group_entry(200)], RunlistError.EXPECTED_CHID),
        ([*most, group_entry(0)], RunlistError.ZERO_LENGTH),
        ([*most, group_entry(129)], RunlistError.MAX_EXCEEDED),
        ([*most, wrong], RunlistError.EXPECTED_TSG),
        ([*inside, wrong, group_entry(0)], RunlistError.INVALID_RUNQUEUE),
        ([*inside, channel_entry(0xFFF), group_entry(0)], RunlistError.CHANNEL),
        ([*most, group_entry(1), group_entry(0)], RunlistError.ROOM),
        (inside, RunlistError.OVERFLOW),
    ):
        assert (await tb.check(entries, 1)).error is error
        tb.vary()


def positions(low: int, size: int) -> list[int]:
    """Numbers of the beats of `size` bytes that contain the entry at byte `low`."""
    return list(range(low // size, (low + BYTES - 1) // size + 1))


@cocotb.test(**LIMIT)
async def memory_fails(dut):
    """A bus error on any one beat refuses the list at the first entry of that beat, a fault at the
    first of its burst; nothing is read after that. The next list is good."""
    tb = await begin(dut)
    size = CONFIG.beat_bytes
    for number in some(range(11), 3):
        entries = random_group(tb, 10)
        for beat in positions(BYTES * number, size):
            tb.page = tb.random.getrandbits(PA_BITS - 12)
            tb.fail(beat * size, size, MemoryStatus.BUS)
            found = await tb.check(entries, page=tb.page)
            first = max(beat * size // BYTES, 0)
            assert (found.error, found.entry) == (RunlistError.MEMORY, first)
            tb.memory.contents.failing = []
            assert not (await tb.check(entries, page=tb.page)).error
        tb.fail(BYTES * number, 1, MemoryStatus.FAULT)
        found = await tb.check(entries, page=tb.page)
        assert (found.error, found.entry) == (RunlistError.MEMORY, number // 4 * 4)
        tb.memory.contents.failing = []
        assert not (await tb.check(entries, page=tb.page)).error
        tb.vary()


@cocotb.test(**LIMIT)
async def fails_behind_the_end(dut):
    """Memory behind the end of the list does not matter, even if it cannot be read."""
    tb = await begin(dut)
    for length in (1, 2, 4, 5, 6):
        entries = random_group(tb, length)
        end = BYTES * len(entries)
        beat = -(-end // CONFIG.beat_bytes) * CONFIG.beat_bytes
        tb.page = tb.random.getrandbits(PA_BITS - 12)
        tb.fail(beat, 4096, MemoryStatus.BUS)
        tb.fail(-(-end // BURST) * BURST, 4096, MemoryStatus.FAULT)
        assert not (await tb.check(entries, page=tb.page)).error
        tb.memory.contents.failing = []


@cocotb.test(**LIMIT)
async def one_at_a_time(dut):
    """A list that is submitted in any cycle while another is being read is refused as PENDING,
    without an effect on the other. In the cycle in which the other is refused, only that refusal is
    reported. A list submitted when the other is accepted, or later, is read."""
    tb = await begin(dut)
    good = random_group(tb, 6)
    for entries in (good, [*good, channel_entry(0)], good[:-1], []):
        tb.hurry()
        start = tb.cycle
        wanted = await tb.check(entries)
        span = tb.cycle - 1 - start
        for delay in range(1, span + 1):
            await against(tb, entries, wanted, delay, span)
            assert not (await tb.check(good)).error


async def against(
    tb: LoaderTestbench, entries: List, wanted: Reading, delay: int, span: int
) -> None:
    """Submit a list, and a bad one `delay` cycles later. The first list alone would be pending for
    `span` cycles."""
    refusals, lists = len(tb.outputs.refusals), len(tb.lists.taken)
    tb.submit(entries)
    await tb.steps(delay)
    start = tb.cycle
    tb.submits.send(page=tb.random.getrandbits(20), length=0, offset=7)
    await tb.steps(2)
    await tb.until(lambda: not tb.outputs.pending, "no list is pending")
    fresh = tb.outputs.refusals[refusals:]
    own = [(start + 1, RunlistError.PENDING, 0)]
    if delay == span - 1:
        own = [] if wanted.error else [(start + 2, RunlistError.EXPECTED_TSG, 7)]
    elif delay == span:
        own = [(start + 2, RunlistError.EXPECTED_TSG, 7)]
    assert [one for one in own if one in fresh] == own
    tb.outputs.refusals = [one for one in tb.outputs.refusals if one not in own]
    tb.compare(wanted, refusals, lists)


@cocotb.test(**LIMIT)
async def offers(dut):
    """A list is pending, and offered, until it is accepted. A list submitted meanwhile replaces it,
    even if it is bad."""
    tb = await begin(dut)
    for bad in (False, True):
        tb.lists.pace = lambda: False
        tb.lists.taken.clear()
        entries: List = []
        for _ in range(10):
            entries = full(tb)
            tb.submit(entries)
            await tb.steps(2)
            assert tb.outputs.pending and not tb.lists.offered
            await tb.until(lambda: tb.lists.offered, "the list is offered")
            await tb.steps(tb.random.randrange(10))
            assert tb.outputs.pending and tb.lists.offered
        count = len(tb.outputs.refusals)
        if bad:
            tb.submit([], 1)
            await tb.steps(3)
            assert [one[1:] for one in tb.outputs.refusals] == [(RunlistError.EXPECTED_TSG, 1)]
        tb.lists.pace = lambda: True
        await tb.steps(3)
        assert not tb.outputs.pending and count == 0
        taken = [payload for _, payload in tb.lists.taken]
        assert taken == ([] if bad else [contents(tb.wanted(entries, 0))])


def break_memory(tb: LoaderTestbench, length: int) -> None:
    """Let a random part of the list fail."""
    status = tb.random.choice((MemoryStatus.BUS, MemoryStatus.FAULT))
    tb.fail(tb.random.randrange(BYTES * length), tb.random.choice((1, 8, 64)), status)


@cocotb.test(**LIMIT)
async def random_lists(dut):
    """Good and mutated lists, with random offsets and failing memory, are read as by the model;
    after each refusal, so is a good list."""
    tb = await begin(dut)
    numbers, met = tb.random, dict.fromkeys(RunlistError, 0)
    del met[RunlistError.PENDING]
    if ROOM > 8:
        del met[RunlistError.ROOM]  # such lists are long; see `room`
    rounds = Rounds(fewer(300, 10), 3000)
    while rounds.more(min(met.values()) > 0, met):
        tb.vary()
        most = ROOM if numbers.random() < 0.02 else 8
        entries = random_list(tb, numbers.randint(1, min(ROOM, most)))
        if numbers.random() < 0.7:
            entries = numbers.choice(MUTATIONS)(numbers, entries)
        tb.page = numbers.choice((0, (1 << 28) - 1, numbers.getrandbits(28)))
        if entries and numbers.random() < 0.1:
            break_memory(tb, len(entries))
        offset = numbers.choice(heads(entries))
        if numbers.random() < 0.1:
            offset = numbers.randrange(len(entries) + 2)
        found = await tb.check(entries, offset, page=tb.page)
        met[found.error] = met.get(found.error, 0) + 1
        tb.memory.contents.failing = []
        if found.error:
            assert not (await tb.check(random_list(tb, 1))).error


@cocotb.test(**LIMIT, skip=ROOM < 510)
async def longest(dut):
    """A list of 65,535 entries is read to its end; an offset at its last TSG is found."""
    tb = await begin(dut)
    tb.hurry()
    entries: List = []
    while len(entries) < MOST_ENTRIES:
        entries += random_group(tb, min(128, MOST_ENTRIES - len(entries) - 1))
    at = heads(entries)
    found = await tb.check(entries, at[-1])
    assert not found.error and found.start == len(at) - 1
