"""Shared components: one module for all instances, and unchanged behaviour."""

import gc
import re

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw import export
from signalbox.hw.lib.shared import Shared
from signalbox.tb.simulation.apart import split
from signalbox.tb.simulation.runner import DESIGN, choose_seed, simulate
from signalbox.tb.units.lib.cocotb_apart import ANSWERS
from signalbox.tb.units.lib.sleepers import Sleepers


class Count(wiring.Component):
    """Accumulates `step`."""

    def __init__(self) -> None:
        super().__init__({"step": In(4), "sum": Out(8, init=3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.sum.eq(self.sum + self.step)
        return m


class Row(wiring.Component):
    """A row of instances. The first takes `step`, each other the sum of the previous one."""

    def __init__(self, *parts: Shared) -> None:
        self._parts = parts
        super().__init__({"step": In(4), "sum": Out(8).array(len(parts))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        step = self.step
        for number, part in enumerate(self._parts):
            m.submodules[f"part_{number}"] = part
            m.d.comb += [part.step.eq(step), self.sum[number].eq(part.sum)]
            step = part.sum[:4]
        return m


class Outer(wiring.Component):
    """A shared component that contains a shared component."""

    def __init__(self) -> None:
        self._inner = Shared(Count(), "count")
        super().__init__({"step": In(4), "sum": Out(8, init=3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = self._inner
        m.d.comb += [self._inner.step.eq(self.step), self.sum.eq(self._inner.sum)]
        return m


@pytest.mark.smoke
def test_behaviour(simulator: str) -> None:
    count = Count()
    row = Row(*(Shared(count, "count") for _ in range(3)))
    simulate(row, "signalbox.tb.units.lib.cocotb_shared", simulator=simulator, name="lib-shared")


def test_apart() -> None:
    """Separately compiled modules behave the same, including nested ones."""
    outer = Outer()
    row = Row(*(Shared(outer, "outer") for _ in range(3)))
    rest, parts = split(export.verilog(row, DESIGN), DESIGN)
    assert {part.name: part.inside for part in parts} == {
        f"{DESIGN}_outer": (f"{DESIGN}_count",),
        f"{DESIGN}_count": (),
    }
    assert re.findall(r"^module (\S+?)\(", rest, re.MULTILINE) == [DESIGN]
    options = {"simulator": "verilator", "name": "lib-shared", "apart": True}
    simulate(row, "signalbox.tb.units.lib.cocotb_shared", **options)


def test_sleep() -> None:
    """Separately compiled modules sleep while nothing can change, with the same outputs in every
    cycle."""
    seed, answers = choose_seed(), []
    for apart in (False, True):
        options = {"simulator": "verilator", "name": "lib-sleepers", "seed": seed, "apart": apart}
        run = simulate(Sleepers(), "signalbox.tb.units.lib.cocotb_apart", **options)
        answers.append((run / ANSWERS).read_text())
    assert answers[0] == answers[1]


def test_one_module() -> None:
    count = Count()
    text = export.verilog(Row(*(Shared(count, "count") for _ in range(5))), "row")
    assert text.count("module row_count(") == 1
    assert text.count("\n  row_count part_") == 5


def test_inside_another() -> None:
    outer = Outer()
    text = export.verilog(Row(Shared(outer, "outer"), Shared(outer, "outer")), "row")
    for module in ("row_outer", "row_count"):
        assert text.count(f"module {module}(") == 1


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_two_of_one_name() -> None:
    with pytest.raises(ValueError, match="two components are shared as module 'count'"):
        export.verilog(Row(Shared(Count(), "count"), Shared(Count(), "count")), "row")
    gc.collect()  # unused components warn when they are collected
