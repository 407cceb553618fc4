"""A choice among block slots that is made a cycle before it is needed."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Follow"]


class Follow(wiring.Component):
    """Keeps a choice, and who follows it: so the slot that is chosen next is known at the start of
    a cycle, early enough to read a RAM there.

    A choice stays until its slot leaves or is dropped. The next one follows at once, or a cycle
    later, if that is dropped in just this cycle, or only comes. Who follows is known again a cycle
    after a choice was made, so a slot does not leave in the first cycle in which it is chosen; and
    who ceases to be a candidate otherwise is in `drop`.

    Parameters
    ----------
    slots : block slots.

    Members
    -------
    candidates, others : slots to choose from; those that are not chosen.
    best : who is to follow, of `others`, one-hot; combinational.
    comes : one-hot, is a candidate from the next cycle on, and comes behind `others` but for those
        in `drop`.
    drop : who is not to be chosen in the next cycle.
    leave : the slot that is chosen is no candidate from the next cycle on.
    place, some : the slot that is chosen, one-hot, 0 without one; there is one.
    moves, following : what is chosen next is this slot, one-hot, but for `drop`; else that of now.
        From registers.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        super().__init__({
            "candidates": In(slots),
            "others": Out(slots),
            "best": In(slots),
            "comes": In(slots),
            "drop": In(slots),
            "leave": In(1),
            "place": Out(slots),
            "some": Out(1),
            "moves": Out(1),
            "following": Out(slots),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        none, place = Signal(name="none"), Signal(self._slots, name="next_place")
        left = ~self.drop
        m.d.comb += [
            self.others.eq(self.candidates & ~self.place),
            self.moves.eq(self.leave | ~self.some),
            place.eq(Mux(self.moves, self.following, self.place) & left),
            none.eq(~(self.others & left).any()),
        ]
        m.d.sync += [
            self.place.eq(place),
            self.some.eq(place.any()),
            self.following.eq((self.best & left) | Mux(none, self.comes, 0)),
        ]
        return m
