"""Mutants are found and can be activated individually, and nothing else changes."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from signalbox.tb.tools.mutation import __main__, fates, run, switch
from signalbox.tb.tools.mutation.sites import changed, mutants

PYTHON = '''"""A module."""

LIMIT = 3


def f(a: int | None, b=1 + 1):
    """A function."""
    if not a or b == 4:
        raise ValueError(f"{a + b}")
    if b:
        return a - 1
    return 2
'''

HARDWARE = '''"""Counts."""

from amaranth.hdl import Mux


def build(m, enable, kind, count, some, second):
    with m.If(enable & (kind != 2)):
        m.d.sync += [count.eq(Mux(kind[0], count + 1, count - 1))]
    m.d.comb += some.eq(count.any())
    with m.FSM():
        with m.State("A"):
            m.next = "B"
        with m.State("B"):
            m.d.comb += second.eq(1)
'''


ELABORATED = '''"""Counts."""

from amaranth.hdl import Cat, Const, Signal, unsigned
from amaranth.lib import data

ROW_BITS = 2


class Pair(data.Struct):
    low: unsigned(2)
    high: 1
    other: data.ArrayLayout(1, 1)


def build(m, enable, kind, count, some, second):
    pair = Signal(Pair)
    first, turn, row = Signal(2), Signal(range(4), init=1), Signal(ROW_BITS)
    for one in (first, turn, row, pair.as_value()):
        m.d.sync += one.eq(one.as_unsigned() + 1)
    m.d.comb += count.eq(Cat(Const(1, 1), turn ^ row) ^ first)
    with m.Switch(kind):
        with m.Case(0, 3):
            m.d.comb += some.eq(first == 0)
        with m.Case(2):
            m.d.comb += some.eq(row == 1)
        with m.Default():
            m.d.comb += some.eq(pair.low.all())
    with m.FSM():
        with m.State("A"):
            m.next = "B"
        with m.State("B"):
            m.d.comb += second.eq(pair.high == 1)
            m.next = "C"
        with m.State("C"):
            m.next = "A"
'''


def test_what_is_found() -> None:
    """Annotations, defaults, strings and code outside functions have no mutants."""
    assert [(one.line, one.change) for one in mutants("f.py", PYTHON)] == [
        (8, "not negated"),
        (8, "Eq to NotEq"),
        (8, "constant plus 1"),
        (8, "or to and"),
        (11, "Sub to Add"),
        (11, "constant plus 1"),
        (10, "negated"),
        (12, "2 to 3"),
    ]


def test_what_is_found_in_hardware() -> None:
    assert [(one.line, one.change) for one in mutants("f.py", HARDWARE)] == [
        (7, "NotEq to Eq"),
        (7, "constant plus 1"),
        (7, "BitAnd to BitOr"),
        (7, "never"),
        (7, "always"),
        (8, "Add to Sub"),
        (8, "constant plus 1"),
        (8, "Sub to Add"),
        (8, "constant plus 1"),
        (8, "first arm"),
        (8, "second arm"),
        (8, "assignment dropped"),
        (9, "any to all"),
        (9, "assignment dropped"),
        (12, "next state dropped"),
        (14, "1 to 0"),
        (14, "assignment dropped"),
    ]


def test_zeros_are_not_dropped() -> None:
    """What is not assigned is 0 if it is combinational, and keeps its value if it is registered."""
    source = "def build(m, some):\n    m.d.comb += some.eq(0)\n    m.d.sync += some.eq(0)\n"
    assert [(one.line, one.change) for one in mutants("f.py", source)] == [
        (2, "0 to 1"),
        (3, "0 to 1"),
        (3, "assignment dropped"),
    ]


def test_one_alone_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python, each mutant changes the result, and without an active one it is the original's."""
    count = len(mutants("f.py", PYTHON))
    f = _loaded(tmp_path, PYTHON, count)["f"]

    def results() -> list[object]:
        return [_result(f, a, b) for a in (0, 5) for b in (0, 1, 4, 5)]

    original: dict[str, Any] = {}
    exec(PYTHON, original)
    expected = [_result(original["f"], a, b) for a in (0, 5) for b in (0, 1, 4, 5)]
    assert results() == expected
    for number in range(1, count + 1):
        monkeypatch.setattr(switch, "ALIVE", number)
        assert results() != expected, mutants("f.py", PYTHON)[number - 1]


