"""Testbench of a core; models the SM logic controller and the memory."""

import itertools
import json
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import cocotb
from amaranth.lib import data
from cocotb.triggers import RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.records.memory import read_beat, write_beat
from signalbox.hw.records.placement import KernelWord, kernel_word
from signalbox.hw.sm.port import block_begin, core_fault, core_request, warp_start
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.testbench.reset import reset

__all__ = ["CONFIG", "Bench", "Fault", "Span", "Task"]

CONFIG = Config(**json.loads(os.environ.get("CONFIG", "{}")))

WIDTH = CONFIG.beat_bytes


class Record:
    """Packs and unpacks a record, faster than its layout."""

    def __init__(self, layout: data.Layout) -> None:
        self.fields = {}
        for name, one in layout:
            width = data.Layout.cast(one.shape).size if _is_record(one.shape) else None
            self.fields[name] = (one.offset, width or one.width)

    def pack(self, **values: int) -> int:
        word = 0
        for name, value in values.items():
            offset, width = self.fields[name]
            assert 0 <= value < 1 << width, (name, value)
            word |= value << offset
        return word

    def unpack(self, word: int) -> dict[str, int]:
        return {
            name: word >> offset & (1 << width) - 1 for name, (offset, width) in self.fields.items()
        }


def _is_record(shape: Any) -> bool:
    return isinstance(shape, data.Layout)


KERNEL, BEGIN, START = (Record(make(CONFIG)) for make in (kernel_word, block_begin, warp_start))
REQUEST, READ, WRITE, FAULT = (
    Record(make(CONFIG)) for make in (core_request, read_beat, write_beat, core_fault)
)


@dataclass(frozen=True)
class Fault:
    """A warp that could not continue."""

    row: int
    cause: int
    at: int
    va: int


