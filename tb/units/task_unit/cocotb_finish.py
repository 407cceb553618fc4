"""Actions at the end of a task."""

from functools import partial
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.semaphore import SemaphoreError
from signalbox.hw.task_unit.task_end import TaskEnd
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.servers import ReadServer, WriteServer

CONFIG = CONFIGS["default"]
ASID, PAGE, CONTEXT = 5, 0x1234_5678, 2
RELEASE = {
    "address": (0, 40),
    "op": (52, 3),
    "enable": (55, 1),
    "format": (56, 2),
    "reduces": (58, 1),
    "interrupt": (59, 2),
    "wide": (61, 1),
    "size": (62, 2),
    "payload": (64, 64),
}
"""First bit, relative to that of the release, and width (spec page 60, appendix A)."""
FIRST = (768, 896, 1664)
HOST_NUMBER = {0: 5, 1: 0, 2: 1, 3: 6, 4: 7, 5: 3, 6: 4, 7: 2}
"""Encoding of each reduction for the semaphore unit, by its encoding in the QMD (spec 2.1; header
clc6c0qmd.h)."""


def release(which: int, **fields: int) -> int:
    word = 1 << RELEASE["enable"][0]
    for name, value in fields.items():
        low, width = RELEASE[name]
        assert value < 1 << width
        word |= value << low
    return word << FIRST[which]


Events = list[tuple[str, dict[str, Any]]]
"""Transfers on the streams `request` (of the semaphore unit), `act` and `completed`, in order."""


class FinishTestbench(Testbench):
    """The unit with its memory and a semaphore unit that does nothing.

    Members
    -------
    contents, write : memory, and its server of writes.
    refuse : indices of the task's releases that the semaphore unit refuses.
    """

    timeout = 600

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(TaskEnd, CONFIG))
        self.contents = Contents()
        pace, latency = self.share(0.8), self.between(1, 5)
        ReadServer(self, self.contents, pace, latency)
        self.write = WriteServer(self, self.contents, pace, latency)
        self._ended = Source(self, "ended", pace)
        self._response = Source(self, "semaphore__response", pace)
        Sink(self, "semaphore__request", pace, self._answer)
        Sink(self, "act", pace, partial(self._note, "act"))
        Sink(self, "completed", pace, partial(self._note, "completed"))
        self._events: Events = []
        self.refuse: set[int] = set()

    def _note(self, name: str, payload: dict[str, Any]) -> None:
        self._events.append((name, payload))

    def _answer(self, request: dict[str, Any]) -> None:
        bad = [name for name, _ in self._events].count("request") in self.refuse
        self._note("request", request)
        error = SemaphoreError.FAULT if bad else SemaphoreError.NONE
        self._response.put({"passed": not bad, "error": error}, 2)

    async def end(self, word: int, resumed: bool = False) -> Events:
        """End one task. Returns the events."""
        self._events = []
        self.contents.write((ASID, 0), PAGE << 8, word.to_bytes(256, "little"))
        pointer = {"page": PAGE, "asid": ASID, "channel": 6, "depth": 2, "resumed": resumed}
        self._ended.put({"task": pointer, "context": CONTEXT})
        await self.until(lambda: "completed" in dict(self._events), "complete")
        await self.steps(10)
        task = self._events[-1][1]["task"]
        assert {name: task[name] for name in pointer} == pointer
        return self._events


def verdict(events: Events) -> Refusal:
    assert [name for name, _ in events].count("completed") == 1
    given = events[-1][1]["verdict"]
    assert given["check"] is SkedCheck.NONE
    return given["refusal"]


@cocotb.test()
async def nothing_to_do(dut: Any) -> None:
    tb = await FinishTestbench(dut).start()
    events = await tb.end(0)
    assert [name for name, _ in events] == ["completed"] and verdict(events) is Refusal.NONE
    assert not tb.write.bursts


