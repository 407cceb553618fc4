"""Registers for strobes, to shorten long combinational paths."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data

__all__ = ["delayed"]


def delayed(m: Module, event: data.View, name: str) -> data.View:
    """Returns `event`, a strobe with its data, delayed by one cycle, to shorten a long
    combinational path. The register is called `name`."""
    register = Signal(event.shape(), name=name)
    m.d.sync += register.eq(event)
    return register
