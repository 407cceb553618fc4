"""Selection among block slots, one cycle ahead."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BlockChoice"]


class BlockChoice(wiring.Component):
    """Keeps a selection and its successor, so that the next slot is known at the start of a cycle,
    early enough to read a RAM in that cycle.

    A selection stays until its slot leaves or is dropped. The successor follows at once, or one
    cycle later if it is dropped in the same cycle or only just arrives. A successor is known again
    one cycle after a selection, so a slot never leaves in its first selected cycle. A slot that
    stops being a candidate for any other reason is in `drop`.

    Parameters
    ----------
    slots : number of block slots.

    Members
    -------
    candidates : in, per slot: a candidate.
    others : out, per slot: a candidate that is not selected.
    best : in, per slot, one-hot, combinational from `others`: the successor among these.
    comes : in, per slot, one-hot: a candidate from the next cycle on, ordered behind `others`
        except for those in `drop`.
    drop : in, per slot: must not be selected in the next cycle.
    leave : in, the selected slot is no candidate from the next cycle on.
    place : out, per slot, one-hot, registered: the selected slot; 0 without one.
    some : out, registered: a slot is selected.
    moves : out, in the next cycle `following`, except for `drop`, is selected instead of the
        current slot; registered apart from `leave`.
    following : out, per slot, one-hot, registered: the successor.
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
