"""Choice of the application whose work is ended (SHARE-9)."""

from dataclasses import dataclass
from typing import cast

import pytest

from signalbox.driver.server.application import Application
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.watchdog import intervene

NOW, PATIENCE = 10_000, 1000


@dataclass
class Work:
    """An application as seen by the watchdog: the last end of a task (`since`); the start of its
    current uninterrupted work (`busy_since`); whether channels wait for a place (`refused`) or an
    engine (`delayed`), or copy; the times since which it is held back, and others are held back for
    it."""

    since: int = NOW
    busy_since: int = 0
    refused: bool = False
    delayed: bool = False
    copying: bool = False
    held: int = 0
    waits: int = 0


SETTINGS = ServerSettings(patience_cycles=PATIENCE, launches_each=8)

LATE = NOW - PATIENCE - 1
"""Last end of a task of an application that has waited too long."""

LONG_AGO = NOW - 8 * PATIENCE - 1
"""Start of holding back an application that has used up the patience once per task."""

CASES = {
    "nobody": ([], None),
    "alone": ([Work(LATE, 1)], None),
    "beside one without work": ([Work(LATE, 1), Work(LATE)], None),
    "endless, another waits": ([Work(LATE, 1), Work(refused=True)], 0),
    "endless, a later one is served": ([Work(NOW, 501), Work(LATE, 500)], 1),
    "held for too long": ([Work(NOW, 1, held=LONG_AGO), Work(LATE, 500, waits=LATE)], 0),
    "just not too long": ([Work(LATE + 1, 1), Work(refused=True)], None),
    "of two, the longer one": ([Work(LATE, 20), Work(LATE, 10), Work(refused=True)], 1),
    "waits for an engine, all progress": ([Work(LATE, delayed=True), Work(NOW, 9)], None),
    "waits for an engine that is held": ([Work(LATE, delayed=True), Work(LATE, 9)], 1),
    "waits in vain, nobody is busy": ([Work(LATE, refused=True), Work(refused=True)], None),
}


HELD = {
    "one is served for longer": ([Work(NOW, 1), Work(LATE, 500), Work(NOW, 501)], [0]),
    "held already": (
        [Work(NOW, 1, held=LONG_AGO + 1), Work(LATE, 500, waits=LATE), Work(NOW, 2)],
        [0, 2],
    ),
    "waits in vain": ([Work(NOW, 9), Work(NOW, 8), Work(LATE, refused=True)], [0, 1]),
    "waits for an engine": (
        [Work(NOW, 9), Work(NOW, 8, copying=True), Work(LATE, delayed=True)],
        [1],
    ),
}
"""Applications, and the numbers of those that are held back first."""


@pytest.mark.parametrize("name", CASES)
def test_choice(name: str):
    """The right application is chosen, and the patience of the others starts anew."""
    there, wanted = CASES[name]
    before = [(one.since, one.busy_since) for one in there]
    found = intervene(cast("list[Application]", there), NOW, SETTINGS)
    if wanted is None:
        assert found is None
        assert [(one.since, one.busy_since) for one in there] == before
    else:
        assert found is there[wanted] and there[wanted].busy_since == 0
        assert all(one.since == NOW for one in there)


@pytest.mark.parametrize("name", HELD)
def test_held_back(name: str):
    """The right applications are held back, and the patience of those that wait for them starts
    anew."""
    there, wanted = HELD[name]
    late = [one for one in there if one.since == LATE]
    assert intervene(cast("list[Application]", there), NOW, SETTINGS) is None
    assert [n for n, one in enumerate(there) if one.held] == wanted
    assert all(one.since == NOW for one in late)


OTHERS = {
    "it still waits": (Work(LATE + 1, 500, waits=LATE + 1), True),
    "work of it has ended": (Work(LATE + 2, 500, waits=LATE + 1), False),
    "it has no work": (Work(LATE + 1, waits=LATE + 1), False),
}
"""Applications for which another one was held back, and whether it still is."""


@pytest.mark.parametrize("name", OTHERS)
def test_let_go(name: str):
    """An application is held back only while another one waits, and is not ended after that."""
    other, waits = OTHERS[name]
    held = Work(NOW, 1, held=LATE + 1)
    assert intervene(cast("list[Application]", [held, other]), NOW, SETTINGS) is None
    assert bool(held.held) == waits


def test_in_turn():
    """With a context each, n applications have n times the patience."""
    for late, wanted in ((3 * PATIENCE, False), (3 * PATIENCE + 1, True)):
        there = [Work(NOW - late, 1), Work(NOW, 2), Work(refused=True)]
        settings = ServerSettings(patience_cycles=PATIENCE, context_each=True)
        assert (intervene(cast("list[Application]", there), NOW, settings) is not None) == wanted


def test_for_ever():
    """With a patience of 0 no application is ended."""
    there = cast("list[Application]", [Work(0, 1), Work(refused=True)])
    assert intervene(there, 1 << 60, ServerSettings(patience_cycles=0)) is None
