"""Page tables of version 2 and MMU fault records: the layouts in memory (ASID-7, HOST-11).

Their only definition: the page walker reads these tables, the driver writes them. Five levels
translate 49 bits of virtual address:

    PD3 48:47   PD2 46:38   PD1 37:29   PD0 28:21   page table 20:12 (4 KiB) or 20:16 (64 KiB)

A PD0 entry is dual: it names a table of 64 KiB pages (low half) and one of 4 KiB pages (high half),
or is itself the PTE of a 2 MiB page. The table of 64 KiB pages has precedence. A PD1 entry names a
PD0, or is itself the PTE of a 512 MiB page (HOST-17). In both, bit 0 decides: VALID of a PTE,
IS_PTE of a PDE. Entries have 8 bytes, those of PD0 16.

Source: NVIDIA open-gpu-doc gp100-mmu-format.pdf, dev_mmu.ref.txt, dev_mmu_fault.ref.txt and
dev_fault.ref.txt, as restated in spec 6.1 and 6.4; kinds: tu102 dev_mmu.h; 512 MiB
pages: uvm_ampere_mmu.c and kern_gmmu_fmt_ga10x.c of open-gpu-kernel-modules.
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
    "PteKind",
]


@dataclass(frozen=True)
class Level:
    """Level of the page tables: `bits` address bits from bit `shift` on select an entry."""

    name: str
    shift: int
    bits: int
    entry_bytes: int = 8

    @property
    def table_bytes(self) -> int:
        """Bytes per table."""
        return self.entry_bytes << self.bits

    def index(self, va: int) -> int:
        """Index of a virtual address in its table."""
        return va >> self.shift & (1 << self.bits) - 1


DIRECTORIES = (
    Level("PD3", 47, 2),
    Level("PD2", 38, 9),
    Level("PD1", 29, 9),
    Level("PD0", 21, 8, 16),
)
"""Page directories, from the root on."""

TABLES = {1 << 12: Level("PT 4K", 12, 9), 1 << 16: Level("PT 64K", 16, 5)}
"""Page tables, by page size in bytes."""

PAGE_SIZES = (1 << 12, 1 << 16, 1 << 21, 1 << 29)
"""Page sizes in bytes; the two largest are mapped by PD0 and PD1 themselves."""


class PdeAperture(enum.IntEnum, shape=2):
    """Location of the table named by a PDE. Only video memory is modelled."""

    INVALID = 0
    VIDEO = 1
    SYSTEM_COHERENT = 2
    SYSTEM_NONCOHERENT = 3


class PteAperture(enum.IntEnum, shape=2):
    """Location of a page. Only video memory is modelled."""

    VIDEO = 0
    PEER = 1
    SYSTEM_COHERENT = 2
    SYSTEM_NONCOHERENT = 3


class PteKind(enum.IntEnum, shape=8):
    """Kinds of ordinary memory; others are not modelled (HOST-17). Parts before Turing use PITCH,
    later ones GENERIC."""

    PITCH = 0
    GENERIC = 6


class Pde(data.Struct):
    """Entry of PD3, PD2, and of PD1 with `is_pte` 0. `address` >> 12; in video memory only its low
    25 bits are used. Aperture INVALID with `volatile` is sparse."""

    is_pte: 1
    aperture: PdeAperture
    volatile: 1
    reserved0: 1
    no_ats: 1
    reserved1: 2
    address: 46
    reserved2: 10


class DualPde(data.Struct):
    """Entry of PD0 with `is_pte` 0: `big_address` >> 8, `small_address` >> 12."""

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
    """Page table entry; or entry of PD1, or low half of one of PD0, whose bit IS_PTE, here `valid`,
    is set.

    `address` >> 12; its bits within the page are ignored. With `valid` 0, `volatile` marks a sparse
    page: reads return 0, writes are dropped. In a table of 64 KiB pages, `valid` 0 and `privileged`
    mean that the table of 4 KiB pages does not map the address either.
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
    """FAULT_TYPE of a fault record. Types raised by this machine are described."""

    PDE = 0
    """The walk needs a table that does not exist."""
    PDE_SIZE = 1
    """A PDE above PD1 with IS_PTE set."""
    PTE = 2
    """Page not mapped."""
    VA_LIMIT = 3
    """Address past the limit of its address space."""
    UNBOUND_INST_BLOCK = 4
    """ASID without a bind."""
    PRIV = 5
    """Unprivileged access to a privileged page."""
    RO = 6
    """Write to a read-only page."""
    WO = 7
    PITCH_MASK = 8
    WORK_CREATION = 9
    UNSUPPORTED_APERTURE = 10
    """Table or page outside video memory."""
    COMPRESSION = 11
    UNSUPPORTED_KIND = 12
    """Page of a kind other than `PteKind`."""
    REGION = 13
    """Table or page past the end of physical memory."""
    POISONED = 14
    """Bus error reading a table."""
    ATOMIC = 15
    """Atomic access to a page that forbids it."""


class AccessType(enum.IntEnum, shape=4):
    """ACCESS_TYPE of a fault record; plus 8 for an access by physical address."""

    READ = 0
    WRITE = 1
    ATOMIC_STRONG = 2
    PREFETCH = 3
    ATOMIC_WEAK = 4


FAULT_RECORD_BYTES = 32


TASK_UNIT = 7
"""`client` of the task unit in fault records."""

GPC_SMS = 16
"""SMs per `gpc` in fault records."""


class InstanceAperture(enum.IntEnum, shape=2):
    """INST_APERTURE of a fault record. Only video memory is modelled."""

    VIDEO = 0
    INVALID = 1
    """No page directory is bound, so there is no instance."""


class FaultRecord(data.Struct):
    """Entry of the fault buffer, 32 bytes (spec 6.4).

    * `instance`: page directory base >> 12 of the address space; 0 with aperture INVALID.
    * `address`: virtual address >> 12.
    * `timestamp`: PTIMER.
    * `client`, with `client_type` 1: 1 host, 2 semaphore unit, 3 … 6 copy engines, 7 task unit.
      With `client_type` 0, an SM: `gpc` is its number / 16, `client` the remainder.
    * `asid`: address space; public records do not have it.
    """

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