@cocotb.test()
async def releases(dut: Any) -> None:
    """All three releases are executed in order, as in the record, with every reduction
    (HOST-10)."""
    tb = await FinishTestbench(dut).start()
    for op in range(8):
        plain = release(0, address=0xAB_CDEF_0120, payload=7, size=1)
        wide = release(1, address=0x1000, payload=(1 << 64) - 2, wide=1, size=0, interrupt=1)
        reduces = release(2, address=0x2000, payload=op, reduces=1, op=op, format=op & 1, size=1)
        events = await tb.end(plain | wide | reduces)
        assert [name for name, _ in events] == ["request"] * 3 + ["completed"]
        first, second, third = (fields for _, fields in events[:3])
        assert {one["asid"] for one in (first, second, third)} == {ASID}
        assert (first["va"], first["payload"], first["timestamp"]) == (0xAB_CDEF_0120, 7, 0)
        assert (first["operation"], first["wide"]) == (1, 0)
        assert (second["payload"], second["wide"], second["timestamp"]) == ((1 << 64) - 2, 1, 1)
        assert (third["operation"], third["reduction"]) == (6, HOST_NUMBER[op])
        assert third["unsigned"] == 1 - (op & 1)
        assert events[-1][1]["trap"] == 1 and verdict(events) is Refusal.NONE
    for which in range(3):
        events = await tb.end(release(which, address=0x40 << which))
        assert events[0][1]["va"] == 0x40 << which and len(events) == 2
        assert events[-1][1]["trap"] == 0


@cocotb.test()
async def dependent_task(dut: Any) -> None:
    """A dependent task is launched after the releases, with the same address space and channel."""
    tb = await FinishTestbench(dut).start()
    for action in (0, 1, 3, 4):
        word = release(1, address=8, size=1) | 0x8765_4321 << 480 | 1 << 512 | action << 513
        events = await tb.end(word)
        assert [name for name, _ in events] == ["request", "act", "completed"]
        act = events[1][1]
        task = act["task"]
        assert act["action"] == action and task["page"] == 0x8765_4321
        assert (task["asid"], task["channel"], task["depth"]) == (ASID, 6, 2)
        assert not task["resumed"] and act["context"] == CONTEXT


@cocotb.test()
async def resumed_tasks_leave_no_trace(dut: Any) -> None:
    """The resume position is cleared, so that the record can be launched again (ASID-25)."""
    tb = await FinishTestbench(dut).start()
    word = 0xDEAD_BEEF_1234_5678 << 192 | 0x77 << 128 | 0x66 << 256
    for resumed in (False, True):
        events = await tb.end(word, resumed=resumed)
        assert verdict(events) is Refusal.NONE
        left = int.from_bytes(tb.contents.read((ASID, 0), PAGE << 8, 256), "little")
        assert left == (word & ~(((1 << 64) - 1) << 192) if resumed else word)


@cocotb.test()
async def failures(dut: Any) -> None:
    """Failures are reported, and do not prevent the remaining actions."""
    tb = await FinishTestbench(dut).start()
    word = release(0, address=8) | release(2, address=16) | 1 << 512 | 1 << 513
    tb.refuse = {0}
    events = await tb.end(word)
    assert [name for name, _ in events] == ["request", "request", "act", "completed"]
    assert verdict(events) is Refusal.RELEASE
    tb.refuse = set()
    low = PAGE << 8
    for status, refusal in ((MemoryStatus.BUS, Refusal.BUS), (MemoryStatus.FAULT, Refusal.FAULT)):
        tb.contents.failing = [Failing((ASID, 0), range(low, low + 256), status, write=False)]
        events = await tb.end(word)
        assert len(events) == 1 and verdict(events) is refusal
        tb.contents.failing = [Failing((ASID, 0), range(low, low + 256), status, write=True)]
        events = await tb.end(word, resumed=True)
        assert len(events) == 4 and verdict(events) is refusal
    tb.contents.failing = []
    assert verdict(await tb.end(word)) is Refusal.NONE
