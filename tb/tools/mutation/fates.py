"""Fates of mutants, and the fate that a failed test shows.

Environment: `SIGNALBOX_FATE` names a file for the fate and the test's name, in JSON.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.tools.mutation.limits import BuildTookTooLong, TookTooLong

__all__ = ["FATES", "LEFT", "NOTICED", "NOT_BUILT", "of", "of_frames", "tell", "told"]

FATES = {
    "killed": "a test failed",
    "time-out": "a test did not end",
    "proof": "a proof failed",
    "explained": "explained",
    "not built": "the design, or its tests, could not be built",
    "unreached": "in no design of the tests",
    "survived": "none of these",
}
"""Fates, with their meanings."""

NOTICED = ("killed", "time-out", "proof", "explained")
LEFT = ("unreached", "survived")

NOT_BUILT = 3
"""Exit status of a proof if the design could not be built."""

_MAKERS = {"__init__", "__post_init__", "elaborate"}
"""Functions that build a design."""

_EXPORT = ROOT / "hw/export.py"
_COMPILE = ROOT / "tb/simulation/runner.py", "_compile"


def of(failure: pytest.ExceptionInfo[BaseException]) -> str:
    """Fate of a mutant, by the exception with which a test ended."""
    if isinstance(failure.value, BuildTookTooLong):
        return "not built"
    if isinstance(failure.value, TookTooLong):
        return "time-out"
    return of_frames(entry.frame.code.raw for entry in failure.traceback)


def of_frames(called: Iterable[CodeType]) -> str:
    """Fate of a mutant by the functions in which its test failed, outermost first.

    "not built" if `hw` itself raised the exception while it built a design, or if the simulator did
    not compile the design. The driver builds none: it uses `hw` for layouts of its data.
    """
    places = [(Path(code.co_filename).resolve(), code.co_name) for code in called]
    own = [(file, name) for file, name in places if _room(file)]
    if not own or any(_room(file) == "driver" for file, _ in own):
        return "killed"
    file, _ = own[-1]
    of_hw = [name for place, name in own if _room(place) == "hw"]
    if _room(file) == "hw" and (file == _EXPORT or _MAKERS & {*of_hw}):
        return "not built"
    return "not built" if _COMPILE in own else "killed"


def _room(file: Path) -> str:
    """Folder of a file: `hw`, `driver` or `tb`; "" for other files."""
    parts = file.relative_to(ROOT).parts if file.is_relative_to(ROOT) else ("",)
    return parts[0] if parts[0] in {"hw", "driver", "tb"} else ""


def tell(fate: str, test: str) -> None:
    """Write a fate and the test that shows it, unless an earlier test has done so."""
    file = Path(os.environ.get("SIGNALBOX_FATE", ""))
    if file.name and not file.exists():
        file.write_text(json.dumps([fate, test]))


def told(file: Path, status: int | None) -> tuple[str, str]:
    """Fate, and the test that shows it, after a run of tests that did not pass. `file` : as written
    by `tell`. `status` : exit status other than 0; None if the run was ended because it took too
    long."""
    if file.exists():
        fate, test = json.loads(file.read_text())
        return fate, test
    if status is None:
        return "time-out", "all tests"
    unusable = status == pytest.ExitCode.USAGE_ERROR  # a mutant that cannot be imported
    return ("not built", "import") if unusable else ("killed", "the tests ended early")
