"""Shared components: one module each, however many instances, and the same behaviour."""

import gc
import re
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw import export
from hw.lib.shared import Shared
from tb import verilator
from tb.runner import DESIGN, simulate


class Count(wiring.Component):
    """Sums up `step`."""

    def __init__(self) -> None:
        super().__init__({"step": In(4), "sum": Out(8, init=3)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.sum.eq(self.sum + self.step)
        return m


class Row(wiring.Component):
    """Instances of `parts`, all with the step of the one before, the first one with `step`."""

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
    """A shared component inside of a shared one."""

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
    simulate(row, "tb.lib.cocotb_shared", simulator=simulator, name="lib-shared")


def test_apart(tmp_path: Path) -> None:
    """Compiled as simulations of their own they behave the same, one inside another too."""
    outer = Outer()
    row = Row(*(Shared(outer, "outer") for _ in range(3)))
    text = export.verilog(row, DESIGN)
    named = verilator.write_apart(tmp_path, text, DESIGN).read_text()
    assert set(re.findall(r'"(.*)"', named)) == {f"{DESIGN}_outer", f"{DESIGN}_count"}
    options = {"simulator": "verilator", "name": "lib-shared", "apart": True}
    simulate(row, "tb.lib.cocotb_shared", **options)


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
    gc.collect()  # what was begun warns that it was never used
