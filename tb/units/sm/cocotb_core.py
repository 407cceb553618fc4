"""The supplied core against the interpreter of its instruction set (ASID-1, ASID-27)."""

import os
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise, product
from random import Random
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble, disassemble, registers
from signalbox.tb.models.isa import Launch, Memory, run_block
from signalbox.tb.testbench.jobs import JOBS, Job
from signalbox.tb.units.sm.core_testbench import (
    CONFIG,
    WIDTH,
    CoreTestbench,
    Running,
    Task,
    local_part,
)
from signalbox.tb.units.sm.programs import (
    ARGUMENTS,
    BUFFERS,
    DATA,
    PROGRAM,
    SPECIALS,
    TWO,
    random_launch,
)

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

PAGE = DATA & ~0xFFF

INSTRUCTION = 1
"""Cause of a fault, as in `CoreCause`."""

ROUNDS = int(os.environ.get("ROUNDS", "1"))
"""Amount of work; 1 for a slow simulator."""


def fits(launch: Launch) -> bool:
    """Whether a block fits into the core, with all its warps if they wait for each other."""
    units = -(-launch.registers // 4)
    warps = launch.warps if launch.barrier else 1
    return (
        warps <= CONFIG.sm_warps
        and warps * units <= CONFIG.register_units
        and launch.shared <= CONFIG.sm_shared
    )


async def against_model(tb: CoreTestbench, launches: dict[int, Launch]) -> None:
    """Run `launches`, by row, concurrently. Memory must equal the interpreter's."""
    before = {row: deepcopy(launch.memory) for row, launch in launches.items()}
    for row, launch in launches.items():
        tb.launch(Task(row, launch))
    await tb.rest()
    assert not tb.faults
    tb.tasks.clear()
    for row, launch in launches.items():
        model = deepcopy(launch)
        model.memory = before[row]
        for x in range(launch.grid[0]):
            assert not any(warp.failure for warp in run_block(model, (x, 0, 0)).warps)
        pages = launch.memory.pages.items()
        found = {page: content for page, content in pages if page not in tb.local_pages(launch)}
        assert found == model.memory.pages, difference(launch, model.memory)


def difference(launch: Launch, wanted: Memory) -> str:
    """Wrong words of memory, and the program."""
    words = [
        f"{va:x}: {launch.memory.word(va):08x}, not {wanted.word(va):08x}"
        for page in wanted.pages
        for va in range(page * 4096, page * 4096 + 4096, 4)
        if launch.memory.word(va) != wanted.word(va)
    ]
    size = next(
        n for n in range(0, 1 << 20, 8) if not any(launch.memory.read(launch.program + n, 8))
    )
    text = disassemble(launch.memory.read(launch.program, size))
    lines = [f"{8 * n:5x} {line}" for n, line in enumerate(text)]
    return "\n".join([f"{launch.block}", *words[:20], *lines])


def job_launch(job: Job) -> Launch:
    memory = Memory()
    for va, content in job.memory().items():
        memory.map(va, content)
    return Launch(memory, **job.launch())


@cocotb.test(**LIMIT)
async def kernels(dut):
    """Results of each supplied kernel that fits (two if ROUNDS is 1) equal numpy's, with several
    running in different rows."""
    tb = await CoreTestbench(dut).start()
    jobs = [job for job in JOBS if fits(job_launch(job))]
    assert len(jobs) >= 3
    if ROUNDS == 1:
        jobs = tb.random.sample(jobs, 2)
    for first in range(0, len(jobs), 3):
        several = dict(enumerate(jobs[first : first + 3]))
        for row, job in several.items():
            tb.launch(Task(row, job_launch(job)))
        await tb.rest()
        tb.tasks.clear()
        assert not tb.faults
        for row, job in several.items():
            for va, expected in job.results.items():
                words = np.frombuffer(tb.memories[row].read(va, expected.nbytes), np.uint32)
                assert np.array_equal(words, expected.ravel()), job.kernel.name


def buffer_launch(numbers: Random, valid: Collection[int], at: int) -> Launch:
    """A kernel that stores the first and last word of each of these constant buffers, which begin
    at `at`."""
    memory, buffers, lines = Memory(), {}, ["ldc r2, [0]", "ldc r3, [4]"]
    for place, number in enumerate(valid):
        size = 16 * numbers.choice((1, 2, 4, 5, 300, 8191))
        buffers[number] = at, size
        memory.map(at, numbers.randbytes(size))
        at += size
        for half, offset in enumerate((0, size - 4)):
            lines += [f"ldc r4, [{number}][{offset}]", f"stg [r2 + {8 * place + 4 * half}], r4"]
    memory.map(PROGRAM, assemble("\n".join([*lines, "exit"])))
    memory.map(ARGUMENTS, np.array([DATA & 0xFFFF_FFFF, DATA >> 32, 0, 0], np.uint32).tobytes())
    memory.map(DATA, bytes(64))
    return Launch(memory, PROGRAM, ARGUMENTS, 16, (1, 1, 1), (32, 1, 1), 8, buffers=buffers)


@cocotb.test(**LIMIT)
async def constant_buffers(dut):
    """Kernels read the first and last word of each constant buffer, up to the largest size, in two
    rows at once; a row's next kernel has only its own buffers (HOST-15)."""
    tb = await CoreTestbench(dut).start()
    numbers, every = tb.random, range(1, 8)
    await against_model(tb, {0: buffer_launch(numbers, every, BUFFERS)})
    for _ in range(ROUNDS):
        several = [sorted(numbers.sample(every, numbers.randint(1, 4))) for _ in range(2)]
        places = [numbers.choice((BUFFERS, BUFFERS + 48, (1 << 49) - 0x10_0000)) for _ in several]
        launches = map(buffer_launch, [numbers] * 2, several, places)
        await against_model(tb, dict(enumerate(launches)))
        launch = buffer_launch(numbers, several[0], BUFFERS)
        missing = numbers.choice([one for one in every if one not in several[0]])
        launch.memory.write(PROGRAM, assemble(f"ldc r1, [{missing}][0]"))
        tb.launch(Task(0, launch))
        await tb.rest(3000)
        assert [(one.row, one.cause, one.at) for one in tb.faults] == [(0, INSTRUCTION, PROGRAM)]
        tb.tasks.clear()
        tb.faults.clear()


LOCAL = """
    s2r  r0, tid.x
    ldc  r2, [0]
    ldc  r3, [4]
    s2r  r4, ctaid.x
    mad  r5, r4, {threads}, r0
    lea  r2, r2, r5, 3                  # each block has words of its own
    mad  r5, r4, 1000, r0
    mov  r1, {last}
    stl  [r1], r5                       # last word
    not  r6, r5
    stl  [r1 - {last}], r6              # first word
    and  r7, r0, 3
    shl  r7, r7, 2
    stl  [r7 + 16], r0                  # words differ between lanes
    wait 60
    ldl  r8, [r1 - {last}]
    stg  [r2], r8
    ldl  r8, [r7 + 16]
    ldl  r9, [r1]
    add  r8, r8, r9
    stg  [r2 + 4], r8
    exit
"""
"""Stores words of local memory, and later twice the thread's number, in memory."""


@cocotb.test(**LIMIT)
async def local_memory(dut):
    """Each thread's words are at the place given by area, SM, hardware warp and lane, for the
    smallest and a large size; warps and rows do not disturb each other (HOST-15)."""
    tb = await CoreTestbench(dut).start()
    numbers, warps = tb.random, min(3, CONFIG.sm_warps)
    for size in (32, numbers.choice((48, 1024, 65_536))):
        memory = Memory()
        pointer = np.array([PAGE & 0xFFFF_FFFF, PAGE >> 32, 0, 0], np.uint32)
        memory.map(PROGRAM, assemble(LOCAL.format(last=size - 4, threads=32 * warps)))
        memory.map(ARGUMENTS, pointer.tobytes())
        memory.map(PAGE, bytes(2 * 8 * 32 * warps))
        grid, threads = (2, 1, 1), (32 * warps, 1, 1)
        launch = Launch(memory, PROGRAM, ARGUMENTS, 16, grid, threads, 12, local=size)
        other = deepcopy(launch)
        tb.port.write.taken.clear()
        await against_model(tb, {0: launch, 1: other})
        steps = 32 << (CONFIG.sm_warps - 1).bit_length()
        places = set()
        for _, write in tb.port.write.taken:
            offset = write["va"] - tb.area(launch)
            if 0 <= offset < local_part(launch):
                places.add(offset // 4 // steps)
        assert places == {0, *range(4, 8), size // 4 - 1}, (places, size)


CORNERS = (0, 1, 2, 31, 32, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF)


def operation_lines(numbers: Random) -> list[str]:
    """Every operation without memory, with a register and an immediate value; operands in r4:r5,
    r6:r7, r8, result in r10 or r10:r11."""

    def value() -> int:
        return numbers.choice((*CORNERS, numbers.getrandbits(32)))

    lines = [f"{name} r10, r4, {b}" for name in TWO for b in ("r6", value())]
    for b in ("r6", value()):
        lines += [f"mov r10, {b}", f"mad r10, r4, {b}, r8", f"sel r10, r4, {b}, r8"]
        lines += [
            f"{name} r10, r4, {b}, {numbers.randrange(32)}"
            for name in ("lea", "leas")
            for _ in range(2)
        ]
    lines += [f"s2r r10, {special}" for special in (*SPECIALS, "lane")]
    return [*lines, "lea r4, r6, r6, 0\nmov r10, r4\nmov r11, r5"]


@cocotb.test(**LIMIT)
async def every_operation(dut):
    """Results of every operation equal the interpreter's, in every lane, for random operands and
    corner cases; of some operations if ROUNDS is 1."""
    tb = await CoreTestbench(dut).start()
    numbers = tb.random
    lines = operation_lines(numbers)
    if ROUNDS == 1:
        lines = numbers.sample(lines, 8)
    text = [
        "s2r r0, tid.x\ns2r r1, tid.y\ns2r r2, ntid.x\nmad r0, r1, r2, r0",
        "ldc r2, [0]\nldc r3, [4]",
        "mul r1, r0, 32\nlea r2, r2, r1, 0",
        *(f"ldg r{4 + n}, [r2 + {4 * n}]" for n in range(5)),
        "ldc r12, [8]\nldc r13, [12]\nlea r12, r12, r0, 3",
    ]
    threads = 40
    for line in lines:
        text.append(f"mov r11, 0\n{line}\nstg [r12], r10\nstg [r12 + 4], r11")
        text.append(f"lea r12, r12, {8 * threads}, 0")
    program = assemble("\n".join([*text, "exit"]))
    memory = Memory()
    out = DATA + 32 * threads
    pointers = [DATA & 0xFFFF_FFFF, DATA >> 32, out & 0xFFFF_FFFF, out >> 32]
    operands = [
        numbers.choice((*CORNERS, numbers.getrandbits(32), numbers.getrandbits(32)))
        for _ in range(8 * threads)
    ]
    memory.map(PROGRAM, program)
    memory.map(ARGUMENTS, np.array(pointers, np.uint32).tobytes())
    memory.map(DATA, np.array(operands, np.uint32).tobytes())
    memory.map(out, bytes(8 * threads * len(lines)))
    launch = Launch(
        memory, PROGRAM, ARGUMENTS, 16, (1, 1, 1), (8, 5, 1), registers(program), 0, False
    )
    await against_model(tb, {0: launch})


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def random_programs(dut, eager):
    """Two random kernels in different address spaces at the same addresses run correctly, with
    branches, loops, masks, all kinds of memory, barriers, and back-pressure."""
    tb = await CoreTestbench(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    for _ in range(ROUNDS):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        launches = {}
        while len(launches) < 2:
            threads = numbers.choice(((3, 5, 2), (40, 1, 1), (7, 2, 5), (32, 2, 1)))
            blocks, length = numbers.randint(1, min(ROUNDS, 2)), numbers.randrange(5, 8 * ROUNDS)
            local = numbers.random() < 0.6
            launch = random_launch(numbers, threads, blocks, length, local=local)
            if fits(launch):
                launches[len(launches)] = launch
        await against_model(tb, launches)


def data_launch(text: str, warps: int, shared: int = 0) -> Launch:
    """A kernel in which r2:r3 point to a page of data and r0 is the thread's number."""
    head = "s2r r0, tid.x\nldc r2, [0]\nldc r3, [4]\n"
    memory = Memory()
    pointer = np.array([PAGE & 0xFFFF_FFFF, PAGE >> 32, 0, 0], np.uint32)
    memory.map(PROGRAM, assemble(f"{head}{text}\nexit"))
    memory.map(ARGUMENTS, pointer.tobytes())
    memory.map(PAGE, bytes(range(128)))
    return Launch(memory, PROGRAM, ARGUMENTS, 16, (1, 1, 1), (32 * warps, 1, 1), 8, shared)


def positions_launch(block: tuple[int, int, int], grid: int) -> Launch:
    """A kernel whose threads store their position in the block and their lane, each to a word of
    its own."""
    x, y, z = block
    text = f"""
        s2r r1, tid.y
        s2r r4, tid.z
        s2r r5, lane
        s2r r6, ctaid.x
        shl r7, r1, 8
        or  r5, r5, r7
        shl r7, r4, 16
        or  r5, r5, r7
        shl r7, r0, 20
        or  r5, r5, r7
        mul r6, r6, {z}
        add r6, r6, r4
        mul r6, r6, {y}
        add r6, r6, r1
        mul r6, r6, {x}
        add r6, r6, r0
        lea r2, r2, r6, 2
        stg [r2], r5
    """
    launch = data_launch(text, 1)
    launch.memory.map(PAGE, bytes(4 * grid * x * y * z))
    return replace(launch, grid=(grid, 1, 1), block=block)


@cocotb.test(**LIMIT)
async def positions(dut):
    """Threads have the right positions in blocks of any shape: wider and narrower than the core,
    and whose warps start between those of other blocks."""
    tb = await CoreTestbench(dut).start()
    rng, lanes = tb.random, CONFIG.lanes
    for n in range(6 * ROUNDS):
        tb.mixes = n % 3 > 0
        several = {}
        for row in range(2):
            width = rng.choice((1, max(1, lanes - 1), lanes, lanes + 1, rng.randint(1, 70)))
            height = rng.randint(1, max(1, 200 // width))
            block = width, height, rng.randint(1, max(1, 200 // (width * height)))
            several[row] = positions_launch(block, rng.randint(1, 3))
        await against_model(tb, several)


class Starts(CoreTestbench):
    """The warps of a block start in falling order if it `falls`."""

    falls = False

    def beginning(self, block: Running) -> dict[str, Any]:
        if self.falls:
            block.waiting.reverse()
        return super().beginning(block)


@cocotb.test(**LIMIT)
async def cycles_of_starts(dut):
    """A warp starts in 7 cycles and those of its walk, a row of threads per cycle or, in narrow
    blocks, a thread. If it does not follow the previous warp, the division takes 25 more."""
    tb = await Starts(dut).start()
    tb.port.latency = 500, 500  # so that no warp executes anything meanwhile
    warps = min(4, CONFIG.sm_warps)
    for tb.falls, width in product((False, True), (1, 32 * warps)):
        tb.spans.clear()
        await against_model(tb, {0: positions_launch((width, 32 * warps // width, 1), 1)})
        starts = sorted(span.start for span in tb.spans)
        walk = 32 // CONFIG.lanes if width >= CONFIG.lanes else 32
        cycles = 7 + walk + 25 * tb.falls
        assert [b - a for a, b in pairwise(starts)] == [cycles] * (warps - 1), (tb.falls, width)


@cocotb.test(**LIMIT)
async def neighbouring_words_go_together(dut):
    """Loads and stores of neighbouring words by the lanes of a row share an access, and so do loads
    of one word by all lanes."""
    tb = await CoreTestbench(dut).start()
    launch = data_launch("lea r4, r2, r0, 2\nldg r6, [r4]\nldg r7, [r2]\nstg [r4], r7", 1)
    await against_model(tb, {0: launch})
    words = min(CONFIG.lanes, WIDTH // 4)
    loads = [one["va"] for _, one in tb.port.read.taken if one["va"] // 4096 == PAGE // 4096]
    beats = [PAGE + 4 * words * n // WIDTH * WIDTH for n in range(32 // words)]
    assert loads[: len(beats)] == beats
    assert len(loads) == 32 // words + 32 // CONFIG.lanes
    assert len(tb.port.write.taken) == 32 // words


@cocotb.test(**LIMIT)
async def neighbouring_words_in_shared_memory(dut):
    """Loads and stores of neighbouring words of shared memory take a cycle per row of lanes and at
    most 40 more, although other registers differ between lanes."""
    tb = await CoreTestbench(dut).start()
    rounds, pairs, rows = 8, 4, 32 // CONFIG.lanes
    body = "sts [r1], r0\nlds r4, [r1]\n" * pairs
    text = f"shl r1, r0, 2\nmov r5, {rounds}\ntop: {body}sub r5, r5, 1\nbany r5, top"
    await against_model(tb, {0: data_launch(text, 1, 1024)})
    (span,) = tb.spans
    dut._log.info(f"{(span.end - span.start) / (2 * pairs * rounds)} cycles per access")
    assert span.end - span.start <= rounds * (2 * pairs + 2) * (rows + 40) + 500


@cocotb.test(**LIMIT)
async def highest_lane_wins(dut):
    """If active lanes store to the same word, the highest one wins, in memory and in shared
    memory."""
    tb = await CoreTestbench(dut).start()
    text = """
        mul  r1, r0, 0x9e3779b1
        shr  r1, r1, 29                 # eight words
        shr  r5, r0, 1
        and  r5, r5, 5
        push r5
        lea  r4, r2, r1, 2
        stg  [r4], r0
        shl  r1, r1, 2
        sts  [r1], r0
        lds  r5, [r1]
        lea  r4, r2, r0, 2
        stg  [r4 + 128], r5
    """
    await against_model(tb, {0: data_launch(text, 1, 1024)})
