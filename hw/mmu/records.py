"""Records of the translation: look-ups, results, invalidations."""

from itertools import pairwise

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data, enum

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.page_tables import PAGE_SIZES, FaultType

__all__ = [
    "PAGE_BITS",
    "PERMISSIONS",
    "SHIFTS",
    "VPN_BITS",
    "Access",
    "Outcome",
    "PageSize",
    "Scope",
    "answer",
    "covers",
    "invalidation",
    "largest",
    "lookup",
    "overlap",
    "page",
    "page_request",
    "page_result",
    "touches",
]

PAGE_BITS = 12
"""Address bits within the smallest page."""

PERMISSIONS = ("read_only", "privileged", "no_atomics")
"""Fields of a `page` that restrict its accesses."""

VPN_BITS = VA_BITS - PAGE_BITS
"""Width of a virtual page number, in smallest pages."""


class Access(enum.Enum, shape=2):
    """Access type."""

    READ = 0
    WRITE = 1
    ATOMIC = 2


class PageSize(enum.Enum, shape=2):
    """4 KiB, 64 KiB or 2 MiB. A page of 512 MiB is translated and cached in pieces of 2 MiB."""

    SMALL = 0
    BIG = 1
    HUGE = 2


SHIFTS = tuple(
    (size - 1).bit_length() - PAGE_BITS for size in PAGE_SIZES[: len(PageSize.__members__)]
)
"""Low page-number bits within a page, by `PageSize`."""


class Outcome(enum.Enum, shape=2):
    """Outcome of a translation."""

    PAGE = 0
    FAULT = 1
    SPARSE = 2
    """Sparse page: reads return 0, writes are dropped."""
    RETRY = 3
    """Possibly stale; the request has to be repeated. Never reaches a client."""


class Scope(enum.Enum, shape=2):
    """Scope of an invalidation (ASID-9)."""

    ALL = 0
    ASID = 1
    PAGE = 2
    """The page of any size that contains the given smallest page of one ASID."""


def lookup(config: Config, tag: data.Layout) -> data.StructLayout:
    """Access of `asid` to `va`, to be translated and checked. `physical`: `va` is a physical
    address; only the bounds are checked. `tag` returns with the answer."""
    return data.StructLayout({
        "tag": tag,
        "asid": config.asid_bits,
        "va": VA_BITS,
        "access": Access,
        "privileged": 1,
        "physical": 1,
    })


def answer(config: Config, tag: data.Layout) -> data.StructLayout:
    """Answer to a look-up. `pa` is valid with PAGE, `fault` with FAULT."""
    return data.StructLayout({
        "tag": tag,
        "outcome": Outcome,
        "pa": config.address_width,
        "fault": FaultType,
    })


def page_request(config: Config, tag: int) -> data.StructLayout:
    """Request to translate page `vpn` of `asid`. `tag` returns with the result."""
    return data.StructLayout({"tag": tag, "asid": config.asid_bits, "vpn": VPN_BITS})


def page(config: Config) -> data.StructLayout:
    """Mapped page: size, physical page number of the requested smallest page, permissions."""
    return data.StructLayout({
        "size": PageSize,
        "ppn": config.address_width - PAGE_BITS,
        **dict.fromkeys(PERMISSIONS, 1),
    })


def page_result(config: Config) -> data.StructLayout:
    """Result of a translation. `page` is valid with PAGE, `fault` with FAULT."""
    return data.StructLayout({"outcome": Outcome, "page": page(config), "fault": FaultType})


def invalidation(config: Config) -> data.StructLayout:
    """Invalidates translations of `scope`: those made before this cycle are not used after it."""
    return data.StructLayout({
        "valid": 1,
        "scope": Scope,
        "asid": config.asid_bits,
        "vpn": VPN_BITS,
    })


def overlap(one: Value, one_size: Value, other: Value, other_size: Value) -> Value:
    """Whether two pages of one address space overlap, each given by any of its smallest pages."""
    huge = (one_size == PageSize.HUGE) | (other_size == PageSize.HUGE)
    large = huge | (one_size == PageSize.BIG) | (other_size == PageSize.BIG)
    cuts = pairwise((*SHIFTS, VPN_BITS))
    same = [one[low:high] == other[low:high] for low, high in cuts]
    return Cat(same[2], same[1] | huge, same[0] | large).all()


def largest(end: data.View) -> Value:
    """Size of the page; without one, the largest size it could have had."""
    return Mux(end.outcome == Outcome.PAGE, end.page.size, PageSize.HUGE)


def touches(event: data.View, asid: Value) -> Value:
    """Whether an invalidation concerns any page of this address space."""
    return event.valid & ((event.scope == Scope.ALL) | (event.asid == asid))


def covers(event: data.View, asid: Value, vpn: Value, size: Value) -> Value:
    """Whether an invalidation covers this page."""
    here = (event.scope != Scope.PAGE) | overlap(event.vpn, PageSize.SMALL, vpn, size)
    return touches(event, asid) & here
