"""Proofs that save places and saved blocks are neither lost nor used twice (PREEMPT-4, PREEMPT-7),
and that a reserved place is available when it is needed (NEST-12)."""

from dataclasses import replace

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from signalbox.hw.placement.saved_blocks import SavedBlocks
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Proof,
    Wrap,
    arbitrary,
    stays,
)
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]

CONFIG = replace(TWO_SMS, save_places=2)
NESTED = replace(CONFIG, nested_kernels=2)
PLACES = CONFIG.save_places

SETTLED = 6
"""Cycles without an event after which a free place is offered."""


class Owner(enum.Enum, shape=3):
    """Owner of a save place."""

    FREE = 0
    """Nobody."""
    STOP = 1
    """The stop to which it was given."""
    ROW = 2
    """The list of `row`."""
    LEAVING = 3
    """A list that leaves its row."""
    TASK = 4
    """A list kept by a task, with first place `list`."""
    SM = 5
    """A block of `row` on an SM."""


_owned = data.StructLayout({
    "owner": Owner,
    "row": CONFIG.row_bits,
    "list": CONFIG.place_bits,
    "restores": 1,
    "reserved": 1,
})
"""`reserved`: the place was given to a stop of a block for which it was reserved."""


class SavedBlocksProof(Proof):
    """Follows saved blocks and their places. Assumed: a stop is answered with the place given to
    it, or with the place of the restored block; rows that open or close have no blocks on SMs;
    `pause` and `busy` are respected."""

    name = "placement.saved_blocks"
    shows = (
        "a save place has one owner: it is given to a stop only while it is free; a saved block is "
        "placed once, from the list that it is in; a free place is offered again; and two cycles "
        "after one in which lists do not change, the first block of a row counts those that are "
        "undistributed, as the answer to a stop needs"
    )
    bounded = 13
    cover = 16
    long = True
    config = CONFIG

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = SavedBlocks(self.config)
        m.submodules.dut = wrap(dut)
        for name in ("open", "stop", "close", "ahead", "take", "ended"):
            arbitrary(m, getattr(dut, name), name)
        for name in ("keep", "discard", "stopped"):
            port = getattr(dut, name)
            arbitrary(m, port.payload, f"{name}_payload")
            arbitrary(m, port.valid, f"{name}_valid")
            stays(m, port, Assume, name)
        for name in ("kept", "add", "place"):
            arbitrary(m, getattr(dut, name).ready, f"{name}_ready")
        self._places = Array(Signal(_owned, name=f"place_{n}") for n in range(PLACES))
        self._ceased = Signal(CONFIG.rows, name="ceased_rows")
        self._selected = Signal(CONFIG.row_bits, name="selected_row")
        rows = (dut.open.row, dut.stop.row, dut.close.row, dut.ahead, dut.keep.payload)
        m.d.comb += [Assume(row < CONFIG.rows) for row in (*rows, dut.stopped.p.row)]
        self._stops(m, dut)
        self._takes(m, dut)
        self._rows(m, dut)
        self._lists(m, dut)
        self._free(m, dut)
        self._counts(m, dut)

    def _owns(self, owner: Owner, row: Value) -> Value:
        """Whether a place has this owner in this row."""
        return Cat((one.owner == owner) & (one.row == row) for one in self._places).any()

    def _stops(self, m: Module, dut: SavedBlocks) -> None:
        """A stop gets a place, and answers with it or with the place of a restored block."""
        place, stopped = dut.place, dut.stopped
        answer, one = stopped.p, self._places[stopped.p.save_place]
        m.d.comb += Assume(stopped.p.save_place < PLACES)
        with m.If(place.valid & place.ready):
            m.d.comb += Assert(self._places[place.payload].owner == Owner.FREE)
            m.d.sync += self._places[place.payload].owner.eq(Owner.STOP)
        with m.If(stopped.valid):
            with m.If(answer.given):
                m.d.comb += Assume(one.owner == Owner.STOP)
            with m.Elif(answer.some):
                of_row = (one.owner == Owner.SM) & (one.row == answer.row)
                m.d.comb += Assume(of_row & answer.restores)
            with m.If(stopped.ready & answer.some):
                m.d.sync += [
                    one.owner.eq(Owner.ROW),
                    one.row.eq(answer.row),
                    one.restores.eq(answer.restores),
                ]
            with m.Elif(stopped.ready & answer.given):
                m.d.sync += one.owner.eq(Owner.FREE)

    def _takes(self, m: Module, dut: SavedBlocks) -> None:
        """A saved block is placed unless there is a pause, and ends."""
        paused, selected = Signal(name="paused"), self._selected
        first, one = dut.first, self._places[dut.first.save_place]
        m.d.sync += [paused.eq(dut.pause), selected.eq(dut.ahead)]
        m.d.comb += Assume(~(dut.take & (paused | self._ceased.bit_select(selected, 1))))
        with m.If(dut.take & first.some):
            listed = (one.owner == Owner.ROW) & (one.row == selected)
            m.d.comb += Assert(listed & (one.restores == first.restores))
            m.d.sync += one.owner.eq(Mux(first.restores, Owner.SM, Owner.FREE))
        with m.If(dut.ended.valid):
            over = self._places[dut.ended.save_place]
            answering = dut.stopped.valid & (dut.stopped.p.save_place == dut.ended.save_place)
            m.d.comb += Assume((over.owner == Owner.SM) & ~answering)
            m.d.sync += over.owner.eq(Owner.FREE)
        m.d.comb += Cover(dut.take & first.some & first.restores)

    def _rows(self, m: Module, dut: SavedBlocks) -> None:
        """Rows open, cease and close."""
        opened, closed, stopped = dut.open, dut.close, dut.stopped
        with m.If(dut.stop.valid):
            m.d.sync += self._ceased.bit_select(dut.stop.row, 1).eq(1)
        m.d.comb += Assume(~(opened.valid & closed.valid))
        for event in (opened, closed):
            on_way = stopped.valid & (stopped.p.row == event.row)
            at_rest = ~dut.busy & ~on_way & ~self._owns(Owner.SM, event.row)
            m.d.comb += Assume(~event.valid | (at_rest & ~dut.take & ~dut.keep.valid))
        with m.If(opened.valid):
            m.d.sync += self._ceased.bit_select(opened.row, 1).eq(0)
            m.d.comb += Assume(~self._owns(Owner.ROW, opened.row))
        with m.If(closed.valid):
            ceased = self._ceased.bit_select(closed.row, 1)
            m.d.comb += Assume(ceased | ~self._owns(Owner.ROW, closed.row))
            for one in self._places:
                with m.If((one.owner == Owner.ROW) & (one.row == closed.row)):
                    m.d.sync += one.owner.eq(Owner.FREE)

    def _lists(self, m: Module, dut: SavedBlocks) -> None:
        """A list leaves with its task, and returns with it or is discarded."""
        keep, kept, discard, opened = dut.keep, dut.kept, dut.discard, dut.open
        with m.If(keep.valid):
            on_way = dut.stopped.valid & (dut.stopped.p.row == keep.payload)
            m.d.comb += Assume(~on_way & ~self._owns(Owner.SM, keep.payload))
        leaving = Cat(one.owner == Owner.LEAVING for one in self._places)
        with m.If(kept.valid & kept.ready):
            m.d.comb += Assert(kept.p.some == leaving.any())
            m.d.comb += Assert(~kept.p.some | leaving.bit_select(kept.p.save_place, 1))
        for n, one in enumerate(self._places):
            with m.If((one.owner == Owner.ROW) & (one.row == keep.payload)):
                with m.If(keep.valid & keep.ready):
                    m.d.sync += one.owner.eq(Owner.LEAVING)
            with m.If(leaving[n] & kept.valid & kept.ready):
                m.d.sync += [one.owner.eq(Owner.TASK), one.list.eq(kept.p.save_place)]
            for returns, place, owner in (
                (discard.valid & discard.ready, discard.payload, Owner.FREE),
                (opened.valid & opened.adopts, opened.save_place, Owner.ROW),
            ):
                with m.If(returns & (one.owner == Owner.TASK) & (one.list == place)):
                    m.d.sync += [one.owner.eq(owner), one.row.eq(opened.row)]
        for asks, place in (
            (discard.valid, discard.payload),
            (opened.valid & opened.adopts, opened.save_place),
        ):
            head = self._places[place]
            m.d.comb += Assume(~asks | ((head.owner == Owner.TASK) & (head.list == place)))
        both = discard.valid & opened.valid & opened.adopts
        m.d.comb += [
            Assume(~(both & (discard.payload == opened.save_place))),
            Cover(opened.valid & opened.adopts),
            Cover(discard.valid & discard.ready),
        ]

    def _free(self, m: Module, dut: SavedBlocks) -> None:
        """Without events, a free place is offered."""
        quiet, count = Signal(name="quiet"), Signal(range(SETTLED + 1), name="quiet_for")
        events = (dut.open, dut.close, dut.stopped, dut.keep, dut.discard, dut.kept, dut.add)
        m.d.comb += quiet.eq(
            ~Cat(*(one.valid for one in events), dut.take, dut.ended.valid, dut.place.ready).any()
        )
        m.d.sync += count.eq(Mux(quiet, count + (count != SETTLED), 0))
        free = Cat(one.owner == Owner.FREE for one in self._places).any()
        m.d.comb += Assert(~((count == SETTLED) & free) | dut.place.valid)

    def _counts(self, m: Module, dut: SavedBlocks) -> None:
        """For any row that is open and does not drop its blocks."""
        row, is_open = Signal(CONFIG.row_bits, name="counted_row"), Signal(name="is_open")
        count = Signal(range(PLACES + 1), name="undistributed")
        before, rests = Signal.like(count, name="were_undistributed"), Signal(2, name="rested")
        opened, closed = (event.valid & (event.row == row) for event in (dut.open, dut.close))
        takes = dut.take & dut.first.some & (self._selected == row)
        adds = dut.add.valid & dut.add.ready & (dut.add.p.row == row)
        leaves = dut.keep.valid & dut.keep.ready & (dut.keep.payload == row)
        changes = dut.busy | dut.keep.valid | dut.open.valid | dut.close.valid
        m.d.comb += row.eq(AnyConst(CONFIG.row_bits))
        m.d.sync += [
            before.eq(count),
            rests.eq(Cat(~changes, rests)),
            is_open.eq((is_open | opened) & ~closed),
            count.eq(Mux(opened | leaves, 0, count - takes + Mux(adds, dut.add.p.blocks, 0))),
        ]
        goes_on = is_open & ~self._ceased.bit_select(row, 1)
        asked = rests[1] & goes_on & (self._selected == row)
        listed = Mux(dut.first.some, dut.first.count, 0)
        m.d.comb += [Assert(~asked | (listed == before)), Cover(asked & (before == 1))]


