"""The README's picture: copies of the published order, with priorities and without.

python -m signalbox.tb.reports.picture [OUT.png]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from signalbox.hw.options import program
from signalbox.tb.folders import ROOT
from signalbox.tb.reports.activity import OWN_COPY, Activity, activity
from signalbox.tb.simulation.workload import simulate_workload

__all__ = ["draw", "main"]

OUT = ROOT / "docs" / "timeline.png"

_WORKLOAD = ROOT / "driver" / "workloads" / "published-order.toml"
_RUNS = {"priority": "with priorities", "none": "without priorities"}
_WAIT = "#d9d9d9"
_OWN = "#f4ecd8"
_COLOURS = ("#4c78a8", "#e4572e", "#59a14f", "#b279a2")
_BAR = 0.62
_LETTER = 0.0064
"""Width of a lower-case letter, as a fraction of the run."""


def draw(runs: Mapping[str, Activity]) -> Figure:
    """One panel per run of a workload: engines, channels and semaphores over cycles."""
    figure = Figure(figsize=(11, 6.4), dpi=110, layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    streams = sorted({copy.record.stream for run in runs.values() for copy in run.copies})
    colours = dict(zip(reversed(streams), _COLOURS, strict=False))
    for panel, (title, run) in zip(panels, runs.items(), strict=True):
        _panel(panel, run, colours)
        panel.set_title(title, loc="left", fontsize=11, fontweight="bold")
    panels[-1].set_xlabel("cycles from the start of the run")
    handles = [Patch(color=colour, label=f"copy of {name}") for name, colour in colours.items()]
    handles += [
        Patch(facecolor=_WAIT, label="channel waits"),
        Patch(facecolor=_OWN, label="its own copy runs"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _panel(panel: Axes, run: Activity, colours: Mapping[str, str]) -> None:
    """Draw rows from the top: engines, channels, semaphores."""
    rows: list[str] = []
    for engine in sorted({copy.engine for copy in run.copies}):
        for copy in run.of_engine(engine):
            _bar(panel, len(rows), copy.start, copy.end, colours[copy.record.stream], copy.name)
        rows.append(f"copy engine {engine}")
    for channel in sorted({copy.record.channel for copy in run.copies}):
        _channel(panel, run, channel, len(rows), colours)
        stream = next(c.record.stream for c in run.copies if c.record.channel == channel)
        rows.append(f"channel {channel} ({stream})")
    for index, values in sorted(run.semaphores.items()):
        most = max(1, max(value for _, value in values))
        cycles = [cycle for cycle, _ in values] + [run.end]
        levels = [len(rows) + _BAR / 2 - _BAR * value / most for _, value in values]
        panel.step(cycles, [*levels, levels[-1]], where="post", color="black", linewidth=1.2)
        rows.append(f"semaphore {run.semaphore_name(index)}\n(0 or {most})")
    panel.set_yticks(range(len(rows)), rows)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(left=False)


def _channel(
    panel: Axes, run: Activity, channel: int, row: int, colours: Mapping[str, str]
) -> None:
    """Draw waits as bars, doorbells as triangles, ends of copies as ticks."""
    for span in run.waits[channel]:
        own = span.name == OWN_COPY
        room = (span.end - span.start) / run.end > _LETTER * len(span.name)
        text = span.name if room and not own else ""
        _bar(panel, row, span.start, span.end, _OWN if own else _WAIT, text)
    bells = {copy.doorbell for copy in run.copies if copy.record.channel == channel}
    stream = next(c.record.stream for c in run.copies if c.record.channel == channel)
    panel.plot(
        sorted(bells),
        [row - _BAR / 2 - 0.06] * len(bells),
        "v",
        color=colours[stream],
        markersize=5,
    )


def _bar(panel: Axes, row: int, start: int, end: int, colour: str, text: str) -> None:
    panel.barh(row, end - start, _BAR, left=start, color=colour, edgecolor="white", linewidth=0.8)
    if text:
        dark = colour in {_WAIT, _OWN}
        style = {"color": "black", "fontsize": 8} if dark else {"color": "white", "fontsize": 10}
        panel.text((start + end) / 2, row, text, ha="center", va="center", clip_on=True, **style)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and draw. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.reports.picture"), description=__doc__
    )
    parser.add_argument("out", nargs="?", type=Path, default=OUT, help="PNG file")
    chosen = parser.parse_args(arguments)
    matplotlib.use("Agg")
    runs = {}
    for policy, title in _RUNS.items():
        run = simulate_workload(_WORKLOAD, policy)
        runs[title] = activity(run.result, run.events)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    draw(runs).savefig(chosen.out)
    print(f"wrote {chosen.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
