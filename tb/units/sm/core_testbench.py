"""Testbench of a core; models the SM logic controller and the memory."""

import itertools
import json
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

from amaranth.lib import wiring

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.placement import KernelWord, constant_words, kernel_needs, space_word
from signalbox.hw.sm.port import SmPort
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.memory_end import CORE_PORTS, MemoryEnd

__all__ = [
    "AREA",
    "CONFIG",
    "WIDTH",
    "CoreTestbench",
    "Fault",
    "Running",
    "Span",
    "Task",
    "local_part",
]

CONFIG = Config(**json.loads(os.environ.get("CONFIG", "{}")))

WIDTH = CONFIG.beat_bytes

AREA = 0x5_1234_5000
"""Local memory of SM 0."""

_NEEDS, _SPACE = Record(kernel_needs), Record(space_word)


@dataclass(frozen=True)
class Fault:
    """A warp that could not continue. `cause` : number of a `CoreCause`. `index` : number of the
    warp in its block, which is ignored in comparisons."""

    row: int
    cause: int
    at: int
    va: int
    index: int = field(default=0, compare=False)


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
        needs = {
            "barrier": launch.barrier,
            "warps": launch.warps,
            "registers": self.units,
            "shared": self.shared,
        }
        space = {
            "block_registers": min(self.units * launch.warps, 1023),
            "thread_registers": launch.registers,
        }
        buffers = {0: (launch.constants, launch.constant_bytes), **launch.buffers}
        valid = sum(1 << number for number in buffers)
        further = {}
        for number, (va, size) in buffers.items():
            words = va & 0xFFFF_FFFF, va >> 32 | size // 16 << 19
            further |= zip(constant_words(number), words, strict=True)
        return {
            KernelWord.NEEDS: _NEEDS.pack(needs),
            KernelWord.SPACE: _SPACE.pack(space),
            KernelWord.PROGRAM_LOW: launch.program & 0xFFFF_FFFF,
            KernelWord.PROGRAM_HIGH: launch.program >> 32,
            KernelWord.GRID_WIDTH: launch.grid[0],
            KernelWord.GRID_REST: launch.grid[1] | launch.grid[2] << 16,
            KernelWord.BLOCK_XY: x | y << 16,
            KernelWord.BLOCK_Z: z | valid << 16 | (launch.local > 0) << 24,
            **further,
            **self._local(),
        }

    def _local(self) -> dict[KernelWord, int]:
        """Words of the local memory; the area fits exactly."""
        launch = self.launch
        if not launch.local:
            return {}
        return {
            KernelWord.LOCAL_LOW: AREA & 0xFFFF_FFFF,
            KernelWord.LOCAL_HIGH: AREA >> 32 | launch.local // 16 << 17,
            KernelWord.LOCAL_STRIDE: local_part(launch) // 4096,
        }


