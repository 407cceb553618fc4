"""What a warp does when its time is over: its next access, or its end."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.sm.port import CoreCause
from hw.sm.timing.ending import warp_last
from hw.sm.timing.layouts import timing_step, warp_access, warp_facts, warp_fire, warp_place

__all__ = ["Steps"]


class Steps(wiring.Component):
    """One warp per cycle, out of a register; it waits there until its access or end is taken.

    Members
    -------
    warp, facts, place : of a warp that starts. keep, free : it is kept when both are 1.
    fire : warps whose time is over.
    row, en, step : of `Tasks`.
    load, store, last : what they do.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "warp": In(config.warp_bits),
            "facts": In(warp_facts(config)),
            "place": In(warp_place(config)),
            "keep": In(1),
            "free": Out(1),
            "fire": In(stream.Signature(warp_fire(config))),
            "row": Out(config.row_bits),
            "en": Out(1),
            "step": In(timing_step(config)),
            "load": Out(stream.Signature(warp_access(config))),
            "store": Out(stream.Signature(warp_access(config))),
            "last": Out(stream.Signature(warp_last(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, depth = self._config, self._config.sm_warps
        m.submodules.facts = facts = memory.Memory(shape=warp_facts(config), depth=depth, init=[])
        m.submodules.places = places = memory.Memory(shape=warp_place(config), depth=depth, init=[])
        new, put = facts.write_port(), places.write_port()
        self._facts, self._place = facts.read_port(), places.read_port()
        self._valid, self._warp = Signal(), Signal(warp_fire(config))
        self._moved, self._accesses = Signal(warp_place(config)), Signal()
        self._decide(m)
        m.d.comb += [
            self.free.eq(~self._accesses),
            new.en.eq(self.keep & self.free),
            new.addr.eq(self.warp),
            new.data.eq(self.facts),
            put.en.eq(self.keep | self._accesses),
            put.addr.eq(Mux(self._accesses, self._warp.warp, self.warp)),
            put.data.eq(Mux(self._accesses, self._moved, self.place)),
        ]
        return m

    def _decide(self, m: Module) -> None:
        warp, facts, place, step = self._warp, self._facts.data, self._place.data, self.step
        ends, taken, moved = Signal(), Signal(), self._moved
        m.d.comb += [
            ends.eq(warp.dead | (warp.cause != CoreCause.NONE) | (place.count == step.accesses)),
            self.last.valid.eq(self._valid & ends),
            self.load.valid.eq(self._valid & ~ends & ~step.store),
            self.store.valid.eq(self._valid & ~ends & step.store),
            taken.eq(
                self.last.valid & self.last.ready
                | self.load.valid & self.load.ready
                | self.store.valid & self.store.ready
            ),
            self._accesses.eq(taken & ~ends),
            moved.va.eq(place.va + Mux(place.count == 0, 0, step.stride)),
            moved.count.eq(place.count + 1),
            self.fire.ready.eq(taken | ~self._valid),
            self.row.eq(self.fire.p.row),
            self.en.eq(self.fire.ready),
        ]
        for port in (self._facts, self._place):
            m.d.comb += [port.addr.eq(self.fire.p.warp), port.en.eq(self.fire.ready)]
        with m.If(self.fire.ready):
            m.d.sync += [self._valid.eq(self.fire.valid), warp.eq(self.fire.payload)]
        low = self._config.offset_bits
        for access in (self.load.p, self.store.p):
            m.d.comb += [
                access.warp.eq(warp.warp),
                access.row.eq(warp.row),
                access.wait.eq(facts.wait),
                access.va.eq(Cat(Const(0, low), moved.va[low:])),
                access.pattern.number.eq(facts.number),
                access.pattern.access.eq(place.count),
                access.pattern.warp.eq(facts.index),
                access.pattern.written.eq(1),
            ]
        m.d.comb += [
            self.last.p.warp.eq(warp.warp),
            self.last.p.fault.row.eq(warp.row),
            self.last.p.fault.cause.eq(warp.cause),
            self.last.p.fault.at.eq(step.address),
            self.last.p.fault.va.eq(Cat(Const(0, low), place.va[low:])),
        ]
