"""Exported Verilog is reused for the same design and for no other."""

import importlib
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw import export
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.tb.simulation import exports


class Adder(wiring.Component):
    """Adds a constant known only to `_amount`."""

    value: In(8)
    sum: Out(8)

    def __init__(self, amount: object) -> None:
        self._amount = amount
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        amount = self._amount() if callable(self._amount) else self._amount
        m.d.comb += self.sum.eq(self.value + amount)
        return m


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[wiring.Component]:
    """The designs that have been exported."""
    made: list[wiring.Component] = []
    whole = export.verilog

    def verilog(design: wiring.Component, name: str) -> str:
        made.append(design)
        return whole(design, name)

    monkeypatch.setattr(export, "verilog", verilog)
    return made


def test_once(exported: list, tmp_path: Path) -> None:
    first, again = (exports.verilog(Adder(3), "dut", tmp_path) for _ in range(2))
    assert first == again and len(exported) == 1


def test_any_difference(exported: list, tmp_path: Path) -> None:
    """Designs with a different private attribute or a different name are exported separately."""
    designs = [(Adder(3), "dut"), (Adder(4), "dut"), (Adder(3), "other")]
    texts = [exports.verilog(design, name, tmp_path) for design, name in designs]
    assert len(set(texts)) == len(exported) == 3


@pytest.mark.parametrize(("folder", "kinds"), [("_HW", [Adder, RoundRobin]), ("_TB", [Adder])])
def test_other_sources(
    folder: str, kinds: list, exported: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A design of `hw` is exported again only after changes of `hw`; a design of `tb`, after
    changes of either."""
    source = tmp_path / "sources" / "a.py"
    source.parent.mkdir()
    monkeypatch.setattr(exports, folder, source.parent)
    for text in ("a = 1", "a = 2"):
        exports._sources.cache_clear()
        source.write_text(text)
        exported.clear()
        for design in (Adder(3), RoundRobin(5)):
            exports.verilog(design, "dut", tmp_path)
    exports._sources.cache_clear()
    assert [type(one) for one in exported] == kinds


def test_unknown(exported: list, tmp_path: Path) -> None:
    """A design that cannot be pickled is not cached."""
    for amount in (1, 2):
        assert exports.verilog(Adder(lambda amount=amount: amount), "dut", tmp_path)
    assert len(exported) == 2 and not list(tmp_path.iterdir())


def test_part_from_elsewhere(
    exported: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A design with a part from outside the project is exported each time."""
    (tmp_path / "somebodys.py").write_text("def amount():\n    return 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    somebodys = importlib.import_module("somebodys")
    for _ in range(2):
        exports.verilog(Adder(somebodys.amount), "dut", tmp_path / "texts")
    assert len(exported) == 2 and not (tmp_path / "texts").exists()


def test_key() -> None:
    """The key depends on the parameters of a design, not on when or where it was created."""
    arbiters = [RoundRobin(5), RoundRobin(6), RoundRobin(5)]
    again, _, first = (exports._key(one, "dut", noisy=True) for one in reversed(arbiters))
    other = exports._key(RoundRobin(5, first=2), "dut", noisy=True)
    assert first == again and None not in {first, other} and first != other
