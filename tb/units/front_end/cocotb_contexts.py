"""Contexts: choice of the active context, and its binds."""

from typing import Any

import cocotb

from signalbox.hw.front_end.contexts import hold_bits
from signalbox.hw.qmd import Placement
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import Policy
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.units.front_end.contexts_testbench import (
    ALL,
    CONFIG,
    PHYSICAL,
    ContextsTestbench,
)


@cocotb.test()
async def binds_before_it_runs(dut: Any) -> None:
    """Every address space of a context is bound and acknowledged before its tasks run (ASID-21)."""
    tb = ContextsTestbench(dut)
    spaces = {0: 0xABC_DEF0, 5: 1, 17: 0xFFF_FFFF, 62: 7, 63: 8}
    tb.context(2, spaces)
    await tb.start()
    await tb.steps(50)
    assert not tb.active and not tb.bound and tb.get("leave")
    tb.wait_for({2})
    await tb.until(lambda: tb.active, "context runs")
    assert tb.bound == {asid: (base, ALL) for asid, base in spaces.items()}
    assert tb.order == [2] and not tb.get("leave")


@cocotb.test()
async def limits(dut: Any) -> None:
    """A space is bound with the last page given by its instance block, if any. A value beyond the
    last virtual address is no limit (ASID-5)."""
    tb = ContextsTestbench(dut)
    tb.limits = {asid: tb.random.getrandbits(tb.random.randint(1, 49)) for asid in range(0, 59, 2)}
    tb.limits |= {59: 0, 60: 1, 61: ALL + 1, 62: 0xFFF, 63: (1 << 41) - 1}
    tb.context(1, dict.fromkeys(range(64), 3))
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.active, "context runs", 10_000)
    for asid in range(64):
        given = tb.limits.get(asid, ALL)
        assert tb.bound[asid] == (3, given | 0xFFF if given <= ALL else ALL), asid


@cocotb.test()
async def takes_turns(dut: Any) -> None:
    """While others wait, each context runs for its slice; a context without tasks leaves at
    once."""
    tb = await ContextsTestbench(dut, slice_cycles=300).start()
    tb.drive(empty=0)
    tb.wait_for({0, 1, 3})
    began = []
    for turn in range(7):
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        began.append(tb.cycle)
        await tb.until(lambda: tb.get("leave"), "slice over")
        ran = tb.cycle - began[-1]
        assert 300 <= ran <= 304, ran
        await tb.steps(20)
        assert tb.active, "left before its tasks were over"
        tb.drive(empty=1)
        await tb.until(lambda: not tb.active, "left")
        tb.drive(empty=0)
    assert tb.order == [0, 1, 3, 0, 1, 3, 0]
    await tb.until(lambda: len(tb.order) == 8, "context 1 runs")
    tb.drive(empty=1)
    tb.wait_for({3})
    began.append(tb.cycle)
    await tb.until(lambda: len(tb.order) == 9, "context 3 runs")
    assert tb.cycle - began[-1] < 200


@cocotb.test()
@cocotb.parametrize(slice_cycles=[0, 100, (1 << hold_bits(CONFIG)) + 100])
async def slice_of_execution(dut: Any, slice_cycles: int) -> None:
    """The slice begins with the first block of the turn, and does not count cycles in which blocks
    are restored. A slice of 0 counts as 1."""
    tb = await ContextsTestbench(dut, slice_cycles).start()
    tb.drive(empty=0, placed=0)
    tb.wait_for({0, 1})
    await tb.until(lambda: tb.active, "context runs")
    await tb.steps(300)
    tb.drive(placed=1, restoring=1)
    await tb.step()
    tb.drive(placed=0)
    await tb.steps(300)
    counted = max(slice_cycles, 1)
    if slice_cycles:
        tb.drive(restoring=0)
        await tb.steps(slice_cycles - 60)
        tb.drive(restoring=1)
        await tb.steps(300)
        counted = 60
    assert not tb.get("leave")
    tb.drive(restoring=0)
    began = tb.cycle
    await tb.until(lambda: tb.get("leave"), "slice over")
    assert counted <= tb.cycle - began <= counted + 4


@cocotb.test()
@cocotb.parametrize(placed=[0, 1])
async def limited_hold(dut: Any, placed: int) -> None:
    """A turn ends, although no block is placed or blocks are restored without end."""
    tb = await ContextsTestbench(dut, slice_cycles=50).start()
    tb.drive(empty=0, placed=placed, restoring=placed)
    tb.wait_for({0, 1})
    for turn in range(2):
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "context runs")
        began = tb.cycle
        most = (1 << hold_bits(CONFIG)) + 50
        await tb.until(lambda: tb.get("leave"), "slice over", 2 * most)
        assert most <= tb.cycle - began <= most + 8
        tb.drive(empty=1)
        await tb.until(lambda: not tb.active, "left")
        tb.drive(empty=0)


