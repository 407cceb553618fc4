"""Testbench of the compute engine with kernels that launch kernels and use their children's
results."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from signalbox.driver.kernels.assembler import assemble, registers
from signalbox.tb.units.compute.launch import Launch, only_on
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

__all__ = ["DEPTH", "NestedTestbench", "Sum"]

DEPTH = 4
"""Depth of the deepest kernels."""

PARENT = 224
"""Byte offset in a record: page of the parent's record."""

_PROGRAM, _ARGUMENTS, _RESULTS = 0x1_0000_0000, 0x2_0000_0000, 0x3_0000_0000
_MARKS = 0x4_0000_0000

_SUM = assemble("""
    s2r   r0, warp
    bany  r0, idle
    s2r   r0, ctaid.x
    ldc   r2, [48]          # runs of each block
    ldc   r3, [52]
    lea   r2, r2, r0, 2
    ldg   r4, [r2]
    add   r4, r4, 1
    stg   [r2], r4
    bany  r0, idle
    ldc   r0, [40]
    wait  r0
    ldc   r2, [0]           # children
    ldc   r4, [4]           # record of the first one
    ldc   r5, [8]
    ldc   r7, [12]          # own value
    ldc   r10, [16]         # results of the first child
    ldc   r11, [20]
    mov   r3, r2
    mov   r9, 0             # sum of the answers
    mov   r8, 1
launches:
    bnone r3, join
    launch r6, [r4]
    add   r9, r9, r6
    lea   r4, r4, r8, 8
    sub   r3, r3, 1
    bra   launches
join:
    ldc   r6, [32]
    bnone r6, done
    join  r12               # a descendant has failed
sums:
    bnone r2, done
    ldg   r6, [r10]
    add   r7, r7, r6
    lea   r10, r10, r8, 4
    sub   r2, r2, 1
    bra   sums
done:
    ldc   r10, [44]
    bnone r10, store
    pop
store:
    ldc   r10, [24]         # own results
    ldc   r11, [28]
    stg   [r10], r7
    stg   [r10 + 4], r9
    stg   [r10 + 8], r12
    exit
idle:
    ldc   r0, [36]
    wait  r0
    exit
""")


@dataclass
class Sum:
    """A kernel whose first warp launches children and, if it `joins`, waits for them and adds their
    results to its own value. Results, in 16 bytes: the sum, the sum of the answers to its launches,
    whether a descendant has failed. Further blocks only count their runs, as the first one does.

    Members
    -------
    unseen : child whose launch is refused.
    answers : sum of the answers.
    warps : warps of the block; the others last `cycles`. `barrier` : they start together.
    delay : cycles until its first launch.
    blocks : blocks of the grid, at most 16.
    faults : its first warp faults, instead of storing its results.
    shared : bytes of shared memory.
    """

    number: int
    children: tuple[Launch, ...]
    value: int
    joins: bool = True
    unseen: Launch | None = None
    answers: int = 0
    warps: int = 1
    cycles: int = 0
    delay: int = 0
    barrier: bool = False
    blocks: int = 1
    faults: bool = False
    shared: int = 0

    @property
    def _below(self) -> list["Sum"]:
        jobs = (child.job for child in self.children if child is not self.unseen)
        return [job for job in jobs if isinstance(job, Sum)]

    @property
    def total(self) -> int:
        """Its sum; 0 if it stores none."""
        if self.faults:
            return 0
        return self.value + sum(job.total for job in self._below if self.joins)

    @property
    def fails(self) -> bool:
        """Whether it or a descendant faults."""
        return self.faults or any(job.fails for job in self._below)

    @property
    def results(self) -> dict[int, np.ndarray]:
        failed = self.joins and any(job.fails for job in self._below)
        words = [self.total & 0xFFFF_FFFF, self.answers, failed]
        return {
            _RESULTS + 16 * self.number: np.array(words, np.uint32),
            self.marks: np.ones(self.blocks, np.uint32),
        }

    @property
    def marks(self) -> int:
        """Address of the number of runs of each block."""
        return _MARKS + 64 * self.number

    def memory(self) -> dict[int, bytes]:
        first = self.children[0] if self.children else None
        pair = [first.page << 8 & 0xFFFF_FFFF, first.page >> 24] if first else [0, 0]
        words = [len(self.children), *pair, self.value]
        for number in (first.number if first else 0, self.number):
            words += [_RESULTS + 16 * number & 0xFFFF_FFFF, _RESULTS >> 32]
        words += [self.joins, self.cycles, self.delay, self.faults]
        words += [self.marks & 0xFFFF_FFFF, self.marks >> 32, 0, 0]
        return {
            _PROGRAM: _SUM,
            self._arguments: np.array(words, np.uint32).tobytes(),
            _RESULTS + 16 * self.number: bytes(16),
            self.marks: bytes(64),
        }

    @property
    def _arguments(self) -> int:
        return _ARGUMENTS + 64 * self.number

    def launch(self) -> dict[str, Any]:
        return {
            "grid": (self.blocks, 1, 1),
            "block": (32 * self.warps, 1, 1),
            "program": _PROGRAM,
            "registers": registers(_SUM),
            "shared": self.shared,
            "barrier": self.barrier,
            "constants": self._arguments,
            "constant_bytes": 64,
        }


