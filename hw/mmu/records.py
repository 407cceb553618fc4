"""Records of translation: what is asked, what a walk finds, what is invalidated."""

from itertools import pairwise

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data, enum

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.page_tables import PAGE_SIZES, FaultType

__all__ = [
    "PAGE_BITS",
    "SHIFTS",
    "VPN_BITS",
    "Access",
    "Outcome",
    "PageSize",
    "Scope",
    "answer",
    "covers",
    "ending",
    "invalidation",
    "largest",
    "lookup",
    "overlap",
    "page",
    "page_request",
    "touches",
]

PAGE_BITS = 12
"""Address bits inside the smallest page."""

VPN_BITS = VA_BITS - PAGE_BITS
"""Bits of a virtual page number, of the smallest pages."""


class Access(enum.Enum, shape=2):
    """What an access does."""

    READ = 0
    WRITE = 1
    ATOMIC = 2


class PageSize(enum.Enum, shape=2):
    """4 KiB, 64 KiB, 2 MiB."""

    SMALL = 0
    BIG = 1
    HUGE = 2


SHIFTS = tuple((size - 1).bit_length() - PAGE_BITS for size in PAGE_SIZES)
"""Bits of a page number that lie inside a page, by `PageSize`."""


class Outcome(enum.Enum, shape=2):
    """How a translation ended."""

    PAGE = 0
    FAULT = 1
    SPARSE = 2
    """Not mapped on purpose: reads give 0, writes are dropped."""
    RETRY = 3
    """May be out of date: to be asked again. Never an answer to a client."""


class Scope(enum.Enum, shape=2):
    """What an invalidation is for (ASID-9)."""

    ALL = 0
    ASID = 1
    PAGE = 2
    """The page, of whatever size, in which a smallest page of one ASID lies."""


def lookup(config: Config, tag: data.Layout) -> data.StructLayout:
    """May `asid` access `va` so? `physical`: `va` is a physical address, and only its bounds are
    checked. `tag` comes back with the answer."""
    return data.StructLayout({
        "tag": tag,
        "asid": config.asid_bits,
        "va": VA_BITS,
        "access": Access,
        "privileged": 1,
        "physical": 1,
    })


def answer(config: Config, tag: data.Layout) -> data.StructLayout:
    """Answer to one look-up: `pa` counts with PAGE, `fault` with FAULT."""
    return data.StructLayout({
        "tag": tag,
        "outcome": Outcome,
        "pa": config.address_width,
        "fault": FaultType,
    })


def page_request(config: Config, tag: int) -> data.StructLayout:
    """The translation of page `vpn` of `asid` is wanted; `tag` comes back with what is found."""
    return data.StructLayout({"tag": tag, "asid": config.asid_bits, "vpn": VPN_BITS})


def page(config: Config) -> data.StructLayout:
    """A mapped page: physical page number of any of its smallest pages, size, permissions."""
    return data.StructLayout({
        "size": PageSize,
        "ppn": config.address_width - PAGE_BITS,
        "read_only": 1,
        "privileged": 1,
        "no_atomics": 1,
    })


def ending(config: Config) -> data.StructLayout:
    """How the search for a page ended: `page` counts with PAGE, `fault` with FAULT."""
    return data.StructLayout({"outcome": Outcome, "page": page(config), "fault": FaultType})


def invalidation(config: Config) -> data.StructLayout:
    """Translations of `scope` made before this cycle are used no more after it."""
    return data.StructLayout({
        "valid": 1,
        "scope": Scope,
        "asid": config.asid_bits,
        "vpn": VPN_BITS,
    })


def overlap(one: Value, one_size: Value, other: Value, other_size: Value) -> Value:
    """Whether two pages of one address space, given by any of their smallest ones, share bytes."""
    huge = (one_size == PageSize.HUGE) | (other_size == PageSize.HUGE)
    large = huge | (one_size == PageSize.BIG) | (other_size == PageSize.BIG)
    cuts = pairwise((*SHIFTS, VPN_BITS))
    same = [one[low:high] == other[low:high] for low, high in cuts]
    return Cat(same[2], same[1] | huge, same[0] | large).all()


def largest(end: data.View) -> Value:
    """Size of the page that was found; else the largest that it may have had."""
    return Mux(end.outcome == Outcome.PAGE, end.page.size, PageSize.HUGE)


def touches(event: data.View, asid: Value) -> Value:
    """Whether an invalidation is for anything of this address space."""
    return event.valid & ((event.scope == Scope.ALL) | (event.asid == asid))


def covers(event: data.View, asid: Value, vpn: Value, size: Value) -> Value:
    """Whether an invalidation is for this page."""
    here = (event.scope != Scope.PAGE) | overlap(event.vpn, PageSize.SMALL, vpn, size)
    return touches(event, asid) & here
