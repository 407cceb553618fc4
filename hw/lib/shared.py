"""Shared components: elaborated, exported and compiled once, instantiated many times."""

from collections.abc import Iterator

from amaranth.hdl import ClockSignal, Fragment, Instance, ResetSignal
from amaranth.lib import wiring

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.lib.flat_ports import ports

__all__ = ["Shared", "instances"]


class Shared(wiring.Component):
    """Instance of `design`, with the same members. `hw.export` adds the module once for all
    instances: `sm = Sm(config)`, then `Shared(sm, "sm")` for each instance.

    The design may have state, in domain `sync`. Its internals are not accessible: anything that
    other units need has to be a member. An instance knows its number only by a member.

    Parameters
    ----------
    design : the same object for every instance of a module.
    module : name of the module; in an exported design each name belongs to one `design`.
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
    """All instances of shared components in an elaborated design."""
    for origin in fragment.origins or ():
        if isinstance(origin, Shared):
            assert isinstance(fragment, Instance), "a shared component elaborates to an instance"
            yield fragment, origin
    for part, *_ in fragment.subfragments:
        yield from instances(part)
