"""Order of the blocks on an SM (PLACE-20)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.records.placement import LEVEL_BITS, PRIORITY_BITS

__all__ = ["BlockOrder"]


class BlockOrder(wiring.Component):
    """Order of the block slots: higher priority first, then earlier arrival.

    The order of two blocks never changes while both are present, so it is determined once, when the
    later one arrives, and kept in one flip-flop per pair. A selection takes one two-input gate per
    pair and a tree of depth log(slots), all in parallel, without comparing priorities. The updates
    of all pairs of a slot are written as one word, so the generated code grows linearly with the
    slots.

    Parameters
    ----------
    slots : number of block slots.
    choices : number of parallel selections.

    Members
    -------
    arrive : in, strobe: a block of this priority enters the slot of `place` (one-hot) in the next
        cycle.
    placed : out, per slot, one-hot, registered: slot that this block enters in this cycle.
    behind : out, per slot, registered: the block in it, if any, has lower priority than the one
        placed; 0 if none is placed.
    candidates : in, per selection and slot: a candidate.
    first : out, per selection and slot, one-hot, combinational: the first candidate; 0 without one.
    last_of : in, per slot: a candidate of a further selection.
    last : out, per slot, one-hot, combinational: the last one of these; 0 without one.
    levels : out, per slot, registered: priority + 1.
    """

    def __init__(self, slots: int, choices: int) -> None:
        self._slots = slots
        arrival = data.StructLayout({"valid": 1, "place": slots, "priority": PRIORITY_BITS})
        super().__init__({
            "arrive": In(arrival),
            "placed": Out(slots),
            "behind": Out(slots),
            "candidates": In(slots).array(choices),
            "first": Out(slots).array(choices),
            "last_of": In(slots),
            "last": Out(slots),
            "levels": Out(data.ArrayLayout(LEVEL_BITS, slots)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._arrive(m)
        slots = self._slots
        # Per slot: slots of higher number that precede it.
        self._rows = [Signal(slots - 1 - slot, name=f"turned_{slot}") for slot in range(slots - 1)]
        for slot, row in enumerate(self._rows):
            later, lower = self.placed[slot + 1 :], self.behind[slot + 1 :]
            # A new block precedes only blocks of lower priority.
            with m.If(self.placed[slot]):
                m.d.sync += row.eq(~lower)
            with m.Elif(self.behind[slot]):
                m.d.sync += row.eq(row | later)
            with m.Else():
                m.d.sync += row.eq(row & ~later)
        for slot in range(slots):
            ahead = self._ahead(m, slot)
            for candidates, first in zip(self.candidates, self.first, strict=True):
                m.d.comb += first[slot].eq(candidates[slot] & ~(candidates & ahead).any())
            m.d.comb += self.last[slot].eq((self.last_of & ~ahead) == 1 << slot)
        return m

    def _arrive(self, m: Module) -> None:
        """Compare priorities one cycle ahead, including that of a block just being placed."""
        arrive, priority = self.arrive, Signal(PRIORITY_BITS)
        m.d.sync += [
            self.placed.eq(Mux(arrive.valid, arrive.place, 0)),
            priority.eq(arrive.priority),
        ]
        for slot, level in enumerate(self.levels):
            lower = Mux(self.placed[slot], priority < arrive.priority, level <= arrive.priority)
            m.d.sync += self.behind[slot].eq(arrive.valid & lower)
            with m.If(self.placed[slot]):
                m.d.sync += level.eq(priority + 1)

    def _ahead(self, m: Module, slot: int) -> Signal:
        """Slots of the blocks that precede the one in `slot`."""
        ahead = Signal(self._slots, name=f"ahead_{slot}")
        before = Cat(~self._rows[one][slot - one - 1] for one in range(slot))
        after = self._rows[slot] if slot < len(self._rows) else ()
        m.d.comb += ahead.eq(Cat(before, 0, after))
        return ahead
