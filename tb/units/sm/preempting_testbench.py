"""Testbench of a core whose blocks are stopped and continue later (PREEMPT-2, PREEMPT-3)."""

from collections import Counter
from typing import Any

from signalbox.hw.config import SHARED_UNIT, STATE_LINE
from signalbox.tb.models.isa import Memory
from signalbox.tb.testbench.ends import Source
from signalbox.tb.units.sm.core_testbench import CONFIG, CoreTestbench, Running

__all__ = ["PAGES", "PreemptingTestbench", "StateMemory"]

PAGES = CONFIG.place_bytes // 4096
"""Pages of a place."""

_FIRST = 0x40
"""First page of the first place."""


class StateMemory(Memory):
    """Memory in which accesses to `bad_lines`, numbers of lines of 128 bytes, are bus errors."""

    def __init__(self) -> None:
        super().__init__()
        self.bad_lines: set[int] = set()

    def status(self, va: int) -> int:
        return 1 if va // STATE_LINE in self.bad_lines else super().status(va)


class PreemptingTestbench(CoreTestbench):
    """Also stops blocks, and begins them again.

    Members
    -------
    state : physical memory with the places.
    places : first page of each block's place, by row and position of the block.
    stopping : slots of blocks being stopped.
    saved : number of blocks saved.
    stops : number of stops of each block, by row and position.
    waits : for each save, the cycles in which the stop was accepted and the block was saved.
    most : maximum number of warps that run at the same time.
    killed : killed rows.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut)
        self.state = StateMemory()
        self.places: dict[tuple[int, tuple[int, int, int]], int] = {}
        self.stopping: set[int] = set()
        self.saved = 0
        self.stops: Counter[tuple[int, tuple[int, int, int]]] = Counter()
        self.waits: list[tuple[int, int]] = []
        self.most = CONFIG.sm_warps
        self.killed: set[int] = set()
        self._stopped: dict[int, int] = {}
        """Cycle in which the stop was accepted, by slot."""
        self._free = [_FIRST + PAGES * n for n in range(CONFIG.save_places)]
        for page in self._free:
            noise = self.random.randbytes(4096 * PAGES)
            self.state.map(page * 4096, noise)
        self._stop = Source(self, "stop", then=self._accept)

    @property
    def stoppable(self) -> list[int]:
        """Slots of blocks that have started a warp and can be stopped."""
        return [
            slot
            for slot, block in self.slots.items()
            if len(block.waiting) < block.task.launch.warps
            and slot not in self.stopping
            and (self._key(block) in self.places or self._free)
        ]

    def stop(self, slot: int) -> None:
        """Stop a block."""
        key = self.key(slot)
        self.stops[key] += 1
        if key not in self.places:
            self.places[key] = self._free.pop()
        self.stopping.add(slot)
        self._stop.put({"slot": slot, "page": self.places[key]})

    @property
    def next_place(self) -> int:
        """First page of the place that the next block gets."""
        return self._free[-1]

    def kill(self, row: int) -> None:
        """Kill a row; its blocks outside of the core are gone. A block without a barrier starts no
        further warps except its first one."""
        self.killed.add(row)
        self._drive_kill()
        self.tasks = [task for task in self.tasks if task.row != row]
        there = {slot: block for slot, block in self.slots.items() if block.task.row == row}
        for key in [key for key in self.places if key[0] == row]:
            if key not in map(self._key, there.values()):
                self._free.append(self.places.pop(key))
        for slot, block in there.items():
            if not block.task.launch.barrier and block.waiting:
                while len(block.waiting) > (not block.running and not block.waiting[0]):
                    block.waiting.pop()
                self.check(slot)

    def revive(self) -> None:
        """End all kills."""
        self.killed.clear()
        self._drive_kill()

    def _drive_kill(self) -> None:
        self.drive(kill=sum(1 << row for row in self.killed))

    def key(self, slot: int) -> tuple[int, tuple[int, int, int]]:
        """Identifies the block in a slot."""
        return self._key(self.slots[slot])

    @staticmethod
    def _key(block: Running) -> tuple[int, tuple[int, int, int]]:
        return block.task.row, block.at

    def _accept(self, stop: dict[str, int]) -> None:
        slot = stop["slot"]
        block = self.slots[slot]
        self._stopped[slot] = self.cycle
        if not block.task.launch.barrier:
            block.waiting.clear()
        self.check(slot)

    def check(self, slot: int) -> None:
        if slot not in self.stopping or slot in self._stopped:
            super().check(slot)

    def _end(self, warp: int) -> None:
        slot, _ = self.warps[warp]
        if slot in self._stopped and self.slots[slot].task.row not in self.killed:
            self._check_written(self.slots[slot], self._starts[warp][0])
        super()._end(warp)

    def _check_written(self, block: Running, index: int) -> None:
        """Check that a saved warp ends only when its state is in memory."""
        launch, page = block.task.launch, self.places[self._key(block)]
        size = 1 + -(-launch.registers // 4) * 4
        shared = -(-launch.shared // SHARED_UNIT) * SHARED_UNIT // STATE_LINE
        first = page * 4096 // STATE_LINE + 1 + shared + index * size
        under_way = {va // STATE_LINE for va in self.port.writing}
        assert under_way.isdisjoint(range(first, first + size)), (block.at, index)

    def finish(self, slot: int) -> None:
        if slot in self._stopped:
            self._finish |= 1 << slot
        else:
            self._leave_place(self._key(self.slots[slot]))
            super().finish(slot)

    def _leave_place(self, key: tuple[int, tuple[int, int, int]]) -> None:
        place = self.places.pop(key, None)
        if place is not None:
            self._free.append(place)

    def beginning(self, block: Running) -> dict[str, Any]:
        place = self.places.get(self._key(block))
        again = {"restores": place is not None, "page": place or 0}
        return super().beginning(block) | again

    def memory(self, request: dict[str, int]) -> Memory:
        return self.state if request["physical"] else super().memory(request)

    def _start_warp(self) -> None:
        if len(self.warps) < self.most:
            super()._start_warp()

    async def step(self) -> None:
        await super().step()
        saved = self.get("saved")
        for slot in range(CONFIG.sm_blocks):
            if saved >> slot & 1:
                self._save(slot)

    def _save(self, slot: int) -> None:
        """The block's state is in memory."""
        block = self.slots.pop(slot)
        self.waits.append((self._stopped.pop(slot), self.cycle))
        self.stopping.remove(slot)
        self.saved += 1
        if block.task.row in self.killed:
            self._leave_place(self._key(block))
        else:
            block.task.blocks.appendleft(block.at)