class ReservedPlacesProof(SavedBlocksProof):
    """Shows that reserved places are available when needed. Further assumptions: blocks reserve
    places, and end or are saved; a place that is not spare is given only to a block with a
    reservation."""

    name = "placement.reserved_places"
    shows = (
        "each block for which a save place is reserved can be given a free one, at any time, "
        "whatever the other blocks do; and a place can be reserved"
    )
    bounded = 11
    cover = 12
    config = NESTED

    def build(self, m: Module, wrap: Wrap) -> None:
        super().build(m, wrap)
        dut = self._dut
        for name in ("reserve", "release", "unused"):
            arbitrary(m, getattr(dut, name), name)
        arbitrary(m, dut.lost.ready, "lost_ready")
        stopped, asked = dut.stopped, Signal(name="asked")
        count = range(PLACES + 1)
        kept, reservations = Signal(count, name="kept"), Signal(count, name="reservations")
        one = self._places[stopped.p.save_place]
        given = stopped.valid & stopped.ready & stopped.p.given
        used = given & stopped.p.some & stopped.p.family.related
        with m.If(dut.place.valid & dut.place.ready):
            m.d.sync += self._places[dut.place.payload].reserved.eq(~dut.spare)
        with m.If(given):
            m.d.sync += one.reserved.eq(0)
        in_stops = sum(place.reserved for place in self._places)
        needs = (dut.place.valid & dut.place.ready & ~dut.spare) + (used & ~one.reserved)
        m.d.comb += kept.eq(reservations - in_stops)
        m.d.comb += [
            Assume(dut.release + dut.unused + needs <= kept),
            Assume(~(given & stopped.p.some & one.reserved) | stopped.p.family.related),
            Assert(sum(place.owner == Owner.FREE for place in self._places) >= kept),
            Assert(reservations >= in_stops),
            Cover(reservations == PLACES),
            Cover(used & one.reserved),
        ]
        m.d.sync += [
            asked.eq(dut.reserve),
            reservations.eq(reservations + dut.reserved - dut.release - dut.unused - used),
        ]
        m.d.comb += Assert(~dut.reserved | asked)


PROOFS = [SavedBlocksProof(), ReservedPlacesProof()]
