"""Translation faults: the exception, and decoding of the machine's fault records (ASID-5, spec
6.4)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signalbox.hw.config import LIMITS
from signalbox.hw.methods import unpack
from signalbox.hw.page_tables import (
    FAULT_RECORD_BYTES,
    TASK_UNIT,
    AccessType,
    FaultRecord,
    FaultType,
    InstanceAperture,
)

__all__ = [
    "FIRST_ENGINE",
    "HOST",
    "SEMAPHORES",
    "FaultOwner",
    "TranslationFault",
    "client_name",
    "decode",
]

HOST, SEMAPHORES, FIRST_ENGINE = 1, 2, 3
"""Client numbers of the HUB: host, semaphore unit, first copy engine. Further engines follow."""

_MOST_ENGINES = LIMITS["copy_engines"].high

_MEANING = {
    FaultType.PDE: "no page table covers the address",
    FaultType.PDE_SIZE: "a page directory entry claims to be a page at a level that has none",
    FaultType.PTE: "the page is not mapped",
    FaultType.VA_LIMIT: "the address is past the limit of its address space",
    FaultType.UNBOUND_INST_BLOCK: "nothing is bound to the ASID",
    FaultType.PRIV: "the page is privileged, the access is not",
    FaultType.RO: "the page is read-only",
    FaultType.WO: "the page is write-only",
    FaultType.PITCH_MASK: "the pitch does not fit",
    FaultType.WORK_CREATION: "work could not be created",
    FaultType.UNSUPPORTED_APERTURE: "the table or page is not in video memory",
    FaultType.COMPRESSION: "the page is compressed",
    FaultType.UNSUPPORTED_KIND: "the page is of another kind than pitch",
    FaultType.REGION: "the table or page lies past the end of physical memory",
    FaultType.POISONED: "the bus refused a read of the page tables",
    FaultType.ATOMIC: "the page forbids atomics",
}

_ACCESS: dict[int, str] = {
    AccessType.READ: "read",
    AccessType.WRITE: "write",
    AccessType.ATOMIC_STRONG: "strong atomic",
    AccessType.PREFETCH: "prefetch",
    AccessType.ATOMIC_WEAK: "weak atomic",
}

_CAUSES = {int(cause): cause for cause in FaultType}
_ACCESSES = {int(access): access for access in AccessType}

_PHYSICAL = 8
"""Added to the access type if the access used a physical address."""


class FaultOwner(Protocol):
    """The part of an address space that fault decoding uses."""

    name: str

    def describe(self, va: int) -> str:
        """Describe the surroundings of a virtual address."""
        ...


@dataclass
class TranslationFault(Exception):
    """An access could not be translated.

    Members
    -------
    space : name of the address space; None if unknown to the driver, or if the ASID was unbound.
    asid : ASID of the access; None if the driver found the fault itself in an unbound space.
    va : virtual byte address; the address of the page if the machine recorded the fault.
    access, cause : type of the access and reason of the fault; plain numbers where the public
        tables have no name.
    physical : whether `va` is a physical address.
    base : page directory base, a byte address; None if the driver found the fault itself, or if the
        ASID was unbound.
    client, hub, gpc, engine : numbers of the requester; `client` is None if the driver found the
        fault itself. `requester` gives its name.
    time_ns : PTIMER, in ns.
    replayable : whether the access is held, to be retried.
    context : description of the driver's mapping at or below the address.
    """

    space: str | None
    asid: int | None
    va: int
    access: AccessType | int
    cause: FaultType | int
    physical: bool = False
    base: int | None = None
    client: int | None = None
    hub: bool = False
    gpc: int = 0
    engine: int = 0
    time_ns: int = 0
    replayable: bool = False
    context: str = ""

    def __str__(self) -> str:
        access = _ACCESS.get(self.access, f"access of type {self.access}")
        address = f"{'physical ' if self.physical else ''}{self.va:#x}"
        parts = [f"{access} of {address} in {self._where()} faulted with {self._why()}"]
        if self.client is not None:
            parts.append(f"; {self.requester}, engine {self.engine}, at {self.time_ns} ns")
        if self.context:
            parts.append(f"; {self.context}")
        return "".join(parts)

    @property
    def requester(self) -> str:
        """Name, if it has one, and numbers of the requester."""
        number = f"client {self.client} of {'HUB' if self.hub else f'GPC {self.gpc}'}"
        name = client_name(self.client) if self.hub and self.client is not None else ""
        return f"{name} ({number})" if name else number

    def _where(self) -> str:
        if self.space is not None:
            asid = "no ASID" if self.asid is None else f"ASID {self.asid}"
            return f"address space {self.space!r} ({asid})"
        if self.base is None:
            return f"ASID {self.asid}, to which no address space is bound,"
        return f"an unknown address space (ASID {self.asid}, page directory base {self.base:#x})"

    def _why(self) -> str:
        if isinstance(self.cause, FaultType):
            return f"{self.cause.name}: {_MEANING[self.cause]}"
        return f"unknown cause {self.cause}"


def client_name(client: int) -> str:
    """Name of a client of the HUB; empty if it has none."""
    engine = client - FIRST_ENGINE
    if 0 <= engine < _MOST_ENGINES:
        return f"copy engine {engine}"
    names = {HOST: "host", SEMAPHORES: "semaphore unit", TASK_UNIT: "task unit"}
    return names.get(client, "")


def decode(
    record: bytes, owner: Callable[[int, int], FaultOwner | None]
) -> TranslationFault | None:
    """Decode a 32-byte record with the layout of `hw.page_tables.FaultRecord`; None if it is not
    valid. `owner` maps an ASID and a page directory base to the address space, if known.

    Raises `ValueError` if the record has another size.
    """
    if len(record) != FAULT_RECORD_BYTES:
        raise ValueError(f"a fault record has {FAULT_RECORD_BYTES} bytes, not {len(record)}")
    fields = unpack(FaultRecord, int.from_bytes(record, "little"))
    if not fields["valid"]:
        return None
    base, va = fields["instance"] << 12, fields["address"] << 12
    access, cause = fields["access_type"] % _PHYSICAL, fields["fault_type"]
    physical = fields["access_type"] >= _PHYSICAL
    bound = fields["instance_aperture"] != InstanceAperture.INVALID
    space = owner(fields["asid"], base) if bound else None
    return TranslationFault(
        space=space.name if space else None,
        asid=fields["asid"],
        va=va,
        access=_ACCESSES.get(access, access),
        cause=_CAUSES.get(cause, cause),
        physical=physical,
        base=base if bound else None,
        client=fields["client"],
        hub=bool(fields["client_type"]),
        gpc=fields["gpc"],
        engine=fields["engine"],
        time_ns=fields["timestamp"],
        replayable=bool(fields["replayable"]),
        context=space.describe(va) if space and not physical else "",
    )
