"""Kills and bus errors while blocks are saved, are away, and are restored (PREEMPT-7)."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import cocotb

from signalbox.hw.config import STATE_LINE
from signalbox.tb.models.isa import Launch
from signalbox.tb.units.sm.cocotb_control import POINTERS, ROUNDS, make
from signalbox.tb.units.sm.cocotb_preempt_ways import (
    OWN,
    SLOW,
    agree,
    begin,
    begun,
    computed,
    data,
    go_on,
    stop,
)
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Task
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

MEMORY_BUS, STATE_BUS = 4, 9
"""Causes, as in `CoreCause`."""

VICTIM, OTHER = 2, 1
"""Rows."""

WAIT_AT = 21
"""First bit of the wait in the second word of a warp's state."""

BOUND = 4000 * SLOW
"""Maximum cycles until a killed row ends."""


def victim(*, barrier: bool = False) -> Launch:
    """Two warps that never end, with two units of shared memory."""
    text = f"{OWN}shl r5, r0, 2\nsts [r5], r0\n{'bar' * barrier}\ntop: lds r4, [r5]\nbra top"
    return make(text, barrier=barrier, shared=2048)


def fullest(most: int = CONFIG.sm_warps) -> tuple[int, int]:
    """Number of warps, at most `most`, of a block that needs all registers, and registers of each
    thread."""
    warps = next(n for n in range(most, 0, -1) if CONFIG.register_units % n == 0)
    return warps, 4 * CONFIG.register_units // warps


def filling() -> Launch:
    """A block that needs all registers and shared memory, and computes from both."""
    warps, registers = fullest()
    last = registers - 1
    text = f"""
        {OWN}
        mul  r{last}, r0, 7
        shl  r5, r0, 2
        sts  [r5 + {CONFIG.sm_shared - 128 * warps}], r{last}
        bar
        lds  r4, [r5 + {CONFIG.sm_shared - 128 * warps}]
        add  r4, r4, r{last}
        stg  [r2], r4
        exit
    """
    launch = make(text, warps=warps, barrier=True, shared=CONFIG.sm_shared)
    launch.registers = registers
    return launch


async def fills(tb: PreemptingTestbench) -> None:
    """Check that all resources are free and the core works: a block that needs all computes its
    results."""
    launch = filling()
    wanted = computed(launch)
    faults = len(tb.faults)
    tb.launch(Task(VICTIM, launch))
    await tb.rest(20_000)
    tb.tasks.clear()
    agree(launch, wanted, "the block that fills the core")
    assert len(tb.faults) == faults, tb.faults


class Neighbour:
    """A kernel of several blocks in another row, which is not disturbed."""

    def __init__(self, tb: PreemptingTestbench) -> None:
        text = f"""
            {OWN}
            mov  r6, 20
            ldg  r4, [r2]
            s2r  r7, ctaid.x
        top:
            mad  r4, r4, 5, r0
            sub  r6, r6, 1
            bany r6, top
            ldg  r5, [r2 + 512]
            add  r4, r4, r5
            stg  [r2 + 1024], r4
            exit
        """
        self.launch = data(make(text, warps=1, shared=0), tb.random.getrandbits(32))
        self.launch.grid = (4, 1, 1)
        self.wanted = computed(self.launch)
        tb.launch(Task(OTHER, self.launch))

    def check(self) -> None:
        agree(self.launch, self.wanted, "the other row")


async def gone(tb: PreemptingTestbench) -> None:
    """Wait until the blocks of the killed row have ended."""

    def blocks() -> list[int]:
        return [slot for slot, block in tb.slots.items() if block.task.row == VICTIM]

    await tb.until(lambda: not blocks(), "the blocks of the killed row end", BOUND)


async def ended(tb: PreemptingTestbench) -> None:
    """After the kill: check that everything ends, and nothing is lost."""
    await gone(tb)
    await tb.rest()
    tb.tasks.clear()
    tb.revive()
    assert not tb.places
    await tb.steps(20)
    await fills(tb)


async def saving(tb: PreemptingTestbench, task: Task) -> None:
    """The block is being saved."""
    tb.stop(await begun(tb, task))
    await tb.steps(tb.random.randrange(900))


async def away(tb: PreemptingTestbench, task: Task) -> None:
    """The block is saved."""
    await stop(tb, task)
    tb.tasks.append(task)


async def restoring(tb: PreemptingTestbench, task: Task) -> None:
    """The block is being restored."""
    await stop(tb, task)
    await go_on(tb, task)
    await tb.steps(tb.random.randrange(900))


async def restoring_stopped(tb: PreemptingTestbench, task: Task) -> None:
    """The block is being restored, and is stopped already."""
    await restoring(tb, task)
    tb.stop(await begun(tb, task))
    await tb.steps(tb.random.randrange(300))


