"""Random programs whose results do not depend on the order of warps.

Each thread has `WORDS` private words of memory, as many of shared memory, and `LOCAL_WORDS` of
local memory; it reads words of other threads only between barriers. At the end it stores its
registers.
"""

from collections.abc import Mapping
from math import prod
from random import Random

import numpy as np

from signalbox.driver.kernels.assembler import assemble, registers
from signalbox.tb.models.isa import Children, Launch, Memory

__all__ = ["BUFFERS", "DATA", "WORDS", "random_launch"]

WORDS, LOCAL_WORDS = 8, 12
PROGRAM, ARGUMENTS, DATA = 0x12_0000_0FC0, 0x9_0000_0000, 0x1_0000_0F80
BUFFERS = 0xA_0000_0FD0
"""Constant buffers 1 … 7, which may share cache lines."""
FREE = tuple(f"r{n}" for n in (5, 6, 7, 8, 9, 14, 15, 29))
"""Registers changed by statements. r0 is the thread's number, r2:r3 its words of memory, r4 its
words of shared memory, r1 the offset of some words of local memory; r10:r11 and r12:r13 hold
addresses, r16 … are loop counters."""

TWO = "add sub mul and or xor shl shr sar min max umin umax seq sne slt sle sltu sleu".split()
SPECIALS = (
    "tid.x tid.y tid.z lane ctaid.x ctaid.y ctaid.z warp ntid.x ntid.y ntid.z "
    "nctaid.x nctaid.y nctaid.z"
).split()
ARGUMENT_WORDS = 24


class Writer:
    """Writes a program. `buffers` : number of words of each constant buffer. `local` : whether it
    uses local memory. `launches` : whether it launches kernels; `alone` : whether it has only one
    warp, so that the results of its joins are known."""

    def __init__(
        self,
        numbers: Random,
        barrier: bool,
        buffers: Mapping[int, int],
        local: bool,
        launches: bool,
        alone: bool,
    ) -> None:
        self.numbers, self.barrier, self.buffers, self.local = numbers, barrier, buffers, local
        self.launches, self.alone = launches, alone
        self.lines: list[str] = []
        self.labels = 0

    def say(self, *lines: str) -> None:
        self.lines += lines

    def label(self) -> str:
        self.labels += 1
        return f"l{self.labels}"

    def register(self) -> str:
        return self.numbers.choice(FREE)

    def b(self) -> str:
        numbers = self.numbers
        corner = numbers.choice((0, 1, -1, 31, 1 << 31, (1 << 31) - 1))
        word = numbers.getrandbits(32)
        return numbers.choice((self.register(), self.register(), str(corner), str(word)))

    def begin(self) -> None:
        size = 4 * WORDS
        self.say(
            "s2r r5, tid.z", "s2r r6, ntid.y", "s2r r7, tid.y", "mad r5, r5, r6, r7",
            "s2r r6, ntid.x", "s2r r7, tid.x", "mad r5, r5, r6, r7",
            f"mul r4, r5, {size}",
            "s2r r8, ctaid.x", "ldc r9, [0]", "mad r0, r8, r9, r5",
            "ldc r2, [8]", "ldc r3, [12]", f"mul r6, r0, {size}", "lea r2, r2, r6, 0",
        )  # fmt: skip
        for n, register in enumerate(FREE):
            if self.numbers.random() < 0.7:
                self.say(f"ldg {register}, [r2 + {4 * (n % WORDS)}]")
        for word in range(WORDS):
            if self.numbers.random() < 0.7:
                self.say(f"sts [r4 + {4 * word}], {self.register()}")

        if self.local:
            self.say("and r1, r5, 3", "shl r1, r1, 2", "mov r12, 0")
            self.say(*(f"stl [r12 + {4 * n}], {self.register()}" for n in range(LOCAL_WORDS)))

    def end(self) -> None:
        self.say(*(f"stg [r2 + {4 * n}], {one}" for n, one in enumerate(FREE)), "exit")

    def statements(self, count: int, depth: int, masks: int) -> None:
        for _ in range(count):
            self.statement(depth, masks)

    def statement(self, depth: int, masks: int) -> None:
        numbers, d = self.numbers, self.register()
        own = 4 * numbers.randrange(WORDS)
        if self.launches and numbers.random() < 0.1:
            self.nest(d)
            return
        kind = numbers.random()
        if kind < 0.45:
            self.say(f"{numbers.choice(TWO)} {d}, {self.register()}, {self.b()}")
        elif kind < 0.55:
            name = numbers.choice(("mad", "sel"))
            self.say(f"{name} {d}, {self.register()}, {self.b()}, {self.register()}")
        elif kind < 0.60:
            name, shift = numbers.choice(("lea", "leas")), numbers.randrange(32)
            pair = numbers.choice(("r6", "r8", "r14"))
            self.say(f"{name} {numbers.choice(('r6', 'r8', 'r14'))}, {pair}, {self.b()}, {shift}")
        elif kind < 0.70:
            lines = (
                f"ldg {d}, [r2 + {own}]", f"stg [r2 + {own}], {d}",
                f"lds {d}, [r4 + {own}]", f"sts [r4 + {own}], {d}",
            )  # fmt: skip
            if self.local:
                lines += (f"ldl {d}, [r1 + {own}]", f"stl [r1 + {own}], {d}") * 2
            self.say(numbers.choice(lines))
        elif kind < 0.76:
            self.say(
                numbers.choice((
                    f"ldc {d}, {self.constant()}",
                    f"s2r {d}, {numbers.choice(SPECIALS)}",
                    f"mov {d}, {self.b()}",
                    f"wait {numbers.randrange(20)}",
                ))
            )
        elif kind < 0.80:
            self.neighbour(d)
        elif kind < 0.92 and masks < 8:
            self.branch(depth, masks)
        elif depth < 3:
            self.loop(depth, masks)

    def nest(self, d: str) -> None:
        """Launch a kernel, whose record may depend on the lane; or wait for the children. Addresses
        never fall below 0."""
        numbers = self.numbers
        if numbers.random() < 0.4:
            self.say(f"join {d}", *(() if self.alone else (f"mov {d}, 0",)))
            return
        low = numbers.choice((f"mov r10, {numbers.getrandbits(32) & ~0xFF}", "and r10, r0, 31"))
        shift = ("shl r10, r10, 8",) if low.startswith("and") else ()
        self.say(low, *shift, f"mov r11, {numbers.randrange(1, 200)}")
        self.say(f"launch {d}, [r10 + {numbers.randrange(-100, 100) * 256}]".replace("+ -", "- "))

    def constant(self) -> str:
        buffer = self.numbers.choice(sorted(self.buffers))
        return f"[{buffer}][{4 * self.numbers.randrange(self.buffers[buffer])}]"

    def neighbour(self, d: str) -> None:
        """Load another thread's word from the read-only part of memory."""
        index = self.numbers.choice((self.register(), "r0"))
        self.say(
            f"and r12, {index}, 63",
            "ldc r10, [16]", "ldc r11, [20]",
            "lea r10, r10, r12, 2", f"ldg {d}, [r10]",
        )  # fmt: skip

    def branch(self, depth: int, masks: int) -> None:
        numbers = self.numbers
        condition = self.register()
        self.say(f"and {condition}, {condition}, {numbers.choice((1, 3, 0x80))}")
        self.say(f"push {condition}")
        self.statements(numbers.randrange(1, 3), depth, masks + 1)
        if numbers.random() < 0.7:
            self.say("else")
            self.statements(numbers.randrange(1, 3), depth, masks + 1)
        self.say("pop")

    def loop(self, depth: int, masks: int) -> None:
        """A short loop; its count is the same for all lanes, or lanes leave one by one."""
        numbers, top, out = self.numbers, self.label(), self.label()
        count = f"r{16 + depth}"
        if masks < 8 and numbers.random() < 0.5:
            self.say(f"and {count}, {self.register()}, 3", f"push {count}", f"{top}:")
            self.say(f"bnone {count}, {out}")
            self.statements(numbers.randrange(1, 3), depth + 1, masks + 1)
            self.say(f"umax {count}, {count}, 1", f"sub {count}, {count}, 1")
            self.say(f"bra {top}", f"{out}:", "pop")
        else:
            self.say(f"mov {count}, {numbers.randrange(1, 4)}", f"{top}:")
            self.statements(numbers.randrange(1, 3), depth + 1, masks)
            self.say(f"sub {count}, {count}, 1", f"bany {count}, {top}")

    def exchange(self) -> None:
        """Read a word of another thread of the block."""
        d, place = self.register(), 4 * self.numbers.randrange(WORDS)
        threads = "r12"
        self.say(
            "bar",
            f"sts [r4 + {place}], {self.register()}",
            "bar",
            "ldc r12, [0]", f"add {d}, r4, {4 * WORDS * self.numbers.randrange(1, 5)}",
            f"mul r12, {threads}, {4 * WORDS}",
            f"sleu r10, {threads}, {d}", f"mul r10, r10, {threads}", f"sub {d}, {d}, r10",
            f"sleu r10, {threads}, {d}", f"mul r10, r10, {threads}", f"sub {d}, {d}, r10",
            f"umin {d}, {d}, r12", f"lds {d}, [{d} + {place}]",
            "bar",
        )  # fmt: skip


