"""Time limits of tests with a mutant, relative to the seconds that they take without one.

Exporting and compiling a design is not counted, as many tests share a design: only the first takes
that time. Environment: `SIGNALBOX_SECONDS` names a JSON file with the seconds of each test, which
a run without a mutant writes.
"""

import json
import os
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = [
    "PROPERTY",
    "TookTooLong",
    "Watch",
    "keep",
    "known",
    "limited",
    "of_all",
    "of_test",
    "save",
    "uncounted",
]

PROPERTY = "seconds without builds"
"""Property of a test in pytest's reports."""

_SPARE, _FACTOR = 15, 4
_BUILDS = 3600
_COLLECTION = 120

_kept: dict[str, float] = {}
_watches: list["Watch"] = []


class TookTooLong(BaseException):
    """A test exceeded its limit. No code under test may catch it."""


class Watch:
    """Counts seconds, except those in `uncounted`, and raises `TookTooLong` once they exceed a
    limit.

    Parameters
    ----------
    limit : in seconds; None: none.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._counted = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        running = 0.0 if self._since is None else time.monotonic() - self._since
        return self._counted + running

    def start(self) -> None:
        self._since = time.monotonic()
        if self._limit is not None:
            signal.signal(signal.SIGALRM, _raise)
            signal.setitimer(signal.ITIMER_REAL, max(self._limit - self._counted, 0.001))

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._counted, self._since = self.seconds, None


@contextmanager
def limited(limit: float | None) -> Generator[Watch]:
    """Count the seconds of a block, and limit them."""
    watch = Watch(limit)
    _watches.append(watch)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        _watches.remove(watch)


@contextmanager
def uncounted() -> Generator[None]:
    """A block within that of `limited` whose seconds do not count."""
    for watch in _watches:
        watch.stop()
    try:
        yield
    finally:
        for watch in _watches:
            watch.start()


def of_test(test: str) -> float | None:
    """Limit of a test; None if its time without a mutant is unknown."""
    seconds = known().get(test)
    return None if seconds is None else _SPARE + _FACTOR * seconds


def of_all(seconds: Mapping[str, float], *, builds: bool) -> float:
    """Limit of a run of all tests, which has to end even if a mutant keeps pytest itself from
    ending. `builds` : the mutant needs builds of its own."""
    return _COLLECTION + _FACTOR * sum(seconds.values()) + _BUILDS * builds


def known() -> dict[str, float]:
    """Seconds of each test without a mutant, as far as known."""
    file = Path(os.environ.get("SIGNALBOX_SECONDS", ""))
    return json.loads(file.read_text()) if file.is_file() else {}


def keep(report: pytest.TestReport) -> None:
    """Keep the seconds of a test that has ended, for `save`."""
    for name, value in report.user_properties:
        if name == PROPERTY:
            assert isinstance(value, float)
            _kept[report.nodeid] = value


def save() -> None:
    """Write the kept seconds; with pytest-xdist, only the process that gets all reports does."""
    file = os.environ.get("SIGNALBOX_SECONDS")
    if file and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(file).write_text(json.dumps(_kept))


def _raise(*_: object) -> None:
    raise TookTooLong("the mutant keeps the test from ending")