def test_a_switch_in_hardware(tmp_path: Path) -> None:
    """In hardware, one design contains all mutants; 0 selects the original."""
    count = len(mutants("f.py", HARDWARE))
    original: dict[str, Any] = {}
    exec(HARDWARE, original)
    expected = _simulated(original["build"], 0)
    build = _loaded(tmp_path, HARDWARE, count)["build"]
    assert _simulated(build, 0) == expected
    alike = [n for n in range(1, count + 1) if _simulated(build, n) == expected]
    assert alike == [], [mutants("f.py", HARDWARE)[n - 1].change for n in alike]


def test_what_is_found_in_elaboration() -> None:
    """Widths by number, by name and by range, patterns and next states; no other shapes."""
    found = [(one.line, one.change) for one in mutants("f.py", ELABORATED)]
    assert [
        one for one in found if one[0] < 19 or "pattern" in one[1] or one[1][1:5] == " to "
    ] == [
        *((10, "2 to 1"), (10, "2 to 3"), (11, "1 to 0"), (11, "1 to 2")),
        *((17, "2 to 1"), (17, "2 to 3"), (17, "1 to 2")),
        *((17, "one bit fewer"), (17, "one bit more")) * 2,
        *((20, "1 to 0"), (20, "1 to 2")),
        *((22, "pattern 1 dropped"), (22, "pattern 2 dropped"), (24, "pattern 1 dropped")),
        *((30, "B to C"), (33, "C to A"), (35, "A to B")),
    ]


