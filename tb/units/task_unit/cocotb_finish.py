"""Actions at the end of a task."""

from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.records.launch import Refusal, task_action, task_completed, task_ended
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import task_pointer
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_request, semaphore_response
from signalbox.tb.testbench.memory import Bad, Memory, ReadMemory, WriteMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Fields, Sink, Source

CONFIG = CONFIGS["default"]
ASID, PAGE, CONTEXT = 5, 0x1234_5678, 2
TIMEOUT = 600
POINTER = Fields(task_pointer)
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
"""First bit, relative to the release's, and width (spec page 60, appendix A)."""
FIRST = (768, 896, 1664)
HOST_NUMBER = {0: 5, 1: 0, 2: 1, 3: 6, 4: 7, 5: 3, 6: 4, 7: 2}
"""Reductions: from the QMD's encoding to the semaphore unit's (spec 2.1; header clc6c0qmd.h)."""


def release(which: int, **fields: int) -> int:
    word = 1 << RELEASE["enable"][0]
    for name, value in fields.items():
        low, width = RELEASE[name]
        assert value < 1 << width
        word |= value << low
    return word << FIRST[which]


class Bench:
    def __init__(self, dut: Any) -> None:
        self.dut, self.cycle, self.rng = dut, 0, Random(cocotb.RANDOM_SEED)
        rng, self.contents = self.rng, Memory()

        def pace() -> bool:
            return rng.random() < 0.8

        self.read = ReadMemory(dut, CONFIG, self.contents, pace, lambda: rng.randint(0, 5))
        self.write = WriteMemory(dut, CONFIG, self.contents, pace, lambda: rng.randint(0, 5))
        self.ended = Source(dut, "ended", task_ended(CONFIG), pace)
        dut.ended__payload.value = 0
        self.request = Sink(dut, "semaphore__request", semaphore_request(CONFIG), pace)
        self.response = Source(dut, "semaphore__response", semaphore_response(), pace)
        dut.semaphore__response__payload.value = 0
        self.act = Sink(dut, "act", task_action(CONFIG), pace)
        self.completed = Sink(dut, "completed", task_completed, pace)
        self.events: list[tuple[str, dict[str, int]]] = []
        self.refuse: set[int] = set()
        """Indices of releases that the semaphore unit refuses."""
        self.releases = 0

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        for one in (self.read, self.write, self.ended, self.response):
            one.step(self.cycle)
        for name in ("request", "act", "completed"):
            got = getattr(self, name).step()
            if got is None:
                continue
            self.events.append((name, got))
            if name == "request":
                bad = self.releases in self.refuse
                error = (SemaphoreError.FAULT if bad else SemaphoreError.NONE).value
                self.releases += 1
                self.response.put(
                    self.cycle + 2, lambda e=error: {"passed": int(not e), "error": e}
                )

    async def run(self, word: int, resumed: bool = False) -> list[tuple[str, dict[str, int]]]:
        """End one task. Returns the events."""
        self.events, self.releases = [], 0
        self.contents.write((ASID, 0), PAGE << 8, word.to_bytes(256, "little"))
        pointer = {"page": PAGE, "asid": ASID, "channel": 6, "depth": 2, "resumed": resumed}
        self.ended.put(0, lambda: {"task": POINTER.pack(pointer), "context": CONTEXT})
        for _ in range(TIMEOUT):
            await self.step()
            if self.events and self.events[-1][0] == "completed":
                for _ in range(10):
                    await self.step()
                task = POINTER.unpack(self.events[-1][1]["task"])
                assert {name: task[name] for name in pointer} == pointer
                return self.events
        raise AssertionError("not complete")


def verdict(events: list[tuple[str, dict[str, int]]]) -> int:
    assert [name for name, _ in events].count("completed") == 1
    return events[-1][1]["verdict"]


@cocotb.test()
async def nothing_to_do(dut: Any) -> None:
    bench = Bench(dut)
    await reset(dut)
    events = await bench.run(0)
    assert [name for name, _ in events] == ["completed"] and verdict(events) == 0
    assert not bench.write.log