PHASES: dict[str, Callable[[PreemptingTestbench, Task], Awaitable[None]]] = {
    one.__name__: one for one in (saving, away, restoring, restoring_stopped)
}


_Neighbour = TypeVar("_Neighbour")


async def kill_in(
    tb: PreemptingTestbench,
    phase: str,
    launch: Launch,
    neighbour: Callable[[PreemptingTestbench], _Neighbour],
) -> _Neighbour:
    """Kill the row of a block in a phase, at some time, beside another row, which is returned."""
    tb.port.latency = tb.random.choice(((1, 2), (3, 20), (60, 90)))
    task = await begin(tb, launch, VICTIM)
    await tb.steps(tb.random.randrange(300))
    beside = neighbour(tb)
    await PHASES[phase](tb, task)
    tb.kill(VICTIM)
    return beside


@cocotb.test(**LIMIT)
@cocotb.parametrize(phase=[*PHASES], barrier=[False, True])
async def kills(dut, phase, barrier):
    """The row of a block is killed: the block ends soon, its resources are free, and other rows are
    not disturbed."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        neighbour = await kill_in(tb, phase, victim(barrier=barrier), Neighbour)
        await ended(tb)
        neighbour.check()
        assert not tb.faults, tb.faults


def line(kind: str, launch: Launch) -> int:
    """Number of a line in the place of a block: of its fates or shared memory, or of the state or a
    register of its second warp."""
    shared, state = launch.shared // STATE_LINE, lines_of(launch, 1)[0]
    return {"fates": 0, "shared": 1 + shared - 1, "state": state, "register": state + 2}[kind]


def lines_of(launch: Launch, index: int) -> range:
    """Numbers of the lines of a warp: its state, then its registers."""
    size = 1 + -(-launch.registers // 4) * 4
    first = 1 + launch.shared // STATE_LINE + index * size
    return range(first, first + size)


LINES = ("fates", "shared", "state", "register")


def index_of(kind: str) -> int:
    """Number of the warp in a fault of such a line; 0 if it belongs to the whole block."""
    return int(kind in {"state", "register"})


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=LINES, restores=[False, True])
async def bus_errors(dut, kind, restores):
    """A bus error of a line while a block is saved or restored is reported once, with the row and
    the warp. The block can be killed then, and other rows are not disturbed."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(ROUNDS):
        tb.faults.clear()
        tb.port.latency = tb.random.choice(((1, 2), (3, 20), (60, 90)))
        launch = victim(barrier=tb.random.random() < 0.5)
        task = await begin(tb, launch, VICTIM)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        await tb.steps(300)
        if restores:
            await stop(tb, task)
        neighbour = Neighbour(tb)
        breaks(tb, task, kind)
        await (go_on(tb, task) if restores else stop(tb, task))
        await tb.until(lambda: tb.faults, "the fault is reported", BOUND)
        await tb.steps(tb.random.randrange(2000))
        tb.state.bad_lines.clear()
        tb.kill(VICTIM)
        await gone(tb)
        assert [(one.row, one.cause) for one in tb.faults] == [(VICTIM, STATE_BUS)], tb.faults
        assert tb.faults[0].index == index_of(kind), tb.faults
        await ended(tb)
        neighbour.check()


