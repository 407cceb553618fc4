"""Events that come too late in their cycle to go far."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data

__all__ = ["later"]


def later(m: Module, event: data.View, name: str) -> data.View:
    """`event`, a strobe with what belongs to it, one cycle later; from a register called `name`."""
    register = Signal(event.shape(), name=name)
    m.d.sync += register.eq(event)
    return register
