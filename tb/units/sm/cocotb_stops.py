"""An SM whose blocks are stopped, and continue later, computes every byte as if they had not
(PREEMPT-2, PREEMPT-3, PREEMPT-7)."""

import os
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import cocotb

from signalbox.hw.config import SHARED_UNIT, STATE_LINE
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_core import difference
from signalbox.tb.units.sm.core_testbench import CONFIG, Task
from signalbox.tb.units.sm.sm_testbench import AREA, SmTestbench
from signalbox.tb.units.sm.stop_kernels import computed, endless, some_kernel, with_local_memory

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

MOST = 5
"""Maximum number of stops of a block."""

MANY = 40
"""Rounds in which some state is saved, some fault reported, some saved block killed."""

ROUNDS = int(os.environ.get("ROUNDS", "1"))


CALM = 2 * CONFIG.sm_blocks + 2 * CONFIG.shared_units + 10
"""Cycles after a change until the victim is the right one."""

STATE_BUS = 9
"""Cause, as in `CoreCause`."""


class Stopping(SmTestbench):
    """Stops the victim in a fraction of the cycles; at times, all blocks of some rows must leave.
    Checks the victim. Kills a row that faults."""

    rate = 0.0

    async def step(self) -> None:
        few = all(work.stops < MOST for work in self.there.values())
        if self.random.random() < self.rate and self.can_stop and few:
            self.stop(0 if self.get("link__victim")["leaves"] else 127)
        if self.random.random() < self.rate / 2:
            self.leaves(self.random.choice(({0}, {1}, {0, 1}, set(), set())))
        if self.random.random() < self.rate / 2:
            self.set_spare(self.random.random() < 0.7)
        for row in {fault["row"] for fault in self.faults} - self.killed:
            self.kill(row)
        await super().step()
        # The timing core accepts blocks long after they have begun.
        if self.still and not (CONFIG.timing_core and self.beginning):
            check_order(self)
            if self.calm > CALM:
                check_victim(self)


def check_order(tb: SmTestbench) -> None:
    """Check that no block that has been there for some time must be stopped sooner than the
    victim, unless both must leave."""
    found = tb.get("link__victim")
    if found["leaves"]:
        return
    # A block without a state has not begun.
    helps = found["state"] > 0 and found["level"] <= tb.lacking
    rank = not found["leaves"], not helps, found["level"] - 1, found["state"]
    for work in tb.there.values():
        if found["valid"] and tb.cycle - work.since > CALM:
            assert not tb.able(work) or rank <= tb.rank(work), (found, work)


def check_victim(tb: SmTestbench) -> None:
    """Check that the victim is one of those allowed by the contract of `BlockStop`."""
    found, victims = tb.get("link__victim"), tb.victims
    assert found["valid"] == bool(victims), (found, victims)
    if victims:
        leaves = victims[0].task.row in tb.leave
        wanted = (leaves, victims[0].priority + 1, victims[0].state)
        assert (found["leaves"], found["level"], found["state"]) == wanted, (found, victims)


async def free(tb: Stopping) -> None:
    """Wait until all blocks have ended, and check that nothing is in use."""
    await tb.until(lambda: not tb.busy, "all blocks end", 500_000)
    tb.rate = 0
    await tb.until(lambda: not tb.busy, "the last stop is answered")
    await tb.steps(5)
    assert not any(tb.charged.values()), tb.charged
    assert len(tb.places) == CONFIG.save_places
    tb.leaves(set())
    tb.set_spare(True)


def some_kernels(tb: Stopping) -> dict[int, Launch]:
    """Two kernels, by row."""
    return {row: some_kernel(tb.random, tb.random.randrange(5, 8 * ROUNDS)) for row in range(2)}