def test_elaborated_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mutant changes the design, in its elaboration or by its number."""
    found = mutants("f.py", ELABORATED)
    original: dict[str, Any] = {}
    exec(ELABORATED, original)
    expected = _simulated(original["build"], 0)
    alike = []
    for number in range(len(found) + 1):
        monkeypatch.setattr(switch, "ALIVE", number)
        build = _loaded(tmp_path, ELABORATED, len(found))["build"]
        if _simulated(build, number) == expected:
            alike.append(number)
    assert alike == [0], [found[n - 1] for n in alike[1:]]


@pytest.mark.nightly
def test_plugin(tmp_path: Path) -> None:
    """In one build, tests pass without the mutant and fail with it."""
    active = tmp_path / "active.json"
    active.write_text(json.dumps({"hw/lib/stream.py": {"0": 1}}))
    chosen = ["tb/units/lib/test_lib.py", "-k", "stream and verilator"]
    options = [
        "-q",
        "-n",
        "0",
        "-p",
        "signalbox.tb.tools.mutation.plugin",
        "-p",
        "no:cacheprovider",
    ]
    for alive in (0, 1):
        env = {**os.environ, "SIGNALBOX_MUTANTS": str(active), "SIGNALBOX_MUTANT": str(alive)}
        command = [sys.executable, "-m", "pytest", *chosen, *options]
        done = subprocess.run(command, env=env, cwd=run.ROOT, capture_output=True, text=True)
        assert done.returncode == alive, done.stdout


def test_units() -> None:
    assert run.unit_of("hw/host/scheduling/parking.py").tests == (
        "tb/units/host",
        "tb/machine/test_host.py",
        "tb/machine/test_compute.py",
    )
    assert run.unit_of("hw/qmd.py").sources == "hw/"
    with pytest.raises(ValueError, match=r"tb/tools/plan.py belongs to no unit"):
        run.unit_of("tb/tools/plan.py")
    for unit in run.units():
        assert (run.ROOT / unit.sources).is_dir()
        assert all((run.ROOT / test).exists() for test in unit.tests), unit


def test_units_of_the_server() -> None:
    """Mutants of the server run all its tests on the fake machine, except the long ones."""
    fast = {*run.ROOT.glob("tb/driver/server/test_*.py")} - {
        run.ROOT / f"tb/driver/server/test_{name}.py" for name in ("rtl", "soak")
    }
    assert fast == {run.ROOT / test for test in run.unit_of("driver/server/server.py").tests}


def test_explanations_are_of_mutants() -> None:
    """Each explanation still matches a mutant."""
    read = run.explanations()
    known = {
        (m.file, m.text, m.change) for file in {key[0] for key in read} for m in run.find([file])
    }
    assert read.keys() <= known


def test_paths() -> None:
    found = run.find(["hw/copy/realign.py", "driver/raw/submission.py"])
    assert {one.file for one in found} == {"hw/copy/realign.py", "driver/raw/submission.py"}
    line = found[0].line
    of_line = run.find([f"hw/copy/realign.py:{line}"])
    assert of_line and {one.line for one in of_line} == {line}
    with pytest.raises(ValueError, match="hw/absent: no such source"):
        run.find(["hw/absent"])
    assert run.sample(found, 5, 1) == run.sample(found, 5, 1) != run.sample(found, 5, 2)


@pytest.mark.parametrize("count", [1, 3, 7, 200])
def test_share(count: int) -> None:
    """Shares are about equal, and together all mutants in source order."""
    found = run.find(["hw/copy/realign.py"])
    shares = [run.share(found, number, count) for number in range(1, count + 1)]
    assert [mutant for one in shares for mutant in one] == found
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b"])
def test_wrong_share(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["hw", "--list", "--share", text])
    assert (
        f"argument --share: '{text}' is not a share K/N with 1 <= K <= N" in capsys.readouterr().err
    )


def test_report() -> None:
    """The score is the share of noticed mutants among those that could be built."""
    found = run.find(["hw/copy/realign.py"])
    shown = [*fates.FATES, "not built"]
    results = [run.Result(found[n], fate, "", 2.0 * n) for n, fate in enumerate(shown)]
    text = run.report(results, 3)
    row = text.splitlines()[4]
    assert row.split() == ["hw/copy/realign.py", "8", "1", "1", "1", "1", "2", "1", "1", "66", "%"]
    assert "Seconds per mutant: 7.0 on average, 14.0 at most." in text
    left = [str(found[shown.index(fate)]) for fate in fates.LEFT]
    assert text.endswith("\n".join(["2 neither killed nor explained:", *left]))
    assert " –" in run.report([run.Result(found[0], "not built", "", 1.0)], 3)


def _loaded(folder: Path, text: str, count: int) -> dict[str, Any]:
    """Names of the changed source; mutant n has number n + 1."""
    file = folder / "f.py"
    file.write_text(text)
    tree = changed(file, {n: n + 1 for n in range(count)})
    assert ast.get_docstring(tree) == ast.get_docstring(ast.parse(text))
    names: dict[str, Any] = {}
    exec(compile(tree, str(file), "exec"), names)
    return names


def _result(f: Any, *arguments: int) -> object:
    try:
        return f(*arguments)
    except ValueError as error:
        return str(error)


def _simulated(build: Any, alive: int) -> list[list[int]]:
    m = Module()
    enable, kind, count, some, second = Signal(), Signal(2), Signal(4), Signal(), Signal()
    build(m, enable, kind, count, some, second)
    seen = []

    async def drive(ctx: Any) -> None:
        ctx.set(switch.NUMBER, alive)
        for cycle in range(24):
            ctx.set(enable, cycle % 3 != 1)
            ctx.set(kind, cycle // 4 % 4)
            seen.append([ctx.get(one) for one in (count, some, second)])
            await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    return seen
