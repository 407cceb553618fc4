"""The coverage report, from coverage files as Verilator writes them."""

from pathlib import Path

from signalbox.tb.tools import coverage
from signalbox.tb.tools.coverage import Exclusion, Point

DESIGN = """\
module \\dut.part (clk);
  always @(posedge clk)
    if (a) begin
endmodule
"""


def record(file: Path, page: str, what: str, line: int, count: int) -> str:
    keys = {"f": str(file), "l": str(line), "n": "7", "page": page, "o": what, "h": "sim.dut"}
    pairs = "".join(f"\1{key}\2{value}" for key, value in keys.items())
    return f"C '{pairs}' {count}\n"


def write(folder: Path, count: int) -> Path:
    folder.mkdir()
    design, file = folder / "dut.sv", folder / "run.dat"
    design.write_text("// another build\n" * count + DESIGN)
    file.write_text(
        "# SystemC::Coverage-3\n"
        + record(design, "v_toggle/dut.part", "o___05Fready[1]:0->1", 1, 0)
        + record(design, "v_toggle/dut.part", "__0242:0->1", 1, 0)
        + record(design, "v_toggle/memory", "full:0->1", 1, 0)
        + record(design, "v_branch/dut.part", "if", count + 3, count)
    )
    return file


def test_points(tmp_path: Path):
    """Names are decoded, temporaries and other modules are left out, and lines are relative to
    their module, so that different builds add up."""
    first, second = (coverage.points(write(tmp_path / str(n), n)) for n in (2, 5))
    bit = Point("dut.part", "toggle", "o__ready[1]:0->1")
    branch = Point("dut.part", "branch", "+2: if (a) begin (if)")
    assert first + second == {branch: 7}
    assert set(first) == set(second) == {bit, branch}
    counts = first
    counts.update(second)
    assert coverage.missing(counts) == [bit]
    assert coverage.summary(counts).splitlines()[-1].split() == (
        "all 1 of 1 (100.0 %) 0 of 1 (0.0 %)".split()
    )


def test_exclusions():
    bit = Point("dut.part", "toggle", "o__ready[1]:0->1")
    assert Exclusion("dut.*", "o__ready?1?:*", "why").covers(bit)
    assert not Exclusion("dut", "*", "why").covers(bit)
