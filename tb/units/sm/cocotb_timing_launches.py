"""Kernels that launch kernels in the timing core (NEST-10, NEST-12)."""

import os
from collections import Counter
from typing import Any

import cocotb

from signalbox.hw.errors import CoreCause
from signalbox.tb.models.isa import Launch
from signalbox.tb.models.timing import Timing
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_timing import EACH, LAP, check_spans, run
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Fault, Task
from signalbox.tb.units.sm.launching_testbench import Key, LaunchingTestbench
from signalbox.tb.units.sm.timing_launches import DATA, launch, made, timing_of, warps_of

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

ROUNDS = int(os.environ.get("ROUNDS", "1"))

RECORDS = 0x12_3456_0000
"""First record of a child."""

LAUNCHES = 2
"""Value of a record's `store` field: launches instead of loads."""


class TimingLaunches(LaunchingTestbench):
    """Also checks that no warp ends before its own children are complete, unless it is killed or
    has failed."""

    def _end(self, warp: int) -> None:
        slot, index = self.warps[warp][0], self._starts[warp][0]
        block = self.slots[slot]
        gone = self.killed | {fault.row for fault in self.faults}
        if block.task.row not in gone and slot not in self._stopped:
            own = records(block.task.launch, block.at, index)
            left = [one for one in self.children if one.key == self.key(slot) and one.va in own]
            assert not left, f"warp {index} of block {block.at} ends before {left}"
        super()._end(warp)


def records(task: Launch, at: tuple[int, int, int], warp: int) -> list[int]:
    """Records that a warp launches, in order."""
    timing = timing_of(task)
    if timing.store != LAUNCHES:
        return []
    (number,) = {n for where, n, _ in warps_of(task) if where == at}
    return [timing.at(number, warp, n) for n in range(timing.accesses)]


def parent(count: int = 1, blocks: int = 1, warps: int = 1, cycles: int = 5, **more: Any) -> Launch:
    """A task whose warps launch `count` records each, all different."""
    own = 256 * count
    timing = Timing(count, LAUNCHES, 256, RECORDS, cycles, 7, own * warps, own)
    return launch(timing, (blocks, 1, 1), warps, **more)


@cocotb.test(**LIMIT)
@cocotb.parametrize(rate=[0, 0.01])
async def every_launch_once(dut: Any, rate: float) -> None:
    """Each warp launches its records, in order, and ends when its children are complete, whether
    its block is stopped or not, and whatever the answers; other tasks make their accesses
    meanwhile."""
    tb = await TimingLaunches(dut).start()
    tb.rate = rate
    numbers = tb.random
    rounds = Rounds(2 * ROUNDS, 40)
    while rounds.more(tb.stopped_waiting > 0 or not rate, tb.stopped_waiting):
        tb.launched.clear()
        tb.stops.clear()
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.latency = numbers.choice(((1, 2), (30, 300), (5, 2000)))
        warps = numbers.randint(1, CONFIG.sm_warps)
        first = parent(
            numbers.choice((0, 1, 3)), numbers.randint(1, 3), warps, numbers.choice((0, 40))
        )
        second = parent(numbers.choice((1, 2)), 2, 1)
        other = launch(Timing(3, 1, WIDTH, DATA, 9, 7, 3 * WIDTH, 0), (2, 1, 1))
        tasks = {0: first, 1: second, 3: other}
        await run(tb, tasks, 500_000)
        assert not tb.faults
        wanted: dict[Key, Counter[int]] = {}
        for row, task in tasks.items():
            check_spans_of(tb, task, row)
            for at, _, warp in warps_of(task):
                if found := records(task, at, warp):
                    wanted.setdefault((row, at), Counter()).update(found)
                    mine = [va for va in tb.launched[row, at] if va in found]
                    assert mine == found, "in order"
        assert {key: Counter(some) for key, some in tb.launched.items()} == wanted
        assert sum(made(tb, 3)[1].values()) == 6
        await tb.until(lambda: not tb.children, "all children are complete")