@cocotb.test(**LIMIT)
async def undefined_wait(dut):
    """A warp whose state contains an undefined wait, as may be in memory after a failed save, is
    killed like any other."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(ROUNDS):
        launch = make("top: bra top", warps=2)
        task = await begin(tb, launch, VICTIM)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        at = tb.next_place * 4096 + lines_of(launch, 0)[0] * STATE_LINE + 4
        await stop(tb, task)
        word = tb.state.word(at) | 3 << WAIT_AT
        tb.state.write(at, word.to_bytes(4, "little"))
        await go_on(tb, task)
        await tb.steps(tb.random.randrange(1000))
        tb.kill(VICTIM)
        await ended(tb)


@cocotb.test(**LIMIT)
async def fault_waits(dut):
    """A bus error of a saved warp stays offered until it is taken, however much is saved meanwhile:
    hundreds of accesses of the following warps. Repeated, so that counts of accesses wrap while it
    waits."""
    tb = await PreemptingTestbench(dut).start()
    warps, registers = fullest(min(CONFIG.sm_warps, 4))
    launch = make("top: bra top", warps=warps)
    launch.registers = registers
    tb.port.latency = (1, 2)
    for _ in range(12 * ROUNDS):
        await begin(tb, launch, VICTIM)
        await tb.until(lambda: len(tb.warps) == launch.warps, "all warps start")
        await fault_of_the_first(tb, launch)
        tb.kill(VICTIM)
        await gone(tb)
        tb.tasks.clear()
        tb.revive()
    await fills(tb)


async def fault_of_the_first(tb: PreemptingTestbench, launch: Launch) -> None:
    """Stop the only block, with a bus error in the state of its first warp; its fault waits."""
    tb.report.pace = lambda: False
    tb.faults.clear()
    tb.state.bad_lines = {tb.next_place * 4096 // STATE_LINE + lines_of(launch, 0)[0]}
    tb.stop(next(iter(tb.slots)))
    await tb.until(lambda: tb.get("fault__valid"), "the fault is offered", BOUND)
    for _ in range(tb.random.randrange(1000, 1500) * SLOW):
        await tb.step()
        assert tb.get("fault__valid")
    tb.report.pace = tb.share(1.0)
    await tb.until(lambda: tb.faults, "the fault is taken", BOUND)
    tb.state.bad_lines.clear()
    await tb.steps(tb.random.randrange(300))
    assert [(one.row, one.cause) for one in tb.faults] == [(VICTIM, STATE_BUS)], tb.faults


@cocotb.test(**LIMIT)
async def each_failing_save(dut):
    """If several warps of a block cannot be saved, each of them and no other is reported once, with
    its number, however many fail while an earlier fault waits or is taken."""
    tb = await PreemptingTestbench(dut).start()
    launch = make("top: bra top", warps=min(CONFIG.sm_warps, 6), shared=0)
    launch.registers = 4
    for _ in range(12 * ROUNDS):
        tb.faults.clear()
        tb.port.latency = tb.random.choice(((1, 2), (20, 80), (200, 400)))
        tb.report.pace = tb.share(tb.random.choice((1.0, 0.1, 0.01)))
        task = await begin(tb, launch, VICTIM)
        await tb.until(lambda: len(tb.warps) == launch.warps, "all warps start")
        failing = [index for index in range(launch.warps) if tb.random.random() < 0.7]
        place = tb.next_place * 4096 // STATE_LINE
        tb.state.bad_lines = {place + line for line in some_lines(tb, launch, failing)}
        await stop(tb, task)
        assert sorted(one.index for one in tb.faults) == failing, (tb.faults, failing)
        assert {(one.row, one.cause) for one in tb.faults} <= {(VICTIM, STATE_BUS)}
        tb.state.bad_lines.clear()
        tb.kill(VICTIM)
        tb.revive()
    tb.report.pace = tb.share(1.0)
    await fills(tb)


def some_lines(tb: PreemptingTestbench, launch: Launch, indices: list[int]) -> list[int]:
    """One or all lines of each of these warps."""
    found: list[int] = []
    for lines in (lines_of(launch, index) for index in indices):
        found += tb.random.choice((lines, [tb.random.choice(lines)]))
    return found


def breaks(tb: PreemptingTestbench, task: Task, kind: str) -> None:
    """Make a line inaccessible in the place that the block of the task has, or is about to get."""
    page = tb.places.get((task.row, (0, 0, 0)), tb.next_place)
    tb.state.bad_lines = {page * 4096 // STATE_LINE + line(kind, task.launch)}


@cocotb.test(**LIMIT)
async def faults_are_not_lost(dut):
    """All warps that fault while another row's blocks are saved and restored report it, even with
    bus errors of the state among the faults, and with slow acceptance."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (1, 6)
    for _ in range(ROUNDS):
        tb.faults.clear()
        launch = make(f"{POINTERS}ldc r2, [8]\nldc r3, [12]\nldg r1, [r2]\nexit", warps=1, shared=0)
        launch.grid = (40, 1, 1)
        task = await begin(tb, victim(), VICTIM)
        tb.launch(other := Task(OTHER, launch))
        fault = tb.random.choice((1.0, 0.05))
        tb.report.pace = tb.share(fault)
        states = 0
        while other.blocks:
            await tb.steps(tb.random.randrange(200))
            if tb.random.random() < 0.5:
                breaks(tb, task, "fates")
            await stop(tb, task)
            states += bool(tb.state.bad_lines)
            tb.state.bad_lines.clear()
            tb.port.read.taken.clear()
            await go_on(tb, task)
            place = tb.places[VICTIM, (0, 0, 0)] * 4096
            await tb.until(lambda va=place: read(tb, va), "its fates are read")
        tb.kill(VICTIM)
        await tb.rest()
        tb.tasks.clear()
        tb.revive()
        causes = [(one.row, one.cause) for one in tb.faults]
        assert causes.count((OTHER, MEMORY_BUS)) == 40, causes
        assert causes.count((VICTIM, STATE_BUS)) == states, causes
        assert len(causes) == 40 + states


def read(tb: PreemptingTestbench, va: int) -> bool:
    """Whether the whole line at `va` has been read."""
    states = [one["va"] // STATE_LINE for _, one in tb.port.read.taken if one["physical"]]
    return states.count(va // STATE_LINE) == 32 // min(CONFIG.lanes, WIDTH // 4)
