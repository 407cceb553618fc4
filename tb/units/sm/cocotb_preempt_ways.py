"""Blocks are stopped in every possible state of a warp, and later continue as if they had not been
stopped (PREEMPT-2, PREEMPT-3)."""

import os
from collections import Counter
from copy import deepcopy

import cocotb

from signalbox.hw.config import SHARED_UNIT, STATE_LINE
from signalbox.hw.sm.isa import MASKS
from signalbox.tb.models.isa import Launch, Memory, run_block
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_control import ENDLESS, ROUNDS, chosen, make
from signalbox.tb.units.sm.cocotb_core import difference
from signalbox.tb.units.sm.core_testbench import CONFIG, Task
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench
from signalbox.tb.units.sm.programs import DATA

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

SLOW = max(1, 4 // CONFIG.lanes)
"""Factor of limits in cycles."""

SHARE = int(os.environ.get("SHARE", "100" if ROUNDS == 1 else "24"))
"""`every_cycle` stops in every `SHARE`th cycle."""

OFFSET = int(os.environ.get("OFFSET", "-1"))
"""First of these cycles; by default, a random one."""

DEPTH_AT = 17
"""First bit of the number of masks in the second word of a warp's state."""

OWN = "s2r r0, tid.x\ns2r r1, warp\nldc r2, [0]\nldc r3, [4]\nlea r2, r2, r0, 2\n"
"""r0: number of the thread; r1: number of the warp; r2:r3: address of the thread's word of
memory."""

SHORT = f"""
    {OWN}
    ldg  r4, [r2]
    shl  r5, r0, 2
    sts  [r5], r4
    and  r6, r0, 5
    push r6
    mad  r4, r4, 3, r0
    and  r6, r0, 1
    push r6
    add  r4, r4, 1000
    pop
    else
    sub  r4, r4, 7
    pop
    seq  r6, r1, 2
    bany r6, out
    wait 40
    bar
    xor  r5, r5, 128
    lds  r6, [r5]
    add  r4, r4, r6
out:
    stg  [r2 + 1024], r4
    exit
"""
"""Two warps exchange words through shared memory, the third ends without waiting for them."""


def data(launch: Launch, seed: int) -> Launch:
    """The launch, with words in its data."""
    words = (4 * n * 0x9E37_79B9 + seed & 0xFFFF_FFFF for n in range(96))
    launch.memory.write(DATA, b"".join(word.to_bytes(4, "little") for word in words))
    return launch


def computed(launch: Launch) -> Memory:
    """Memory after all blocks, according to the interpreter."""
    model = deepcopy(launch)
    for x in range(launch.grid[0]):
        assert not any(warp.failure for warp in run_block(model, (x, 0, 0)).warps)
    return model.memory


def agree(launch: Launch, wanted: Memory, when: object) -> None:
    assert launch.memory.pages == wanted.pages, f"{when}: {difference(launch, wanted)}"


def accesses(tb: PreemptingTestbench) -> Counter[tuple[str, int]]:
    """Number of accesses of kernels to each place in their data. Forgets the accesses."""
    found: Counter[tuple[str, int]] = Counter()
    for name, sink in (("read", tb.port.read), ("write", tb.port.write)):
        found.update(
            (name, one["va"])
            for _, one in sink.taken
            if not one["physical"] and 0 <= one["va"] - DATA < 4096
        )
        sink.taken.clear()
    return found


async def begin(tb: PreemptingTestbench, launch: Launch, row: int = 0) -> Task:
    """Launch a kernel of one block, which begins."""
    task = Task(row, launch)
    tb.launch(task)
    await begun(tb, task)
    return task


async def begun(tb: PreemptingTestbench, task: Task) -> int:
    """Wait until a block of the task begins. Returns its slot."""

    def slots() -> list[int]:
        return [slot for slot in tb.stoppable if tb.slots[slot].task is task]

    await tb.until(slots, "the block begins")
    return slots()[0]


async def rest(tb: PreemptingTestbench) -> None:
    await tb.rest()
    tb.tasks.clear()
    assert not tb.faults, tb.faults


async def stop(tb: PreemptingTestbench, task: Task, limit: int = 6000 * SLOW) -> None:
    """Stop the block of the task, and wait until it is saved. It stays saved until the task is
    added to `tb.tasks` again."""
    (slot,) = (slot for slot in tb.stoppable if tb.slots[slot].task is task)
    tb.stop(slot)
    tb.tasks.remove(task)
    await tb.until(lambda: task.blocks, "the block is saved", limit)


async def go_on(tb: PreemptingTestbench, task: Task) -> None:
    """Let the saved block begin again."""
    tb.tasks.append(task)
    await begun(tb, task)


async def stops(tb: PreemptingTestbench, task: Task, cycles: int) -> set[str]:
    """Stop the only block up to six times, each time after less than `cycles` cycles. Returns in
    which of these states it was stopped: "starting", "ended", "restoring": some of its warps had
    not started, had ended, had not been restored."""
    met = set()
    for number in range(6):
        await tb.steps(tb.random.randrange(cycles))
        if not tb.stoppable:
            break
        (block,) = tb.slots.values()
        if block.waiting:
            met.add("restoring" if number else "starting")
        if tb.spans and not number:
            met.add("ended")
        await stop(tb, task)
        await go_on(tb, task)
    return met


@cocotb.test(**LIMIT)
async def every_cycle(dut):
    """A kernel stopped once, in any of its cycles, makes each access once and computes the same as
    an undisturbed one."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (10, 10)
    seed = tb.random.getrandbits(32)
    usual = await short(tb, seed, None)
    moment, stopped = tb.random.randrange(SHARE) if OFFSET < 0 else OFFSET, 0
    while True:
        assert await short(tb, seed, moment) == usual, moment
        if tb.saved == stopped:
            break
        moment, stopped = moment + SHARE, tb.saved
    assert moment > 400
    dut._log.info("stopped in %d cycles, the last one %d", stopped, moment - SHARE)


async def short(tb: PreemptingTestbench, seed: int, moment: int | None) -> Counter[tuple[str, int]]:
    """Run the short kernel, and stop it `moment` cycles after it has begun. Returns its
    accesses."""
    launch = data(make(SHORT, warps=3, barrier=True), seed)
    wanted = computed(launch)
    await begin(tb, launch)
    if moment is not None:
        await tb.steps(moment)
        for slot in tb.stoppable:
            tb.stop(slot)
    await rest(tb)
    agree(launch, wanted, moment)
    return accesses(tb)


@cocotb.test(**LIMIT)
async def endless_kernels(dut):
    """Kernels that never end are stopped, continue, and are stopped again, whatever they
    execute."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (3, 20)
    for name in chosen(ENDLESS, 2):
        task = await begin(tb, make(ENDLESS[name], barrier=True), 2)
        for _ in range(3):
            await tb.steps(tb.random.randrange(400))
            assert tb.slots, name
            await stop(tb, task)
            await go_on(tb, task)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        await tb.steps(300)
        tb.kill(2)
        await rest(tb)
        tb.revive()


@cocotb.test(**LIMIT)
async def loops_go_on(dut):
    """A kernel that polls a word of memory, and is stopped meanwhile, sees the word and ends."""
    tb = await PreemptingTestbench(dut).start()
    text = f"{OWN}top: ldg r4, [r2 + 2048]\nbnone r4, top\nstg [r2], r4\nexit"
    for _ in range(ROUNDS):
        launch = make(text)
        task = await begin(tb, launch)
        await tb.steps(tb.random.randrange(800))
        await stop(tb, task)
        await go_on(tb, task)
        await tb.steps(tb.random.randrange(400))
        assert tb.slots
        await stop(tb, task)
        launch.memory.write(DATA + 2048, bytes(range(1, 249)))
        wanted = computed(launch)
        await go_on(tb, task)
        await rest(tb)
        agree(launch, wanted, "after the word")


@cocotb.test(**LIMIT)
async def waits_keep_their_time(dut):
    """A warp whose block is stopped during its wait waits for the requested time plus the time in
    which it was stopped, and little more."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (5, 5)
    slow = max(1, 4 // CONFIG.lanes)  # so that both warps are stopped while they wait
    time = 1500 * slow
    text = f"{OWN}s2r r4, clock\nwait {time}\ns2r r5, clock\nsub r5, r5, r4\nstg [r2], r5\nexit"
    little = CONFIG.sm_warps + 150 + 128 // CONFIG.lanes
    for _ in range(2 * ROUNDS):
        launch = make(text)
        task = await begin(tb, launch)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        await tb.steps(slow * (300 + tb.random.randrange(500)))
        await stop(tb, task)
        accepted, saved = tb.waits[-1]
        away = tb.random.choice((0, 100, 3000))
        await tb.steps(away)
        tb.port.read.taken.clear()
        await go_on(tb, task)
        came = tb.cycle
        await rest(tb)
        back = max(cycle for cycle, one in tb.port.read.taken if one["physical"])
        for warp in range(2):
            waited = launch.memory.word(DATA + 128 * warp)
            least, most = time + came - saved - 3, time + back - accepted + little
            assert least <= waited <= most, (least, waited, most, away)


BARRIERS = f"""
    {OWN}
    shl  r5, r0, 2
    mul  r4, r0, 3
    seq  r6, r1, 0
    bany r6, out
    mul  r6, r1, 400
    wait r6
    sts  [r5], r4
    bar
    mov  r6, 3
    sub  r6, r6, r1
    shl  r6, r6, 7                 # the first word of the other warp
    lds  r4, [r6]
    bar
    sts  [r5], r4
    bar
    lds  r6, [r6]
    add  r4, r4, r6
out:
    stg  [r2], r4
    exit
"""


@cocotb.test(**LIMIT)
async def barriers(dut):
    """A block with one warp that has ended, one that waits at a barrier and one on its way there is
    stopped repeatedly; the barrier still holds both."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        launch = make(BARRIERS, warps=3, barrier=True)
        wanted = computed(launch)
        task = await begin(tb, launch)
        await tb.until(lambda: tb.spans, "the first warp ends")
        for _ in range(4):
            await tb.steps(tb.random.randrange(500))
            if not tb.stoppable:
                break
            await stop(tb, task)
            await go_on(tb, task)
        assert tb.saved
        await rest(tb)
        agree(launch, wanted, tb.waits)
        tb.spans.clear()


def nested(depth: int = 8) -> str:
    """A program in which each lane adds a bit for each branch that it takes."""
    lines = [OWN, "s2r r6, lane", "mov r4, 0"]
    for n in range(depth):
        lines += [f"add r5, r6, {n}", "and r5, r5, 7", "push r5", f"add r4, r4, {1 << n}"]
    for n in reversed(range(depth)):
        lines += ["else", f"add r4, r4, {1 << n + 8}", "pop"]
    return "\n".join([*lines, "stg [r2], r4", "exit"])


@cocotb.test(**LIMIT)
async def nested_masks(dut):
    """Warps with any number of masks, up to eight, are stopped repeatedly, and compute the same."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (2, 8)
    met, rounds = Counter[int](), Rounds(2 * ROUNDS, 100)
    while rounds.more(len(met) == MASKS + 1, met):
        launch = make(nested())
        wanted = computed(launch)
        task = await begin(tb, launch)
        for _ in range(8):
            await tb.steps(tb.random.randrange(20, 400 + 2400 // CONFIG.lanes))
            if not tb.stoppable:
                break
            tb.port.write.taken.clear()
            await stop(tb, task)
            met.update(saved_masks(tb, task))
            await go_on(tb, task)
        await rest(tb)
        agree(launch, wanted, tb.waits)


def saved_masks(tb: PreemptingTestbench, task: Task) -> list[int]:
    """Numbers of masks in the states just written for the block of the task."""
    first = tb.places[task.row, (0, 0, 0)] * 4096 + STATE_LINE + task.shared * SHARED_UNIT
    size = (1 + 4 * task.units) * STATE_LINE
    written = {one["va"] for _, one in tb.port.write.taken if one["physical"]}
    states = {first + size * warp for warp in range(task.launch.warps)} & written
    return [tb.state.word(at + 4) >> DEPTH_AT & 15 for at in states]


@cocotb.test(**LIMIT)
async def outstanding_accesses(dut):
    """Accesses under way when the block is stopped complete first, and are not made again."""
    tb = await PreemptingTestbench(dut).start()
    text = f"{OWN}ldg r4, [r2]\nstg [r2 + 1024], r4\nldg r5, [r2 + 512]\nadd r4, r4, r5"
    usual, seed, rounds = None, tb.random.getrandbits(32), Rounds(5 * ROUNDS)
    while rounds.more(bool(tb.saved), "no block was saved"):
        tb.port.latency = (200, 300)
        launch = data(make(f"{text}\nstg [r2 + 2048], r4\nexit"), seed)
        wanted = computed(launch)
        task = await begin(tb, launch)
        if usual is not None:
            await tb.until(lambda: accessed(tb), "the first access")
            await tb.steps(tb.random.randrange(1200))
            if tb.stoppable:
                await stop(tb, task)
                await go_on(tb, task)
        await rest(tb)
        agree(launch, wanted, tb.waits)
        found = accesses(tb)
        usual = usual or found
        assert found == usual


def accessed(tb: PreemptingTestbench) -> bool:
    """Whether a kernel has accessed its data."""
    return any(0 <= one["va"] - DATA < 4096 for _, one in tb.port.read.taken)


SHARED = f"""
    {OWN}
    mul  r4, r0, 0x9e3779b1
    ldg  r7, [r2]
    xor  r4, r4, r7
    shl  r5, r0, 2
fill:
    sts  [r5], r4
    add  r4, r4, 1
    add  r5, r5, 128
    sltu r6, r5, {CONFIG.sm_shared}
    bany r6, fill
    wait 200
    shl  r5, r0, 2
sum:
    lds  r6, [r5]
    mad  r4, r4, 3, r6
    add  r5, r5, 128
    sltu r6, r5, {CONFIG.sm_shared}
    bany r6, sum
    stg  [r2 + 1024], r4
    exit
"""


def shared_launch(seed: int) -> Launch:
    """A warp that fills all shared memory of the SM, and reads it later."""
    launch = make(SHARED, warps=1, shared=CONFIG.sm_shared)
    launch.block = (32, 1, 1)
    return data(launch, seed)


@cocotb.test(**LIMIT)
async def shared_memory(dut):
    """Two blocks that each need all shared memory alternate, and compute the same."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (2, 9)
    launches = {row: shared_launch(tb.random.getrandbits(32)) for row in range(2)}
    wanted = {row: computed(launch) for row, launch in launches.items()}
    tasks = [await begin(tb, launches[0], 0)]
    await tb.steps(tb.random.randrange(4000 // CONFIG.lanes))
    await stop(tb, tasks[0])
    tasks.append(await begin(tb, launches[1], 1))
    for n in range(3 + ROUNDS):
        await tb.steps(tb.random.randrange(6000 // CONFIG.lanes))
        if not tb.stoppable:
            break
        await stop(tb, tasks[1 - n % 2])
        await go_on(tb, tasks[n % 2])
    tb.tasks = [task for task in tasks if task.blocks]
    await rest(tb)
    for row, launch in launches.items():
        agree(launch, wanted[row], row)


@cocotb.test(**LIMIT)
@cocotb.parametrize(most=[1, 2])
async def partly_restored(dut, most):
    """While few warps can run at a time, a block is stopped before all of its warps have started,
    after some have ended, and again before all have been restored."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (2, 20)
    tb.most = most
    text = f"{OWN}mul r4, r1, 5\nwait 60\nmul r5, r4, r0\nwait 60\nadd r4, r4, r5"
    met, rounds = set[str](), Rounds(2 * ROUNDS, 100)
    while rounds.more(len(met) == 3, met):
        tb.spans.clear()
        launch = make(f"{text}\nstg [r2], r4\nldg r5, [r2]\nstg [r2 + 512], r5\nexit", warps=3)
        wanted = computed(launch)
        met |= await stops(tb, await begin(tb, launch), 600 + 1200 // CONFIG.lanes)
        await rest(tb)
        agree(launch, wanted, tb.waits)
        assert len(tb.spans) >= 3
