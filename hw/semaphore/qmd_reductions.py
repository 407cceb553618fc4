"""Maps reductions of compute releases to those of the semaphore unit (spec 8)."""

from amaranth.hdl import Module, Signal, Value

from signalbox.hw.methods import Reduction
from signalbox.hw.qmd import ReleaseOp

__all__ = ["reduction_of"]

_REDUCTIONS = {
    ReleaseOp.ADD: Reduction.IADD,
    ReleaseOp.MIN: Reduction.IMIN,
    ReleaseOp.MAX: Reduction.IMAX,
    ReleaseOp.INC: Reduction.INC,
    ReleaseOp.DEC: Reduction.DEC,
    ReleaseOp.AND: Reduction.IAND,
    ReleaseOp.OR: Reduction.IOR,
    ReleaseOp.XOR: Reduction.IXOR,
}


def reduction_of(m: Module, op: Value) -> Signal:
    """The semaphore unit's code for `op`."""
    reduction = Signal(4)
    with m.Switch(op):
        for one, name in _REDUCTIONS.items():
            with m.Case(one):
                m.d.comb += reduction.eq(name)
    return reduction
