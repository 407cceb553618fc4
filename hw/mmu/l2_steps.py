"""Entries and pipeline steps of the second-level TLB."""

from amaranth.hdl import ShapeLike
from amaranth.lib import data, enum

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_generations import generation
from signalbox.hw.mmu.records import (
    PERMISSIONS,
    SHIFTS,
    VPN_BITS,
    page,
    page_request,
    page_result,
)

__all__ = ["KEPT", "Held", "Kind", "L2Steps"]

KEPT = ("ppn", *PERMISSIONS)
"""Fields of a `page` stored in an entry, besides its size."""


class Kind(enum.Enum, shape=2):
    """Kinds of pipeline operations: look-up; refill by a walk; removal of one page; removal of all
    pages of an address space in one set."""

    PROBE = 0
    WALKED = 1
    REMOVE = 2
    SWEEP = 3


class Held(enum.Enum, shape=2):
    """Page size of an entry, or NONE for an invalid one."""

    SMALL = 0
    BIG = 1
    HUGE = 2
    NONE = 3


class L2Steps:
    """Layouts of a TLB with `sets` sets of `ways` ways.

    Attributes
    ----------
    entry : an entry. `high`: page number without the bits implied by the set index.
    change : an operation, of any kind, at set `index`; all steps below contain it. `stale`: an
        invalidation covers it.
    looked : operation of the first step, while the ways are read. `collided`: the way was written
        meanwhile.
    read : of the second step. `rows`: entries that were read; `sizes`: candidate page sizes;
        `current`: generation of its address space.
    acting : of the third step. `low`, `high`: the two halves of the tag match; `counts`: the
        entry's generation is current; `pages`: their contents. Per way: `swept`, the entry belongs
        to the space being swept; `live`, the entry is of a current generation; `oldest`, the entry
        is the least recently used one.
    leaving : of the last step.
    written : set and ways written in this cycle.
    matches : a bit per page size and way.
    """

    def __init__(
        self, config: Config, tag: int, ways: int, sets: int, generation_bits: int
    ) -> None:
        index_bits = (sets - 1).bit_length()
        kept = data.StructLayout({name: page(config)[name].shape for name in KEPT})
        current = generation(generation_bits)
        self.entry = data.StructLayout({
            "held": Held,
            "asid": config.asid_bits,
            "high": VPN_BITS - index_bits,
            "generation": generation_bits,
            **kept.members,
        })
        self.change = data.StructLayout({
            "valid": 1,
            "kind": Kind,
            "request": page_request(config, tag),
            "end": page_result(config),
            "index": index_bits,
            "stale": 1,
        })
        step = self.change.members

        def each(shape: ShapeLike) -> data.ArrayLayout:
            """Per page size and way."""
            return data.ArrayLayout(data.ArrayLayout(shape, ways), len(SHIFTS))

        self.matches = each(1)
        self.looked = data.StructLayout({**step, "collided": each(1)})
        self.read = data.StructLayout({
            **step,
            "collided": each(1),
            "rows": each(self.entry),
            "sizes": len(SHIFTS),
            "current": current,
        })
        self.acting = data.StructLayout({
            **step,
            "low": each(1),
            "high": each(1),
            "counts": each(1),
            "pages": each(kept),
            "swept": ways,
            "live": ways,
            "oldest": ways,
            "current": current,
        })
        self.leaving = data.StructLayout({**step, "probes": 1, "walks": 1, "hits": 1})
        self.written = data.StructLayout({
            "ways": ways,
            "index": index_bits,
            "held": Held,
            "generation": generation_bits,
        })
