"""Faults, kills, barriers, waits and cached program lines in the supplied core."""

import itertools
import os
import re
from collections.abc import Iterable
from copy import deepcopy
from random import Random

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble
from signalbox.hw.sm.core.constant_cache import LINE_BYTES
from signalbox.hw.sm.core.fetch import PROGRAM_LINES
from signalbox.hw.sm.isa import INSTRUCTION_BYTES
from signalbox.tb.models.isa import Launch, Memory, run_block
from signalbox.tb.testbench.ends import always
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, CoreTestbench, Fault, Task
from signalbox.tb.units.sm.programs import ARGUMENTS, DATA, PROGRAM

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

ROUNDS = int(os.environ.get("ROUNDS", "1"))

ROUND = 19
"""Cycles from an instruction's last row to the first row of the next one, for a single warp."""

BROKEN, MISSING = DATA + 0x10_0000 & ~0xFFF, DATA + 0x20_0000 & ~0xFFF
INSTRUCTION, PROGRAM_BUS, PROGRAM_FAULT, MEMORY_BUS, MEMORY_FAULT = 1, 2, 3, 4, 5
ALIGNMENT, RANGE, STACK, LOCAL_RANGE = 6, 7, 8, 10
"""Causes, as in `CoreCause`."""


def make(
    text: str,
    *,
    warps: int = 2,
    barrier: bool = False,
    shared: int = 1024,
    local: int = 0,
    program: int = PROGRAM,
) -> Launch:
    """A launch of `text` with 8 registers and three pointers: to data, to a page with bus errors
    followed by a good page, and to an unmapped page. The last warp has two threads fewer. Further
    constant buffers: 3 is good, 5 empty, 6 unmapped, 7 unreadable; others are not valid."""
    memory = Memory()
    pages = (DATA, BROKEN, MISSING, 0)
    words = [half for va in pages for half in (va & 0xFFFF_FFFF, va >> 32)]
    memory.map(program, assemble(text))
    memory.map(ARGUMENTS, np.array(words, np.uint32).tobytes())
    memory.map(DATA, bytes(4096))
    memory.map(BROKEN, bytes(8192))
    memory.broken.add(BROKEN // 4096)
    threads = (32 * warps - 2, 1, 1)
    buffers = {3: (ARGUMENTS, 32), 5: (ARGUMENTS, 0), 6: (MISSING, 16), 7: (BROKEN, 16)}
    return Launch(
        memory, program, ARGUMENTS, 32, (1, 1, 1), threads, 8, shared, barrier, buffers, local
    )


SAME_LINE = PROGRAM ^ PROGRAM_LINES // 2 * LINE_BYTES
"""Address of a program of row 1 that uses the same cache line as a program of row 0 at PROGRAM."""

POINTERS = "ldc r2, [0]\nldc r3, [4]\n"
WORDS = "ldc r2, [8]\nldc r3, [12]\ns2r r4, lane\nlea r2, r2, r4, 2\n"
"""Addresses in the page with bus errors, one per lane."""
MARK = """
    s2r  r0, tid.x
    ldc  r2, [0]
    ldc  r3, [4]
    lea  r2, r2, r0, 2
    mov  r1, 77
    stg  [r2], r1
    exit
"""

FAILURES = {
    "no instruction": (INSTRUCTION, "CODE 0"),
    "unknown": (INSTRUCTION, "CODE 0x39"),
    "value where none is": (INSTRUCTION, "CODE 0xb8"),
    "odd pair": (INSTRUCTION, "CODE 0x30122"),
    "long shift": (INSTRUCTION, "CODE 0x20020217"),
    "special": (INSTRUCTION, "CODE 0xf00000120"),
    "past d": (INSTRUCTION, "mov r8, 1"),
    "past a": (INSTRUCTION, "add r1, r8, 1"),
    "past b": (INSTRUCTION, "add r1, r1, r8"),
    "past c": (INSTRUCTION, "mad r1, r1, r2, r8"),
    "past pair": (INSTRUCTION, "ldg r1, [r8]"),
    "arguments": (INSTRUCTION, "ldc r1, [32]"),
    "odd arguments": (INSTRUCTION, "ldc r1, [2]"),
    "further buffer": (INSTRUCTION, "ldc r1, [3][32]"),
    "empty buffer": (INSTRUCTION, "ldc r1, [5][0]"),
    "invalid buffer": (INSTRUCTION, "ldc r1, [4][0]"),
    "no such buffer": (INSTRUCTION, "CODE 0xb0121"),
    "unmapped buffer": (PROGRAM_FAULT, "ldc r1, [6][12]"),
    "unreadable buffer": (PROGRAM_BUS, "ldc r1, [7][0]"),
    "barrier": (INSTRUCTION, "bar"),
    "odd target": (INSTRUCTION, "bra 4"),
    "bus": (MEMORY_BUS, "ldc r2, [8]\nldc r3, [12]\nldg r1, [r2]"),
    "store bus": (MEMORY_BUS, "ldc r2, [8]\nldc r3, [12]\nstg [r2 + 64], r1"),
    "fault": (MEMORY_FAULT, "ldc r2, [16]\nldc r3, [20]\nldg r1, [r2 - 4]"),
    "store fault": (MEMORY_FAULT, "ldc r2, [16]\nldc r3, [20]\nstg [r2], r1"),
    "past 49 bits": (MEMORY_FAULT, "mov r2, 64\nmov r3, 0x20000\nldg r1, [r2]"),
    "carry past 49 bits": (MEMORY_FAULT, "mov r2, -4\nmov r3, 0x1ffff\nstg [r2 + 4], r1"),
    "first of several": (MEMORY_BUS, WORDS + "lea r2, r2, 4032, 0\nldg r1, [r2]"),
    "store first of several": (MEMORY_BUS, WORDS + "lea r2, r2, 4032, 0\nstg [r2], r1"),
    "last of several": (MEMORY_FAULT, WORDS + "lea r2, r2, 8128, 0\nldg r1, [r2]"),
    "two of several": (MEMORY_FAULT, WORDS + "ldg r1, [r2 - 64]"),
    "odd address": (ALIGNMENT, POINTERS + "s2r r4, lane\nadd r2, r2, r4\nldg r1, [r2]"),
    "odd store": (ALIGNMENT, POINTERS + "stg [r2 + 2], r1"),
    "shared end": (RANGE, "mov r1, 1024\nlds r2, [r1]"),
    "shared store": (RANGE, "s2r r1, lane\nshl r1, r1, 6\nsts [r1], r1"),
    "shared wrap": (RANGE, "mov r1, 0\nlds r2, [r1 - 4]"),
    "shared odd": (RANGE, "mov r1, 1\nlds r2, [r1]"),
    "local end": (LOCAL_RANGE, "mov r1, 32\nldl r2, [r1]"),
    "local store": (LOCAL_RANGE, "s2r r1, lane\nshl r1, r1, 2\nstl [r1], r1"),
    "local wrap": (LOCAL_RANGE, "mov r1, 0\nldl r2, [r1 - 4]"),
    "local far": (LOCAL_RANGE, "mov r1, 0x80000000\nstl [r1], r2"),
    "local odd": (LOCAL_RANGE, "mov r1, 1\nldl r2, [r1]"),
    "no local memory": (INSTRUCTION, "stl [r1], r1"),
    "local past a": (INSTRUCTION, "ldl r1, [r8]"),
    "masks": (STACK, "mov r1, 0\n" + "push r1\n" * 9),
    "no mask": (STACK, "pop"),
    "no else": (STACK, "mov r1, 1\npush r1\npop\nelse"),
    "program": (PROGRAM_FAULT, "bra 0x100000"),
}


def expected(launch: Launch, row: int) -> tuple[list[Fault], Memory]:
    """Faults and memory of a block according to the interpreter."""
    model = deepcopy(launch)
    block = run_block(model, (0, 0, 0))
    faults = [
        Fault(row, cause, at, va or 0)
        for cause, at, va in (warp.failure for warp in block.warps if warp.failure)
    ]
    return faults, model.memory


def same(found: list[Fault], wanted: list[Fault]) -> bool:
    """Whether faults are as expected; an access is identified by its bus beat."""
    beat = {MEMORY_BUS, MEMORY_FAULT}

    def key(one: Fault) -> tuple[int, ...]:
        va = one.va // WIDTH if one.cause in beat else one.va
        return one.row, one.cause, one.at, va

    return sorted(map(key, found)) == sorted(map(key, wanted))


def chosen(names: Iterable[str], few: int) -> list[str]:
    """All names, or `few` of them for a slow simulator."""
    every = list(names)
    return Random(cocotb.RANDOM_SEED).sample(every, few if ROUNDS == 1 else len(every))


def failing(text: str, local: int) -> Launch:
    """A launch with two warps: the last executes `text`, the other leaves a mark. `local`: bytes of
    local memory."""
    head = "s2r r0, warp\nseq r1, r0, 1\nbnone r1, mark\n"
    code = re.fullmatch(r"CODE (.*)", text)
    launch = make(f"{head}{'nop' if code else text}\nmark:{MARK}", warps=2, local=local)
    if code:
        launch.memory.write(PROGRAM + 24, int(code[1], 0).to_bytes(8, "little"))
    return launch


@cocotb.test(**LIMIT)
async def every_cause(dut):
    """A warp that cannot continue ends once, with its cause; the other warp and the next block
    continue."""
    tb = await CoreTestbench(dut).start()
    for name in chosen(FAILURES, 8):
        cause, text = FAILURES[name]
        launch = failing(text, 0 if name == "no local memory" else 32)
        wanted, memory = expected(launch, 1)
        tb.faults.clear()
        ends = len(tb.spans)
        tb.launch(Task(1, launch))
        await tb.rest(3000)
        tb.tasks.clear()
        assert len(tb.spans) == ends + 2, name
        assert [one.cause for one in tb.faults] == [cause], f"{name}: {tb.faults}"
        assert same(tb.faults, wanted), f"{name}: {tb.faults} {wanted}"
        if not {"stg", "sts"} & set(text.split()):
            for page in tb.local_pages(launch):
                del launch.memory.pages[page]
            assert memory.pages == launch.memory.pages, name


@cocotb.test(**LIMIT)
async def unreadable_programs_and_arguments(dut):
    """An unmapped or unreadable program or argument is reported by each warp."""
    tb = await CoreTestbench(dut).start()
    for what, at in (("program", PROGRAM), ("constants", ARGUMENTS)):
        for broken in (True, False):
            launch = make("ldc r1, [4]\nexit")
            page = at // 4096
            if broken:
                launch.memory.broken.add(page)
            else:
                del launch.memory.pages[page]
            wanted, _ = expected(launch, 0)
            tb.faults.clear()
            tb.launch(Task(0, launch))
            await tb.rest(3000)
            tb.tasks.clear()
            assert len(wanted) == 2 and same(tb.faults, wanted), (what, broken, tb.faults)


@cocotb.test(**LIMIT)
async def one_bad_beat(dut):
    """A bus error of any single beat of a program or argument burst is reported once by each
    warp."""
    tb = await CoreTestbench(dut).start()
    for at, beat in itertools.product((PROGRAM, ARGUMENTS), range(4)):
        launch = make("ldc r1, [4]\nexit")
        broken = deepcopy(launch)
        broken.memory.broken.add(at // 4096)
        wanted, _ = expected(broken, 0)
        tb.port.bad = {at // 4096: beat}
        tb.faults.clear()
        tb.launch(Task(0, launch))
        await tb.rest(3000)
        tb.tasks.clear()
        assert len(wanted) == 2 and same(tb.faults, wanted), (at, beat, tb.faults)


ENDLESS = {
    "spin": "top: bra top",
    "wait": "wait 0x7fffffff",
    "barrier": "s2r r0, warp\nbany r0, other\nbar\nother: top: bra top",
    "load": POINTERS + "top: ldg r1, [r2]\nbra top",
    "store": POINTERS + "top: stg [r2], r1\nbra top",
    "shared": "mov r1, 4\ntop: lds r2, [r1]\nbra top",
}


@cocotb.test(**LIMIT)
async def kill(dut):
    """Warps of a killed kernel end soon, whatever they execute; warps of another row continue."""
    tb = await CoreTestbench(dut).start()
    tb.port.latency = (3, 20)
    for name in chosen(ENDLESS, 3):
        text = ENDLESS[name]
        ends = len(tb.spans)
        tb.launch(Task(2, make(text, barrier=True)))
        await tb.steps(250 + 20 * CONFIG.sm_warps)
        assert len(tb.spans) == ends and len(tb.warps) == 2, name
        tb.launch(Task(1, make(MARK, warps=1)))
        tb.drive(kill=1 << 2)
        await tb.rest(1500 if name == "spin" else 700)
        tb.drive(kill=0)
        tb.tasks.clear()
        assert len(tb.spans) == ends + 3 and not tb.faults, name
        memory = tb.memories[1]
        assert all(memory.word(DATA + 4 * n) == 77 for n in range(30))


@cocotb.test(**LIMIT)
async def kill_before_all_have_started(dut):
    """A warp that waits at a barrier for one that never starts ends when its kernel is killed."""
    tb = await CoreTestbench(dut).start()
    tb.launch(Task(2, make("bar\nexit", barrier=True)))
    await tb.until(lambda: tb.warps, "a warp starts")
    (block,) = tb.slots.values()
    block.waiting.clear()
    await tb.steps(400)
    assert len(tb.warps) == 1
    tb.drive(kill=1 << 2)
    await tb.rest(700)
    assert len(tb.spans) == 1 and not tb.faults


@cocotb.test(**LIMIT)
async def ends_in_turn(dut):
    """If ends are accepted so slowly that new warps end meanwhile, a warp waits for at most one end
    of each other hardware warp."""
    tb = await CoreTestbench(dut).start()
    tb.port.latency = (1, 3)
    launch = make("exit", warps=1)
    several, count = CONFIG.sm_blocks, CONFIG.sm_blocks + 2 * CONFIG.sm_warps
    launch.grid = (count, 1, 1)
    tb.end.pace = lambda: False
    tb.launch(Task(0, launch))
    for ends in range(1, count + 1):
        await tb.steps(300 if ends == 1 else 120)
        assert len(tb.warps) == min(several, count - ends + 1)
        tb.end.pace = always
        await tb.until(lambda least=ends: len(tb.spans) >= least, "an end")
        tb.end.pace = lambda: False
    for number, span in enumerate(tb.spans, 1):
        waited = number - 1 - max(0, span.at[0] - several + 1)
        assert waited < CONFIG.sm_warps, f"block {span.at[0]} waited for {waited} others"


@cocotb.test(**LIMIT)
async def barriers_hold_all(dut):
    """No warp passes a barrier before every warp that has not ended arrives; earlier stores to
    memory are then visible. A barrier does not wait for warps that have ended, normally or with a
    fault."""
    tb = await CoreTestbench(dut).start()
    text = f"""
        s2r r0, warp
        seq r1, r0, 2
        bnone r1, on
        {"exit" if cocotb.RANDOM_SEED % 2 else "pop"}
    on: mul r1, r0, 300
        wait r1
        s2r r5, clock
        {POINTERS}
        lea r2, r2, r0, 2
        stg [r2], r5
        bar
        s2r r6, clock
        stg [r2 + 64], r6
        ldc r2, [0]
        xor r1, r0, 1
        lea r2, r2, r1, 2
        ldg r1, [r2]
        lea r2, r2, 0, 0
        ldc r2, [0]
        lea r2, r2, r0, 2
        stg [r2 + 128], r1
        exit
    """
    launch = make(text, warps=3, barrier=True)
    tb.launch(Task(0, launch))
    await tb.rest(5000)
    came = [launch.memory.word(DATA + 4 * n) for n in range(2)]
    passed = [launch.memory.word(DATA + 64 + 4 * n) for n in range(2)]
    seen = [launch.memory.word(DATA + 128 + 4 * n) for n in range(2)]
    assert came[1] > came[0] + 100
    assert min(passed) > max(came), (came, passed)
    assert seen == came[::-1]


@cocotb.test(**LIMIT)
async def waits_last(dut):
    """WAIT takes the given time and little more; the value of the lowest active lane counts."""
    tb = await CoreTestbench(dut).start()
    times = (0, 1, 50, 300)
    text = ["s2r r1, lane", "sub r1, r1, 5", "max r1, r1, 0", "push r1", POINTERS]
    for n, time in enumerate(times):
        text += [f"mul r1, r1, 0\nadd r1, r1, {time}", "s2r r4, clock"]
        text += ["wait r1" if n % 2 else f"wait {time}", "s2r r5, clock", "sub r5, r5, r4"]
        text += [f"stg [r2 + {4 * n}], r5"]
    launch = make("\n".join([*text, "exit"]), warps=1)
    tb.port.latency = (1, 3)
    tb.launch(Task(0, launch))
    await tb.rest(5000)
    found = [launch.memory.word(DATA + 4 * n) for n in range(len(times))]
    for time, cycles in zip(times, found, strict=True):
        assert time <= cycles <= time + CONFIG.sm_warps + 80 + 64 // CONFIG.lanes, found


@cocotb.test(**LIMIT)
async def new_words_drop_lines(dut):
    """Cached lines of a row's program and arguments are dropped when its words are sent again, even
    after a warp that waited for them was killed."""
    tb = await CoreTestbench(dut).start()
    numbers = tb.random
    for n in range(2 * ROUNDS + 1):
        text = f"mov r1, {n}\nldc r4, [24]\nldc r2, [0]\nldc r3, [4]\nstg [r2], r1\n"
        launch = make(f"{text}stg [r2 + 4], r4\nexit", warps=1)
        launch.memory.write(ARGUMENTS + 24, bytes([n + 1]))
        task = Task(3, launch)
        tb.port.latency = (150, 160) if n % 2 else (2, 9)
        tb.launch(task)
        if n % 2:
            await tb.until(lambda: tb.warps, "a warp starts")
            await tb.steps(numbers.randrange(60, 120))
            tb.drive(kill=1 << 3)
            await tb.rest(3000)
            tb.drive(kill=0)
        else:
            await tb.rest(3000)
            assert launch.memory.word(DATA) == n and launch.memory.word(DATA + 4) == n + 1
        tb.tasks.clear()
    assert not tb.faults


@cocotb.test(**LIMIT)
async def rows_share_the_cache(dut):
    """Four kernels with the same program, a quarter of the cache long, and arguments at the same
    address do not evict each other's lines: each kernel reads each line once."""
    tb = await CoreTestbench(dut).start()
    rounds = PROGRAM_LINES // 4 * LINE_BYTES // INSTRUCTION_BYTES - 8
    body = f"mov r1, {3 * ROUNDS}\ntop: ldc r2, [0]\nldc r3, [28]\n" + "add r4, r4, r1\n" * rounds
    text = f"{body}sub r1, r1, 1\nbany r1, top\nldc r2, [8]\nexit"
    start = PROGRAM & -LINE_BYTES
    count = min(4, CONFIG.rows, CONFIG.sm_blocks)
    for n in range(count):
        tb.launch(Task(n, make(text, warps=1)))
    await tb.rest(50_000)
    lines = [start + LINE_BYTES * n for n in range(PROGRAM_LINES // 4)]
    expected = [(row, va) for row in range(count) for va in (*lines, ARGUMENTS)]
    assert sorted((read["row"], read["va"]) for _, read in tb.port.read.taken) == sorted(expected)


@cocotb.test(**LIMIT)
async def fill_without_its_warp(dut):
    """While a warp waits for an argument, another kernel displaces its program line; the warp then
    finds its program unreadable or changed, and does not look the argument up again. Other warps
    still get their arguments."""
    tb = await CoreTestbench(dut).start()
    pages = {PROGRAM // Memory.PAGE, ARGUMENTS // Memory.PAGE}
    for lost in ("program", "argument", "nothing"):
        first = make("ldc r1, [0]\nexit", warps=1)
        if lost == "argument":
            first.memory.broken.add(ARGUMENTS // Memory.PAGE)
        tb.port.read.taken.clear()
        tb.port.latency = (10, 10)
        tb.launch(Task(0, first))
        await tb.until(lambda: tb.port.read.taken, "the program is read")
        tb.port.latency = (300, 300)
        await tb.until(lambda: len(tb.port.read.taken) == 2, "the argument is read")
        assert {read["va"] // Memory.PAGE for _, read in tb.port.read.taken} == pages
        tb.port.latency = (10, 10)
        text = POINTERS + "mov r1, 77\nstg [r2], r1\nexit"
        other = make(text, warps=1, program=SAME_LINE)
        tb.launch(Task(1, other))
        await tb.until(lambda: len(tb.port.read.taken) == 3, "the other program is read")
        if lost == "program":
            del first.memory.pages[PROGRAM // Memory.PAGE]
        else:
            first.memory.write(PROGRAM, assemble("exit"))
        await tb.rest(3000)
        assert other.memory.word(DATA) == 77
        causes = [(fault.row, fault.cause) for fault in tb.faults]
        assert causes == ([(0, PROGRAM_FAULT)] if lost == "program" else [])
        tb.tasks.clear()
        tb.faults.clear()


@cocotb.test(**LIMIT)
async def lanes_stay_busy(dut):
    """With enough warps, one row of lanes executes per cycle; with fewer, each warp's next
    instruction begins `ROUND` cycles after the last row of the previous one."""
    tb = await CoreTestbench(dut).start()
    rounds, length, warps = 5 * ROUNDS, 16, min(4, CONFIG.sm_warps)
    body = "add r2, r2, r3\n" * (length - 2)
    text = f"mov r1, {rounds}\ntop: {body}sub r1, r1, 1\nbany r1, top\nexit"
    task = Task(0, make(text, warps=warps))
    tb.launch(task)
    await tb.until(lambda: len(tb.warps) == warps, "all warps start")
    before = tb.cycle
    await tb.rest()
    rows = 32 // CONFIG.lanes
    each = max(rows * warps, rows + ROUND)
    dut._log.info(f"{(tb.cycle - before) / (rounds * length)} cycles per instruction of each warp")
    assert tb.cycle - before <= each * rounds * length + 200
