"""Allocator of storage units, located through a map, which avoids fragmentation."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.sm.core.records import bits

__all__ = ["UnitAllocator"]


class UnitAllocator(wiring.Component):
    """Allocates units to owners: a list of free units, and a map from (owner, number) to unit.

    Units are allocated and freed concurrently, one of each per cycle. The requester ensures that
    there will be enough units; the allocation waits for units being freed. An owner frees all its
    units before it allocates again.

    Parameters
    ----------
    count : number of units.
    owners : number of owners.
    most : most units of one owner.
    reads : number of read ports of the map.

    Members
    -------
    take : in, allocate `count` units to `owner`, possibly 0; accepted at once, `busy` until
        complete.
    busy : out, an allocation is in progress.
    owner : out, 0 … `owners` - 1: owner of that allocation.
    hold : in, no unit is allocated in this cycle.
    next : out, the next unit of the allocation; allocated in this cycle without `hold`.
    give : in, free all units of an owner; accepted when complete.
    look : in, per read port: owner and number.
    unit : out, per read port, 0 … `count` - 1, 1 cycle later: the unit.
    """

    def __init__(self, count: int, owners: int, most: int, reads: int) -> None:
        self._count, self._owners, self._most, self._reads = count, owners, most, reads
        owner, number = bits(owners), bits(most)
        look = data.StructLayout({"number": number, "owner": owner})
        asked = data.StructLayout({"owner": owner, "count": range(most + 1)})
        super().__init__({
            "take": In(stream.Signature(asked)),
            "busy": Out(1),
            "owner": Out(owner),
            "hold": In(1),
            "next": Out(data.StructLayout({"valid": 1, "unit": bits(count)})),
            "give": In(stream.Signature(owner)),
            "look": In(look).array(reads),
            "unit": Out(bits(count)).array(reads),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._owners << bits(self._most)
        m.submodules.map = self._map = memory.Memory(shape=bits(self._count), depth=depth, init=[])
        m.submodules.free = self._free = StreamFIFO(bits(self._count), self._count + 1)
        for look, unit in zip(self.look, self.unit, strict=True):
            port = self._map.read_port()
            m.d.comb += [port.addr.eq(look), unit.eq(port.data)]
        self._have = Signal(data.ArrayLayout(range(self._most + 1), self._owners))
        self._take(m)
        self._give(m)
        return m

    def _take(self, m: Module) -> None:
        number = Signal(bits(self._most))
        left = Signal(range(self._most + 1))
        write, free = self._map.write_port(), self._free
        m.d.comb += [
            self.take.ready.eq(~self.busy),
            self.busy.eq(left != 0),
            self.next.valid.eq(self.busy & free.o.valid),
            self.next.unit.eq(free.o.payload),
            free.o.ready.eq(self.busy & ~self.hold),
            write.en.eq(self.next.valid & ~self.hold),
            write.addr.eq(Cat(number, self.owner)),
            write.data.eq(free.o.payload),
        ]
        with m.If(write.en):
            m.d.sync += [left.eq(left - 1), number.eq(number + 1)]
        with m.If(self.take.valid & self.take.ready):
            asked = self.take.p
            m.d.sync += [self.owner.eq(asked.owner), left.eq(asked.count), number.eq(0)]
            m.d.sync += self._have[asked.owner].eq(asked.count)

    def _give(self, m: Module) -> None:
        """After reset, fill the list; then free the units of owners."""
        free, port = self._free, self._map.read_port()
        filled = Signal(range(self._count + 1))
        number = Signal(range(self._most + 1))
        have = Signal(range(self._most + 1))
        read = Signal()
        filling = Signal()
        m.d.comb += [
            filling.eq(filled != self._count),
            port.addr.eq(Cat(number[: bits(self._most)], self.give.payload)),
            free.i.valid.eq(filling | read),
            free.i.payload.eq(Mux(filling, filled[: bits(self._count)], port.data)),
        ]
        m.d.sync += [filled.eq(filled + filling), read.eq(0)]
        with m.FSM():
            with m.State("LOOK"):
                m.d.sync += [have.eq(self._have[self.give.payload]), number.eq(0)]
                with m.If(self.give.valid & ~filling):
                    m.next = "READ"
            with m.State("READ"):
                m.d.sync += [read.eq(number != have), number.eq(number + 1)]
                with m.If(number == have):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.give.ready.eq(1)
                m.next = "LOOK"

    def settled(self, owner: Value) -> Value:
        """Whether `owner` has all units of its allocation."""
        return ~(self.busy & (self.owner == owner))
