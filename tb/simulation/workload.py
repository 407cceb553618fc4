"""Runs a workload on the RTL: builds, simulates, and reads back records and trace.

    run = simulate_workload(Path("driver/workloads/video.toml"), "priority", seed=1)
    run.result.total_cycles

`run.result` has the driver's records, `run.events` the trace.
"""

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.task_lists import list_bytes
from signalbox.driver.memory.physical import page_for
from signalbox.driver.workload.reader import load
from signalbox.driver.workload.records import (
    ChildRecord,
    CopyRecord,
    KernelRecord,
    Result,
    SpaceRecord,
)
from signalbox.driver.workload.repairs import FaultRecord
from signalbox.driver.workload.specs import Workload
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.hw.config import Config, ConfigError
from signalbox.hw.qmd import Urgency
from signalbox.hw.sm.port import CoreFactory
from signalbox.hw.top import Signalbox
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.top import LARGEST_MEMORY, MEMORY_BYTES, TRACE, simulate_top

__all__ = [
    "JOB",
    "RESULT",
    "Progress",
    "Run",
    "RunError",
    "machine",
    "read_run",
    "simulate_workload",
    "with_save_places",
]

JOB = "WORKLOAD_JOB"
"""Environment variable: JSON object with `file`, `policy`, `urgency`, `seed` and `progress`, the
name of a file to which a line "<copies done> <cycle> <cycles per second>" is added about every
second."""

RESULT = "result.json"
"""File in the run folder: JSON object with `records`, `start`, `spaces`, `faults`, `kernels` and
`children`, or with `error`, which has `kind` ("failed" or "refused") and `message`; with `policy`;
and with `rate`, in simulated cycles per second."""

_LOG = "simulation.log"

_POLL_SECONDS = 0.1

_BUILD_SECONDS = 10.0
"""Seconds between two progress reports before the simulation runs."""

_TABLES = 128
"""Bytes of memory per byte of page tables: 8 bytes per page of 4 KiB, in tables of which a quarter
is used."""


Record = TypeVar("Record", KernelRecord, ChildRecord)


class RunError(Exception):
    """A run failed: wrong data, a halted channel, or no progress."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Members
    -------
    done : finished copies and kernels.
    total : all copies and kernels.
    cycle : current cycle; 0 while the simulation is being built.
    rate : simulated cycles per second.
    """

    done: int
    total: int
    cycle: int
    rate: float


@dataclass(frozen=True)
class Run:
    """A finished run.

    Members
    -------
    result : the driver's records.
    events : the trace.
    folder : folder of the run.
    rate : simulated cycles per second; 0 if the run was too short to measure it.
    """

    result: Result
    events: list[trace.Event]
    folder: Path
    rate: float

    @property
    def waves(self) -> Path | None:
        """Waveform file; None if none was recorded."""
        file = self.folder / "dump.fst"
        return file if file.exists() else None


def machine(workload: Workload) -> Config:
    """Configuration for simulating a workload: with a trace, and with the memory that the workload
    needs. Raises `WorkloadError` if that is more than `LARGEST_MEMORY`."""
    asked = workload.config
    needed = _engine_bytes(asked) if workload.launches else 0
    needed += 2 * (asked.channels + 1 + len(workload.spaces)) * (1 << 16)
    for copy in workload.copies:
        for size in (copy.src_pitch * copy.height, copy.dst_pitch * copy.height):
            needed += copy.count * (size + page_for(size))
    for kernel in workload.kernels:
        needed += kernel.count * (kernel.size + page_for(kernel.size))
    for nested in workload.nested:
        needed += nested.memory
    needed += needed // _TABLES
    size = MEMORY_BYTES
    while size < needed:
        size *= 2
    if size > LARGEST_MEMORY:
        raise WorkloadError(
            f"{workload.name}: it needs {needed >> 20} MiB of memory, more than the "
            f"{LARGEST_MEMORY >> 20} MiB that a simulation has"
        )
    # Without kernels, no SMs are built.
    sms = asked.sms if workload.launches else 0
    return replace(asked, sms=sms, trace=True, memory_bytes=min(size, asked.memory_bytes))


def _engine_bytes(config: Config) -> int:
    """Bytes of memory for task lists and saved blocks."""
    lists = list_bytes(
        rows=config.rows,
        contexts=config.contexts,
        waiting=ComputeSettings.waiting,
        save_places=config.save_places,
        nested_kernels=config.nested_kernels,
    )
    return lists + page_for(lists) + config.save_places * config.place_bytes


