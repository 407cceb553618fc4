"""Page tables of version 2 and MMU fault records: the layouts in memory (ASID-7, HOST-11).

The one place where they stand: the page walker reads tables so, the driver writes them. Five
levels translate 49 bits of virtual address:

    PD3 48:47   PD2 46:38   PD1 37:29   PD0 28:21   page table 20:12 (4 KiB) or 20:16 (64 KiB)

An entry of PD0 is dual: it names a table of 64 KiB pages (low half) and one of 4 KiB pages (high
half), or is itself the PTE of a 2 MiB page. The big table is looked at first. Entries have 8 bytes,
those of PD0 16.

Source: NVIDIA open-gpu-doc gp100-mmu-format.pdf, dev_mmu.ref.txt, dev_mmu_fault.ref.txt and
dev_fault.ref.txt, as restated on spec page 60 sections 6.1 and 6.4.
"""

from dataclasses import dataclass

from amaranth.lib import data, enum

__all__ = [
    "DIRECTORIES",
    "FAULT_RECORD_BYTES",
    "GPC_SMS",
    "PAGE_SIZES",
    "TABLES",
    "TASK_UNIT",
    "AccessType",
    "DualPde",
    "FaultRecord",
    "FaultType",
    "InstanceAperture",
    "Level",
    "Pde",
    "PdeAperture",
    "Pte",
    "PteAperture",
]


@dataclass(frozen=True)
class Level:
    """One level of the tables: `bits` of address from bit `shift` on choose one of its entries."""

    name: str
    shift: int
    bits: int
    entry_bytes: int = 8

    @property
    def table_bytes(self) -> int:
        """Bytes of one table."""
        return self.entry_bytes << self.bits

    def index(self, va: int) -> int:
        """The entry of a virtual address."""
        return va >> self.shift & (1 << self.bits) - 1


DIRECTORIES = (
    Level("PD3", 47, 2),
    Level("PD2", 38, 9),
    Level("PD1", 29, 9),
    Level("PD0", 21, 8, 16),
)
"""Page directories, from the one that the page directory base points at."""

TABLES = {1 << 12: Level("PT 4K", 12, 9), 1 << 16: Level("PT 64K", 16, 5)}
"""Page tables by the size of their pages in bytes."""

PAGE_SIZES = (1 << 12, 1 << 16, 1 << 21)
"""Bytes of a page; a page of the largest size is mapped by PD0 itself."""


class PdeAperture(enum.IntEnum, shape=2):
    """Where the table that a PDE names lies. Only video memory is modelled."""

    INVALID = 0
    VIDEO = 1
    SYSTEM_COHERENT = 2
    SYSTEM_NONCOHERENT = 3


class PteAperture(enum.IntEnum, shape=2):
    """Where a page lies. Only video memory is modelled."""

    VIDEO = 0
    PEER = 1
    SYSTEM_COHERENT = 2
    SYSTEM_NONCOHERENT = 3


class Pde(data.Struct):
    """Entry of PD3, PD2 and PD1. `address` >> 12; in video memory its low 25 bits count.
    `aperture` INVALID with `volatile` is sparse."""

    is_pte: 1
    aperture: PdeAperture
    volatile: 1
    reserved0: 1
    no_ats: 1
    reserved1: 2
    address: 46
    reserved2: 10


class DualPde(data.Struct):
    """Entry of PD0 where `is_pte` is 0: `big_address` >> 8, `small_address` >> 12."""

    is_pte: 1
    big_aperture: PdeAperture
    big_volatile: 1
    big_address: 50
    reserved0: 10
    reserved1: 1
    small_aperture: PdeAperture
    small_volatile: 1
    reserved2: 4
    small_address: 46
    reserved3: 10


class Pte(data.Struct):
    """Entry of a page table, and low half of a PD0 entry with IS_PTE, whose bit `valid` is.

    `address` >> 12. Not valid: sparse with `volatile` (reads give 0, writes are dropped); in a
    table of 64 KiB pages, with `privileged`, no 4 KiB page lies below either.
    """

    valid: 1
    aperture: PteAperture
    volatile: 1
    encrypted: 1
    privileged: 1
    read_only: 1
    atomic_disable: 1
    address: 25
    peer: 3
    comptagline: 20
    kind: 8


class FaultType(enum.IntEnum, shape=5):
    """FAULT_TYPE of a fault record. Those that the machine reports say when."""

    PDE = 0
    """No table where the walk needs one."""
    PDE_SIZE = 1
    """A PDE above PD0 that claims to be a PTE."""
    PTE = 2
    """Page not mapped."""
    VA_LIMIT = 3
    """Address past the limit of its address space."""
    UNBOUND_INST_BLOCK = 4
    """ASID to which nothing is bound."""
    PRIV = 5
    """Privileged page, and the access is not."""
    RO = 6
    """Write to a read-only page."""
    WO = 7
    PITCH_MASK = 8
    WORK_CREATION = 9
    UNSUPPORTED_APERTURE = 10
    """Table or page elsewhere than in video memory."""
    COMPRESSION = 11
    UNSUPPORTED_KIND = 12
    """Page of another kind than pitch."""
    REGION = 13
    """Table or page past the end of physical memory."""
    POISONED = 14
    """Bus error while a table was read."""
    ATOMIC = 15
    """Atomic access to a page that forbids it."""


class AccessType(enum.IntEnum, shape=4):
    """ACCESS_TYPE of a fault record; 8 more: the same, by a physical address."""

    READ = 0
    WRITE = 1
    ATOMIC_STRONG = 2
    PREFETCH = 3
    ATOMIC_WEAK = 4


FAULT_RECORD_BYTES = 32


TASK_UNIT = 7
"""`client` of the task unit in fault records."""

GPC_SMS = 16
"""SMs that have the same `gpc` in fault records."""


class InstanceAperture(enum.IntEnum, shape=2):
    """INST_APERTURE of a fault record. Only video memory is modelled."""

    VIDEO = 0
    INVALID = 1
    """Nothing is bound: there is no instance."""


class FaultRecord(data.Struct):
    """One entry of the fault buffer, 32 bytes (6.4). `instance` names the address space, its page
    directory base >> 12; with aperture INVALID it is 0. `address` is the virtual
    address >> 12; `timestamp` PTIMER. `client`: 1 host, 2 semaphore unit, 3 and on copy engines, 7
    the compute engine's task unit, all of them `client_type` 1; of SMs the `gpc` is the number / 16
    and `client` the rest, with `client_type` 0. `asid` is our own: public records have none."""

    reserved0: 8
    instance_aperture: InstanceAperture
    reserved1: 2
    instance: 52
    address_aperture: 2
    reserved2: 10
    address: 52
    timestamp: 64
    engine: 9
    reserved3: 7
    asid: 10
    reserved7: 6
    fault_type: FaultType
    reserved4: 2
    replayable: 1
    client: 7
    reserved5: 1
    access_type: AccessType
    client_type: 1
    reserved6: 3
    gpc: 5
    reserved8: 1
    replayable_enabled: 1
    valid: 1
