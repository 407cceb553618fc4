"""Decoder of page table entries: PDEs and PTEs (ASID-7)."""

from amaranth.hdl import Module, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.records import PAGE_BITS, PERMISSIONS, Outcome, PageSize, page_result
from signalbox.hw.page_tables import (
    DIRECTORIES,
    PAGE_SIZES,
    TABLES,
    DualPde,
    FaultType,
    Pde,
    PdeAperture,
    Pte,
    PteAperture,
    PteKind,
)
from signalbox.hw.records.memory import MemoryStatus

__all__ = [
    "ENTRY_BITS",
    "LEVELS",
    "TABLE_BITS",
    "Depth",
    "PageTableEntryDecoder",
    "SmallTable",
    "region_page",
    "skips",
]

ENTRY_BITS = 128
"""Width of the largest entry, that of PD0; the others use the low half."""

TABLE_BITS = 8
"""Low address bits that are 0 for every table."""

_PHYSICAL_BITS = 37
"""Significant address bits of an entry in video memory."""

_REGION_BITS = PAGE_SIZES[-1].bit_length() - 1 - PAGE_BITS
"""Page-number bits within a page of 512 MiB."""


class Depth(enum.Enum, shape=3):
    """Level of an entry: a directory, or a page table of 64 KiB (BIG) or 4 KiB (SMALL) pages."""

    PD3 = 0
    PD2 = 1
    PD1 = 2
    PD0 = 3
    BIG = 4
    SMALL = 5


LEVELS = (*DIRECTORIES, TABLES[1 << 16], TABLES[1 << 12])
"""Indexed by the value of `Depth`."""


class SmallTable(data.Struct):
    """Table of 4 KiB pages, as named by the PD0 entry that also names a table of 64 KiB pages."""

    aperture: PdeAperture
    sparse: 1
    address: _PHYSICAL_BITS - PAGE_BITS


def skips(depth: Value, entry: Value) -> Value:
    """Whether the walk goes from PD0 directly to the table of 4 KiB pages, as there is none of 64
    KiB pages."""
    absent = data.View(DualPde, entry).big_aperture == PdeAperture.INVALID
    return (depth == Depth.PD0) & absent


def region_page(config: Config) -> data.StructLayout:
    """A page of 512 MiB, in the bits of an address >> `TABLE_BITS`: permissions in the low bits,
    which are 0 in the address of the page."""
    return data.StructLayout({
        **dict.fromkeys(PERMISSIONS, 1),
        "reserved": _REGION_BITS + PAGE_BITS - TABLE_BITS - len(PERMISSIONS),
        "number": config.address_width - PAGE_BITS - _REGION_BITS,
    })


