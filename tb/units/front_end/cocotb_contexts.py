"""Contexts: which one is active, and what is bound before."""

from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.front_end.contexts import context_setting
from signalbox.hw.qmd import Placement
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import Policy
from signalbox.hw.records.translation import mmu_command
from signalbox.tb.testbench.memory import Bad, Memory, ReadMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Fields, Sink

CONFIG = CONFIGS["default"]
PHYSICAL = (0, 1)
TIMEOUT = 3000
BIND = 3


class Bench:
    """Testbench with instance blocks, a slow MMU, and a task unit that becomes empty quickly."""

    def __init__(self, dut: Any, slice_cycles: int = 400) -> None:
        self.dut, self.cycle, self.rng = dut, 0, Random(cocotb.RANDOM_SEED)
        rng, self.contents = self.rng, Memory()
        self.spaces: dict[int, dict[int, int]] = {}
        dut.slice.value = slice_cycles
        dut.waiting.value = self.waiting = 0
        dut.empty.value = 1
        dut.mend.value = 0
        dut.mmu__done.value = 0
        self.read = ReadMemory(
            dut, CONFIG, self.contents, lambda: rng.random() < 0.8, lambda: rng.randint(0, 6)
        )
        self.command = Sink(dut, "mmu__command", mmu_command(CONFIG), lambda: rng.random() < 0.5)
        self.bound: dict[int, int] = {}
        self.refuse: set[int] = set()
        self._answer: int | None = None
        self.order: list[int] = []
        """Contexts, in the order in which they become active."""
        self.active = False
        for number in range(CONFIG.contexts):
            self.context(number, {number: 0x100 + number})

    def context(self, number: int, spaces: dict[int, int], placement=Placement.CONTEXT) -> None:
        """Write an instance block with page directory bases >> 12 by ASID."""
        self.spaces[number] = spaces
        instance = 0x7_0000 + number
        setting = {"instance": instance, "placement": placement.value}
        handle = getattr(self.dut, f"settings__{number}")
        handle.value = Fields(context_setting()).pack(setting)
        block = bytearray(4096)
        block[664:672] = sum(1 << asid for asid in spaces).to_bytes(8, "little")
        for asid, base in spaces.items():
            word = base << 12 | 3 << 10
            block[672 + 16 * asid : 680 + 16 * asid] = word.to_bytes(8, "little")
        self.contents.write(PHYSICAL, instance << 12, bytes(block[:4096]))

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        self.read.step(self.cycle)
        got = self.command.step()
        self.dut.mmu__done.value = 0
        if self._answer is not None and self.rng.random() < 0.2:
            self.dut.mmu__done.value = self._answer
            self._answer = None
        if got is not None:
            assert got["operation"] == BIND and self._answer is None
            assert got["limit"] == (1 << 37) - 1
            assert not int(self.dut.active.value), "bound while tasks may run"
            refused = got["asid"] in self.refuse
            self._answer = 1 | refused << 1
            if not refused:
                self.bound[got["asid"]] = got["base"]
        active = bool(int(self.dut.active.value))
        if active and not self.active:
            number = int(self.dut.context.value)
            self.order.append(number)
            assert self._answer is None, "active before the last bind was acknowledged"
            for asid, base in self.spaces[number].items():
                assert self.bound[asid] == base, "active while a space is not bound"
        self.active = active

    def wait_for(self, contexts: set[int]) -> None:
        self.dut.waiting.value = sum(1 << number for number in contexts)

    async def until(self, done, what: str) -> None:
        for _ in range(TIMEOUT):
            if done():
                return
            await self.step()
        raise AssertionError(what)


