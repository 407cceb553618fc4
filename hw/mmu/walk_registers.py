"""Layouts of the page walker's registers: per walk, and per pipeline stage (ASID-4)."""

from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.page_table_entry import ENTRY_BITS, TABLE_BITS, Depth, SmallTable
from signalbox.hw.mmu.records import VPN_BITS, PageSize, page_result
from signalbox.hw.records.memory import MemoryStatus

__all__ = [
    "LARGER",
    "walk_candidate",
    "walk_decided",
    "walk_decoded",
    "walk_end",
    "walk_ending",
    "walk_entered",
    "walk_entering",
    "walk_looked_up",
    "walk_owner",
    "walk_page",
    "walk_place",
    "walk_step",
    "walk_turn",
]

LARGER = (PageSize.BIG, PageSize.HUGE)
"""Page sizes that may exceed the limit of an address space."""


# -- per walk --------------------------------------------------------------------------------------


def walk_page(config: Config) -> data.StructLayout:
    """Page of a walk."""
    return data.StructLayout({"asid": config.asid_bits, "vpn": VPN_BITS})


def walk_step(config: Config) -> data.StructLayout:
    """Next table to read. `below`: at BIG, the table of 4 KiB pages from PD0. `lent`: the walk
    relies on another walk's read of PD0, or of a 64 KiB entry, that has found no page."""
    table = config.address_width - TABLE_BITS
    return data.StructLayout({"depth": Depth, "below": SmallTable, "lent": 1, "table": table})


def walk_place(config: Config) -> data.StructLayout:
    """Page and next table of a walk."""
    return data.StructLayout({**walk_page(config).members, **walk_step(config).members})


def walk_end(config: Config) -> data.StructLayout:
    """Result of a walk. `whole`: it ended at the PTE of a 512 MiB page; `page` is any piece of
    it."""
    return data.StructLayout({**page_result(config).members, "whole": 1})


def walk_owner(config: Config) -> data.StructLayout:
    """Kept with an outstanding read: the place of its walk, without the table."""
    members = walk_place(config).members
    return data.StructLayout({name: members[name] for name in members if name != "table"})


# -- per pipeline stage ----------------------------------------------------------------------------


def walk_turn(config: Config) -> data.StructLayout:
    """The walk that has its turn, one-hot."""
    return data.StructLayout({"valid": 1, "slot": config.walks})


def walk_entering(config: Config) -> data.StructLayout:
    """A walk that begins, one-hot and as a number."""
    return data.StructLayout({
        **walk_turn(config).members,
        "number": (config.walks - 1).bit_length(),
    })


def walk_looked_up(config: Config) -> data.StructLayout:
    """A walk with its rows of the ASID table and of the walk cache."""
    return data.StructLayout({**walk_entering(config).members, "page": walk_page(config)})


def walk_entered(config: Config) -> data.StructLayout:
    """A walk after its page was compared with the limit. `fits`: by `LARGER`, a page of that size
    is within it. `ends`: it ends here with `end`, refused or with a page from the walk cache.
    `straight`: the walk is the candidate for the first stage."""
    whose = walk_entering(config).members
    return data.StructLayout({
        "slot": whose["slot"],
        "number": whose["number"],
        "ends": 1,
        "end": walk_end(config),
        "fits": len(LARGER),
        "straight": 1,
    })


def walk_candidate(config: Config) -> data.StructLayout:
    """A walk at the first stage."""
    whose = walk_entering(config).members
    return data.StructLayout({
        "valid": 1,
        "enters": 1,
        "slot": whose["slot"],
        "number": whose["number"],
        "place": walk_place(config),
    })


def _stage(config: Config) -> dict:
    """Common to the second and third stage. `came`: an entry has arrived. `slot`: the walk,
    one-hot. `before`: it is older than an invalidation of its address space. `quiet`: no
    invalidation came since the first stage. `alike`: walks that read the entry that arrived."""
    return {"came": 1, "slot": config.walks, "before": 1, "quiet": 1, "alike": config.walks}


def walk_decoded(config: Config) -> data.StructLayout:
    """Second stage: an entry `came`, or a walk was `picked`. `near`: level of its next read, unless
    it skips to SMALL. Masks of other walks: `alike` read the entry that arrived; `same` read the
    next entry; `led`, of these, have an outstanding read of it; `same_small` and `led_small`: the
    same for level SMALL; `ahead` have an outstanding read further down its path. `behind`: the walk
    that is decided on in this cycle will have one, too, if it reads."""
    walks = config.walks
    return data.StructLayout({
        **_stage(config),
        "picked": 1,
        "number": (walks - 1).bit_length(),
        "place": walk_place(config),
        "entry": ENTRY_BITS,
        "status": MemoryStatus,
        "near": Depth,
        "skips": 1,
        "stale": 1,
        "alone": 1,
        "same": walks,
        "same_small": walks,
        "led": walks,
        "led_small": walks,
        "ahead": walks,
        "behind": 1,
    })


def walk_decided(config: Config) -> data.StructLayout:
    """Third stage: the decision. `depth`, `alike`: of the entry that arrived; `joins`: walks that
    read the next one. `anew`: the entry proves nothing, so the walk restarts. `jumps`: the walk
    follows a read further down, at `joined`."""
    return data.StructLayout({
        **_stage(config),
        "goes": 1,
        "follows": 1,
        "jumps": 1,
        "descends": 1,
        "finds": 1,
        "anew": 1,
        "depth": Depth,
        "following": Depth,
        "joined": Depth,
        "page": walk_page(config),
        "table": config.address_width - TABLE_BITS,
        "below": SmallTable,
        "end": walk_end(config),
        "joins": config.walks,
    })


def walk_ending(config: Config, tag: int) -> data.StructLayout:
    """A walk that ends, with the data of its result."""
    return data.StructLayout({
        **walk_turn(config).members,
        "page": walk_page(config),
        "tag": tag,
        "fits": len(LARGER),
        "end": walk_end(config),
    })
