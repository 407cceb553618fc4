"""Simulates designs: export, build, run and check.

    simulate(Unit(), "signalbox.tb.units.unit.cocotb_unit", simulator="verilator", name="unit")

A build is reused while the exported Verilog, the sources and the arguments are the same. `simulate`
raises an error if tests fail or none run, unlike cocotb's own runner.

For each name, the six newest runs are kept in `sim_build/<name>/`, and the six newest failed runs
(with the reason in `failed.txt`). Older ones are removed.
"""

import contextlib
import fcntl
import hashlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from amaranth.lib import wiring
from cocotb_tools import config as cocotb_config
from cocotb_tools.runner import get_runner

from signalbox.hw import export
from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.tb.folders import BUILD, ROOT, SIM_BUILD, shown
from signalbox.tb.simulation import exports, icarus, outcomes, verilator
from signalbox.tb.simulation.apart import GLUE, compile_parts, split
from signalbox.tb.simulation.lock import lock

__all__ = [
    "COVERAGE",
    "DESIGN",
    "ONLY",
    "SIMULATORS",
    "choose_seed",
    "simulate",
    "waves_wanted",
]

SIMULATORS = ("verilator", "icarus")

DESIGN = "dut"
"""Module name of the exported design, for simulation tops that instantiate it."""

COVERAGE = "SIGNALBOX_COVERAGE"
"""Environment variable: folder to which each run on Verilator writes its coverage (`.dat`)."""

ONLY = "SIGNALBOX_ONLY"
"""Environment variable: names of cocotb tests, separated by commas. Every simulation then runs
these and no others, and fails if fewer tests run than are named."""

_TIMESCALE = ("1ns", "1ps")

_FAILED = "failed.txt"
"""File in the folder of a failed run, with the reason."""

_KEPT = 6
"""Number of runs kept per name, and number of failed runs kept."""


def simulate(
    design: wiring.Component | None,
    tests: str,
    *,
    simulator: str,
    name: str,
    env: Mapping[str, str] | None = None,
    testcase: str | None = None,
    seed: int | None = None,
    waves: bool = False,
    sources: Sequence[Path] = (),
    top: str = DESIGN,
    parameters: Mapping[str, int] | None = None,
    public: Sequence[str] = (),
    watched: Sequence[str] = (),
    apart: bool = False,
    process_memory: bool = False,
    minimum: int = 1,
    build_args: Sequence[str] = (),
    plusargs: Sequence[str] = (),
    log: str = "",
) -> Path:
    """Run the cocotb tests of module `tests` on `design` and check their results.

    Parameters
    ----------
    design : design under test. It is exported as module `dut`, once (`tb.simulation.exports`), with
        noise on invalid payload (`tb.simulation.noise`). None if `sources` contain everything.
    tests : import name of the cocotb module.
    simulator : "verilator" or "icarus".
    name : name of the run. Its folder is in `sim_build/<name>/`, until later runs of the same name
        remove it (see the module).
    env : environment variables for the tests.
    testcase : names of cocotb tests, separated by commas; only these run, with all their
        parameters. `SIGNALBOX_ONLY` in the environment takes precedence.
    seed : seed of the tests' random numbers; default: `SIGNALBOX_SEED`, else a random one. It is
        printed.
    waves : record `dump.fst` in the run folder, as does `WAVES=1` in the environment.
    sources : further SystemVerilog files. They may instantiate the design as module `dut`.
    top : top module; the design itself by default.
    parameters : parameters of the top module.
    public : "module.variable" patterns of variables that cocotb reads and writes, besides the ports
        of the design if it is the top module. Verilator hides other variables; Icarus shows
        everything.
    watched : patterns of variables that cocotb only reads; these slow the simulation down less.
    apart : on Verilator, compile each module shared by several instances (`hw.lib.shared`) once, as
        its own model (`tb.simulation.apart`). For large designs. Their insides appear in no
        waveform.
    process_memory : keep the contents of module `memory` in memory of the simulation's process. The
        test accesses them directly, and can share them with other processes
        (`tb.simulation.backdoor`). The simulation must have one such module. On Verilator only.
    minimum : minimum number of tests that must run.
    build_args : further arguments of the simulator's compiler.
    plusargs : arguments of the simulation, such as "+trace=FILE".
    log : name of a file in the run folder for the simulation's output; by default the output is
        shown.

    Returns the folder of the run, which contains `results.xml`.

    Raises
    ------
    AssertionError : a test failed (the message shows its exception), the simulator failed, or
        fewer than `minimum` tests ran.
    RuntimeError : the design did not build, there is no usable simulator, the simulator does not
        support `process_memory`, or `SIGNALBOX_SEED` is not a whole number.
    """
    if process_memory and simulator != "verilator":
        raise RuntimeError(f"{name}: {simulator} has no process_memory, only Verilator has")
    waves = waves or waves_wanted()
    coverage = os.environ.get(COVERAGE, "") if simulator == "verilator" else ""
    seed = choose_seed(seed)
    if only := os.environ.get(ONLY, ""):
        testcase, minimum = only, only.count(",") + 1
    text = None
    if design is not None:
        text = exports.verilog(design, DESIGN, SIM_BUILD / "exports", noisy=True)
    if text is not None and simulator == "icarus":
        text = icarus.joined(text)
    if design is not None and top == DESIGN:
        flat = export.ports(design).items()
        driven = (name for name, (_, way) in flat if way == PortDirection.Input)
        public = [f"{DESIGN}.{port}" for port in ("clk", "rst", *driven)] + [*public]
        outputs = (name for name, (_, way) in flat if way != PortDirection.Input)
        watched = [f"{DESIGN}.{port}" for port in outputs] + [*watched]
    recipe = _Recipe(
        text,
        simulator,
        waves,
        bool(coverage),
        tuple(sources),
        top,
        dict(parameters or {}),
        tuple(public),
        tuple(watched),
        apart and simulator == "verilator",
        process_memory,
        tuple(build_args),
    )
    build = _build(recipe)
    failure = None
    values = {**_pytest(tests), **(env or {})}
    values |= {"COCOTB_RANDOM_SEED": str(seed), BUILD: str(SIM_BUILD)}
    with _run_folder(SIM_BUILD / name, simulator) as run, _environment(waves, values):
        print(f"{name}: {tests} on {simulator}, SIGNALBOX_SEED={seed}, in {shown(run)}")
        try:
            get_runner(simulator).test(
                tests,
                hdl_toplevel=top,
                hdl_toplevel_lang="verilog",
                test_filter=_filter(testcase) if testcase else None,
                waves=waves,
                build_dir=build,
                test_dir=run,
                results_xml=str(run / "results.xml"),
                plusargs=[
                    *_wave_arguments(simulator, waves, run),
                    *_coverage_arguments(coverage, f"{name}-{run.name}"),
                    *plusargs,
                ],
                log_file=str(run / log) if log else None,
            )
        except RuntimeError as error:
            failure = f"simulator failed: {error}"
        what = f"{name} on {simulator}, seed {seed}" + (f", see {run / log}" if log else "")
        _check(run / "results.xml", what, minimum, failure)
    return run


