"""Interpreter of the core's instruction set, written only from its published table
(`hw/sm/ISA.md`).

It runs one block at a time. The warps of the block run one after another, each up to its next
barrier or its end.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

__all__ = ["Block", "Children", "Failure", "Launch", "Memory", "run_block"]

U32 = 0xFFFF_FFFF
LANES = np.arange(32)


class Memory:
    """Bytes of one address space. `status` tells whether a page is mapped; `read` and `write` raise
    `KeyError` if it is not."""

    PAGE = 4096

    def __init__(self) -> None:
        self.pages: dict[int, bytearray] = {}
        self.broken: set[int] = set()
        """Numbers of the pages whose accesses end with a bus error."""

    def map(self, va: int, content: bytes) -> None:
        """Map the pages from `va` that `content` needs, at least one, and write `content`. New
        pages are filled with zeros."""
        for page in range(va // self.PAGE, (va + max(len(content), 1) - 1) // self.PAGE + 1):
            self.pages.setdefault(page, bytearray(self.PAGE))
        self.write(va, content)

    def status(self, va: int) -> int:
        """Status of an access at `va`: 0 for success, 1 for a bus error, 2 for a fault (not
        mapped)."""
        page = va // self.PAGE
        return 1 if page in self.broken else 0 if page in self.pages else 2

    def read(self, va: int, size: int) -> bytes:
        return bytes(self.pages[at // self.PAGE][at % self.PAGE] for at in range(va, va + size))

    def write(self, va: int, content: bytes) -> None:
        for at, byte in enumerate(content, va):
            self.pages[at // self.PAGE][at % self.PAGE] = byte

    def word(self, va: int) -> int:
        return int.from_bytes(self.read(va, 4), "little")


class Failure(Exception):
    """A warp cannot continue. `cause` : number of the cause, as in the design. `va` : address of
    the failed access, if any."""

    def __init__(self, cause: int, va: int | None = None) -> None:
        super().__init__(cause, va)
        self.cause, self.va = cause, va


INSTRUCTION, PROGRAM, MEMORY, ALIGNMENT, RANGE, STACK, LOCAL = 1, 2, 4, 6, 7, 8, 10


@dataclass
class Children:
    """Children launched by blocks. A child is complete at once. Both functions get the address of
    its task record.

    Members
    -------
    answer : result of instruction `launch`; 0 if the child is accepted.
    fails : whether the child fails.
    """

    answer: Callable[[int], int]
    fails: Callable[[int], bool]


@dataclass
class Launch:
    """Parameters shared by all blocks of a launch.

    Members
    -------
    program, constants : addresses of the program and of constant buffer 0.
    constant_bytes : bytes of constant buffer 0.
    grid, block : blocks of the grid, threads of a block, in x, y, z.
    registers : registers per thread.
    shared : bytes of shared memory per block.
    barrier : whether instruction `bar` is legal.
    buffers : address and bytes of constant buffers 1 … 7, by number.
    local : bytes of local memory per thread.
    children : None on a machine without nested launches.
    """

    memory: Memory
    program: int
    constants: int
    constant_bytes: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared: int = 0
    barrier: bool = False
    buffers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    local: int = 0
    children: Children | None = None

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def warps(self) -> int:
        return -(-self.threads // 32)


@dataclass
class Warp:
    index: int
    pc: int
    mask: np.ndarray
    registers: np.ndarray
    local: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(32)])
    """Words of each lane's local memory, by offset; words that were never written are missing."""
    stack: list[np.ndarray] = field(default_factory=list)
    ended: bool = False
    failure: tuple[int, int, int | None] | None = None
    """Cause, address of the instruction, address of the access; None if the warp has not failed."""


@dataclass
class Block:
    """A finished block."""

    warps: list[Warp]
    shared: bytearray
    failed: bool = False
    """Whether a child has failed."""
    launched: int = 0
    """Number of children."""


