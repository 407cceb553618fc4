"""Builds the machine, runs the two applications, and reads what happened."""

import json
from dataclasses import dataclass
from pathlib import Path

from hw.top import Signalbox
from tb.sim.sizes import COMPUTE
from tb.sim.top import TRACE, simulate_top
from tb.sim.trace import Event, read

__all__ = ["RESULT", "SEED", "Run", "Told", "simulate"]

SEED = "SIGNALBOX_SPINE_SEED"
"""Environment variable of the test: seed of the data."""

RESULT = "result.json"


@dataclass(frozen=True)
class Told:
    """What a program knows of a task: its record lies at `page` << 8 of address space `asid`."""

    page: int
    asid: int
    kernel: str
    application: str
    priority: int


@dataclass(frozen=True)
class Run:
    """A run: its folder, its tasks, its trace."""

    folder: Path
    tasks: list[Told]
    events: list[Event]


def simulate(seed: int, simulator: str, *, waves: bool = False) -> Run:
    """Run; raises as `tb.runner.simulate`, also when a result is not that of numpy."""
    folder = simulate_top(
        Signalbox(COMPUTE),
        "tb.spine.cocotb_spine",
        simulator=simulator,
        name="spine",
        env={SEED: str(seed)},
        waves=waves,
        log="run.log",
    )
    told = json.loads((folder / RESULT).read_text())
    tasks = [Told(asid=told["asids"][task["application"]], **task) for task in told["tasks"]]
    return Run(folder, tasks, read(folder / TRACE))