def random_launch(
    numbers: Random,
    threads: tuple[int, int, int],
    blocks: int,
    length: int,
    *,
    local: bool = False,
    children: Children | None = None,
) -> Launch:
    """A kernel of `length` statements, with its memory; with `children`, it launches some."""
    count = prod(threads)
    barrier = numbers.random() < 0.6
    lengths = {n: 4 * numbers.randint(1, 9) for n in range(1, 8) if numbers.random() < 0.5}
    sizes = {0: ARGUMENT_WORDS, **lengths}
    writer = Writer(numbers, barrier, sizes, local, children is not None, count <= 32)
    writer.begin()
    for _ in range(length):
        writer.statement(0, 0)
        if barrier and count > 4 and numbers.random() < 0.15:
            writer.exchange()
    writer.end()
    program = assemble("\n".join(writer.lines))
    memory = Memory()
    table = DATA + 4 * WORDS * count * blocks
    arguments = [count, 0, DATA & 0xFFFF_FFFF, DATA >> 32, table & 0xFFFF_FFFF, table >> 32]
    arguments += [numbers.getrandbits(32) for _ in range(ARGUMENT_WORDS - len(arguments))]
    words = [numbers.getrandbits(32) for _ in range(WORDS * count * blocks + 64)]
    memory.map(PROGRAM, program)
    memory.map(ARGUMENTS, np.array(arguments, np.uint32).tobytes())
    memory.map(DATA, np.array(words, np.uint32).tobytes())
    buffers, at = {}, BUFFERS
    for number, length in lengths.items():
        buffers[number] = at, 4 * length
        memory.map(at, numbers.randbytes(4 * length))
        at += 4 * length
    shared = -(-4 * WORDS * count // 1024) * 1024
    return Launch(
        memory,
        PROGRAM,
        ARGUMENTS,
        4 * ARGUMENT_WORDS,
        (blocks, 1, 1),
        threads,
        registers(program),
        shared,
        barrier,
        buffers,
        4 * LOCAL_WORDS * local,
        children,
    )