def check_spans_of(tb: TimingLaunches, task: Launch, row: int) -> None:
    """Check that each warp has run to its end; warps of stopped blocks may have several spans."""
    ended = {(one.at, one.index) for one in tb.spans if one.row == row}
    assert ended == {(at, warp) for at, _, warp in warps_of(task)}
    if not tb.rate:
        check_spans(tb.spans, task, row)


@cocotb.test(**LIMIT)
async def ends_after_its_children(dut: Any) -> None:
    """A warp ends within a turn of the last completion, and reads no memory while it waits; a warp
    that launches nothing, or whose launches are refused, does not wait."""
    tb = await TimingLaunches(dut).start()
    tb.holds, tb.port.latency, tb.latency = True, (1, 2), (1, 2)
    timing = Timing(2, LAUNCHES, 256, RECORDS + 256, 5)
    tb.launch(Task(0, launch(timing)))
    await tb.until(lambda: len(tb.children) == 2, "two launches")
    await tb.steps(3 * EACH)
    tb.port.read.taken.clear()
    await tb.steps(300)
    tb.children.pop()
    await tb.steps(10 * EACH)
    assert tb.slots and not tb.port.read.taken
    since = tb.cycle
    tb.children.pop()
    await tb.rest(200)
    assert tb.cycle - since <= LAP + EACH + 10, tb.cycle - since
    tb.tasks.clear()
    refused = Timing(2, LAUNCHES, 256 * 8, RECORDS, 5)
    for task in (launch(refused), parent(0)):
        tb.launch(Task(0, task))
        await tb.rest(1000)
        tb.tasks.clear()
    assert not tb.faults


@cocotb.test(**LIMIT)
async def waits_for_its_own(dut: Any) -> None:
    """A warp computes before and after each launch, and does not wait for children of another
    block."""
    tb = await TimingLaunches(dut).start()
    tb.port.latency = tb.latency = (1, 2)
    timing = Timing(2, LAUNCHES, 256, RECORDS + 256, 500)
    await run(tb, {0: launch(timing)})
    (span,) = tb.spans
    assert 1500 < span.end - span.start < 1500 + 4 * EACH + 100
    if CONFIG.sm_warps > 1:
        tb.holds = True
        for row in (0, 1):
            tb.launch(Task(row, launch(timing)))
        await tb.until(lambda: len(tb.children) == 4, "all launches")
        await tb.steps(600)
        tb.children = [child for child in tb.children if child.key[0]]
        await tb.until(lambda: {one.task.row for one in tb.slots.values()} == {1}, "an end", 100)
        tb.children.clear()
        await tb.rest(500)
        tb.tasks.clear()


@cocotb.test(**LIMIT)
async def nobody_waits_for_an_answer(dut: Any) -> None:
    """While a launch waits for its answer, and other launches for their turn, other warps continue
    their accesses, and end."""
    tb = await TimingLaunches(dut).start()
    tb.answers, tb.latency, tb.port.latency = False, (1, 1), (5, 5)
    warps = max(1, CONFIG.sm_warps - 1)
    tb.launch(Task(0, parent(2, warps=warps)))
    await tb.until(lambda: tb.launched, "a launch", 1000)
    await tb.steps(20 * warps)
    if CONFIG.sm_warps > 1:
        tb.launch(Task(1, launch(Timing(5, 0, WIDTH, DATA, 5))))
        await tb.until(lambda: [one for one in tb.spans if one.row == 1], "the other ends", 1000)
    assert len(tb.warps) == warps and sum(map(len, tb.launched.values())) == 1
    tb.answers = True
    await tb.rest(2 * warps * 200)
    assert sum(map(len, tb.launched.values())) == 2 * warps


@cocotb.test(**LIMIT)
async def killed_while_waiting(dut: Any) -> None:
    """A warp of a killed row ends if it waits for children, or for an answer once it is given; a
    warp of another row continues."""
    tb = await TimingLaunches(dut).start()
    tb.holds = True
    tb.latency = 30, 300
    both = {0, 1} if CONFIG.sm_warps > 1 else {0}
    for count in (1, 0xFFFF):
        first = launch(Timing(count, LAUNCHES, 256, RECORDS + 256, 3))
        tb.launch(Task(0, first))
        if 1 in both:
            tb.launch(Task(1, launch(Timing(1, LAUNCHES, 256, RECORDS + 256, 3))))
        await tb.until(lambda: {child.key[0] for child in tb.children} == both, "launches")
        await tb.steps(tb.random.randrange(200))
        tb.kill(0)
        await tb.until(lambda: 0 not in {tb.key(one)[0] for one in tb.slots}, "its end", 500)
        await tb.steps(100)
        assert len(tb.slots) == len(both) - 1 and not tb.faults
        tb.revive()
        tb.children.clear()
        await tb.rest(500)
        tb.tasks.clear()


