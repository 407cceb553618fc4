"""Testbench of a core that launches kernels (NEST-10, NEST-12); models the engine."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from signalbox.hw.errors import Refusal
from signalbox.tb.models.isa import Children
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.cocotb_preempt import MOST, Stopping

__all__ = ["CHILDREN", "Key", "LaunchingTestbench"]

Key = tuple[int, tuple[int, int, int]]


def verdict(va: int) -> dict[str, Any]:
    """Answer to the launch of the record at `va`: seven of eight are accepted."""
    page = va >> 8
    if page % 8:
        return {"refusal": Refusal.NONE, "check": 0}
    refused = (Refusal.DEPTH, Refusal.CHECK, Refusal.ROOM, Refusal.CHECK)[page // 8 % 4]
    return {"refusal": refused, "check": 1 + page // 32 % 20 if refused is Refusal.CHECK else 0}


def result(va: int) -> int:
    """The same answer, as the result of `launch`."""
    answer = verdict(va)
    return answer["refusal"].value | answer["check"] << 8


CHILDREN = Children(result, lambda va: (va >> 8) % 4 == 3)


@dataclass
class Child:
    """A child of the block `key`, with its record at `va`. It is complete in cycle `due`; a
    `patient` child, not while its block is being stopped."""

    key: Key
    va: int
    fails: bool
    due: int
    patient: bool


class LaunchingTestbench(Stopping):
    """Answers launches, one at a time, and completes the children.

    Members
    -------
    launched : addresses of the records, by block.
    answers : whether launches are answered; while it is false, one stays in progress.
    holds : whether children stay incomplete.
    latency : maximum cycles until an answer, and until a child is complete.
    children : children that are not complete.
    failed : blocks with a failed child.
    stopped_waiting : blocks that were saved while they had children.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut)
        self.launched: dict[Key, list[int]] = {}
        self.answers, self.holds = True, False
        self.latency = 30, 300
        self.children: list[Child] = []
        self.failed: set[Key] = set()
        self.stopped_waiting = 0
        self._asked: deque[tuple[int, Key, int]] = deque()
        self._answer = Strobe(self, "launched")
        Sink(self, "launch", self.share(0.5), then=self._ask)

    def has_children(self, key: Key) -> bool:
        """Whether the block has children that are not complete."""
        return any(child.key == key for child in self.children)

    def _ask(self, launch: dict[str, int]) -> None:
        slot, va = launch["slot"], launch["page"] << 8
        assert self.slots[slot].task.row == launch["row"], launch
        assert not self._asked, "a launch before the last answer"
        key = self.key(slot)
        self.launched.setdefault(key, []).append(va)
        self._asked.append((self.cycle + 1 + self.random.randrange(self.latency[0]), key, va))

    def _stop_waiting(self) -> None:
        """Stop blocks that have children more often than others."""
        if self.random.random() < 20 * self.rate:
            able = (slot for slot in self.stoppable if self.has_children(self.key(slot)))
            blocks = [slot for slot in able if self.stops[self.key(slot)] < 2 * MOST]
            if blocks:
                self.stop(self.random.choice(blocks))

    async def step(self) -> None:
        self._stop_waiting()
        stopping = {self.key(slot) for slot in self.stopping}
        for child in [*self.children]:
            stays = self.holds or (child.patient and child.key in stopping)
            if stays or child.due > self.cycle:
                continue
            self.children.remove(child)
            if child.fails:
                self.failed.add(child.key)
        if self.answers and self._asked and self._asked[0][0] <= self.cycle:
            self._accept_launch(*self._asked.popleft()[1:])
        keys = {slot: self.key(slot) for slot in self.slots}
        self.drive(
            children=sum(self.has_children(key) << slot for slot, key in keys.items()),
            child_failed=sum((key in self.failed) << slot for slot, key in keys.items()),
        )
        await super().step()

    def _accept_launch(self, key: Key, va: int) -> None:
        slot = next(slot for slot in self.slots if self.key(slot) == key)
        answer = verdict(va)
        self._answer.send(slot=slot, verdict=answer)
        if answer["refusal"] is Refusal.NONE:
            due = self.cycle + self.random.randrange(self.latency[1])
            patient = self.random.random() < 0.5
            self.children.append(Child(key, va, CHILDREN.fails(va), due, patient))

    def _save(self, slot: int) -> None:
        self.stopped_waiting += self.has_children(self.key(slot))
        super()._save(slot)
