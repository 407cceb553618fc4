"""WFI of scope ALL with compute methods (HOST-3, HOST-9): every cycle is compared with rule 9;
directed tests of each boundary of an epoch."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.host.copy_launcher import MOST_COPIES
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import some
from signalbox.tb.units.host.epochs_testbench import (
    BEGINS,
    CHANNELS,
    CONFIG,
    HEARD,
    LIMIT,
    EpochsTestbench,
    Method,
    Operation,
    Task,
)

SEVERAL = {**LIMIT, "skip": CHANNELS < 2}

LAST = CHANNELS - 1

OFFERED = 7
"""Cycles from a compute method's wait to its offer, if none is before it."""

SHOWN = 1
"""Cycles from the first in which nothing counts to the one in which waits are over."""

LATE = 30
"""Cycles in which a wait does not end, so it does not end by itself."""


async def offered(tb: EpochsTestbench, channel: int) -> Method:
    """A compute method of the channel that the engine has taken."""
    await tb.step(ask=channel)
    await tb.until(lambda: tb.method and tb.method.taken is not None, "it is taken")
    assert tb.method is not None and tb.method.channel == channel
    return tb.method


async def launched(tb: EpochsTestbench, channel: int) -> Task:
    """A compute method of the channel that has launched a task."""
    method = await offered(tb, channel)
    await tb.step(launch=True)
    await tb.step(answer=True)
    await leave(tb, channel)
    assert method.task is not None
    return method.task


async def leave(tb: EpochsTestbench, channel: int) -> None:
    """Answer the channel's compute method; the channel continues."""
    await tb.until(lambda: channel in tb.done, "the method is complete")
    await tb.step(drop=channel)
    await tb.steps(2)


async def ended(tb: EpochsTestbench, task: Task) -> int:
    """End the task. Returns the cycle in which the design accepts the completion."""
    tb.end(task)
    await tb.until(lambda: task.ended is not None, "the end is heard")
    assert task.ended is not None
    return task.ended


async def over_after(tb: EpochsTestbench, cycle: int, delay: int, channel: int = 0) -> None:
    """Check that the channel's WFI is over for the first time `delay` cycles after `cycle`; then
    the channel continues."""
    while tb.cycle < cycle + delay:
        assert channel not in await tb.step(), tb.cycle - 1 - cycle
    assert channel in await tb.step(), tb.cycle - 1 - cycle
    await tb.step(undo=channel)
    await tb.steps(3)


async def not_over(tb: EpochsTestbench, cycles: int = LATE) -> None:
    """Check for some cycles that no WFI is over."""
    for _ in range(cycles):
        assert not await tb.step()


@cocotb.test(**LIMIT)
async def nothing_outstanding(dut):
    """If nothing is outstanding, an epoch begins two cycles after the wait and ends in the next
    cycle."""
    tb = await EpochsTestbench(dut).start()
    for channel in {0, LAST}:
        await tb.step(wfi=channel)
        await over_after(tb, tb.cycle - 1, BEGINS + 1 + SHOWN, channel)
        assert tb.model.last == tb.model.ends[-1] - 1


@cocotb.test(**LIMIT)
async def handed_over(dut):
    """A method handed over to the engine by the cycle after an epoch begins counts until its answer
    and the end of its task; a method handed over later does not count."""
    tb = await EpochsTestbench(dut).start()
    outcomes = ("task", "none", "refused", "unlaunched")
    cases = [(place, outcome) for place in range(-4, 6) for outcome in outcomes]
    for place, outcome in some(cases, 5):
        # The offer comes `place` cycles after the epoch begins.
        start, counts = tb.cycle + 12, place <= 1
        while tb.cycle <= start + max(0, place):
            now = tb.cycle
            over = await tb.step(
                ask=LAST if now == start + place - OFFERED else None,
                wfi=0 if now == start - BEGINS else None,
            )
            assert not over or not counts
        method = tb.method
        assert method is not None and method.taken == start + place
        if not counts:
            assert tb.model.ends[-1] == start + 1
            await tb.step(undo=0)
        if counts:
            await not_over(tb)
        if outcome in ("task", "unlaunched"):
            await tb.step(launch=True)
        refused = outcome in ("refused", "unlaunched")
        await tb.step(answer=True, refused=refused, unlaunched=outcome == "unlaunched")
        if counts and outcome != "task":
            await over_after(tb, tb.cycle - 1, HEARD + SHOWN)
        elif outcome == "task":
            await not_over(tb, LATE)
            assert method.task is not None
            cycle = await ended(tb, method.task)
            if counts:
                await over_after(tb, cycle, HEARD + SHOWN)
        await leave(tb, LAST)
        assert not tb.tasks and tb.method is None


