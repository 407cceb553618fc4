"""Selects an application that blocks others with endless work (SHARE-9)."""

from collections.abc import Iterable

from signalbox.driver.server.application import Application
from signalbox.driver.server.settings import ServerSettings

__all__ = ["culprit"]


def culprit(
    applications: Iterable[Application], cycle: int, settings: ServerSettings
) -> Application | None:
    """Returns the application to be ended, or None.

    Applies when several have work on the machine or wait for a place on it, and nothing of one of
    them has ended for longer than the patience. Prefers applications with tasks or copies of which
    none has ended meanwhile to others with tasks or copies; among these, the one that has been busy
    for longest. Restarts the patience of all.

    An application whose commands wait for its own semaphores or repairs costs nobody anything: as
    long as it has nothing on the machine, its patience does not run (`Application.since`). As one
    that waits for a copy engine may wait for semaphores, it alone costs nobody anything of whom
    tasks or copies end.
    """
    working = [one for one in applications if one.busy_since or one.refused or one.delayed]
    # With a context each, an application runs for its part of the time only.
    patience = settings.patience_cycles * (len(working) if settings.context_each else 1)
    holding = [one for one in working if one.busy_since]
    starved = [one for one in working if cycle - one.since > patience]
    if not patience or len(working) < 2 or not holding or not starved:
        return None
    endless = [one for one in holding if one in starved]
    if not endless and not any(one.refused for one in starved):
        return None
    found = min(endless or holding, key=lambda one: one.busy_since)
    for one in working:
        one.since = cycle
    found.busy_since = 0
    return found