def with_save_places(workload: Workload) -> Workload:
    """The workload on a machine that can stop blocks: a machine without save places gets one per
    block slot. Raises `WorkloadError` if the workload has no kernels, or the machine cannot have
    that many save places."""
    config = workload.config
    if not workload.launches:
        raise WorkloadError(f"{workload.name}: it has no kernels whose blocks could be stopped")
    try:
        places = config.save_places or config.sms * config.sm_blocks
        return replace(workload, config=replace(config, save_places=places))
    except ConfigError as error:
        raise WorkloadError(f"{workload.name}: {error}") from error


def simulate_workload(
    file: Path,
    policy: str,
    *,
    urgency: Urgency | None = None,
    seed: int = 0,
    simulator: str = "verilator",
    waves: bool = False,
    core: CoreFactory | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Run a workload on the RTL. Builds the simulation first, if necessary.

    Parameters
    ----------
    file : workload file.
    policy : a `kind` of `driver.workload.specs.PolicySpec`.
    urgency : urgency of all contexts, on the machine of `with_save_places`; default: as in the
        file.
    seed : seed of the random data.
    simulator : "verilator" or "icarus".
    waves : record a waveform.
    core : factory for the cores of the SMs (`hw.sm.sm.Sm`); default: the configured core.
    progress : called about every second while the simulation runs, every 10 s before that.

    Raises
    ------
    WorkloadError : the file cannot be run.
    RunError : the run failed.
    CoreError : a core does not have the SM port.
    RuntimeError : a tool is missing, or the design did not build.
    """
    workload = load(file)
    if urgency is not None:
        workload = with_save_places(workload)
    config = machine(workload)
    total = sum(spec.count for spec in workload.work)
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "progress"
        lines.touch()
        job = {"file": str(file.resolve()), "policy": policy, "seed": seed, "progress": str(lines)}
        job["urgency"] = (urgency or Urgency.DRAIN).name
        with _following(lines, total, progress):
            try:
                run = simulate_top(
                    Signalbox(config, core),
                    "signalbox.tb.simulation.cocotb_workload",
                    simulator=simulator,
                    name="workload",
                    env={JOB: json.dumps(job), "COCOTB_LOG_LEVEL": "WARNING"},
                    seed=seed,
                    waves=waves,
                    log=_LOG,
                )
            except AssertionError as error:
                raise RunError(str(error)) from error
    return read_run(run, workload)


def read_run(folder: Path, workload: Workload) -> Run:
    """Read the result of a simulation of `workload` from its folder. Raises the same errors as
    `simulate_workload`."""
    outcome = json.loads((folder / RESULT).read_text())
    if "error" in outcome:
        kind, message = outcome["error"]["kind"], outcome["error"]["message"]
        if kind == "refused":
            raise WorkloadError(f"{workload.name}: {message}")
        raise RunError(f"{message}; trace: {folder / TRACE}")
    records = tuple(CopyRecord(**_with_keys(record)) for record in outcome["records"])
    spaces = tuple(_space_record(**record) for record in outcome["spaces"])
    faults = tuple(FaultRecord(**record) for record in outcome["faults"])
    kernels = tuple(
        _launch_record(KernelRecord, **_with_keys(record)) for record in outcome["kernels"]
    )
    children = tuple(_launch_record(ChildRecord, **record) for record in outcome["children"])
    result = Result(
        workload, outcome["policy"], records, outcome["start"], spaces, faults, kernels, children
    )
    events = trace.read(folder / TRACE)
    return Run(result, events, folder, outcome["rate"])


def _with_keys(record: dict[str, Any]) -> dict[str, Any]:
    """A record of work from JSON, with the keys of its predecessors turned from lists into
    tuples."""
    return {**record, "behind": tuple((name, index) for name, index in record["behind"])}


def _launch_record(kind: type[Record], grid: list[int], block: list[int], **rest: Any) -> Record:
    return kind(grid=tuple(grid), block=tuple(block), **rest)


def _space_record(name: str, asid: int, addresses: list[list[int]]) -> SpaceRecord:
    return SpaceRecord(name, asid, tuple((first, last) for first, last in addresses))


@contextlib.contextmanager
def _following(file: Path, total: int, progress: Callable[[Progress], None]) -> Generator[None]:
    """Context in which each line added to `file` is passed to `progress`, by another thread."""
    ended = threading.Event()

    def follow() -> None:
        started, shown = False, time.monotonic()
        with file.open() as lines:
            while not ended.wait(_POLL_SECONDS):
                for line in lines:
                    done, cycle, rate = line.split()
                    progress(Progress(int(done), total, int(cycle), float(rate)))
                    started = True
                if not started and time.monotonic() - shown > _BUILD_SECONDS:
                    progress(Progress(0, total, 0, 0.0))
                    shown = time.monotonic()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
