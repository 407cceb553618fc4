"""Testbench of a core whose blocks are stopped and continue later (PREEMPT-2, PREEMPT-3)."""

from collections import Counter
from typing import Any

from signalbox.tb.models.isa import Memory
from signalbox.tb.units.sm.core_testbench import CONFIG, CoreTestbench, Running

__all__ = ["PAGES", "PreemptingTestbench"]

PAGES = CONFIG.place_bytes // 4096
"""Pages of a place."""

_FIRST = 0x40
"""First page of the first place."""


class PreemptingTestbench(CoreTestbench):
    """Also stops blocks, and begins them again.

    Members
    -------
    state : physical memory with the places.
    places : place of each block that has one, by row and position.
    stopping : slots of blocks being stopped.
    saved : number of blocks saved.
    stops : how often each block was stopped, by row and position.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut)
        self.state = Memory()
        self.places: dict[tuple[int, tuple[int, int, int]], int] = {}
        self.stopping: set[int] = set()
        self._stopped: set[int] = set()
        self.saved = 0
        self.stops: Counter[tuple[int, tuple[int, int, int]]] = Counter()
        self._free = [_FIRST + PAGES * n for n in range(CONFIG.save_places)]
        for page in self._free:
            noise = self.random.randbytes(4096 * PAGES)
            self.state.map(page * 4096, noise)
        self._stop = self.source("stop", self._accept)

    def source(self, name: str, then: Any) -> Any:
        from signalbox.tb.testbench.ends import Source

        return Source(self, name, then=then)

    @property
    def stoppable(self) -> list[int]:
        """Slots of blocks that have begun and can be stopped."""
        return [
            slot
            for slot, block in self.slots.items()
            if block.begun
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

    def key(self, slot: int) -> tuple[int, tuple[int, int, int]]:
        """Identifies the block in a slot."""
        return self._key(self.slots[slot])

    @staticmethod
    def _key(block: Running) -> tuple[int, tuple[int, int, int]]:
        return block.task.row, block.at

    def _accept(self, stop: dict[str, int]) -> None:
        slot = stop["slot"]
        block = self.slots[slot]
        self._stopped.add(slot)
        if not block.task.launch.barrier:
            block.waiting.clear()
        self.check(slot)

    def check(self, slot: int) -> None:
        if slot not in self.stopping or slot in self._stopped:
            super().check(slot)

    def finish(self, slot: int) -> None:
        if slot in self._stopped:
            self._finish |= 1 << slot
        else:
            place = self.places.pop(self._key(self.slots[slot]), None)
            if place is not None:
                self._free.append(place)
            super().finish(slot)

    def beginning(self, block: Running) -> dict[str, Any]:
        place = self.places.get(self._key(block))
        again = {"restores": place is not None, "page": place or 0}
        return super().beginning(block) | again

    def memory(self, request: dict[str, int]) -> Memory:
        return self.state if request["physical"] else super().memory(request)

    async def step(self) -> None:
        await super().step()
        saved = self.get("saved")
        for slot in range(CONFIG.sm_blocks):
            if saved >> slot & 1:
                block = self.slots.pop(slot)
                self._stopped.remove(slot)
                self.stopping.remove(slot)
                self.saved += 1
                block.task.blocks.appendleft(block.at)
