"""History of the software's mappings: pages of address spaces over time.

It is independent of page tables and hardware: an access is correct if it agrees with a page of its
address space that was in the tables, or not yet invalidated, during the access.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from signalbox.tb.units.mmu.clients import Burst

__all__ = [
    "ATOMIC",
    "ATOMICS",
    "LIMIT",
    "NEVER",
    "NO_PAGE",
    "POISONED",
    "PRIVILEGE",
    "READ",
    "READ_ONLY",
    "REGION",
    "UNBOUND",
    "WRITE",
    "Event",
    "History",
    "Mapping",
    "Record",
    "Row",
    "refusal",
]

READ, WRITE, ATOMIC = range(3)
NO_PAGE = (0, 2)
LIMIT, UNBOUND, PRIVILEGE, READ_ONLY, REGION, POISONED, ATOMICS = 3, 4, 5, 6, 13, 14, 15
"""FAULT_TYPE of a fault record."""

NEVER = float("inf")

PIECE = 1 << 21
"""Largest part of a page that is translated at once."""

CLIENTS, SMS = (int(os.environ.get(name, "0")) for name in ("CLIENTS", "SMS"))
"""Number of clients other than translation, and number of SMs among them. The SMs are the last
clients, preceded by the task unit."""


@dataclass
class Event:
    """A fault reported in a cycle. `record` : its record in memory, unless dropped."""

    client: int
    asid: int
    va: int
    physical: bool
    access: int
    cause: int
    cycle: int
    record: int | None = None


@dataclass(frozen=True)
class Record:
    """Contents of the 32 bytes of a fault record, by the bit positions of spec 6.4."""

    aperture: int
    instance: int
    address: int
    timestamp: int
    asid: int
    cause: int
    client: int
    access: int
    client_type: int
    gpc: int
    valid: int

    @classmethod
    def of(cls, word: int) -> "Record":
        places = (
            (8, 2),
            (12, 52),
            (76, 52),
            (128, 64),
            (208, 10),
            (224, 5),
            (232, 7),
            (240, 4),
            (244, 1),
            (248, 5),
            (255, 1),
        )
        return cls(*(word >> low & (1 << width) - 1 for low, width in places))


@dataclass
class Row:
    """Row of a space: tables at `base`, or none; pages up to `last`."""

    base: int | None
    last: int
    since: float
    until: float = NEVER


def refusal(kind: int, *, privileged: bool, read_only: bool, atomics: bool) -> int | None:
    """Fault of an access by an unprivileged client to a page; None if it is allowed."""
    if privileged:
        return PRIVILEGE
    if read_only and kind != READ:
        return READ_ONLY
    return ATOMICS if kind == ATOMIC and not atomics else None


@dataclass(eq=False)
class Mapping:
    """A page in the tables of a space from cycle `born` until `dead`. It is certainly found from
    `sure` on, and may be used until `gone`. Sparse if `pa` is None."""

    asid: int
    va: int
    size: int
    pa: int | None
    read_only: bool
    privileged: bool
    atomics: bool
    born: float
    last: int
    sure: float
    dead: float = NEVER
    gone: float = NEVER

    def end(self, va: int) -> int:
        """Last address of the page; for a page of 512 MiB, of its 2 MiB piece around `va`. Limit
        and end of memory apply to the whole piece."""
        return va | min(self.size, PIECE) - 1

    def within(self, va: int) -> bool:
        """Whether the limit allows an access: a page must end below it; for sparse pages, which are
        not cached, only the address counts."""
        return (va if self.pa is None else self.end(va)) <= self.last

    def past(self, va: int, memory_bytes: int) -> bool:
        """Whether the end of memory forbids an access."""
        return self.pa is not None and self.pa + self.end(va) - self.va >= memory_bytes

    def has(self, va: int) -> bool:
        return self.va <= va < self.va + self.size

    def refuses(self, kind: int) -> int | None:
        """Fault of an access; None if it is allowed."""
        if self.pa is None:
            return None
        return refusal(
            kind, privileged=self.privileged, read_only=self.read_only, atomics=self.atomics
        )


@dataclass
class _Bound:
    """The tables of a space, with its row."""

    tables: Any
    row: Row


class History:
    """All actions of the software.

    Parameters
    ----------
    built : whether an ASID exists.
    memory_bytes : size of physical memory.
    """

    def __init__(self, built: Callable[[int], bool], memory_bytes: int) -> None:
        self._built, self._memory = built, memory_bytes
        self.rows: dict[int, list[Row]] = {}
        self.mappings: dict[int, list[Mapping]] = {}
        self.bound: dict[int, _Bound] = {}
        self.poisoned: list[list[float]] = []
        """Times at which tables could not be read."""

    # Software

    def add(self, tables: Any, page: Any, now: float, *, sure: float) -> None:
        """`page` is in these tables from now on."""
        for asid, bound in self.bound.items():
            if bound.tables is tables:
                self._add(asid, bound, page, now, sure)

    def _add(self, asid: int, bound: _Bound, page: Any, now: float, sure: float) -> Mapping:
        pa = None if page.va in bound.tables.sparse else page.pa
        flags = (page.read_only, page.privileged, page.atomics)
        mapping = Mapping(asid, page.va, page.size, pa, *flags, now, bound.row.last, sure)
        self.mappings.setdefault(asid, []).append(mapping)
        return mapping

    def remove(self, tables: Any, page: Any, now: float) -> None:
        """`page` has left these tables."""
        for asid, bound in self.bound.items():
            for one in self.mappings.get(asid, []) if bound.tables is tables else []:
                if one.va == page.va and one.dead == NEVER:
                    one.dead = now

    def leave(self, asid: int, now: float) -> list[Mapping | Row]:
        """A bind begins. Returns everything that it ends."""
        old = self.mappings.get(asid, [])
        for one in old:
            one.dead = min(one.dead, now)
        self.bound.pop(asid, None)
        rows = self.rows.setdefault(asid, [Row(None, 0, 0)])
        return [*old, *rows]

    def enter(self, asid: int, row: Row, tables: Any) -> list[Mapping]:
        """A space may have these tables from now on. Returns its pages."""
        self.rows[asid].append(row)
        if tables is None:
            return []
        self.bound[asid] = bound = _Bound(tables, row)
        return [self._add(asid, bound, page, row.since, NEVER) for page in tables.pages()]

    def acknowledge(self, old: Iterable[Mapping | Row], now: float) -> None:
        """These rows and pages are no longer used."""
        for one in old:
            if isinstance(one, Row):
                one.until = min(one.until, now)
            else:
                one.gone = min(one.gone, now)

    def bound_to(self, base: int) -> list[int]:
        return [asid for asid, bound in self.bound.items() if bound.row.base == base]

    def covered(self, asids: Iterable[int], va: int | None) -> list[Mapping]:
        """Mappings of these spaces that have left the tables; with `va`, only the ones that contain
        it."""
        mine = [one for asid in asids for one in self.mappings.get(asid, [])]
        return [one for one in mine if one.dead < NEVER and (va is None or one.has(va))]

    # Checks

    def _mine(self, burst: Burst) -> list[Mapping]:
        """Pages that the burst may have used: valid at any time between its offer and its end."""
        offered, ended = burst.cycles[0], burst.cycles[-1]
        return [
            one
            for one in self.mappings.get(burst.asid, [])
            if one.has(burst.va) and one.born <= ended and one.gone > offered
        ]

    def _rows(self, burst: Burst) -> list[Row]:
        rows = self.rows.get(burst.asid, [Row(None, 0, 0)])
        return [
            row for row in rows if row.since <= burst.cycles[-1] and row.until > burst.cycles[0]
        ]

    def check_access(self, burst: Burst, kind: int, address: int | None) -> None:
        """Check an access at a physical address, or of a sparse page: its page must be valid until
        the access has ended."""
        if burst.physical:
            assert address is not None, burst
            assert address // 4096 == burst.va // 4096 < self._memory // 4096, (burst, address)
            return
        assert self._built(burst.asid), burst
        right = [one for one in self._mine(burst) if self._explains(one, burst, kind, address)]
        assert right, (burst, address, self._mine(burst))

    def _explains(self, one: Mapping, burst: Burst, kind: int, address: int | None) -> bool:
        in_time = one.gone > burst.cycles[-1] and one.within(burst.va)
        in_time &= not one.past(burst.va, self._memory)
        if one.pa is None or address is None:
            return in_time and one.pa is None and address is None
        page = (one.pa + burst.va - one.va) // 4096
        return in_time and page == address // 4096 and one.refuses(kind) is None

    def check_fault(self, burst: Burst, kind: int, event: Event) -> None:
        """Check that the cause of the fault existed at some time."""
        mine, cause, rows = self._mine(burst), event.cause, self._rows(burst)
        if burst.physical:
            assert cause == REGION and burst.va >= self._memory, (burst, event)
        elif cause == UNBOUND:
            assert any(row.base is None for row in rows), (burst, rows)
        elif cause == LIMIT:
            past = [row for row in rows if row.base is not None and burst.va > row.last]
            assert past or not all(one.within(burst.va) for one in mine), (burst, rows, mine)
        elif cause == POISONED:
            offered, ended = burst.cycles[0], burst.cycles[-1]
            met = [since for since, until in self.poisoned if since <= ended and until >= offered]
            assert met, (burst, event)
        elif cause in NO_PAGE:
            self._check_missing(burst, mine, rows)
        elif cause == REGION:
            assert any(one.past(burst.va, self._memory) for one in mine), (burst, event, mine)
        else:
            found = [one for one in mine if not one.past(burst.va, self._memory)]
            assert cause in {one.refuses(kind) for one in found}, (burst, event, mine)

    def _check_missing(self, burst: Burst, mine: list[Mapping], rows: list[Row]) -> None:
        """Check that there was a time without a page."""
        offered, ended = burst.cycles[0], burst.cycles[-1]
        always = [
            one
            for one in mine
            if one.sure <= offered and one.dead >= ended and one.within(burst.va)
        ]
        assert not always, (burst, always)
        assert any(row.base is not None for row in rows), burst

    def check_record(self, burst: Burst, event: Event) -> None:
        """Check the 32 bytes of a record, by the bit positions of spec 6.4."""
        assert event.record is not None
        record = Record.of(event.record)
        bases = {row.base for row in self._rows(burst)}
        assert record.valid == 1, burst
        assert record.address == burst.va >> 12, burst
        assert (record.asid, record.cause) == (burst.asid, event.cause), burst
        assert (record.client_type, record.gpc, record.client) == _named(event.client), burst
        assert record.access == event.access + 8 * burst.physical, burst
        assert burst.cycles[0] <= record.timestamp <= event.cycle, burst
        if record.aperture:
            assert (record.aperture, record.instance) == (1, 0), burst
            assert None in bases, (burst, bases)
        else:
            assert record.instance << 12 in bases, (burst, bases)


def _named(client: int) -> tuple[int, int, int]:
    """Type, GPC and number of a client in records."""
    task_unit = CLIENTS - SMS
    if not SMS or client < task_unit:
        return 1, 0, client
    if client == task_unit:
        return 1, 0, 7
    sm = client - task_unit - 1
    return 0, sm // 16, sm % 16
