"""Journal of a server: arrivals, ends, channels and pointers of its applications, for timelines."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from signalbox.driver.server.application import Application

__all__ = ["Entry", "Journal", "Kind", "Note"]


class Kind(StrEnum):
    """Kinds of entries."""

    CAME = "came"
    GONE = "gone"
    OPENED = "opened"
    """A channel of the application was opened."""
    CLOSED = "closed"
    PUSHED = "pushed"
    """A pointer was put on the application's queue."""
    DROPPED = "dropped"
    """A pointer was taken from the queue, as its channel is closed."""
    HANDED_ON = "handed on"
    """The oldest pointer of a channel was given to the machine, or refused."""


@dataclass(frozen=True)
class Entry:
    """An event of an application.

    Members
    -------
    cycle : machine cycle.
    application, name, process : number, name and process of the `Application`.
    channel : number of the channel; -1 for `CAME` and `GONE`.
    """

    cycle: int
    kind: Kind
    application: int
    name: str
    process: int
    channel: int = -1


Note = Callable[[Kind, Application, int], None]
"""Writes an entry of an application and a channel."""


class Journal:
    """Entries, oldest first. `now` : returns the current machine cycle."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.entries: list[Entry] = []

    def note(self, kind: Kind, one: Application, channel: int = -1) -> None:
        """Write an entry."""
        entry = Entry(self._now(), kind, one.number, one.name, one.process, channel)
        self.entries.append(entry)
