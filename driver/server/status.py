"""State of a server as text, for `signalbox status`."""

from collections.abc import Iterable
from typing import Protocol

from signalbox.driver.server.application import Application
from signalbox.driver.server.sm_use import SmUse
from signalbox.driver.text_table import counted, number, ranges, table

__all__ = ["Served", "status"]

_HEADS = (
    "application",
    "process",
    "memory",
    "SMs",
    "spaces",
    "channels",
    "queued",
    "issued",
    "tasks",
    "ended",
    "faults",
)


class Served(Protocol):
    """The part of a server that its status shows."""

    applications: dict[int, Application]
    served: int
    sm_use: SmUse

    @property
    def cycle(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...


def status(server: Served) -> str:
    """Use of the SMs when last looked at; applications, queues, memory and faults as a table."""
    there: Iterable[Application] = server.applications.values()
    rows = [_row(one) for one in there]
    first = (
        f"cycle {number(server.cycle)}, {counted(len(rows), 'application')} of "
        f"{counted(server.served, 'application')} so far, {number(server.free_bytes)} bytes of "
        "memory free"
    )
    parts = first, str(server.sm_use), table(rows, _HEADS) if rows else ""
    return "\n".join(part for part in parts if part)


def _row(one: Application) -> tuple[object, ...]:
    channels = one.channels.values()
    return (
        f"{one.number} {one.name!r}",
        one.process,
        number(one.portion.memory.room),
        ranges(one.limits.sms) or "all",
        len(one.spaces),
        len(channels),
        one.queued,
        one.issued,
        one.tasks,
        sum(served.ended for served in channels),
        sum(served.channel.failure is not None for served in channels),
    )