class PageTableEntryDecoder(wiring.Component):
    """Decodes an entry into the next step of the walk, or its result. Combinational.

    For a page of 512 MiB, a PTE in PD1, the decoder checks the bounds of the first byte only; the
    walker chooses the piece of 2 MiB and checks its bounds.

    Members
    -------
    depth : in, level of the entry, a `Depth`.
    entry : in, 128 bits: the entry; all but PD0's in the low 64.
    status : in, `MemoryStatus` of its read.
    beside : in, for a BIG entry, the table of 4 KiB pages from PD0, a `SmallTable`.
    descends : out, the walk goes on to a table below: the next level, or SMALL if it `skips` BIG.
    table : out, `address_width` - `TABLE_BITS` bits: address of that table >> `TABLE_BITS`; for a
        page of 512 MiB, a `region_page`.
    below : out, for a PD0 entry, the table of 4 KiB pages, a `SmallTable`.
    whole : out, the entry is the PTE of a page of 512 MiB.
    end : out, `page_result` of the walk, unless `descends`; with `whole`, of any piece of the page.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "depth": In(Depth),
            "entry": In(ENTRY_BITS),
            "status": In(MemoryStatus),
            "beside": In(SmallTable),
            "descends": Out(1),
            "table": Out(config.address_width - TABLE_BITS),
            "below": Out(SmallTable),
            "whole": Out(1),
            "end": Out(page_result(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.status == MemoryStatus.BUS):
            self._fault(m, FaultType.POISONED)
        with m.Elif(self.status == MemoryStatus.FAULT):
            self._fault(m, FaultType.REGION)
        with m.Else():
            with m.Switch(self.depth):
                with m.Case(Depth.PD3, Depth.PD2, Depth.PD1):
                    self._directory(m)
                with m.Case(Depth.PD0):
                    self._dual(m)
                with m.Case(Depth.BIG):
                    self._big(m)
                with m.Default():
                    self._page(m, PageSize.SMALL)
        return m

    def _fault(self, m: Module, fault: FaultType) -> None:
        m.d.comb += [self.end.outcome.eq(Outcome.FAULT), self.end.fault.eq(fault)]

    def _directory(self, m: Module) -> None:
        entry = data.View(Pde, self.entry[:64])
        with m.If(entry.is_pte & (self.depth == Depth.PD1)):
            self._region(m)
        with m.Elif(entry.is_pte):
            self._fault(m, FaultType.PDE_SIZE)
        with m.Else():
            address = entry.address[: _PHYSICAL_BITS - PAGE_BITS] << PAGE_BITS
            self._descend(m, entry.aperture, entry.volatile, address)

    def _region(self, m: Module) -> None:
        """A page of 512 MiB."""
        kept, found = data.View(region_page(self._config), self.table), self.end.page
        self._page(m, PageSize.HUGE, PAGE_SIZES[-1])
        m.d.comb += [
            self.whole.eq(1),
            kept.number.eq(found.ppn[_REGION_BITS:]),
            [kept[name].eq(found[name]) for name in PERMISSIONS],
        ]

    def _dual(self, m: Module) -> None:
        """The table of 64 KiB pages comes first, then that of 4 KiB pages."""
        entry = data.View(DualPde, self.entry)
        small = entry.small_address[: _PHYSICAL_BITS - PAGE_BITS]
        m.d.comb += [
            self.below.aperture.eq(entry.small_aperture),
            self.below.sparse.eq(entry.small_volatile),
            self.below.address.eq(small),
        ]
        with m.If(entry.is_pte):
            self._page(m, PageSize.HUGE)
        with m.Elif(entry.big_aperture != PdeAperture.INVALID):
            big = entry.big_address[: _PHYSICAL_BITS - TABLE_BITS] << TABLE_BITS
            self._descend(m, entry.big_aperture, 0, big)
        with m.Else():
            sparse = entry.big_volatile | entry.small_volatile
            self._descend(m, entry.small_aperture, sparse, small << PAGE_BITS)

    def _big(self, m: Module) -> None:
        """A page of 64 KiB; without one, the table of 4 KiB pages may have a page."""
        entry, beside = data.View(Pte, self.entry[:64]), self.beside
        nothing = (beside.aperture == PdeAperture.INVALID) & ~beside.sparse
        with m.If(entry.valid | entry.privileged | entry.volatile | nothing):
            self._page(m, PageSize.BIG)
        with m.Else():
            self._descend(m, beside.aperture, beside.sparse, beside.address << PAGE_BITS)

    def _descend(self, m: Module, aperture: Value, sparse: Value | int, address: Value) -> None:
        """Goes on to the table at `address`, if it exists and can be read."""
        with m.If(aperture == PdeAperture.INVALID):
            with m.If(sparse):
                m.d.comb += self.end.outcome.eq(Outcome.SPARSE)
            with m.Else():
                self._fault(m, FaultType.PDE)
        with m.Elif(aperture != PdeAperture.VIDEO):
            self._fault(m, FaultType.UNSUPPORTED_APERTURE)
        with m.Elif((address >> self._config.address_width).any()):
            self._fault(m, FaultType.REGION)
        with m.Else():
            m.d.comb += [self.descends.eq(1), self.table.eq(address >> TABLE_BITS)]

    def _page(self, m: Module, size: PageSize, whole: int | None = None) -> None:
        """A page of `size`; with `whole`, the first piece of a page of `whole` bytes."""
        entry, found = data.View(Pte, self.entry[:64]), self.end.page
        shift = (whole or PAGE_SIZES[size.value]).bit_length() - 1
        number = entry.address >> (shift - PAGE_BITS)
        memory = self._config.memory_bytes
        frames = -(-memory >> shift) if whole else memory >> shift
        m.d.comb += [
            found.size.eq(size),
            found.ppn.eq(entry.address),
            found.read_only.eq(entry.read_only),
            found.privileged.eq(entry.privileged),
            found.no_atomics.eq(entry.atomic_disable),
        ]
        with m.If(~entry.valid & entry.volatile):
            m.d.comb += self.end.outcome.eq(Outcome.SPARSE)
        with m.Elif(~entry.valid):
            self._fault(m, FaultType.PTE)
        with m.Elif(entry.aperture != PteAperture.VIDEO):
            self._fault(m, FaultType.UNSUPPORTED_APERTURE)
        with m.Elif(~entry.kind.matches(*PteKind)):
            self._fault(m, FaultType.UNSUPPORTED_KIND)
        with m.Elif(number >= frames):
            self._fault(m, FaultType.REGION)
        with m.Else():
            m.d.comb += self.end.outcome.eq(Outcome.PAGE)