class NestedTestbench(ComputeTestbench):
    """Numbers kernels so that the children of a block have consecutive numbers.

    Members
    -------
    parents : parent of each child.
    order : kernels in the order in which they were over.
    contexts : number of contexts that are used. The address spaces belong to them in turn.
    left : how often each context has left while children of its kernels were not over.
    """

    def __init__(self, dut: Any, contexts: int = 1) -> None:
        super().__init__(dut)
        self.parents: dict[int, int] = {}
        self.order: list[int] = []
        self.contexts = contexts
        self.left = [0] * contexts
        self._next = 0
        for number in range(contexts):
            self.context(number, range(number, CONFIG.asids, contexts), nesting=DEPTH)

    def kernel(
        self, *children: Launch, asid: int, priority: int = 5, joins: bool = True, **shape: int
    ) -> Launch:
        """A kernel that launches `children`, which were made just before, in order. `shape` : warps
        and times, see `Sum`. With SM masks, each kernel has its own set of SMs."""
        numbers = [child.number for child in children]
        assert numbers == list(range(self._next - len(numbers), self._next)), numbers
        job = Sum(self._next, children, self.random.getrandbits(32), joins, **shape)
        made = Launch(self._next, job, asid, priority, asid % self.contexts, self._more())
        self._next += 1
        self.know(made)
        self.parents.update(dict.fromkeys(numbers, made.number))
        return made

    def _more(self) -> int:
        if not CONFIG.sm_masks:
            return 0
        return only_on(self.random.sample(range(CONFIG.sms), self.random.randint(1, CONFIG.sms)))

    def chain(
        self, length: int, asid: int, *, priority: int = 5, joins: bool = True, mixed: bool = False
    ) -> list[Launch]:
        """A chain of kernels, each of which launches the one before it. `mixed` : with up to four
        warps, some with a barrier."""
        line: list[Launch] = []
        while len(line) < length:
            shape = self.shape() if mixed else {}
            children = line[-1:]
            line.append(self.kernel(*children, asid=asid, priority=priority, joins=joins, **shape))
        return line

    def shape(self) -> dict[str, int]:
        """Random warps and times of a kernel."""
        rng = self.random
        cycles, barrier = rng.choice((0, 100, 1000)), rng.random() < 0.5
        return {"warps": rng.randint(1, 4), "cycles": cycles, "barrier": barrier}

    def answers(self, kernel: Launch) -> int:
        """Sum of the answers to its launches, as stored by the kernel."""
        stored = self.contents.read((kernel.asid, 0), _RESULTS + 16 * kernel.number + 4, 4)
        return int.from_bytes(stored, "little")

    def refuse(self, parent: Launch, child: Launch, answer: int) -> None:
        """The launch of `child` by `parent` will be refused."""
        assert isinstance(parent.job, Sum)
        child.refused, parent.job.unseen, parent.job.answers = True, child, answer

    def _over(self, word: dict[str, Any]) -> None:
        super()._over(word)
        task = self.tasks[word["task"]["asid"], word["task"]["page"]]
        self.order.append(task.number)
        assert word["task"]["channel"] == self.root(task.number) % CONFIG.channels

    def root(self, number: int) -> int:
        """The kernel of the host above a kernel."""
        while number in self.parents:
            number = self.parents[number]
        return number

    def check_all(self) -> None:
        """Check that all kernels except refused ones are over, each child before its parent
        (NEST-12), that their results are right, and that their records name their parents."""
        place = {number: n for n, number in enumerate(self.order)}
        pages = {one.number: one.page for one in self.tasks.values()}
        for child, parent in self.parents.items():
            assert child not in place or place[child] < place[parent], (child, parent)
        for one in self.tasks.values():
            if not one.refused:
                self.check(one)
                parent = self.parents.get(one.number)
                assert self.link(one) == (0 if parent is None else pages[parent]), one

    async def step(self) -> None:
        await super().step()
        if self.turns and self.turns[-1].over == self.cycle - 1:
            context = self.turns[-1].context
            self.left[context] += any(
                one.number in self.parents and one.over is None and self.link(one) > 0
                for one in self.tasks.values()
                if one.context == context
            )

    def link(self, kernel: Launch) -> int:
        """Page of the parent, in the record."""
        stored = self.contents.read((kernel.asid, 0), (kernel.page << 8) + PARENT, 4)
        return int.from_bytes(stored, "little")