def run_block(launch: Launch, at: tuple[int, int, int], limit: int = 1_000_000) -> Block:
    """Run the block at `at` (x, y, z) until all its warps have ended. Raises `RuntimeError` after
    `limit` instructions of a warp."""
    shared = bytearray(launch.shared)
    warps = []
    for index in range(launch.warps):
        live = index * 32 + LANES < launch.threads
        warps.append(Warp(index, launch.program, live, np.zeros((256, 32), np.uint32)))
    block = Block(warps, shared)
    runs = [_steps(launch, at, warp, block, limit) for warp in warps]
    while not all(warp.ended for warp in warps):
        for warp, steps in zip(warps, runs, strict=True):
            if not warp.ended:
                next(steps, None)
    return block


def _steps(launch, at, warp: Warp, block: Block, limit: int) -> Iterator[None]:
    """Run a warp. Yields at each barrier, and returns at the end of the warp."""
    machine = _Machine(launch, at, warp, block)
    for _ in range(limit):
        here = warp.pc
        try:
            waits = machine.step()
        except Failure as failure:
            warp.failure = (failure.cause, here, failure.va)
            warp.ended = True
        else:
            if waits:
                yield
        if warp.ended:
            return
    raise RuntimeError(f"more than {limit} instructions")


def _signed(words: np.ndarray) -> np.ndarray:
    return words.astype(np.int32)


def _wide(words: np.ndarray) -> np.ndarray:
    return words.astype(np.uint64)


ALU: dict[int, Callable] = {
    0x02: lambda a, b, c: a + b,
    0x03: lambda a, b, c: a - b,
    0x04: lambda a, b, c: a * b,
    0x05: lambda a, b, c: a * b + c,
    0x06: lambda a, b, c: a & b,
    0x07: lambda a, b, c: a | b,
    0x08: lambda a, b, c: a ^ b,
    0x09: lambda a, b, c: a << (b & 31),
    0x0A: lambda a, b, c: a >> (b & 31),
    0x0B: lambda a, b, c: _signed(a) >> _signed(b & 31),
    0x0C: lambda a, b, c: np.minimum(_signed(a), _signed(b)),
    0x0D: lambda a, b, c: np.maximum(_signed(a), _signed(b)),
    0x0E: lambda a, b, c: np.minimum(a, b),
    0x0F: lambda a, b, c: np.maximum(a, b),
    0x10: lambda a, b, c: a == b,
    0x11: lambda a, b, c: a != b,
    0x12: lambda a, b, c: _signed(a) < _signed(b),
    0x13: lambda a, b, c: _signed(a) <= _signed(b),
    0x14: lambda a, b, c: a < b,
    0x15: lambda a, b, c: a <= b,
    0x16: lambda a, b, c: np.where(c != 0, a, b),
}