@cocotb.test()
async def overdue(dut: Any) -> None:
    """A context whose blocks have not ended `timeout` cycles after its slice is overdue until it
    has left; with a time-out of 0, no context is (PREEMPT-1)."""
    tb = await ContextsTestbench(dut, slice_cycles=30).start()
    tb.wait_for({0, 1})
    for turn, limit in enumerate((1, 2, 100, 300, 0, 50)):
        tb.drive(timeout=limit, empty=0)
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        await tb.until(lambda: tb.get("leave"), "slice over")
        began = tb.cycle
        for _ in range(400):
            late = tb.cycle - began
            assert tb.get("overdue") == (limit > 0 and late >= limit), (limit, late)
            await tb.step()
        tb.drive(empty=1)
        await tb.until(lambda: not tb.active, "left")
        await tb.step()
        assert not tb.get("overdue")
    tb.drive(timeout=20, empty=1)
    for turn in range(7, 10):
        await tb.until(lambda t=turn: len(tb.order) == t, "next context")
        assert not tb.get("overdue"), "it left in time"


@cocotb.test()
async def alone_it_keeps_running(dut: Any) -> None:
    """The end of a slice has no effect while no context waits, and binds are not repeated."""
    tb = await ContextsTestbench(dut, slice_cycles=50).start()
    tb.wait_for({1})
    await tb.until(lambda: tb.active, "context runs")
    tb.wait_for(set())
    await tb.steps(300)
    tb.wait_for({1})
    for _ in range(300):
        await tb.step()
        assert tb.active and not tb.get("leave")
    assert tb.order == [1]


@cocotb.test()
async def placement(dut: Any) -> None:
    """Placement is deep for several address spaces, else wide, unless set by the context
    (ASID-32)."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    tb.context(0, {1: 1})
    tb.context(1, {1: 1, 2: 2})
    tb.context(2, {1: 1, 2: 2}, Placement.AFFINITY)
    tb.context(3, {1: 1}, Placement.DEEP)
    await tb.start()
    expected = [Policy.WIDE, Policy.DEEP, Policy.AFFINITY, Policy.DEEP]
    tb.wait_for({0, 1, 2, 3})
    for turn in range(8):
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        assert tb.order[-1] == turn % 4
        assert tb.get("automatic") is expected[turn % 4]


@cocotb.test()
async def broken(dut: Any) -> None:
    """A context that cannot be bound, as its block, its mask of limits or one of its spaces fails,
    does not run, and does not prevent others from running."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    block, limited = (0x7_0000 + 1) << 12, (0x7_0000 << 12) + 1696
    tb.contents.failing = [
        Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)
        for place in (range(block, block + 4096), range(limited, limited + 8))
    ]
    tb.context(2, {9: 9, 10: 10})
    tb.refuse = {10}
    await tb.start()
    tb.wait_for({0, 1, 2, 3})
    await tb.until(lambda: tb.get("broken") == 0b0111, "all broken ones are known")
    await tb.until(lambda: tb.active, "the other runs")
    assert set(tb.order) == {3}
    tb.refuse = set()
    tb.contents.failing = []
    tb.drive(mend=0b0111)
    await tb.step()
    tb.drive(mend=0)
    await tb.until(lambda: {0, 1, 2} <= set(tb.order), "mended ones run")
    assert tb.get("broken") == 0


@cocotb.test()
async def stays_broken(dut: Any) -> None:
    """A broken context is not tried again before it is mended, even if no other has tasks and its
    block could be read again at once."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    block = (0x7_0000 + 1) << 12
    place = range(block, block + 4096)
    tb.contents.failing = [Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)]
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.get("broken") == 0b10, "it is broken")
    tb.contents.failing = []
    for _ in range(200):
        assert not tb.active and not tb.get("read__request__valid")
        await tb.step()
    tb.drive(mend=0b10)
    await tb.step()
    tb.drive(mend=0)
    await tb.until(lambda: tb.active, "it runs")
    assert tb.get("broken") == 0


@cocotb.test()
@cocotb.parametrize(fails=["base", "limit", "bind"])
async def broken_while_binding(dut: Any, fails: str) -> None:
    """If a space cannot be read while the previous one is being bound, or cannot be bound while the
    next one is read, the context is given up once no bind is in progress, and binds no further
    spaces."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    tb.takes = tb.between(1, 100)
    tb.limits = {5: 0xFFF}
    tb.context(0, {3: 3, 5: 5, 6: 6, 7: 7})
    block = 0x7_0000 << 12
    places = {"base": block + 672 + 16 * 5, "limit": block + 1704 + 8 * 5}
    if fails == "bind":
        tb.refuse = {5}
    else:
        place = range(places[fails], places[fails] + 8)
        tb.contents.failing = [Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)]
    await tb.start()
    tb.wait_for({0, 1})
    await tb.until(lambda: tb.get("broken") == 0b01 and tb.active, "the other runs")
    assert tb.order == [1] and set(tb.bound) == {3, 1}


@cocotb.test()
async def reads_while_binding(dut: Any) -> None:
    """The next space is read while one is being bound, so binds follow each other at once."""
    tb = ContextsTestbench(dut)
    tb.takes = lambda: 100
    count = 20
    tb.context(1, {asid: asid for asid in range(count)})
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.bound, "the first bind")
    began = tb.cycle
    await tb.until(lambda: tb.active, "context runs")
    assert tb.cycle - began < count * (100 + 10)
