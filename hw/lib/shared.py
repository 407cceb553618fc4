"""One component, many instances: it is elaborated, exported and compiled once."""

from collections.abc import Iterator

from amaranth.hdl import ClockSignal, Fragment, Instance, ResetSignal
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from signalbox.hw.lib.flat_ports import ports

__all__ = ["Shared", "instances"]


class Shared(wiring.Component):
    """An instance of `design`, with the same members; `hw.export` adds the module, once for all:
    `sm = Sm(config)`, then `Shared(sm, "sm")` for each.

    It has state, in domain `sync`. Nobody sees its inside: what others need is a member. It cannot
    know which instance it is, except by a member.

    Parameters
    ----------
    design : the same object for every instance of a module.
    module : name of the module; each of an exported design belongs to one `design`.
    """

    def __init__(self, design: wiring.Component, module: str) -> None:
        self.design, self.module = design, module
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Instance:
        kinds = {PortDirection.Input: "i", PortDirection.Output: "o"}
        flat = ((kinds[way], name, value) for name, (value, way) in ports(self).items())
        clock = ("i", "clk", ClockSignal()), ("i", "rst", ResetSignal())
        return Instance(self.module, *clock, *flat)


def instances(fragment: Fragment) -> Iterator[tuple[Instance, Shared]]:
    """Every instance of a shared component in an elaborated design."""
    for origin in fragment.origins or ():
        if isinstance(origin, Shared):
            assert isinstance(fragment, Instance), "what it elaborates to"
            yield fragment, origin
    for part, *_ in fragment.subfragments:
        yield from instances(part)