@dataclass
class Task:
    """A kernel in a row. `blocks` : positions in the grid, in the order in which they run."""

    row: int
    launch: Launch
    blocks: deque[tuple[int, int, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        if not self.blocks:
            x, y, z = self.launch.grid
            places = itertools.product(range(z), range(y), range(x))
            self.blocks = deque((c, b, a) for a, b, c in places)

    @property
    def units(self) -> int:
        """Register units of a warp."""
        return -(-self.launch.registers // 4)

    @property
    def shared(self) -> int:
        return -(-self.launch.shared // 1024)

    def words(self) -> dict[KernelWord, int]:
        launch = self.launch
        x, y, z = launch.block
        return {
            KernelWord.NEEDS: launch.barrier << 6
            | launch.warps << 7
            | self.units << 14
            | self.shared << 21,
            KernelWord.SPACE: min(self.units * launch.warps, 1023) | launch.registers << 10,
            KernelWord.PROGRAM_LOW: launch.program & 0xFFFF_FFFF,
            KernelWord.PROGRAM_HIGH: launch.program >> 32,
            KernelWord.CONSTANTS_LOW: launch.constants & 0xFFFF_FFFF,
            KernelWord.CONSTANTS_HIGH: launch.constants >> 32,
            KernelWord.GRID_WIDTH: launch.grid[0],
            KernelWord.GRID_REST: launch.grid[1] | launch.grid[2] << 16,
            KernelWord.BLOCK_XY: x | y << 16,
            KernelWord.BLOCK_Z: z | launch.constant_bytes // 16 << 16,
        }


@dataclass(frozen=True)
class Span:
    """A warp of block `at` of `row`, with the cycles in which its start and its end were
    accepted."""

    row: int
    at: tuple[int, int, int]
    index: int
    start: int
    end: int


@dataclass
class Running:
    """A block in a slot: warps to start, and running warps."""

    task: Task
    at: tuple[int, int, int]
    waiting: deque[int]
    running: set[int] = field(default_factory=set)
    begun: bool = False


class Bench:
    """Drives a core cycle by cycle.

    Members
    -------
    latency : range of the cycles from a request to its answer.
    eager : fraction of cycles in which the core's offers are accepted.
    faults, ended, spans : faults reported by the core; cycles of the ends; finished warps.
    reads, writes : requests, as (row, address, beats).
    held : outputs that are not accepted.
    bad : for each page, the beat of each burst with a bus error, modulo the burst's length.
    """

    def __init__(self, dut: Any) -> None:
        self.dut, self.numbers = dut, Random(cocotb.RANDOM_SEED)
        self.now = 0
        self.latency, self.eager = (4, 30), 1.0
        self.memories: dict[int, Memory] = {}
        self.tasks: list[Task] = []
        self.slots: dict[int, Running] = {}
        self.warps: dict[int, tuple[int, int]] = {}
        self.held: set[str] = set()
        self.bad: dict[int, int] = {}
        self.faults: list[Fault] = []
        self.ended: list[int] = []
        self.spans: list[Span] = []
        self._taken_at: dict[int, tuple[int, int]] = {}
        """Index in its block of each running warp, and the cycle of its start."""
        self.reads: list[tuple[int, int, int]] = []
        self.writes: list[tuple[int, int, int]] = []
        self._beats: deque[tuple[int, int]] = deque()
        self._requests: deque[tuple[int, int]] = deque()
        self._given: deque[int] = deque()
        self._dones: deque[tuple[int, int]] = deque()
        self._kernel: deque[int] = deque()
        self._begin: tuple[int, int] | None = None
        self._start: tuple[int, int] | None = None
        self._finish = 0
        self._driven: dict[str, int] = {}
        self._handles: dict[str, Any] = {}

    def _set(self, name: str, value: int) -> None:
        if self._driven.get(name) != value:
            self._driven[name] = value
            getattr(self.dut, name).value = value

    def _get(self, name: str) -> int:
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = getattr(self.dut, name)
        return int(handle.value)

    async def start(self) -> None:
        for name in ("kernel", "finish", "kill"):
            self._set(name, 0)
        for name in ("begin", "start", "read_beat", "write_done"):
            self._set(f"{name}__valid", 0)
            self._set(f"{name}__payload", 0)
        for name in ("end", "fault", "read_request", "write_request", "write_beat"):
            self._set(f"{name}__ready", 0)
        await reset(self.dut)
        # Wait until the free lists are filled.
        await self.steps(max(CONFIG.register_units, CONFIG.shared_units) + 4)

    def launch(self, task: Task) -> None:
        """Send the words of a row; its blocks begin when there is room."""
        self.memories[task.row] = task.launch.memory
        for word, value in task.words().items():
            self._kernel.append(KERNEL.pack(valid=1, row=task.row, word=word, data=value))
        self.tasks.append(task)

    def kill(self, rows: int) -> None:
        """Kill the kernels of `rows`, one bit each."""
        self._set("kill", rows)

    @property
    def idle(self) -> bool:
        return not (self.slots or self._kernel or any(task.blocks for task in self.tasks))

    async def run(self, limit: int = 100_000) -> None:
        """Step until all blocks have ended."""
        await self.until(lambda: self.idle, limit)

    async def until(self, condition, limit: int = 20_000) -> None:
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"nothing after {limit} cycles: {self.slots}")

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.now += 1
        self._reads()
        self._writes()
        self._reports()
        self._controller()

    def _taken(self, name: str) -> bool:
        return bool(self._driven[f"{name}__ready"] and self._get(f"{name}__valid"))

    def _sent(self, name: str) -> bool:
        return bool(self._driven[f"{name}__valid"] and self._get(f"{name}__ready"))

    def _ready(self, name: str) -> None:
        taken = self.eager >= 1 or self.numbers.random() < self.eager
        self._set(f"{name}__ready", int(taken and name not in self.held))

    def _due(self) -> int:
        return self.now + self.numbers.randint(*self.latency)

    def _offer(self, name: str, queue: deque[tuple[int, int]]) -> None:
        """Offer the head of `queue` when it is due."""
        if self._sent(name):
            queue.popleft()
            self._set(f"{name}__valid", 0)
        if queue and queue[0][0] <= self.now and not self._driven[f"{name}__valid"]:
            if self.eager >= 1 or self.numbers.random() < self.eager:
                self._set(f"{name}__valid", 1)
                self._set(f"{name}__payload", queue[0][1])

    def _reads(self) -> None:
        if self._taken("read_request"):
            request = REQUEST.unpack(self._get("read_request__payload"))
            row, va, beats = request["row"], request["va"], request["beats"] + 1
            self.reads.append((row, va, beats))
            due = self._due()
            assert va // 4096 == (va // WIDTH * WIDTH + beats * WIDTH - 1) // 4096, "crosses 4 KiB"
            self._beats += [(due, beat) for beat in self._answer(row, va // WIDTH * WIDTH, beats)]
        self._ready("read_request")
        self._offer("read_beat", self._beats)

    def _answer(self, row: int, va: int, beats: int) -> Iterator[int]:
        memory = self.memories[row]
        status = memory.status(va)
        if status == 2:
            yield READ.pack(data=0, last=1, status=2)
            return
        bad = self.bad.get(va // 4096)
        for n in range(beats):
            word = int.from_bytes(memory.read(va + n * WIDTH, WIDTH), "little")
            here = 1 if bad is not None and n == bad % beats else status
            yield READ.pack(data=word, last=n == beats - 1, status=here)

    def _writes(self) -> None:
        if self._taken("write_request"):
            request = REQUEST.unpack(self._get("write_request__payload"))
            assert request["beats"] == 0
            self._requests.append((request["row"], request["va"] // WIDTH * WIDTH))
            self.writes.append((request["row"], request["va"], 1))
        if self._taken("write_beat"):
            self._given.append(self._get("write_beat__payload"))
        while self._requests and self._given:
            self._write(*self._requests.popleft(), self._given.popleft())
        self._ready("write_request")
        self._ready("write_beat")
        self._offer("write_done", self._dones)

    def _write(self, row: int, va: int, payload: int) -> None:
        beat, memory = WRITE.unpack(payload), self.memories[row]
        assert beat["last"] == 1
        status = memory.status(va)
        if status == 0:
            content = beat["data"].to_bytes(WIDTH, "little")
            for n in range(WIDTH):
                if beat["strobe"] >> n & 1:
                    memory.write(va + n, content[n : n + 1])
        self._dones.append((self._due(), status))

    def _reports(self) -> None:
        if self._taken("fault"):
            self.faults.append(Fault(**FAULT.unpack(self._get("fault__payload"))))
        self._finish = 0
        if self._taken("end"):
            slot, _ = self.warps.pop(warp := self._get("end__payload"))
            block = self.slots[slot]
            block.running.remove(warp)
            self.ended.append(self.now)
            index, start = self._taken_at.pop(warp)
            self.spans.append(Span(block.task.row, block.at, index, start, self.now))
            if not block.running and not block.waiting:
                del self.slots[slot]
                self._finish = 1 << slot
        self._set("finish", self._finish)
        self._ready("fault")
        self._ready("end")

    def _controller(self) -> None:
        self._set("kernel", self._kernel.popleft() if self._kernel else 0)
        if self._begin is not None and self._sent("begin"):
            self.slots[self._begin[0]].begun = True
            self._begin = None
            self._set("begin__valid", 0)
        if self._start is not None and self._sent("start"):
            self._taken_at[self._start[0]] = (self._start[1], self.now)
            self._start = None
            self._set("start__valid", 0)
        if self._begin is None and not self._kernel:
            self._begin_block()
        if self._start is None:
            self._start_warp()

    def _left(self) -> tuple[int, int]:
        """Free units of registers and of shared memory."""
        registers = CONFIG.register_units - sum(units for _, units in self.warps.values())
        shared = CONFIG.shared_units - sum(one.task.shared for one in self.slots.values())
        return registers, shared

    def _begin_block(self) -> None:
        free = [slot for slot in range(CONFIG.sm_blocks) if slot not in self.slots]
        waiting = [task for task in self.tasks if task.blocks]
        if not free or not waiting:
            return
        task = self.numbers.choice(waiting)
        registers, shared = self._left()
        if any(one.waiting for one in self.slots.values()):
            return
        warps = task.launch.warps
        whole = warps * task.units <= registers and warps + len(self.warps) <= CONFIG.sm_warps
        if task.shared > shared or (task.launch.barrier and not whole):
            return
        slot, at = self.numbers.choice(free), task.blocks.popleft()
        self.slots[slot] = Running(task, at, deque(range(warps)))
        where = at[0] | at[1] << 32 | at[2] << 48
        self._begin = (slot, 0)
        self._set("begin__valid", 1)
        self._set(
            "begin__payload", BEGIN.pack(slot=slot, row=task.row, at=where, shared=task.shared)
        )

    def _start_warp(self) -> None:
        free = [warp for warp in range(CONFIG.sm_warps) if warp not in self.warps]
        registers, _ = self._left()
        for slot, block in self.slots.items():
            if block.begun and block.waiting and free and block.task.units <= registers:
                warp, index = self.numbers.choice(free), block.waiting.popleft()
                block.running.add(warp)
                self.warps[warp] = (slot, block.task.units)
                self._start = (warp, index)
                self._set("start__valid", 1)
                payload = START.pack(
                    warp=warp,
                    slot=slot,
                    row=block.task.row,
                    index=index,
                    registers=block.task.units,
                )
                self._set("start__payload", payload)
                return