@cocotb.test(**LIMIT)
async def answered(dut):
    """If a method is answered around the beginning of an epoch, with or without a task, launched in
    the cycle before the answer or earlier, the epoch waits for the part that is still outstanding,
    and no longer."""
    tb = await EpochsTestbench(dut).start()
    cases = [
        (answer, before) for answer in range(-4, 5) for before in (None, 1, 2, 5)
    ]  # cycles from the epoch's beginning to the answer; from the launch to the answer
    for answer, before in some(cases, 4):
        method = await offered(tb, LAST)
        start = tb.cycle + 12
        asked, replies = start - BEGINS, start + answer
        while tb.cycle <= max(replies, asked):
            now = tb.cycle
            over = await tb.step(
                wfi=0 if now == asked else None,
                launch=before is not None and now == replies - before,
                answer=now == replies,
            )
            assert not over
        if method.task is None:
            # The method counts two cycles longer; an epoch lasts a cycle at least.
            await over_after(tb, max(start + 1, replies + HEARD), SHOWN)
        else:
            await not_over(tb)
            await over_after(tb, await ended(tb, method.task), HEARD + SHOWN)
        await leave(tb, LAST)


@cocotb.test(**LIMIT)
async def tasks_end(dut):
    """A task that ends around the beginning of an epoch counts only if it is outstanding then."""
    tb = await EpochsTestbench(dut).start()
    for place in range(-5, 5):
        task = await launched(tb, LAST)
        start = tb.cycle + 10
        heard = None
        while tb.cycle < start + 8 or heard is None:
            now = tb.cycle
            if now == start + place:
                tb.end(task)
            await tb.step(wfi=0 if now == start - BEGINS else None)
            heard = task.ended
        assert tb.model.ends[-1] == max(start + 1, heard + HEARD)
        await tb.step(undo=0)
        await tb.steps(3)


@cocotb.test(**LIMIT)
async def copies_and_semaphores(dut):
    """Copies started before an epoch begins count until the cycle in which they end; an operation
    in memory counts if it is outstanding in the cycle in which the epoch begins."""
    tb = await EpochsTestbench(dut).start()
    engine = CONFIG.copy_engines - 1
    for first in range(-3, 3):
        for length in (1, 2, 3, 4, 12):
            for memory in (False, True):
                start = tb.cycle + 8
                begins, ends = start + first, start + first + length
                changing: frozenset[int] = frozenset()
                while tb.cycle < start + 18:
                    now = tb.cycle
                    changing = frozenset({LAST} if memory and begins <= now < ends else ())
                    await tb.step(
                        wfi=0 if now == start - BEGINS else None,
                        start=engine if not memory and now == begins else None,
                        finish=engine if not memory and now == ends else None,
                        changing=changing,
                    )
                counts = begins <= start if memory else begins < start
                last = max(start + 1, ends + 1) if counts else start + 1
                assert tb.model.ends[-1] == last, (first, length, memory)
                await tb.step(undo=0)
                await tb.steps(3)


@cocotb.test(**LIMIT)
async def dropped_methods(dut):
    """A method dropped by its channel, for instance a disabled one, still counts if it was handed
    over before, until its answer and the end of its task. A method dropped earlier is not handed
    over and does not count."""
    tb = await EpochsTestbench(dut).start()
    for after in some(range(1, 16), 3):
        for launches in (False, True):
            tb.ready = False
            await tb.step(ask=LAST)
            asked = tb.cycle - 1
            method = None
            while tb.cycle < asked + 20:
                now = tb.cycle
                await tb.step(
                    drop=LAST if now == asked + after else None,
                    wfi=0 if now == asked + 16 else None,
                )
                method = tb.method
                assert not (tb.model.over(now) and method)
            tb.on &= ~(1 << LAST)
            if method is None:
                assert after <= OFFERED - BEGINS
                await over_after(tb, asked + 16, BEGINS + 1 + SHOWN)
                continue
            tb.ready = True
            await not_over(tb)
            if launches:
                await tb.step(launch=True)
            await tb.step(answer=True, refused=not launches)
            cycle = tb.cycle - 1
            if method.task is not None:
                await not_over(tb)
                tb.end(method.task, Refusal.KILLED)
                await tb.until(lambda: not tb.ending, "the end is heard")
                cycle = tb.cycle - 1
            await over_after(tb, cycle, HEARD + SHOWN)
            tb.on |= 1 << LAST


