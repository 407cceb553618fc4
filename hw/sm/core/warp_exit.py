"""End of a warp: report its fault, free its registers, report its end."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.sm.core.fetch import last_words
from signalbox.hw.sm.core.records import completion, place
from signalbox.hw.sm.core.warp_scheduler import warp_event
from signalbox.hw.sm.port import core_fault

__all__ = ["WarpExit"]

_WHERE = ("dying", "saves", "place", "cause", "at", "va")


class WarpExit(wiring.Component):
    """Reports the fault of a warp that ends, frees its registers and reports its end; likewise for
    a warp that is saved. One warp at a time, round robin.

    Members
    -------
    ending : in, per warp: has left the pipeline for good.
    last : in, a `last_words`: reason, when a warp leaves.
    ends : in, completed memory instructions of several units.
    failed : out, strobe: one of these completions per cycle; `cause` is NONE if it has not failed.
    fault : out, stream of `core_fault`.
    end : out, stream of warp numbers: warps that have ended.
    give : out, free the registers of a warp.
    ended : out, strobe: the warp is gone.
    over : out, with `ended`: the place of the warp, unless it is saved.
    """

    def __init__(self, config: Config, sides: int) -> None:
        self._config, self._sides = config, sides
        super().__init__({
            "ending": In(config.sm_warps),
            "last": In(last_words(config)),
            "ends": In(stream.Signature(completion(config))).array(sides),
            "failed": Out(data.StructLayout({"valid": 1, "what": completion(config)})),
            "fault": Out(stream.Signature(core_fault(config))),
            "end": Out(stream.Signature(config.warp_bits)),
            "give": Out(stream.Signature(config.warp_bits)),
            "ended": Out(warp_event(config)),
            "over": Out(data.StructLayout({"valid": 1, "place": place(config)})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.sides = sides = RoundRobin(self._sides)
        chosen = self.failed
        for n, side in enumerate(self.ends):
            m.d.comb += [sides.requests[n].eq(side.valid), side.ready.eq(sides.grant[n])]
            with m.If(side.ready):
                m.d.comb += chosen.what.eq(side.payload)
        m.d.comb += [sides.advance.eq(1), chosen.valid.eq(sides.grant.any())]
        why = data.StructLayout({"cause": CoreCause, "va": VA_BITS})
        last = last_words(config)
        where = data.StructLayout({name: last[name].shape for name in _WHERE})
        m.submodules.why = whys = memory.Memory(shape=why, depth=config.sm_warps, init=[])
        m.submodules.where = wheres = memory.Memory(shape=where, depth=config.sm_warps, init=[])
        tell, write = whys.write_port(), wheres.write_port()
        m.d.comb += [
            # An instruction of `StateTransfer` may carry the number of a warp that is gone.
            tell.en.eq(chosen.valid & ~chosen.what.transfer),
            tell.addr.eq(chosen.what.warp),
            tell.data.cause.eq(chosen.what.cause),
            tell.data.va.eq(chosen.what.va),
            write.en.eq(self.last.valid),
            write.addr.eq(self.last.warp),
            *(write.data[name].eq(self.last[name]) for name in _WHERE),
        ]
        self._end(m, whys.read_port(), wheres.read_port())
        return m

    def _end(self, m: Module, why, where) -> None:
        """Fault, registers, end, in this order."""
        config = self._config
        m.submodules.turns = turns = RoundRobin(config.sm_warps)
        warp = Signal(config.warp_bits)
        fault = self.fault.p
        cause = Mux(where.data.dying, why.data.cause, where.data.cause)
        m.d.comb += [
            turns.requests.eq(self.ending),
            why.addr.eq(warp),
            where.addr.eq(warp),
            [fault[name].eq(where.data.place[name]) for name in ("row", "slot", "index")],
            self.over.valid.eq(self.ended.valid & ~where.data.saves),
            self.over.place.eq(where.data.place),
            fault.cause.eq(cause),
            fault.at.eq(where.data.at),
            fault.va.eq(Mux(where.data.dying, why.data.va, where.data.va)),
            self.give.payload.eq(warp),
            self.end.payload.eq(warp),
            self.ended.warp.eq(warp),
        ]
        with m.FSM():
            with m.State("PICK"):
                m.d.comb += turns.advance.eq(1)
                m.d.sync += warp.eq(encode(turns.grant))
                with m.If(self.ending.any()):
                    m.next = "READ"
            with m.State("READ"):
                m.next = "FAULT"
            with m.State("FAULT"):
                m.d.comb += self.fault.valid.eq(cause != CoreCause.NONE)
                with m.If(self.fault.ready | ~self.fault.valid):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += self.give.valid.eq(1)
                with m.If(self.give.ready):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += self.end.valid.eq(1)
                with m.If(self.end.ready):
                    m.d.comb += self.ended.valid.eq(1)
                    m.next = "PICK"