def local_part(launch: Launch) -> int:
    """Bytes of the local memory of an SM, in whole pages."""
    warps = 1 << (CONFIG.sm_warps - 1).bit_length()
    return -(-launch.local * 32 * warps // 4096) * 4096


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


class CoreTestbench(Testbench):
    """Drives a core, of any kind.

    Members
    -------
    port : its memory, whose pace also applies to faults and ends.
    tasks : tasks whose blocks begin when there is room.
    memories : memory of each row.
    slots, warps : blocks by slot; slot and register units of each running warp.
    number : number of the SM.
    mixes : blocks without a barrier begin while others have warps to start, and their warps start
        in random order of the blocks; otherwise one block after the other.
    faults, spans : faults reported by the core; finished warps.
    report, end : sinks of the faults, and of the ends.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, wiring.Component(SmPort(CONFIG).flip()))
        self.number = self.random.randrange(CONFIG.sms)
        self.memories: dict[int, Memory] = {}
        self.tasks: list[Task] = []
        self.mixes = False
        self.slots: dict[int, Running] = {}
        self.warps: dict[int, tuple[int, int]] = {}
        self.faults: list[Fault] = []
        self.spans: list[Span] = []
        self.port = port = MemoryEnd(self, WIDTH, CORE_PORTS, self.memory)
        self.report = Sink(self, "fault", port.pace, self._report)
        self.end = Sink(self, "end", port.pace, self._end)
        self._kernel = Strobe(self, "kernel")
        self._words: deque[dict[str, int]] = deque()
        self._begin = Source(self, "begin", then=self._begun)
        self._start = Source(self, "start", then=self._started)
        self._starts: dict[int, tuple[int, int]] = {}
        """Index in its block of each running warp, and the cycle of its start."""
        self._finish = 0

    async def start(self) -> Self:
        self.drive(number=self.number)
        await super().start()
        # Wait until the free lists are filled.
        await self.steps(max(CONFIG.register_units, CONFIG.shared_units) + 4)
        return self

    def launch(self, task: Task) -> None:
        """Send the words of a row; its blocks begin when there is room."""
        self.memories[task.row] = task.launch.memory
        self.map_local(task.launch)
        for word, value in task.words().items():
            self._words.append({"row": task.row, "word": word, "data": value})
        self.tasks.append(task)

    def map_local(self, launch: Launch) -> None:
        """Map this SM's part of the launch's local memory, with random contents."""
        if size := local_part(launch):
            launch.memory.map(self.area(launch), self.random.randbytes(size))

    def local_pages(self, launch: Launch) -> range:
        """Numbers of the pages of this SM's part."""
        first = self.area(launch) // Memory.PAGE
        return range(first, first + local_part(launch) // Memory.PAGE)

    def area(self, launch: Launch) -> int:
        """Address of this SM's part of the local memory."""
        return AREA + self.number * local_part(launch)

    async def rest(self, timeout: int = 100_000) -> None:
        """Step until all blocks have ended."""
        await self.until(lambda: not self._busy, "all blocks end", timeout)

    @property
    def _busy(self) -> bool:
        return bool(self.slots or self._words or any(task.blocks for task in self.tasks))

    async def step(self) -> None:
        if self._words:
            self._kernel.send(**self._words.popleft())
        if not (self._begin.pending or self._words):
            self._begin_block()
        if not self._start.pending:
            self._start_warp()
        self.drive(finish=self._finish)
        self._finish = 0
        await super().step()

    def memory(self, request: dict[str, int]) -> Memory:
        """Memory accessed by a request."""
        return self.memories[request["row"]]

    def _report(self, fault: dict[str, Any]) -> None:
        """Check that a warp that faults has not ended. A fault of saved state may belong to a warp
        that is not on the SM."""
        slot, index = fault.pop("slot"), fault["index"]
        if fault["cause"] is not CoreCause.STATE_BUS:
            mine = [warp for warp, (where, _) in self.warps.items() if where == slot]
            begun = {self._starts[warp][0] for warp in mine if warp in self._starts}
            assert index in begun, (slot, index)
            assert self.slots[slot].task.row == fault["row"], slot
        self.faults.append(Fault(**fault | {"cause": fault["cause"].value}))

    def _end(self, warp: int) -> None:
        slot, _ = self.warps.pop(warp)
        block = self.slots[slot]
        block.running.remove(warp)
        index, start = self._starts.pop(warp)
        self.spans.append(Span(block.task.row, block.at, index, start, self.cycle))
        self.check(slot)

    def check(self, slot: int) -> None:
        """Finish the block if all its warps have ended."""
        block = self.slots[slot]
        if not block.running and not block.waiting:
            self.finish(slot)

    def finish(self, slot: int) -> None:
        """All warps of the block have ended."""
        del self.slots[slot]
        self._finish |= 1 << slot

    def _begun(self, block: dict[str, Any]) -> None:
        self.slots[block["slot"]].begun = True

    def _started(self, warp: dict[str, int]) -> None:
        self._starts[warp["warp"]] = warp["index"], self.cycle

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
        task = self.random.choice(waiting)
        registers, shared = self._left()
        if not self.mixes and any(one.waiting for one in self.slots.values()):
            return
        warps = task.launch.warps
        whole = warps * task.units <= registers and warps + len(self.warps) <= CONFIG.sm_warps
        if task.shared > shared or (task.launch.barrier and not whole):
            return
        slot, at = self.random.choice(free), task.blocks.popleft()
        self.slots[slot] = Running(task, at, deque(range(warps)))
        self._begin.put({"slot": slot, **self.beginning(self.slots[slot])})

    def beginning(self, block: Running) -> dict[str, Any]:
        """The block as described to the core."""
        where = dict(zip("xyz", block.at, strict=True))
        return {"row": block.task.row, "at": where, "shared": block.task.shared}

    def _start_warp(self) -> None:
        free = [warp for warp in range(CONFIG.sm_warps) if warp not in self.warps]
        registers, _ = self._left()
        blocks = [*self.slots.items()]
        if self.mixes:
            self.random.shuffle(blocks)
        for slot, block in blocks:
            if block.begun and block.waiting and free and block.task.units <= registers:
                warp, index = self.random.choice(free), block.waiting.popleft()
                block.running.add(warp)
                self.warps[warp] = (slot, block.task.units)
                warp_start = {"warp": warp, "slot": slot, "row": block.task.row, "index": index}
                self._start.put({**warp_start, "registers": block.task.units})
                return
