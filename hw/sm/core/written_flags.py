"""Flags of the parts of storage units that have been written since their allocation."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.sm.core.records import bits

__all__ = ["WrittenFlags"]

_AT_ONCE = 64
"""Most flags that are cleared per cycle."""


class WrittenFlags(wiring.Component):
    """Flags the parts of each unit that have been written, so that storage need not be cleared
    between owners (PREEMPT-10): parts that have not been written count as 0.

    The flags of a unit are cleared when it is allocated, in one cycle, or in one for every 64. A
    mark goes first.

    Parameters
    ----------
    units : number of units; each is allocated by a `UnitAllocator`, or never cleared.
    parts : flags per unit, a power of two.
    reads : number of read ports.

    Members
    -------
    look : in, per read port, 0 … `units` × `parts` - 1: unit and part, as one number, the part low.
    moves : in, the read ports take `look`; otherwise `written` stays.
    written : out, per read port, 1 cycle later: its flag; a mark in the cycle of `look` is not
        seen.
    mark : in, strobe: set the flag of `at`, as in `look`.
    next : in, the unit that the `UnitAllocator` allocates next; its flags are cleared.
    hold : out, no unit may be allocated in this cycle.
    """

    def __init__(self, units: int, parts: int, reads: int) -> None:
        self._units, self._parts = units, parts
        self._count = min(_AT_ONCE, parts)
        place = bits(units * parts)
        unit = data.StructLayout({"valid": 1, "unit": bits(units)})
        super().__init__({
            "look": In(place).array(reads),
            "moves": In(1),
            "written": Out(1).array(reads),
            "mark": In(data.StructLayout({"valid": 1, "at": place})),
            "next": In(unit),
            "hold": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._count
        m.submodules.flags = flags = memory.Memory(
            shape=data.ArrayLayout(1, count), depth=self._units * self._parts // count, init=[]
        )
        low = count.bit_length() - 1
        for look, written in zip(self.look, self.written, strict=True):
            read, flag = flags.read_port(), Signal(low, name="flag")
            m.d.comb += [
                read.addr.eq(look[low:]),
                read.en.eq(self.moves),
                written.eq(Value.cast(read.data).bit_select(flag, 1)),
            ]
            with m.If(self.moves):
                m.d.sync += flag.eq(look[:low])
        self._write(m, flags.write_port(granularity=1), low)
        return m

    def _write(self, m: Module, port: wiring.PureInterface, low: int) -> None:
        """Set a flag, or clear those of one group of the next unit."""
        mark, clears, groups = self.mark, self.next.valid, self._parts // self._count
        group = Signal(range(groups))
        m.d.comb += [
            self.hold.eq(mark.valid | (group != groups - 1)),
            port.addr.eq(Mux(mark.valid, mark.at[low:], Cat(group, self.next.unit))),
            port.data.eq(mark.valid.replicate(self._count)),
            port.en.eq(Mux(mark.valid, 1 << mark.at[:low], clears.replicate(self._count))),
        ]
        with m.If(clears & ~mark.valid):
            m.d.sync += group.eq(Mux(group == groups - 1, 0, group + 1))
