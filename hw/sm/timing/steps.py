"""Next step of a warp whose time has expired: an access, a launch, or its end; or it is saved."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.timing.layouts import (
    warp_access,
    warp_facts,
    warp_fire,
    warp_launch,
    warp_owner,
    warp_place,
    warp_state,
    warp_wake,
)
from signalbox.hw.sm.timing.warp_exit import warp_last
from signalbox.hw.sm.warp_fates import warp_number

__all__ = ["Steps", "moved_warp"]


def _counts(config: Config) -> data.StructLayout:
    """Number of accesses of a warp, or of launches, and their kind: the first bits of its
    `timing_record`."""
    nested = {"launch": 1} if config.nested else {}
    return data.StructLayout({"accesses": 16, "store": 1, **nested})


def moved_warp(config: Config) -> data.StructLayout:
    """A warp with its state, to be saved or restored."""
    return data.StructLayout({"owner": warp_owner(config), "state": warp_state})


class Steps(wiring.Component):
    """Issues the next access or launch, or the end, of each warp whose time has expired. One per
    cycle, held in a register until it is accepted.

    Members
    -------
    warp : in, `warp_bits` bits: number of the starting warp.
    word : in, 32 bits: stride of that warp, or the first word of its record.
    put_stride : in, strobe: store `word` as the stride of the warp.
    put_accesses : in, strobe: store the accesses and flags in `word`.
    facts : in, `warp_facts` of the starting warp.
    place : in, a `warp_place`: first progress of the starting warp.
    keep : in, store `facts` and `place`, when `free`.
    free : out, they can be stored.
    fire : in, stream of `warp_fire`: warps whose time has expired.
    load : out, stream of `warp_access`: their loads.
    store : out, stream of `warp_access`: their stores.
    last : out, stream of `warp_last`: their ends.
    save : out, with preemption: stream of `moved_warp`, warps of stopped blocks, unless they end;
        always accepted.
    over : out, with preemption; strobe: the warp ends.
    put : in, with preemption: stream of the progress of restored warps.
    launch : out, with nested launches: stream of `warp_launch`.
    children : in, with nested launches; per block slot: has children that are not complete.
    again : out, with nested launches: stream of `warp_wake`, warps that wait, for the children of
        their block or for the end of another launch; they are looked at again in the next turn.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        over = data.StructLayout({"valid": 1, "number": warp_number(config)})
        put = data.StructLayout({"warp": config.warp_bits, "place": warp_place(config)})
        stops = {
            "save": Out(stream.Signature(moved_warp(config))),
            "over": Out(over),
            "put": In(stream.Signature(put)),
        }
        nested = {
            "launch": Out(stream.Signature(warp_launch(config))),
            "children": In(config.sm_blocks),
            "again": Out(stream.Signature(warp_wake(config))),
        }
        super().__init__({
            "warp": In(config.warp_bits),
            "word": In(32),
            "put_stride": In(1),
            "put_accesses": In(1),
            "facts": In(warp_facts(config)),
            "place": In(warp_place(config)),
            "keep": In(1),
            "free": Out(1),
            "fire": In(stream.Signature(warp_fire(config))),
            "load": Out(stream.Signature(warp_access(config))),
            "store": Out(stream.Signature(warp_access(config))),
            "last": Out(stream.Signature(warp_last(config))),
            **(stops if config.preemption else {}),
            **(nested if config.nested else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._valid = Signal()
        self._warp = Signal(warp_fire(self._config))
        self._moved = Signal(warp_place(self._config))
        self._accesses = Signal()
        write = self._keep(m)
        self._decide(m)
        self._tell(m)
        if self._config.preemption:
            self._stop(m)
            self._restore(m, write)
        return m

    def _keep(self, m: Module) -> memory.WritePort:
        """Constants are written at the start of a warp, its progress also at each access. The
        access has priority; a starting warp is not starved, since its own cycles are free. Returns
        the write port of the progress."""
        stride, self._stride = self._store(m, "strides", 32)
        count, self._count = self._store(m, "counts", _counts(self._config))
        facts, self._facts = self._store(m, "facts", warp_facts(self._config))
        place, self._place = self._store(m, "places", warp_place(self._config))
        m.d.comb += [
            self.free.eq(~self._valid),
            stride.en.eq(self.put_stride),
            stride.data.eq(self.word),
            count.en.eq(self.put_accesses),
            count.data.eq(self.word),
            facts.en.eq(self.keep & self.free),
            facts.data.eq(self.facts),
            *(port.addr.eq(self.warp) for port in (stride, count, facts)),
            place.en.eq(Mux(self._valid, self._accesses, self.keep)),
            place.addr.eq(Mux(self._valid, self._warp.warp, self.warp)),
            place.data.eq(Mux(self._valid, self._moved, self.place)),
        ]
        return place

    def _store(self, m: Module, name: str, shape: ShapeLike) -> tuple[memory.WritePort, Signal]:
        """A table with one entry per warp. Returns its write port, and the entry of the warp in
        `_warp`."""
        store = memory.Memory(shape=shape, depth=self._config.sm_warps, init=[])
        m.submodules[name] = store
        read = store.read_port()
        m.d.comb += [read.addr.eq(self.fire.p.warp), read.en.eq(self.fire.ready)]
        return store.write_port(), read.data

    def _decide(self, m: Module) -> None:
        warp, place, moved, count = self._warp, self._place, self._moved, self._count
        ends = Signal()
        taken = Signal()
        over, goes = place.count == count.accesses, ~ends
        leaves = self.last.valid & self.last.ready
        kinds = {"load": ~count.store, "store": count.store}
        if self._config.preemption:
            over, goes = over & warp.late, goes & ~warp.stopped
            m.d.comb += self.save.valid.eq(self._valid & ~ends & warp.stopped)
            leaves |= self.save.valid
        if self._config.nested:
            waits = self._wait(m, over, goes)
            over, goes = over & ~waits, goes & ~waits
            leaves |= self.again.valid & self.again.ready
            kinds = {name: kind & ~count.launch for name, kind in kinds.items()}
            kinds["launch"] = count.launch
        outs = [(getattr(self, name), kind) for name, kind in kinds.items()]
        m.d.comb += [
            ends.eq(warp.dead | (warp.cause != CoreCause.NONE) | over),
            self.last.valid.eq(self._valid & ends),
            [out.valid.eq(self._valid & goes & kind) for out, kind in outs],
            taken.eq(leaves | Cat(out.valid & out.ready for out, _ in outs).any()),
            self._accesses.eq(taken & goes),
            moved.va.eq(place.va + Mux(place.first, 0, self._stride)),
            moved.count.eq(place.count + 1),
            self.fire.ready.eq(taken | ~self._valid),
        ]
        with m.If(self.fire.ready):
            m.d.sync += [self._valid.eq(self.fire.valid), warp.eq(self.fire.payload)]

    def _wait(self, m: Module, over: Value, goes: Value) -> Value:
        """Whether the warp waits: either it has made all its launches and its block had children
        when its turn came, or its next step is a launch and another one was in progress then. Since
        a waiting warp is looked at in each turn, a stop or kill of it is noticed."""
        again, warp, launch, waits = self.again, self._warp, self.launch.p, Signal(name="waits")
        parent, busy = Signal(name="parent"), Signal(name="busy")
        with m.If(self.fire.ready):
            m.d.sync += [
                parent.eq(self.children.bit_select(self.fire.p.slot, 1)),
                busy.eq(~self.launch.ready | self.launch.valid),
            ]
        m.d.comb += [
            waits.eq(self._count.launch & Mux(over, parent, busy)),
            again.valid.eq(self._valid & goes & waits),
            [again.p[name].eq(warp[name]) for name in ("warp", "row")],
            [launch[name].eq(warp[name]) for name in ("warp", "row", "slot")],
            launch.wait.eq(self._facts.wait),
            launch.va.eq(self._moved.va),
        ]
        return waits

    def _tell(self, m: Module) -> None:
        """An access covers a whole beat, a launch has an exact address. Before the first of them,
        the address of a failure is that of the task's record."""
        warp, facts, place, low = self._warp, self._facts, self._place, self._config.offset_bits
        exact = place.first | (self._count.launch if self._config.nested else 0)
        for access in (self.load.p, self.store.p):
            m.d.comb += [
                access.warp.eq(warp.warp),
                access.row.eq(warp.row),
                access.wait.eq(facts.wait),
                access.va.eq(Cat(Const(0, low), self._moved.va[low:])),
                access.pattern.number.eq(facts.number),
                access.pattern.access.eq(place.count),
                access.pattern.warp.eq(facts.index),
                access.pattern.written.eq(1),
            ]
        fault = self.last.p.fault
        m.d.comb += [
            self.last.p.warp.eq(warp.warp),
            fault.row.eq(warp.row),
            [fault[name].eq(facts[name]) for name in ("slot", "index")],
            fault.cause.eq(warp.cause),
            fault.at.eq(Cat(place.count, facts.number)),
            fault.va.eq(Cat(Mux(exact, place.va[:low], 0), place.va[low:])),
        ]

    def _stop(self, m: Module) -> None:
        """State of a warp that is saved. A state that could not be read has no address."""
        warp, place, index = self._warp, self._place, self._facts.index
        owner, state, fault = self.save.p.owner, self.save.p.state, self.last.p.fault
        m.d.comb += [
            [owner[name].eq(warp[name]) for name in ("warp", "row", "slot")],
            owner.index.eq(index),
            state.left.eq(warp.left),
            [state[name].eq(place[name]) for name in place.shape().members],
            self.over.valid.eq(self.last.valid & self.last.ready),
            self.over.number.slot.eq(warp.slot),
            self.over.number.index.eq(index),
            self.last.p.ends.eq(1),
        ]
        with m.If(warp.cause == CoreCause.STATE_BUS):
            m.d.comb += [fault.at.eq(0), fault.va.eq(0)]

    def _restore(self, m: Module, write: memory.WritePort) -> None:
        """Writes the progress of a restored warp when no other progress is written. So a warp that
        waits for its access to be accepted does not delay it."""
        put = self.put
        m.d.comb += put.ready.eq(~self._accesses & ~(self.keep & self.free))
        with m.If(put.valid & put.ready):
            m.d.comb += [write.en.eq(1), write.addr.eq(put.p.warp), write.data.eq(put.p.place)]
