"""Measurements of `cocotb_placement`, and their table."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = ["CHURN", "KERNELS", "SIZES", "key", "keys", "of_size", "plot", "table"]

SIZES = (4, 16, 64, 132)
"""Numbers of SMs."""

KERNELS = (4, 16, 64)
CHURN = 400
"""Cycles in which blocks are counted while others end."""


_TITLE = """\
Blocks per 1000 cycles: all block slots fall free at once (burst), or blocks end all the time, up to
1.5 per cycle (churn). Open, freed: cycles from the opening of a kernel's row, or from the end of a
block, until the next block is valid at its SM."""


def key(what: str, sms: int, kernels: int = 0) -> str:
    """Name of one measurement."""
    return f"placement, {what}, {sms} SMs" + (f", {kernels} kernels" if kernels else "")


def of_size(sms: int) -> list[str]:
    """Names of all measurements of a machine with `sms` SMs."""
    rates = [key(what, sms, count) for what in ("burst", "churn") for count in KERNELS]
    return [key("open", sms), key("freed", sms), *rates]


def keys() -> list[str]:
    """Names of all measurements."""
    return [name for sms in SIZES for name in of_size(sms)]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    what = ("burst", "churn")
    titles = "".join(f" {one}, {n} kernels |" for one in what for n in KERNELS)
    lines = [
        _TITLE,
        "",
        f"| SMs | open | freed |{titles}",
        "|" + "--:|" * (3 + len(what) * len(KERNELS)),
    ]
    for sms in SIZES:
        cells = [str(values.get(name, "–")) for name in of_size(sms)]
        lines.append(f"| {sms} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the rates: one panel each, one line per number of kernels."""
    panels = [
        Panel(
            title,
            "SMs",
            SIZES,
            {
                f"{count} kernels": [values[key(what, sms, count)] for sms in SIZES]
                for count in KERNELS
            },
        )
        for what, title in (("burst", "all block slots fall free"), ("churn", "blocks end"))
    ]
    save_plot(file, "Placement of blocks", "blocks per 1000 cycles", panels)