async def all_want_to_launch(tb: TimingLaunches, warps: int) -> None:
    """Let all warps of a block with `warps` warps come to a launch; one launch stays in progress
    until `tb.answers`."""
    tb.answers, tb.latency, tb.port.latency = False, (1, 1), (5, 5)
    tb.launch(Task(0, parent(2, warps=warps)))
    await tb.until(lambda: tb.launched, "a launch", 1000)
    await tb.steps(30 * warps)


@cocotb.test(**LIMIT)
async def killed_among_many(dut: Any) -> None:
    """Warps of a killed row that wait for their turn to launch end at once, and the warp whose
    launch is in progress ends after the answer; no further launch is made."""
    tb = await TimingLaunches(dut).start()
    warps = CONFIG.sm_warps
    await all_want_to_launch(tb, warps)
    tb.kill(0)
    await tb.until(lambda: len(tb.warps) <= 1, "all but one end", 2 * LAP + 40 + 20 * warps)
    await tb.steps(2 * LAP + 40)
    assert len(tb.warps) == 1
    tb.answers = True
    await tb.until(lambda: not tb.slots, "the last one ends", 200)
    tb.tasks.clear()
    assert sum(map(len, tb.launched.values())) == 1 and not tb.faults


@cocotb.test(**LIMIT)
async def stopped_among_many(dut: Any) -> None:
    """A block is saved after the launch in progress; its warps make the other launches when it
    continues."""
    tb = await TimingLaunches(dut).start()
    await all_want_to_launch(tb, CONFIG.sm_warps)
    (slot,) = tb.slots
    tb.stop(slot)
    await tb.steps(200 * CONFIG.sm_warps + tb.random.randrange(100))
    assert not tb.saved
    tb.answers = True
    await tb.until(lambda: tb.saved, "it is saved", 200 + 200 * CONFIG.sm_warps)
    assert sum(map(len, tb.launched.values())) == 1
    tb.latency = 30, 300
    await tb.rest(50_000)
    (made,) = tb.launched.values()
    first = parent(2, warps=CONFIG.sm_warps)
    wanted = [va for at, _, warp in warps_of(first) for va in records(first, at, warp)]
    assert sorted(made) == sorted(wanted) and not tb.faults


@cocotb.test(**LIMIT)
async def wrong_records(dut: Any) -> None:
    """A misaligned or out-of-range record ends its warp with the cause, the address and the number
    of launches; a kernel with local memory must not launch."""
    tb = await TimingLaunches(dut).start()
    odd, far = RECORDS + tb.random.choice((1, 4, 128)), 1 << 40
    cases = (
        (parent_at(odd), CoreCause.MEMORY_ALIGNMENT, odd, 1),
        (parent_at(far), CoreCause.MEMORY_FAULT, far, 1),
        (parent_at(far - 256), CoreCause.MEMORY_FAULT, far, 2),
        (parent_at(RECORDS, local=32), CoreCause.INSTRUCTION, None, 0),
        (parent_at(RECORDS), None, None, 0),
    )
    for task, cause, va, made_before in cases:
        await run(tb, {2: task})
        where = task.constants if va is None else va
        wanted = [Fault(2, cause.value, made_before, where)] if cause else []
        assert tb.faults == wanted, (tb.faults, wanted)
        check_spans(tb.spans, task, 2)
    launches = [va for some in tb.launched.values() for va in some]
    assert launches == [far - 256, RECORDS, RECORDS + 256]


def parent_at(base: int, local: int = 0) -> Launch:
    """A task whose warp launches the record at `base` and the records behind it."""
    task = launch(Timing(2, LAUNCHES, 256, base, 5))
    task.local = local
    return task
