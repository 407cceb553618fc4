"""Ends endless work that keeps other applications waiting (SHARE-9)."""

import logging
from collections.abc import Iterable, Sequence

from signalbox.driver.server.application import Application
from signalbox.driver.server.settings import ServerSettings

__all__ = ["intervene"]

LOG = logging.getLogger("signalbox.server")


def intervene(
    applications: Iterable[Application], cycle: int, settings: ServerSettings
) -> Application | None:
    """Hold applications back or let them go, for the sake of those that wait. Returns the
    application whose work must be ended now, or None. The decision is noted in the applications,
    and the next call continues from it.

    Work is ended if several applications have work on the machine or wait for a place on it, and no
    task or copy of one of them has ended for longer than the patience. Of the applications with
    tasks or copies none of which has ended in that time, the one that has been busy for longest is
    chosen, and the patience of all others starts again.

    An endless task or copy may hide among others of its application that end. So applications that
    have been busy for even longer are held back first: no more of their work is issued until their
    work on the machine has ended, or no application waits for that any more (`Application.held`).
    Then only endless work is left, and an application whose work ends loses nothing. An application
    is held back for at most one patience for each task that it can have, so kernels that launch
    others for ever are ended, too.

    An application whose commands wait for its own semaphores or repairs does not hold up others: as
    long as it has nothing on the machine, its patience does not run (`Application.since`). An
    application that waits for a copy engine may in fact wait for semaphores; so for such
    applications alone, only applications with copies are held back.
    """
    working = [one for one in applications if one.busy_since or one.refused or one.delayed]
    _let_go(working)
    # With a context each, an application runs only for its part of the time.
    patience = settings.patience_cycles * (len(working) if settings.context_each else 1)
    longest = patience * settings.launches_each
    late = [
        one
        for one in working
        if cycle - one.since > patience or (one.held and cycle - one.held > longest)
    ]
    if not patience or len(working) < 2 or not late:
        return None
    endless = [one for one in late if one.busy_since]
    found = min(endless, key=lambda one: one.busy_since, default=None)
    holding = [one for one in working if one.busy_since and one not in endless]
    if hiding := _hiding(holding, found, late):
        _hold_back(hiding, late, cycle)
        return None
    if found is not None:
        _renew(working, cycle)
        found.busy_since, found.held = 0, cycle
    return found


def _hiding(
    holding: Sequence[Application], found: Application | None, late: Sequence[Application]
) -> list[Application]:
    """Applications with work that ends, among which endless work may hide."""
    if found is not None:
        return [one for one in holding if one.busy_since < found.busy_since]
    refused = any(one.refused for one in late)
    return [one for one in holding if refused or one.copying]


def _hold_back(hiding: Sequence[Application], late: Sequence[Application], cycle: int) -> None:
    """Hold applications back; the patience of those that wait for them starts again."""
    for one in hiding:
        if not one.held:
            LOG.info("%s: it is held back, others have waited for too long", one)
            one.held = cycle
    _renew(late, cycle)


def _renew(waiting: Sequence[Application], cycle: int) -> None:
    """Restart the patience of applications, while others are held back or ended for them."""
    for one in waiting:
        one.since = one.waits = cycle


def _let_go(working: Sequence[Application]) -> None:
    """No longer hold back applications for which no other one waits."""
    waiting = [one for one in working if one.waits and one.waits == one.since]
    for one in working:
        if all(other is one for other in waiting):
            one.held = 0