@cocotb.test()
async def binds_before_it_runs(dut: Any) -> None:
    """Every address space of a context is bound and acknowledged before its tasks run (ASID-21)."""
    bench = Bench(dut)
    spaces = {0: 0xABC_DEF0, 5: 1, 17: 0xFFF_FFFF, 62: 7, 63: 8}
    bench.context(2, spaces)
    await reset(dut)
    for _ in range(50):
        await bench.step()
    assert not bench.active and not bench.bound and int(dut.leave.value)
    bench.wait_for({2})
    await bench.until(lambda: bench.active, "context runs")
    assert bench.bound == spaces and bench.order == [2] and not int(dut.leave.value)


@cocotb.test()
async def takes_turns(dut: Any) -> None:
    """While others wait, each context runs for its slice; one without tasks leaves at once."""
    bench = Bench(dut, slice_cycles=300)
    await reset(dut)
    dut.empty.value = 0
    bench.wait_for({0, 1, 3})
    began = []
    for turn in range(7):
        await bench.until(lambda t=turn: len(bench.order) == t + 1, "next context")
        began.append(bench.cycle)
        await bench.until(lambda: int(dut.leave.value), "slice over")
        ran = bench.cycle - began[-1]
        assert 300 <= ran <= 304, ran
        for _ in range(20):
            await bench.step()
        assert bench.active, "left before its tasks were over"
        dut.empty.value = 1
        await bench.until(lambda: not bench.active, "left")
        dut.empty.value = 0
    assert bench.order == [0, 1, 3, 0, 1, 3, 0]
    await bench.until(lambda: len(bench.order) == 8, "context 1 runs")
    dut.empty.value = 1
    bench.wait_for({3})
    began.append(bench.cycle)
    await bench.until(lambda: len(bench.order) == 9, "context 3 runs")
    assert bench.cycle - began[-1] < 200


@cocotb.test()
async def alone_it_keeps_running(dut: Any) -> None:
    """The end of a slice has no effect while no context waits, and binds are not repeated."""
    bench = Bench(dut, slice_cycles=50)
    await reset(dut)
    bench.wait_for({1})
    await bench.until(lambda: bench.active, "context runs")
    bench.wait_for(set())
    for _ in range(300):
        await bench.step()
    bench.wait_for({1})
    for _ in range(300):
        await bench.step()
        assert bench.active and not int(dut.leave.value)
    assert bench.order == [1]


@cocotb.test()
async def placement(dut: Any) -> None:
    """Placement is deep for several address spaces, else wide, unless set by the context
    (ASID-32)."""
    bench = Bench(dut, slice_cycles=0)
    bench.context(0, {1: 1})
    bench.context(1, {1: 1, 2: 2})
    bench.context(2, {1: 1, 2: 2}, Placement.AFFINITY)
    bench.context(3, {1: 1}, Placement.DEEP)
    await reset(dut)
    expected = [Policy.WIDE, Policy.DEEP, Policy.AFFINITY, Policy.DEEP]
    bench.wait_for({0, 1, 2, 3})
    for turn in range(8):
        await bench.until(lambda t=turn: len(bench.order) == t + 1, "next context")
        assert bench.order[-1] == turn % 4
        assert int(dut.automatic.value) == expected[turn % 4].value


@cocotb.test()
async def broken(dut: Any) -> None:
    """A context that cannot be bound does not run, and does not prevent others from running."""
    bench = Bench(dut, slice_cycles=0)
    block = (0x7_0000 + 1) << 12
    bench.read.bad = [Bad(PHYSICAL, MemoryStatus.BUS.value, range(block, block + 4096), False)]
    bench.context(2, {9: 9, 10: 10})
    bench.refuse = {10}
    await reset(dut)
    bench.wait_for({0, 1, 2, 3})
    await bench.until(lambda: len(bench.order) == 6, "others run")
    assert set(bench.order) == {0, 3} and int(dut.broken.value) == 0b0110
    bench.refuse = set()
    bench.read.bad = []
    dut.mend.value = 0b0110
    await bench.step()
    dut.mend.value = 0
    await bench.until(lambda: {1, 2} <= set(bench.order), "mended ones run")
    assert int(dut.broken.value) == 0
