"""Time limits of tests with a mutant, relative to the seconds that they take without one.

Builds, that is exports and compilations of designs, have a limit of their own, relative to the
longest one without a mutant: many tests share a design, and only the first one builds it.
Environment: `SIGNALBOX_SECONDS` names a JSON file with these seconds, which a run without a mutant
writes. With more processes than processors, all limits are longer by as much.
"""

import json
import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "BuildTookTooLong",
    "TookTooLong",
    "building",
    "keep",
    "known",
    "of_all",
    "of_build",
    "of_test",
    "properties",
    "save",
    "testing",
]

_FACTOR = 4
_SPARE, _BUILD_SPARE, _RUN_SPARE = 15, 300, 120
_OWN_BUILDS = 3600
"""Further seconds for a run of all tests with a mutant that has builds of its own."""

_TEST, _BUILD = "seconds", "longest build"
"""Properties of a test in pytest's reports."""

_kept: dict[str, float] = {}
"""Seconds of each test that has ended."""

_builds: list[float] = []
"""Seconds of the builds so far."""


class TookTooLong(BaseException):
    """A test exceeded its limit. No code under test may catch it."""


class BuildTookTooLong(TookTooLong):
    """A build exceeded its limit."""


class _Watch:
    """Counts seconds between `start` and `stop`, and raises `error` once they exceed a limit.

    Parameters
    ----------
    limit : in seconds; None for no limit.
    error : exception that is raised in the main thread.
    """

    def __init__(self, limit: float | None, error: type[TookTooLong]) -> None:
        self.seconds = 0.0
        self._limit, self._error = limit, error
        self._since = 0.0

    def start(self) -> None:
        self._since = time.monotonic()
        if self._limit is not None:
            signal.signal(signal.SIGALRM, self._raise)
            signal.setitimer(signal.ITIMER_REAL, max(self._limit - self.seconds, 0.001))

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds += time.monotonic() - self._since

    def _raise(self, *_: object) -> None:
        raise self._error("the mutant keeps it from ending")


_running: list[_Watch] = []
"""Watch of the test, and of a build within the test, if any. Only the last watch runs."""


@contextmanager
def testing(limit: float | None) -> Generator[_Watch]:
    """Run the `with` block as a test, which raises `TookTooLong` after `limit` seconds. The watch
    has the test's `seconds`, without those of builds."""
    with _watched(limit, TookTooLong) as watch:
        yield watch


@contextmanager
def building(limit: float | None) -> Generator[None]:
    """Run the `with` block as a build within a test. It raises `BuildTookTooLong` after `limit`
    seconds."""
    with _watched(limit, BuildTookTooLong) as watch:
        yield
    _builds.append(watch.seconds)


@contextmanager
def _watched(limit: float | None, error: type[TookTooLong]) -> Generator[_Watch]:
    watch = _Watch(limit, error)
    if _running:
        _running[-1].stop()
    _running.append(watch)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        _running.pop()
        if _running:
            _running[-1].start()


def of_test(test: str) -> float | None:
    """Limit of a test in seconds; None if its time without a mutant is unknown."""
    seconds = known().get(test)
    return None if seconds is None else _crowd() * (_SPARE + _FACTOR * seconds)


def of_build() -> float:
    """Limit of a build in seconds."""
    return _crowd() * (_BUILD_SPARE + _FACTOR * _read().get(_BUILD, 0.0))


def of_all(seconds: Mapping[str, float], *, builds: bool) -> float:
    """Limit in seconds of a run of all tests, in case that a mutant keeps pytest itself from
    ending. `seconds` : of each test without a mutant. `builds` : the mutant has builds of its
    own."""
    return _crowd() * (_RUN_SPARE + _FACTOR * sum(seconds.values()) + _OWN_BUILDS * builds)


def _crowd() -> float:
    """Number of running or waiting processes per processor, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def known(file: Path | None = None) -> dict[str, float]:
    """Seconds of each test without a mutant, as far as known. `file` : by default, the file named
    by `SIGNALBOX_SECONDS`."""
    return _read(file).get(_TEST, {})


def _read(file: Path | None = None) -> dict[str, Any]:
    file = file or Path(os.environ.get("SIGNALBOX_SECONDS", ""))
    return json.loads(file.read_text()) if file.is_file() else {}


def properties(watch: _Watch) -> list[tuple[str, object]]:
    """Properties of a test that has ended, for `keep` in the process that gets all reports."""
    return [(_TEST, watch.seconds), (_BUILD, max(_builds, default=0.0))]


def keep(report: pytest.TestReport) -> None:
    """Keep the seconds of a test that has ended, for `save`."""
    found = dict(report.user_properties)
    if _TEST in found:
        _kept[report.nodeid] = float(str(found[_TEST]))
        _builds.append(float(str(found[_BUILD])))


def save() -> None:
    """Write the kept seconds; with pytest-xdist, only the process that gets all reports does."""
    file = os.environ.get("SIGNALBOX_SECONDS")
    if file and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(file).write_text(json.dumps({_TEST: _kept, _BUILD: max(_builds, default=0.0)}))
