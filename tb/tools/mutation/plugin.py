"""Loads changed sources of `hw` and `driver`; for pytest (`-p`) and for proofs.

Environment: `SIGNALBOX_MUTANTS` names a JSON file with the active mutants: for each source file, a
map from the number within the file to the number at run time. `SIGNALBOX_REACHED` names a file for
the numbers of the mutants that the run reached, one line per design. `fates` and `limits` use
further variables.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Instance

from signalbox.tb.folders import ROOT
from signalbox.tb.tools.mutation import fates, limits, switch
from signalbox.tb.tools.mutation.sites import changed

_BY_DESIGN = ("hardware", "invalid")
"""Kinds of `switch.reached` that an exported design lists in its last line, after `_MARK`."""

_MARK = "// mutants: "


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a changed source without caching."""

    def __init__(self, name: str, path: str, active: dict[int, int]) -> None:
        super().__init__(name, path)
        self._active = active

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(changed(Path(self.path), self._active), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, active: dict[Path, dict[int, int]]) -> None:
        self._active = active

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        active = self._active.get(Path(spec.origin).resolve())
        if active is None:
            return None
        loader = _Loader(fullname, spec.origin, active)
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


def _active() -> dict[Path, dict[int, int]]:
    read = json.loads(Path(os.environ["SIGNALBOX_MUTANTS"]).read_text())
    return {
        ROOT / file: {int(local): number for local, number in numbers.items()}
        for file, numbers in read.items()
    }


def _install() -> None:
    active = _active()
    sys.meta_path.insert(0, _Finder(active))
    if any(file.is_relative_to(ROOT / "hw") for file in active):
        _switch_hardware(repr(sorted(active.items())))


def _switch_hardware(active: str) -> None:
    """Add the switch to exported designs, and its plusarg to simulations. `active` : description of
    the changes, for the cache key."""
    from signalbox.hw import export  # after the finder
    from signalbox.tb.simulation import exports, runner

    get, verilog, sources = export.Fragment.get, export.verilog, exports._sources
    build, simulate, exported = runner._build, runner.simulate, exports.verilog

    def with_number(design: Any, platform: object) -> Any:
        fragment = get(design, platform)
        if not switch.BUILT:
            number = Instance("mutant", o_number=switch.NUMBER)
            fragment.add_subfragment(number, "mutant_number")
        return fragment

    def with_module(design: Any, name: str = "top") -> str:
        for kind in _BY_DESIGN:
            switch.reached[kind].clear()
        text = verilog(design, name)
        told = {kind: sorted(switch.reached[kind]) for kind in _BY_DESIGN}
        return f"{text}{switch.MODULE}{_MARK}{json.dumps(told)}\n"

    def with_mutants(folder: Path) -> str:
        built = switch.ALIVE if _elaborated() else 0
        return f"{sources(folder)} {active} {built}"

    def only_those_reached(*arguments: Any, **options: Any) -> str:
        with limits.building(limits.of_build() if switch.ALIVE else None):
            text = exported(*arguments, **options)
        told = json.loads(text.rsplit(_MARK, 1)[1])
        for kind in _BY_DESIGN:
            _note(kind, told[kind])
        if switch.ALIVE and not _elaborated() and switch.ALIVE not in told["hardware"]:
            pytest.skip("the mutant is not in this design")
        return text

    def limited_build(recipe: Any) -> Path:
        with limits.building(limits.of_build() if switch.ALIVE else None):
            return build(recipe)

    def with_plusarg(*arguments: Any, plusargs: Sequence[str] = (), **options: Any) -> Path:
        chosen = [*plusargs, f"+mutant={switch.ALIVE}"]
        # No separate models (`apart`), as plusargs do not reach them.
        return simulate(*arguments, plusargs=chosen, **options | {"apart": False})

    export.Fragment = types.SimpleNamespace(get=with_number)  # type: ignore[assignment]
    export.verilog, exports._sources = with_module, with_mutants
    exports.verilog, runner._build = only_those_reached, limited_build
    runner.simulate = with_plusarg


def _elaborated() -> bool:
    """Whether the mutant changes the elaboration."""
    return os.environ.get("SIGNALBOX_MUTANT_ELABORATED", "0") == "1"


def _note(kind: str, numbers: Sequence[object]) -> None:
    if file := os.environ.get("SIGNALBOX_REACHED"):
        with Path(file).open("a") as seen:
            seen.write(f"{kind} {' '.join(map(str, numbers))}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the shortest tests first."""
    seconds = limits.known()
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that does not end because of a mutant."""
    limit = limits.of_test(item.nodeid) if switch.ALIVE else None
    with limits.testing(limit) as watch:
        result = yield
    item.user_properties += limits.properties(watch)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        fates.tell(fates.of(call.excinfo), item.nodeid)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        limits.keep(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        fates.tell("not built", report.nodeid)


def pytest_sessionfinish() -> None:
    _note("python", sorted(switch.reached["python"]))
    if not switch.ALIVE:
        limits.save()


_install()
