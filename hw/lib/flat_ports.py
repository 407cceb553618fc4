"""Flat ports of a component: members of nested interfaces join with two underscores."""

from amaranth import Value
from amaranth.hdl import Const, ValueCastable
from amaranth.lib import wiring

from signalbox.hw.lib.amaranth_private import PortDirection

__all__ = ["Ports", "ports"]

Ports = dict[str, tuple[Value, PortDirection]]
"""Value and direction by name."""


def ports(design: wiring.Component) -> Ports:
    """Exported name, value and direction of every port except `clk` and `rst`.

    A member that is constant by its type (`always_ready`, `always_valid`) is not a port.
    """
    found = {}
    for path, member, value in design.signature.flatten(design):
        signal = value.as_value() if isinstance(value, ValueCastable) else value
        if isinstance(signal, Value) and not isinstance(signal, Const):
            inward = member.flow == wiring.In
            direction = PortDirection.Input if inward else PortDirection.Output
            found["__".join(map(str, path))] = (signal, direction)
    return found