@cocotb.test()
async def releases(dut: Any) -> None:
    """All three releases are executed in order, as in the record, with every reduction
    (HOST-10)."""
    bench = Bench(dut)
    await reset(dut)
    for op in range(8):
        plain = release(0, address=0xAB_CDEF_0120, payload=7, size=1)
        wide = release(1, address=0x1000, payload=(1 << 64) - 2, wide=1, size=0, interrupt=1)
        reduces = release(2, address=0x2000, payload=op, reduces=1, op=op, format=op & 1, size=1)
        events = await bench.run(plain | wide | reduces)
        assert [name for name, _ in events] == ["request"] * 3 + ["completed"]
        first, second, third = (fields for _, fields in events[:3])
        assert {one["asid"] for one in (first, second, third)} == {ASID}
        assert (first["va"], first["payload"], first["timestamp"]) == (0xAB_CDEF_0120, 7, 0)
        assert (first["operation"], first["wide"]) == (1, 0)
        assert (second["payload"], second["wide"], second["timestamp"]) == ((1 << 64) - 2, 1, 1)
        assert (third["operation"], third["reduction"]) == (6, HOST_NUMBER[op])
        assert third["unsigned"] == 1 - (op & 1)
        assert events[-1][1]["trap"] == 1 and verdict(events) == 0
    for which in range(3):
        events = await bench.run(release(which, address=0x40 << which))
        assert events[0][1]["va"] == 0x40 << which and len(events) == 2
        assert events[-1][1]["trap"] == 0


@cocotb.test()
async def dependent_task(dut: Any) -> None:
    """A dependent task is launched after the releases, with the same address space and channel."""
    bench = Bench(dut)
    await reset(dut)
    for action in (0, 1, 3, 4):
        word = release(1, address=8, size=1) | 0x8765_4321 << 480 | 1 << 512 | action << 513
        events = await bench.run(word)
        assert [name for name, _ in events] == ["request", "act", "completed"]
        act = events[1][1]
        task = POINTER.unpack(act["task"])
        assert act["action"] == action and task["page"] == 0x8765_4321
        assert (task["asid"], task["channel"], task["depth"]) == (ASID, 6, 2)
        assert not task["resumed"] and act["context"] == CONTEXT


@cocotb.test()
async def resumed_tasks_leave_no_trace(dut: Any) -> None:
    """The resume position is cleared, so that the record can be launched again (ASID-25)."""
    bench = Bench(dut)
    await reset(dut)
    word = 0xDEAD_BEEF_1234_5678 << 192 | 0x77 << 128 | 0x66 << 256
    for resumed in (False, True):
        events = await bench.run(word, resumed=resumed)
        assert verdict(events) == 0
        left = int.from_bytes(bench.contents.read((ASID, 0), PAGE << 8, 256), "little")
        assert left == (word & ~(((1 << 64) - 1) << 192) if resumed else word)


@cocotb.test()
async def failures(dut: Any) -> None:
    """Failures are reported, and do not prevent the remaining actions."""
    bench = Bench(dut)
    await reset(dut)
    word = release(0, address=8) | release(2, address=16) | 1 << 512 | 1 << 513
    bench.refuse = {0}
    events = await bench.run(word)
    assert [name for name, _ in events] == ["request", "request", "act", "completed"]
    assert verdict(events) == Refusal.RELEASE.value
    bench.refuse = set()
    low = PAGE << 8
    for status, refusal in ((MemoryStatus.BUS, Refusal.BUS), (MemoryStatus.FAULT, Refusal.FAULT)):
        bench.read.bad = [Bad((ASID, 0), status.value, range(low, low + 256), False)]
        events = await bench.run(word)
        assert len(events) == 1 and verdict(events) == refusal.value
        bench.read.bad = []
        bench.write.bad = [Bad((ASID, 0), status.value, range(low, low + 256), True)]
        events = await bench.run(word, resumed=True)
        assert len(events) == 4 and verdict(events) == refusal.value
        bench.write.bad = []
    assert verdict(await bench.run(word)) == 0