class _Machine:
    def __init__(self, launch: Launch, at, warp: Warp, block: Block) -> None:
        self.launch, self.at, self.warp, self.block = launch, at, warp, block
        self.shared = block.shared

    def step(self) -> bool:
        """Execute one instruction. Returns whether it was a barrier."""
        warp, memory = self.warp, self.launch.memory
        if warp.pc % 8:
            raise Failure(INSTRUCTION)
        if status := memory.status(warp.pc):
            raise Failure(PROGRAM + status - 1, warp.pc)
        word = int.from_bytes(memory.read(warp.pc, 8), "little")
        self.code, self.d, self.a, self.c = (word >> 8 * n & 0xFF for n in range(4))
        self.value = word >> 32
        self.immediate = bool(self.code & 0x80)
        code = self.code & 0x7F
        if self.immediate and code not in {0x01, *ALU, 0x17, 0x18, 0x37}:
            raise Failure(INSTRUCTION)
        warp.pc = warp.pc + 8 & (1 << 49) - 1
        if code in ALU:
            third = self.reg(self.c) if code in {0x05, 0x16} else None
            with np.errstate(over="ignore"):
                self.write(ALU[code](self.reg(self.a), self.b(), third))
        elif code in self._OTHER:
            return bool(self._OTHER[code](self))
        else:
            raise Failure(INSTRUCTION)
        return False

    def reg(self, number: int) -> np.ndarray:
        if number >= self.launch.registers:
            raise Failure(INSTRUCTION)
        return self.warp.registers[number]

    def pair(self, number: int) -> np.ndarray:
        if number % 2:
            raise Failure(INSTRUCTION)
        return _wide(self.reg(number)) | _wide(self.reg(number + 1)) << np.uint64(32)

    def b(self) -> np.ndarray:
        if self.immediate:
            return np.full(32, self.value, np.uint32)
        return self.reg(self.value & 0xFF)

    def write(self, words, number: int | None = None) -> None:
        target = self.reg(self.d if number is None else number)
        words = np.asarray(words).astype(np.uint32)
        target[self.warp.mask] = words[self.warp.mask]

    @property
    def offset(self) -> int:
        return self.value - (self.value >> 31 << 32)

    def _mov(self) -> None:
        self.write(self.b())

    def _lea(self) -> None:
        base, index = self.pair(self.a), self.b()
        self.pair(self.d)
        if self.c > 31:
            raise Failure(INSTRUCTION)
        wide = _wide(index) if self.code & 0x7F == 0x17 else _signed(index).astype(np.int64)
        total = base + (wide.astype(np.uint64) << np.uint64(self.c))
        self.write(total & np.uint64(U32))
        self.write(total >> np.uint64(32), self.d + 1)

    def _s2r(self) -> None:
        launch = self.launch
        thread = self.warp.index * 32 + LANES
        x, y, _ = launch.block
        own = (thread % x, thread // x % y, thread // (x * y), LANES)
        values = [*own, *self.at, self.warp.index, *launch.block, 0, *launch.grid]
        values += [] if launch.children is None else [0]  # children are complete at once
        if self.value >= len(values):
            raise Failure(INSTRUCTION)
        self.write(np.broadcast_to(np.asarray(values[self.value]), 32))

    def _ldc(self) -> None:
        self.reg(self.d)
        first = self.launch.constants, self.launch.constant_bytes
        base, size = {0: first, **self.launch.buffers}.get(self.a, (0, 0))
        if self.value % 4 or self.value + 4 > size:
            raise Failure(INSTRUCTION)
        va = base + self.value
        if status := self.launch.memory.status(va):
            raise Failure(PROGRAM + status - 1, va)
        self.write(np.full(32, self.launch.memory.word(va)))

    def _addresses(self) -> list[tuple[int, int]]:
        """Number of each active lane, and the address of its access."""
        base = self.pair(self.a)
        return [
            (int(lane), (int(base[lane]) + self.offset) & (1 << 64) - 1)
            for lane in LANES[self.warp.mask]
        ]

    def _checked(self) -> list[tuple[int, int]]:
        accesses = self._addresses()
        for _, va in accesses:
            if va % 4:
                raise Failure(ALIGNMENT, va & (1 << 49) - 1)
            if va >> 49:
                raise Failure(MEMORY + 1, va & (1 << 49) - 1)
        for _, va in accesses:
            if status := self.launch.memory.status(va):
                raise Failure(MEMORY + status - 1, va)
        return accesses

    def _ldg(self) -> None:
        words = np.array(self.reg(self.d))
        for lane, va in self._checked():
            words[lane] = self.launch.memory.word(va)
        self.write(words)

    def _stg(self) -> None:
        words = self.reg(self.c)
        for lane, va in self._checked():
            self.launch.memory.write(va, int(words[lane]).to_bytes(4, "little"))

    def _places(self) -> list[tuple[int, int]]:
        base = self.reg(self.a)
        places = [
            (int(lane), (int(base[lane]) + self.value) & U32) for lane in LANES[self.warp.mask]
        ]
        for _, at in places:
            if at % 4 or at + 4 > len(self.shared):
                raise Failure(RANGE, at)
        return places

    def _lds(self) -> None:
        words = np.array(self.reg(self.d))
        for lane, at in self._places():
            words[lane] = int.from_bytes(self.shared[at : at + 4], "little")
        self.write(words)

    def _sts(self) -> None:
        words = self.reg(self.c)
        for lane, at in self._places():
            self.shared[at : at + 4] = int(words[lane]).to_bytes(4, "little")

    def _offsets(self) -> list[tuple[int, int]]:
        """Number of each active lane, and the offset of its access in local memory."""
        if not self.launch.local:
            raise Failure(INSTRUCTION)
        base = self.reg(self.a)
        offsets = [
            (int(lane), (int(base[lane]) + self.value) & U32) for lane in LANES[self.warp.mask]
        ]
        for _, at in offsets:
            if at % 4 or at + 4 > self.launch.local:
                raise Failure(LOCAL, at)
        return offsets

    def _ldl(self) -> None:
        words = np.array(self.reg(self.d))
        for lane, at in self._offsets():
            words[lane] = self.warp.local[lane].get(at, 0)
        self.write(words)

    def _stl(self) -> None:
        words = self.reg(self.c)
        for lane, at in self._offsets():
            self.warp.local[lane][at] = int(words[lane])

    def _jump(self) -> None:
        self.warp.pc = (self.warp.pc - 8 + self.offset) & (1 << 49) - 1

    def _branch(self, wanted: bool) -> None:
        if bool((self.reg(self.a)[self.warp.mask] != 0).any()) == wanted:
            self._jump()

    def _push(self) -> None:
        keep = self.reg(self.a) != 0
        if len(self.warp.stack) == 8:
            raise Failure(STACK)
        self.warp.stack.append(self.warp.mask)
        self.warp.mask = self.warp.mask & keep

    def _kept(self) -> np.ndarray:
        if not self.warp.stack:
            raise Failure(STACK)
        return self.warp.stack[-1]

    def _else(self) -> None:
        self.warp.mask = self._kept() & ~self.warp.mask

    def _pop(self) -> None:
        self.warp.mask = self._kept()
        self.warp.stack.pop()

    def _bar(self) -> bool:
        if not self.launch.barrier:
            raise Failure(INSTRUCTION)
        return True

    def _exit(self) -> None:
        self.warp.ended = True

    def _nested(self) -> Children:
        if self.launch.children is None:
            raise Failure(INSTRUCTION)
        return self.launch.children

    def _launch(self) -> None:
        children, base = self._nested(), self.pair(self.a)
        if self.launch.local:
            raise Failure(INSTRUCTION)
        self.reg(self.d)
        for va in (int(one) + self.offset & (1 << 64) - 1 for one in base[self.warp.mask][:1]):
            if va % 256 or va >> 40:
                raise Failure(ALIGNMENT if va % 256 else MEMORY + 1, va & (1 << 49) - 1)
            answer = children.answer(va)
            if not answer:
                self.block.launched += 1
                self.block.failed |= children.fails(va)
            self.write(np.full(32, answer))

    def _join(self) -> None:
        self._nested()
        self.write(np.full(32, self.block.failed))

    _OTHER: dict[int, Callable] = {
        0x01: _mov,
        0x17: _lea,
        0x18: _lea,
        0x20: _s2r,
        0x21: _ldc,
        0x22: _ldg,
        0x23: _stg,
        0x24: _lds,
        0x25: _sts,
        0x26: _ldl,
        0x27: _stl,
        0x30: _jump,
        0x31: lambda self: self._branch(True),
        0x32: lambda self: self._branch(False),
        0x33: _push,
        0x34: _else,
        0x35: _pop,
        0x36: _bar,
        0x37: lambda self: self.b() is None,
        0x38: _exit,
        0x39: _launch,
        0x3A: _join,
    }