def agree(launch: Launch, wanted: Memory) -> None:
    assert launch.memory.pages == wanted.pages, (
        "memory differs" if CONFIG.timing_core else difference(launch, wanted)
    )


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def random_programs(dut, eager):
    """Random kernels of several priorities, with more blocks than fit, compute the interpreter's
    results, until some state was saved."""
    tb = await Stopping(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    rounds = Rounds(ROUNDS, MANY)
    while rounds.more(tb.stopped["state"] > 0, tb.stopped):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.rate = numbers.choice((0.001, 0.003, 0.01))
        launches = some_kernels(tb)
        wanted = {row: computed(launch) for row, launch in launches.items()}
        for row, launch in launches.items():
            tb.launch(Task(row, launch), numbers.randrange(64))
        await free(tb)
        assert not tb.faults
        for row, launch in launches.items():
            agree(launch, wanted[row])
    dut._log.info("stopped: %s", tb.stopped)


@cocotb.test(**LIMIT)
@cocotb.parametrize(breaks=[False, True])
async def kills_and_faults(dut, breaks):
    """One of two rows is killed at any time, or each row that reports a bus error of the save area:
    all of its blocks end, a row that was not killed computes its results, and the next kernels
    run. Until a row with a block on the SM was killed, and one with a saved block, or until some
    row has faulted."""
    tb = await Stopping(dut).start()
    numbers = tb.random
    met, rounds = Counter[str](), Rounds(ROUNDS, MANY)
    goals = {"faults"} if breaks else {"there", "saved"}
    while rounds.more(all(met[goal] for goal in goals), met):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.rate = 0.01
        launches = some_kernels(tb)
        wanted = {row: computed(launch) for row, launch in launches.items()}
        if breaks:
            tb.state.bad_lines = bad_lines(tb)
        for row, launch in launches.items():
            tb.launch(Task(row, launch), numbers.randrange(64))
        if not breaks:
            row = numbers.randrange(2)
            if numbers.random() < 0.5:
                await tb.steps(numbers.randrange(3000))
            else:
                await tb.until(
                    lambda row=row: saved(tb, row) or not tb.busy, "a block is saved", 500_000
                )
            met["there"] += any(work.task.row == row for work in tb.there.values())
            met["saved"] += saved(tb, row)
            tb.kill(row)
        await free(tb)
        met["faults"] += len(tb.faults)
        assert {fault["cause"].value for fault in tb.faults} <= ({STATE_BUS} if breaks else set())
        for row in set(launches) - tb.killed:
            launch = launches[row]
            agree(launch, wanted[row])
        tb.faults.clear()
        tb.state.bad_lines.clear()
        tb.revive()


def saved(tb: Stopping, row: int) -> bool:
    """Whether some block of a row is in a place, off the SM."""
    return any(work.task.row == row and work.place is not None for work in tb.waiting)


def bad_lines(tb: Stopping) -> set[int]:
    """The first line of one place, or some line of each."""
    first = AREA * 4096 // STATE_LINE
    step = CONFIG.place_bytes // STATE_LINE
    if tb.random.random() < 0.5:
        return {first + step * tb.random.randrange(CONFIG.save_places)}
    return {first + step * place + tb.random.randrange(40) for place in range(CONFIG.save_places)}


@cocotb.test(**LIMIT)
async def levels(dut):
    """A stop with a level not above the victim's finds none; with the next level the victim is
    stopped, and then the next victim (see `check_victim`). A block of a row that leaves is stopped
    at any level."""
    tb = await Stopping(dut).start()
    tb.holds = True
    rows = min(CONFIG.sm_blocks, CONFIG.save_places)
    warps = max(min(CONFIG.sm_warps, CONFIG.register_units // 2) // rows, 1)
    shared = CONFIG.shared_units // rows * SHARED_UNIT
    for _ in range(ROUNDS):
        for row in range(rows):
            size = tb.random.choice(((1, 0), (1, shared), (warps, 0)))
            tb.launch(Task(row, endless(*size)), tb.random.randrange(4))
        await tb.until(lambda: len(tb.there) == rows, "all blocks are sent")
        await tb.until(lambda: all(work.begun for work in tb.there.values()), "all begin")
        if tb.random.random() < 0.5:
            tb.leaves({tb.random.randrange(rows)})
        while tb.there:
            await tb.until(lambda: tb.calm > CALM, "the victim is known")
            await stops_at_levels(tb)
        for row in range(rows):
            tb.kill(row)
        await free(tb)
        tb.revive()


async def stops_at_levels(tb: Stopping) -> None:
    """Stop the next block: only with a level above its own, unless it must leave."""
    victims = tb.victims
    leaves, level = victims[0].task.row in tb.leave, victims[0].priority + 1
    for above in [-level] if leaves else [tb.random.randint(-level, 0), 1]:
        tb.answers.clear()
        tb.stop(level + above)
        await tb.until(lambda: tb.answers, "the stop is answered")
        (found,) = tb.answers
        if above > 0 or leaves:
            assert found in victims, (found, victims)
        else:
            assert found is None, (found, level, above)


@cocotb.test(**LIMIT)
@cocotb.parametrize(local=[False, True])
async def stops_what_holds(dut, local):
    """The most urgent block lacks the shared memory that a less urgent block holds; a third block
    has not begun, and holds nothing. The holder is stopped. If it cannot be, as it has local
    memory, no lack is reported, and the third block is the victim of other stops (PREEMPT-5)."""
    tb = await Stopping(dut).start()
    tb.holds = True
    whole = endless(1, CONFIG.sm_shared)
    tb.launch(Task(0, replace(whole, local=32 * local)), 4)
    await tb.until(lambda: any(work.begun for work in tb.there.values()), "it holds everything")
    if CONFIG.sm_blocks > 2:
        tb.launch(Task(1, deepcopy(whole)), 3)
        await tb.until(lambda: len(tb.there) == 2, "the other one is sent")
    tb.launch(Task(2, deepcopy(whole)), 5, saves=True)
    await tb.until(lambda: (2, (0, 0, 0)) in tb.there, "the most urgent one is sent")
    tb.set_lacking(5)
    await tb.until(lambda: tb.calm > CALM, "the victim is known")
    assert tb.get("link__lacks") == {"valid": not local, "level": 6}
    tb.answers.clear()
    tb.stop(6)
    await tb.until(lambda: tb.answers, "the stop is answered")
    tb.set_lacking(-1)
    stopped = None if local and CONFIG.sm_blocks == 2 else int(local)
    assert [work and work.task.row for work in tb.answers] == [stopped]
    if not local:
        await tb.until(lambda: tb.there[2, (0, 0, 0)].begun, "the most urgent one begins")
    for row in range(3):
        tb.kill(row)
    await free(tb)
    tb.revive()


@cocotb.test(**LIMIT)
async def local_memory_stays(dut):
    """A block with local memory is not stopped, neither for others nor because its row leaves, but
    ends. The block beside it is stopped (HOST-15)."""
    tb = await Stopping(dut).start()
    tb.holds = True
    tb.launch(Task(0, with_local_memory(3000)), 0)
    tb.launch(Task(1, endless(1, 0)), 3)
    await tb.until(lambda: len(tb.there) == 2, "both blocks are sent")
    await tb.until(lambda: all(work.begun for work in tb.there.values()), "both begin")
    tb.leaves({0})
    for found in (True, False):
        await tb.until(lambda: tb.calm > CALM, "the victim is known")
        assert tb.get("link__victim")["valid"] == found
        tb.answers.clear()
        tb.stop()
        await tb.until(lambda: tb.answers, "the stop is answered")
        assert [work and work.task.row for work in tb.answers] == [1 if found else None]
    tb.kill(1)
    await free(tb)
    tb.revive()