def waves_wanted() -> bool:
    """Whether the environment asks for waveforms (`WAVES`)."""
    return os.environ.get("WAVES", "0") not in {"", "0"}


def choose_seed(seed: int | None = None) -> int:
    """`seed`, else `SIGNALBOX_SEED` of the environment, else a random number. Raises `RuntimeError`
    if `SIGNALBOX_SEED` is not a whole number."""
    if seed is not None:
        return seed
    chosen = os.environ.get("SIGNALBOX_SEED")
    if not chosen:
        return random.SystemRandom().randrange(1 << 31)
    if not chosen.isdecimal():
        raise RuntimeError(f"SIGNALBOX_SEED = {chosen!r} is not a whole number")
    return int(chosen)


def _pytest(tests: str) -> dict[str, str]:
    """Environment in which pytest explains failed assertions of the test module and of `tb`. By
    default pytest would rewrite all imported modules, libraries too, which takes longer than many
    tests."""
    files = f"{tests.rpartition('.')[2]}.py */signalbox/tb/*.py"
    return {"COCOTB_REWRITE_ASSERTION_FILES": files, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _filter(names: str) -> str:
    """Regular expression for cocotb that selects the tests of these names."""
    return rf"\.({'|'.join(map(re.escape, names.split(',')))})(/.*)?$"


@dataclass(frozen=True)
class _Recipe:
    """Everything that a compiled simulation depends on."""

    text: str | None
    simulator: str
    waves: bool
    coverage: bool
    sources: tuple[Path, ...]
    top: str
    parameters: Mapping[str, int]
    public: tuple[str, ...]
    watched: tuple[str, ...]
    apart: bool
    process_memory: bool
    build_args: tuple[str, ...]

    def key(self) -> str:
        """Hash of the recipe, its files and the tools, including the folder of cocotb's libraries:
        a compiled simulation is linked to them, so it is not reused in another environment."""
        named = [*self.sources, verilator.WAIVERS, *(GLUE if self.apart else ())]
        named += [verilator.PROCESS_MEMORY] * self.process_memory
        files = [source.read_text() for source in named]
        tools = verilator.version(self.simulator), str(cocotb_config.libs_dir)
        parts = repr((self, files, tools))
        return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _build(recipe: _Recipe) -> Path:
    """Folder of the compiled simulation; compiles it unless it exists."""
    build = SIM_BUILD / "builds" / f"{recipe.simulator}-{recipe.key()}"
    build.parent.mkdir(parents=True, exist_ok=True)
    with lock(build.with_suffix(".lock")):
        if not (build / "stamp").exists():
            shutil.rmtree(build, ignore_errors=True)
            build.mkdir()
            _compile(recipe, build)
            (build / "stamp").touch()
    return build


def _compile(recipe: _Recipe, build: Path) -> None:
    """Compile in `build`. Raises `RuntimeError` with the end of the log if that fails."""
    files = [*recipe.sources]
    text, parts = recipe.text, []
    if recipe.apart and text is not None:
        text, parts = split(text, DESIGN)
    if text is not None:
        files.insert(0, build / f"{DESIGN}.sv")
        files[0].write_text(text)
    arguments, made = [*recipe.build_args], []
    env: Mapping[str, str] = {}
    if recipe.simulator == "verilator":
        files += [
            verilator.WAIVERS,
            verilator.write_public(build, recipe.public, recipe.watched),
        ]
        arguments = [*verilator.arguments(recipe.waves, recipe.coverage), *arguments]
        env = verilator.environment(recipe.waves)
        verilator.restore_runtime(build, arguments, env)
    if parts:
        stubs, made = compile_parts(build, parts)
        files += stubs
    if recipe.process_memory:
        made += verilator.process_memory()
    log = build / "build.log"
    with _environment(recipe.waves, env):
        try:
            get_runner(recipe.simulator).build(
                sources=files,
                hdl_toplevel=recipe.top,
                parameters=recipe.parameters,
                build_dir=build,
                build_args=[*arguments, *made],
                timescale=_TIMESCALE,
                waves=recipe.waves,
                always=True,
                log_file=log,
            )
        except RuntimeError as error:
            tail = "\n".join(log.read_text().splitlines()[-40:])
            raise RuntimeError(f"{build.name}: {error}\n{tail}") from error
    if recipe.simulator == "verilator":
        verilator.save_runtime(build, recipe.top, arguments, env)


def _wave_arguments(simulator: str, waves: bool, run: Path) -> list[str]:
    if not waves:
        return []
    file = str(run / "dump.fst")
    return ["--trace-file", file] if simulator == "verilator" else [f"+dumpfile_path={file}"]


def _coverage_arguments(folder: str, name: str) -> list[str]:
    return [f"+verilator+coverage+file+{folder}/{name}.dat"] if folder else []


def _check(results: Path, what: str, minimum: int, failure: str | None) -> None:
    """Raise `AssertionError` unless at least `minimum` tests ran and all passed."""
    if not results.exists():
        raise AssertionError(f"{what}: no results; {failure or 'the simulation ended early'}")
    cases = list(ElementTree.parse(results).iter("testcase"))
    ran = [case for case in cases if case.find("skipped") is None]
    outcomes.keep(ran)
    failed = {
        f"{case.get('classname')}.{case.get('name')}": reason
        for case in ran
        if (reason := outcomes.reason(case)) is not None
    }
    if failed:
        texts = [f"\n\n{test}: {reason}" for test, reason in failed.items()]
        raise AssertionError(
            f"{what}: {len(failed)} of {len(ran)} failed: {', '.join(failed)}{''.join(texts)}"
        )
    if failure:
        raise AssertionError(f"{what}: {failure}")
    if len(ran) < minimum:
        ran_text = f"{len(ran)} test{'' if len(ran) == 1 else 's'} ran"
        raise AssertionError(f"{what}: {ran_text}, at least {minimum} expected")


@contextlib.contextmanager
def _run_folder(folder: Path, simulator: str) -> Generator[Path]:
    """Provides a new run folder in `folder`. Writes the reason of an `AssertionError` to it.
    Afterwards the oldest runs are removed, unless another process has a run in `folder`."""
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        run = Path(tempfile.mkdtemp(prefix=f"run-{simulator}-", dir=folder))
        try:
            yield run
        except AssertionError as error:
            (run / _FAILED).write_text(f"{error}\n")
            raise
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_oldest(folder)


def _remove_oldest(folder: Path) -> None:
    """Remove all but the newest runs and the newest failed runs."""
    runs = sorted(folder.glob("run-*"), key=lambda run: run.stat().st_mtime_ns, reverse=True)
    failed = [run for run in runs if (run / _FAILED).exists()]
    for run in set(runs) - {*runs[:_KEPT], *failed[:_KEPT]}:
        shutil.rmtree(run)


@contextlib.contextmanager
def _environment(waves: bool, values: Mapping[str, str]) -> Generator[None]:
    """Set `os.environ` and `sys.path` for cocotb's runner, and restore them afterwards. The runner
    prefers `os.environ` to its own arguments."""
    before = dict(os.environ)
    path = list(sys.path)
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # if set, the runner exits instead of returning
    os.environ.update(values, WAVES=str(int(waves)))
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
