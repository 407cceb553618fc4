"""Which of the blocks on an SM comes first (PLACE-20)."""

from itertools import combinations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.records.placement import LEVEL_BITS

__all__ = ["Order"]


class Order(wiring.Component):
    """Order of the block slots: higher priority first, of equal ones the one that arrived first.

    Whether a block precedes another never changes while both are there, so it is found out once,
    when the later one arrives, and kept, a flip-flop per pair. A choice is a gate of two inputs per
    pair and a tree of depth log(slots), all of them side by side; no priorities are compared in it.
    What is done with all pairs of one slot is written as one word: the text grows with the slots.

    Parameters
    ----------
    slots : block slots.
    choices : so many choices are made beside each other.

    Members
    -------
    arrive : a block of this priority comes into the one slot of `place`, in the next cycle.
    placed : it does so in this cycle; one-hot, from registers.
    behind : slots in use whose blocks are of lower priority than that one; 0 without one.
    candidates, first : of each choice; `first` one-hot, 0 without candidates. Combinational.
    last_of, last : the same from the other end.
    levels : of each slot, its priority and 1.

    Attributes
    ----------
    turned : per pair of slots, the second comes before the first (state, for proofs).
    """

    def __init__(self, slots: int, choices: int) -> None:
        self._slots = slots
        # Of each slot those of higher number that precede it.
        self._rows = [Signal(slots - 1 - slot, name=f"turned_{slot}") for slot in range(slots - 1)]
        self.turned = {
            (one, other): self._rows[one][other - one - 1]
            for one, other in combinations(range(slots), 2)
        }
        arrival = data.StructLayout({"valid": 1, "place": slots, "priority": LEVEL_BITS - 1})
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
        for slot, row in enumerate(self._rows):
            later, lower = self.placed[slot + 1 :], self.behind[slot + 1 :]
            # Who arrives precedes only what is of lower priority.
            with m.If(self.placed[slot]):
                m.d.sync += row.eq(~lower)
            with m.Elif(self.behind[slot]):
                m.d.sync += row.eq(row | later)
            with m.Else():
                m.d.sync += row.eq(row & ~later)
        for slot in range(self._slots):
            ahead = self._ahead(m, slot)
            for candidates, first in zip(self.candidates, self.first, strict=True):
                m.d.comb += first[slot].eq(candidates[slot] & ~(candidates & ahead).any())
            m.d.comb += self.last[slot].eq((self.last_of & ~ahead) == 1 << slot)
        return m

    def _arrive(self, m: Module) -> None:
        """Priorities are compared in the cycle before, with that of one just being placed, too."""
        arrive, priority = self.arrive, Signal(LEVEL_BITS - 1)
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
        """The slots whose blocks come before that in `slot`."""
        ahead = Signal(self._slots, name=f"ahead_{slot}")
        before = Cat(~self.turned[one, slot] for one in range(slot))
        after = self._rows[slot] if slot < len(self._rows) else ()
        m.d.comb += ahead.eq(Cat(before, 0, after))
        return ahead