@cocotb.test(**LIMIT)
async def later_ones_do_not_count(dut):
    """A wait ends although later methods of all channels launch tasks all the time; each following
    wait includes these tasks, but none launched after it."""
    tb = await EpochsTestbench(dut).start()
    tasks = [await launched(tb, LAST)]
    for _ in range(4):
        await tb.step(wfi=0)
        await tb.steps(BEGINS)
        later = [await launched(tb, channel) for channel in {0, LAST}]
        later.append(await launched(tb, LAST))
        executed = await offered(tb, LAST)
        for task in tasks[:-1]:
            await ended(tb, task)
            await not_over(tb)
        await over_after(tb, await ended(tb, tasks[-1]), HEARD + SHOWN)
        await tb.step(launch=True)
        await tb.step(answer=True)
        await leave(tb, LAST)
        assert executed.task is not None
        tasks = [*later, executed.task]
    for task in tasks:
        await ended(tb, task)


@cocotb.test(**LIMIT)
async def children(dut):
    """Tasks launched by a task that counts also count, whenever they are launched; tasks launched
    by a later task do not."""
    tb = await EpochsTestbench(dut).start()
    for _ in range(3):
        parent = await launched(tb, LAST)
        await tb.step(wfi=0)
        await tb.steps(BEGINS)
        other = await launched(tb, LAST)
        await tb.step(child=parent)
        child = tb.tasks[-1]
        await tb.step(child=other)
        niece = tb.tasks[-1]
        await ended(tb, parent)
        await not_over(tb)
        await tb.step(child=child)
        grandchild = tb.tasks[-1]
        await ended(tb, child)
        await not_over(tb)
        await over_after(tb, await ended(tb, grandchild), HEARD + SHOWN)
        for task in (other, niece):
            await ended(tb, task)
        await tb.steps(3)


@cocotb.test(**SEVERAL)
async def next_epoch(dut):
    """A wait that begins before an epoch is over at its end. A wait that begins in the epoch's
    first cycle or later, up to its last cycle, is over at the end of the next epoch, which begins
    at once."""
    tb = await EpochsTestbench(dut).start()
    other = LAST
    for after in range(-1, 12):
        # The second wait begins `after` cycles after the epoch.
        await tb.step(start=0)
        start = tb.cycle + BEGINS
        finish = start + 8
        asked = start + after
        while tb.cycle < finish + 9:
            now = tb.cycle
            await tb.step(
                wfi=0 if now == start - BEGINS else other if now == asked else None,
                finish=0 if now == finish else None,
            )
        end = finish + 1
        assert tb.model.waits[0].over == end + SHOWN
        if after < 0:
            expected = end + SHOWN
        elif asked <= end - 1:
            expected = end + 2 + SHOWN
        else:
            expected = asked + BEGINS + 1 + SHOWN
        assert tb.model.waits[other].over == expected, after
        for channel in (0, other):
            await tb.step(undo=channel)
        await tb.steps(3)


@cocotb.test(**LIMIT)
async def dropped_waits(dut):
    """A wait dropped in any cycle is never over. A new wait has its own epoch, which includes
    everything outstanding at its beginning."""
    tb = await EpochsTestbench(dut).start()
    for after in some(range(1, 12), 3):
        first = await launched(tb, LAST)
        await tb.step(wfi=0)
        asked = tb.cycle - 1
        while tb.cycle < asked + after:
            await tb.step()
        await tb.step(undo=0)
        second = await launched(tb, LAST)
        await tb.step(wfi=0)
        await not_over(tb)
        await ended(tb, first)
        await not_over(tb)
        cycle = await ended(tb, second)
        await tb.until(lambda: bool(tb.model.over(tb.cycle - 1)), "it is over")
        assert tb.cycle - 1 <= cycle + HEARD + SHOWN + 2
        await tb.step(undo=0)
        await tb.steps(3)


@cocotb.test(**LIMIT)
async def reset_in_an_epoch(dut):
    """After a reset at any time, nothing is outstanding and no channel waits."""
    for cycles in some(range(1, 9), 3):
        tb = await EpochsTestbench(dut).start()
        await launched(tb, LAST)
        await tb.step(start=CONFIG.copy_engines - 1)
        await offered(tb, LAST)
        await tb.step(launch=True)
        await tb.step(wfi=0, changing=frozenset({LAST}))
        await tb.steps(cycles)
        tb = await EpochsTestbench(dut).start()
        await not_over(tb, 5)
        assert not tb.get("outstanding__some") and not tb.get("outstanding__busy")
        await tb.step(wfi=0)
        await over_after(tb, tb.cycle - 1, BEGINS + 1 + SHOWN)
        task = await launched(tb, LAST)
        await tb.step(wfi=0)
        await not_over(tb, 5)
        await over_after(tb, await ended(tb, task), HEARD + SHOWN)


