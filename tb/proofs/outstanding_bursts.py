"""Proof of outstanding bursts: the condition for an acknowledge (ASID-8, ASID-9)."""

from amaranth import Mux, Signal
from amaranth.hdl import Module

from signalbox.hw.mmu.outstanding_bursts import OutstandingBursts
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)

__all__ = ["PROOFS"]

_PORTS, _MOST = 2, 3


class OutstandingBurstsProof(Proof):
    name = "mmu.outstanding_bursts"
    shows = (
        "from the cycle after an invalidation until any burst that was taken before it has ended, "
        "some older one is left; none is 3 cycles after it when no burst is under way"
    )
    induction = 4
    cover = 10

    def build(self, m: Module, wrap: Wrap) -> None:
        older = OutstandingBursts(_PORTS, _MOST)
        inside = Inside(older)
        m.submodules.dut = wrap(older)
        taken, ended = (anything(m, _PORTS, name) for name in ("taken", "ended"))
        event = anything(m, 1, "event")
        m.d.comb += [older.taken.eq(taken), older.ended.eq(ended), older.event.eq(event)]
        counts = [self._bursts(m, inside, port, taken[port], ended[port]) for port in range(_PORTS)]

        # One burst of one port, chosen when it is taken, and the number of bursts before it.
        which = Signal()
        m.d.comb += which.eq(AnyConst(1))
        chosen, old, ahead = Signal(), Signal(), Signal(range(_MOST))
        begins, ends = taken.bit_select(which, 1), ended.bit_select(which, 1)
        with m.If(~chosen):
            m.d.sync += [
                chosen.eq(begins & anything(m, 1, "chooses")),
                ahead.eq(Mux(which, counts[1], counts[0]) - ends),
                old.eq(event),
            ]
        with m.Else():
            m.d.sync += [chosen.eq(~(ends & (ahead == 0))), ahead.eq(ahead - ends)]
            m.d.sync += old.eq(old | event)
        with m.If(chosen):
            m.d.comb += Assert(ahead < Mux(which, counts[1], counts[0]))
        with m.If(chosen & old):
            m.d.comb += Assert(older.pending)

        # Events of a cycle are counted in the next one.
        counted = Signal()
        m.d.sync += counted.eq(chosen & old)
        left = Mux(which, inside.signal("older_1"), inside.signal("older_0"))
        ending = inside.signal("over").bit_select(which, 1)
        with m.If(chosen & old & counted):
            m.d.comb += Assert(ahead + ending < left)
        with m.If(chosen & old & ~counted):
            m.d.comb += Assert(inside.signal("marked"))

        quiet = Signal(range(4))
        rests = ~event & (counts[0] == 0) & (counts[1] == 0)
        m.d.sync += quiet.eq(Mux(rests, Mux(quiet == 3, 3, quiet + 1), 0))
        with m.If(quiet == 3):
            m.d.comb += Assert(~older.pending)
        m.d.comb += [Cover(chosen & counted & (ahead == 1)), Cover((quiet == 3) & (taken != 0))]

    def _bursts(self, m: Module, inside: Inside, port: int, taken: Signal, ended: Signal) -> Signal:
        """Bursts of a port in flight: none ends before it begins, and their number is limited."""
        count = Signal(range(_MOST + 1), name=f"count_{port}")
        under_way, left = (inside.signal(f"{name}_{port}") for name in ("under_way", "older"))
        m.d.comb += [
            Assume(~ended | (count != 0)),
            Assume(~taken | ended | (count != _MOST)),
            Assert(count + inside.signal("over")[port] == under_way + inside.signal("begun")[port]),
            Assert(left <= under_way),
        ]
        m.d.sync += count.eq(count + taken - ended)
        return count


PROOFS = (OutstandingBurstsProof(),)