SITUATIONS = (
    "over",
    "over after two epochs",
    "epoch ends at once",
    "epoch ends before a later method",
    "epoch ends before a later task",
    "wait dropped before its epoch",
    "wait dropped in its epoch",
    "offered in the cycle after an epoch begins",
    "answered as an epoch begins",
    "launched as an epoch begins",
    "launched right before the answer",
    "refused in an epoch that it counts in",
    "unlaunched in an epoch that it counts in",
    "dropped in execution, in an epoch",
    "child of a task that counts",
    "child of a later task",
    "task heard as an epoch begins",
)
"""Situations that a random test meets."""

TOGETHER = ("asked as an epoch begins", "asked as an epoch ends", "asked in an epoch")
"""Situations with several channels."""


class Life:
    """Random activity of all channels, of the copy engines and of the compute engine."""

    def __init__(self, tb: EpochsTestbench) -> None:
        self._tb, self._numbers = tb, tb.random
        self.waited: list[tuple[int, int, list[Operation]]] = []
        self._asked: dict[int, tuple[int, list[Operation]]] = {}

    async def some_time(self, cycles: int) -> None:
        """Random activity with constant probabilities."""
        tb, numbers = self._tb, self._numbers
        waits, copies = numbers.choice((0.05, 0.3)), numbers.choice((0.0, 0.0, 0.1, 0.3))
        methods, drops = numbers.choice((0.05, 0.2, 0.8)), numbers.choice((0.0, 0.02))
        takes, answers = numbers.choice((0.3, 1.0)), numbers.choice((0.1, 0.5, 1.0))
        launches, ends = numbers.choice((0.3, 1.0)), numbers.choice((0.03, 0.1, 0.5))
        for _ in range(cycles):
            events: dict[str, Any] = {}
            tb.ready = numbers.random() < takes
            self._waits(events, waits, drops)
            self._copies(events, copies)
            self._methods(events, methods, drops)
            self._execute(events, answers, launches, ends)
            await self._step(events)

    async def finish(self) -> None:
        """End all operations, then all waits."""
        tb = self._tb
        tb.ready = True
        await self._step({"changing": frozenset()})
        for engine, copies in enumerate(tb.copies):
            for _ in range(len(copies)):
                await self._step({"finish": engine})
        for _ in range(20 * CHANNELS):
            taken = tb.method is not None and tb.method.taken is not None
            await self._step({"answer": taken})
            for task in [*tb.tasks]:
                tb.end(task)
        await tb.until(lambda: not tb.ending, "all tasks have ended")
        for _ in range(10):
            await self._step({})
        assert not self._asked, "some waits never end"

    async def _step(self, events: dict[str, Any]) -> None:
        tb = self._tb
        now, ask = tb.cycle, events.get("wfi")
        over = await tb.step(**events)
        for channel in over & self._asked.keys():
            asked, operations = self._asked.pop(channel)
            self.waited.append((asked, now, operations))
        if ask is not None:
            before = [one for one in tb.model.operations if self._began(one, now)]
            self._asked[ask] = now, before
        undo = events.get("undo")
        if undo is not None:
            self._asked.pop(undo, None)

    @staticmethod
    def _began(one: Operation, now: int) -> bool:
        """Whether an operation is outstanding, as seen from outside."""
        if one.ended is not None:
            return False
        if isinstance(one, Method):
            return one.taken is not None and one.taken < now
        return (one.began if isinstance(one, Task) else one.since) < now

    def _waits(self, events: dict[str, Any], waits: float, drops: float) -> None:
        tb, numbers = self._tb, self._numbers
        over, present = tb.model.over(tb.cycle - 1), tb.model.waits
        idle = [one for one in range(CHANNELS) if one not in present and one not in tb.asking]
        leaving = [one for one in present if one in over or numbers.random() < 3 * drops]
        if leaving and numbers.random() < 0.5:
            events["undo"] = numbers.choice(leaving)
        running = tb.model.running
        # Often, when an epoch has just begun or may be ending.
        near = running is not None and tb.cycle - running < 3
        if idle and numbers.random() < (2 * waits if near else waits):
            events["wfi"] = numbers.choice(idle)

    def _copies(self, events: dict[str, Any], copies: float) -> None:
        tb, numbers = self._tb, self._numbers
        engine = numbers.randrange(CONFIG.copy_engines)
        if numbers.random() < copies and len(tb.copies[engine]) < MOST_COPIES:
            events["start"] = engine
        busy = [one for one, running in enumerate(tb.copies) if running]
        if busy and numbers.random() < 0.3:
            events["finish"] = numbers.choice(busy)
        changing = {one for one in tb.changing if numbers.random() < 0.7}
        channel = numbers.randrange(CHANNELS)
        if channel not in tb.changing and numbers.random() < copies:
            changing.add(channel)
        events["changing"] = frozenset(changing)

    def _methods(self, events: dict[str, Any], methods: float, drops: float) -> None:
        """Channels ask for compute methods, leave completed ones, and drop others."""
        tb, numbers, now = self._tb, self._numbers, self._tb.cycle
        done = [channel for channel in tb.asking if channel in tb.done]
        if done and numbers.random() < 0.5:
            events["drop"] = numbers.choice(done)
        elif tb.asking and numbers.random() < 5 * drops:
            events["drop"] = numbers.choice([*tb.asking])
            held = tb.method
            tb.model.met["dropped in execution, in an epoch"] += (
                held is not None
                and held.channel == events["drop"]
                and held.taken is not None
                and tb.model.running is not None
                and held.channel not in tb.done
            )
        waits = {*tb.model.waits, events.get("wfi", -1), events.get("undo", -1)}
        idle = [
            one
            for one in range(CHANNELS)
            if one not in tb.asking and one not in waits and tb.quiet[one] <= now
        ]
        if idle and numbers.random() < methods:
            events["ask"] = numbers.choice(idle)

    def _execute(
        self, events: dict[str, Any], answers: float, launches: float, ends: float
    ) -> None:
        """The engine executes its method; tasks begin and end."""
        tb, numbers, met = self._tb, self._numbers, self._tb.model.met
        method, now, running = tb.method, tb.cycle, tb.model.running
        executes = method is not None and method.taken is not None
        counts = method is not None and running is not None and method.since <= running
        begins = running is None and self._begins(now)
        if begins:
            # Often something happens in that very cycle.
            answers, launches, ends = (max(one, 0.7) for one in (answers, launches, ends))
        fresh = method is not None and method.task is None
        if executes and fresh and numbers.random() < launches / 2:
            events["launch"] = True
            met["launched as an epoch begins"] += begins
        elif executes and numbers.random() < answers:
            task = method.task if method is not None else None
            refused = numbers.random() < 0.3
            # The engine takes a task back only if it has not ended.
            unlaunched = task is not None and task in tb.tasks and numbers.random() < 0.3
            events |= {"answer": True, "refused": refused, "unlaunched": unlaunched}
            met["answered as an epoch begins"] += begins
            met["refused in an epoch that it counts in"] += refused and counts
            met["unlaunched in an epoch that it counts in"] += unlaunched and counts
            met["launched right before the answer"] += task is not None and task.began == now - 1
        elif tb.tasks and len(tb.tasks) < 20 and numbers.random() < 0.05:
            parent = numbers.choice(tb.tasks)
            events["child"] = parent
            met["child of a task that counts"] += running is not None and parent.since <= running
            met["child of a later task"] += running is not None and parent.since > running
        protected = {events.get("child"), method.task if method is not None else None}
        free = [task for task in tb.tasks if task not in protected]
        if free and numbers.random() < ends:
            tb.end(numbers.choice(free))
            met["task heard as an epoch begins"] += begins

    def _begins(self, now: int) -> bool:
        """Whether an epoch begins in this cycle."""
        waits = self._tb.model.waits.values()
        return any(wait.asked <= now - BEGINS and not wait.inside for wait in waits)

    def check(self) -> None:
        """Check that each wait was over only after the end of everything outstanding at its
        beginning."""
        for asked, over, operations in self.waited:
            late = [one for one in operations if one.ended is None or one.ended >= over]
            assert not late, (asked, over, late)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Under random activity, each wait is over in the model's cycle, after everything outstanding
    at its beginning has ended, until each situation was met several times."""
    tb = await EpochsTestbench(dut).start()
    life, met = Life(tb), tb.model.met
    goals = [*SITUATIONS, *(TOGETHER if CHANNELS > 1 else ())]
    rounds = Rounds(40, 800)
    while rounds.more(all(met[one] >= 5 for one in goals), {one: met[one] for one in goals}):
        await life.some_time(100)
    await life.finish()
    life.check()
    cocotb.log.info("met: %s", dict(met))
