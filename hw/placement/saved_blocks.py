"""Saved blocks of each kernel row, and free save places (PREEMPT-3, PREEMPT-4, PREEMPT-7)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.records.nested import block_family
from signalbox.hw.records.placement import coordinates, row_blocks, saved_list, stopped_block

__all__ = ["SavedBlocks", "saved_block"]


def saved_block(config: Config) -> data.StructLayout:
    """A block in a list, if there is `some`: its grid position and its save place; `restores`: its
    state is there; with nested launches, its `family`. `count`: number of blocks from this one on.
    `next`: place of the next one."""
    nested = {"family": block_family(config)} if config.nested else {}
    return data.StructLayout({
        **nested,
        "some": 1,
        "at": coordinates,
        "save_place": config.place_bits,
        "restores": 1,
        "count": range(config.save_places + 1),
        "next": config.place_bits,
    })


class SavedBlocks(wiring.Component):
    """Keeps a list of saved blocks per row, linked through the places. The block saved last is the
    first one in the list.

    A block that was stopped enters the list of its row, and is undistributed again, unless the row
    drops its blocks. The list of a drained row leaves with its task (`keep`), and enters the row in
    which the task continues (`open` with `adopts`). The list of a row that closes is freed.

    While lists change, no block is placed (`pause`), and no row opens, stops or closes (`busy`). A
    change takes a few cycles. Freeing a list takes one cycle per place, and longer while `lost` has
    not accepted the family of a block.

    Members
    -------
    open : in, strobe: a row opens; with `adopts`, the blocks of this list are undistributed, too.
    stop : in, strobe: no saved block of the row is placed any more.
    close : in, strobe: a row closes.
    keep : in, stream of rows: the task of this drained row keeps its list; answered by `kept`.
    kept : out, stream of `saved_list`: the list.
    discard : in, stream of places: first place of a list that was kept; the whole list is freed.
    ahead : in, `row_bits` bits: the row to be selected in the next cycle.
    first : out, registered, a `saved_block`: the first saved block of the selected row; `count` and
        `some` account for a `take` from two cycles after it on.
    take : in, strobe: a block of the selected row is sent to an SM: the saved one, if there is one.
    stopped : in, stream of `stopped_block`: answers to stops.
    add : out, stream of `row_blocks`: blocks that are undistributed again.
    leaves : out, strobe: a saved block of the row no longer counts as being on an SM.
    ended : in, strobe: a block that had a place has ended.
    place : out, stream of places: a free one.
    spare : out, combinational: fewer places are reserved than are free; 0 in each cycle with
        `reserve`.
    pause : out, combinational, from `take` too: no block may be placed from the next cycle on.
    busy : out, no row may open, stop or close.

    With nested launches
    --------------------
    lost : out, stream of families: family of a block that will not continue.
    reserve : in, strobe: reserve a place for a block that is on an SM and has none.
    reserved : out, one cycle after `reserve`: a place is reserved, until the block ends or is
        saved.
    release : in, strobe: the last reservation is not needed.
    unused : in, strobe: a block with a reserved place has ended.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event, place = row_event(config), config.place_bits
        nested = {
            "lost": Out(stream.Signature(config.nested_bits)),
            **{name: In(1) for name in ("reserve", "release", "unused")},
            "reserved": Out(1),
        }
        super().__init__({
            "open": In(data.StructLayout({**event.members, "adopts": 1, "save_place": place})),
            "stop": In(event),
            "close": In(event),
            "keep": In(stream.Signature(config.row_bits)),
            "kept": Out(stream.Signature(saved_list(config))),
            "discard": In(stream.Signature(place)),
            "ahead": In(config.row_bits),
            "first": Out(saved_block(config)),
            "take": In(1),
            "stopped": In(stream.Signature(stopped_block(config))),
            "add": Out(stream.Signature(row_blocks(config))),
            "leaves": Out(event),
            "ended": In(data.StructLayout({"valid": 1, "save_place": place})),
            "place": Out(stream.Signature(place)),
            "pause": Out(1),
            "busy": Out(1),
            "spare": Out(1),
            **(nested if config.nested else {}),
        })
        self._listed = Signal(config.rows, name="listed")
        """Per row: has a list."""
        self._row = Signal(config.row_bits, name="row")
        self._block = Signal(saved_block(config), name="block")
        """`_row`: row of the list that changes. `_block`: block that enters or leaves the list."""
        self._ceased = Signal(config.rows, name="ceased")
        """Per row: its saved blocks are not placed any more."""
        self._drops, self._adopts = Signal(name="drops"), Signal(name="adopts")
        self._event = Signal(config.row_bits, name="event_row")
        self._list = Signal(place, name="adopted_list")
        """`_event`: row that has closed with a list, or opened with the list `_list`."""
        self._frees, self._takes, self._pops, self._waits = (
            Signal(name=name) for name in ("frees", "takes", "pops", "waits")
        )
        self._selected = Signal(config.row_bits, name="selected")
        self._pushed = ("at", "save_place", "restores", *(["family"] if config.nested else []))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, shape = self._config, saved_block(self._config)
        m.submodules.heads = heads = Memory(shape=shape, depth=1 << config.row_bits, init=[])
        m.submodules.links = links = Memory(shape=shape, depth=1 << config.place_bits, init=[])
        self._head, self._write_head = heads.read_port(domain="comb"), heads.write_port()
        self._link, self._write_link = links.read_port(domain="comb"), links.write_port()
        m.d.comb += [
            self._head.addr.eq(self._row),
            self._link.addr.eq(self._block.next),
            self._write_head.addr.eq(self._row),
        ]
        self._places(m)
        self._select(m, heads.read_port(domain="comb"))
        self._note(m)
        with m.FSM(name="lists"):
            self._wait(m)
            self._pop(m)
            self._drop(m)
            self._adopt(m)
            self._keep(m)
            self._push(m)
        return m

    def _places(self, m: Module) -> None:
        """Free places: after reset, all, one per cycle in which none is freed. Ends of blocks go
        first."""
        count = self._config.save_places
        m.submodules.free = free = StreamFIFO(self._config.place_bits, count + 1)
        filled = Signal(range(count + 1), name="filled")
        fills = (filled != count) & ~(self.ended.valid | self._frees)
        m.d.sync += filled.eq(filled + fills)
        m.d.comb += [
            free.i.valid.eq(fills | self.ended.valid | self._frees),
            free.i.payload.eq(
                Mux(
                    fills,
                    filled,
                    Mux(self.ended.valid, self.ended.save_place, self._block.save_place),
                )
            ),
        ]
        connect(m, free.o, flipped(self.place))
        if self._config.nested:
            self._reserve(m, free)
        else:
            m.d.comb += self.spare.eq(1)

    def _reserve(self, m: Module, free: StreamFIFO) -> None:
        """Count free places and reservations. A place that was given to a block with a reservation
        counts as reserved until the block is saved."""
        stopped, count = self.stopped, range(self._config.save_places + 1)
        left, reservations = Signal(count, name="free_places"), Signal(count, name="reservations")
        more, used, spare = (Signal(name=name) for name in ("more", "used", "spare_place"))
        m.d.comb += [
            spare.eq(left > reservations),
            self.spare.eq(spare & ~self.reserve),
            more.eq(spare & self.reserve),
            used.eq(
                stopped.valid
                & stopped.ready
                & stopped.p.some
                & stopped.p.given
                & stopped.p.family.related
            ),
        ]
        m.d.sync += [
            self.reserved.eq(more),
            left.eq(left + free.i.valid - (free.o.valid & free.o.ready)),
            reservations.eq(reservations + more - self.release - self.unused - used),
        ]

    def _select(self, m: Module, head: wiring.PureInterface) -> None:
        """The first block of the selected row."""
        ahead, first = self.ahead, self.first
        changes, changing = self._drops | self._adopts, Signal(name="changing")
        m.d.comb += [
            head.addr.eq(ahead),
            self._takes.eq(self.take & first.some),
            self.busy.eq(~self._waits | changes),
            changing.eq(self.stopped.valid | self.keep.valid | self.discard.valid),
            self.pause.eq(self.busy | self._takes | changing),
        ]
        m.d.sync += [
            self._selected.eq(ahead),
            first.eq(head.data),
            first.some.eq(self._listed.bit_select(ahead, 1)),
        ]
        with m.If(self._pops & (ahead == self._row)):
            left = self._block.count - 1
            m.d.sync += [first.count.eq(left), first.some.eq(left != 0)]

    def _note(self, m: Module) -> None:
        """Rows that open, stop and close."""
        opened, closed = self.open, self.close
        with m.If(self.stop.valid):
            m.d.sync += self._ceased.bit_select(self.stop.row, 1).eq(1)
        with m.If(opened.valid):
            m.d.sync += [
                self._ceased.bit_select(opened.row, 1).eq(0),
                self._adopts.eq(opened.adopts),
                self._list.eq(opened.save_place),
                self._event.eq(opened.row),
            ]
        with m.If(closed.valid):
            m.d.sync += [
                self._drops.eq(self._listed.bit_select(closed.row, 1)),
                self._event.eq(closed.row),
            ]
        with m.If(self.kept.ready):
            m.d.sync += self.kept.valid.eq(0)

    def _wait(self, m: Module) -> None:
        """Wait for the next event, in this order of priority."""
        stopped, row, block = self.stopped, self._row, self._block
        with m.State("WAIT"):
            m.d.comb += self._waits.eq(1)
            with m.If(self._takes):
                m.d.sync += [row.eq(self._selected), block.eq(self.first)]
                m.next = "POP"
            with m.Elif(self._drops):
                m.d.sync += [row.eq(self._event), self._drops.eq(0)]
                m.next = "DROP"
            with m.Elif(self._adopts):
                m.d.sync += [row.eq(self._event), block.next.eq(self._list), self._adopts.eq(0)]
                m.next = "ADOPT"
            with m.Elif(self.keep.valid & ~self.kept.valid):
                m.d.comb += self.keep.ready.eq(1)
                m.d.sync += row.eq(self.keep.payload)
                m.next = "KEEP"
            with m.Elif(self.discard.valid):
                m.d.comb += self.discard.ready.eq(1)
                m.d.sync += block.next.eq(self.discard.payload)
                m.next = "DISCARD"
            with m.Elif(stopped.valid):
                m.d.sync += [
                    row.eq(stopped.p.row),
                    [block[name].eq(stopped.p[name]) for name in self._pushed],
                ]
                m.next = "PUSH"

    def _advance(self, m: Module) -> None:
        """The next block of the list becomes the first one."""
        link, block, head = self._link.data, self._block, self._write_head
        m.d.comb += [head.en.eq(1), head.data.eq(link), head.data.save_place.eq(block.next)]

    def _pop(self, m: Module) -> None:
        """The first block leaves; its place is free if it has no state there."""
        block = self._block
        with m.State("POP"):
            m.d.comb += self._pops.eq(1)
            self._advance(m)
            m.d.sync += self._listed.bit_select(self._row, 1).eq(block.count != 1)
            m.next = "WAIT"
            with m.If(~block.restores):
                m.d.comb += self._frees.eq(1)
                with m.If(self.ended.valid):
                    m.next = "POP"

    def _drop(self, m: Module) -> None:
        """Free the places of a list, one per cycle."""
        block = self._block
        with m.State("DISCARD"):
            m.d.sync += [block.eq(self._link.data), block.save_place.eq(block.next)]
            m.next = "FREE"
        with m.State("DROP"):
            m.d.sync += [block.eq(self._head.data), self._listed.bit_select(self._row, 1).eq(0)]
            m.next = "FREE"
        with m.State("FREE"):
            m.d.comb += self._frees.eq(self._told(m))
            with m.If(self._frees & ~self.ended.valid):
                m.d.sync += [block.eq(self._link.data), block.save_place.eq(block.next)]
                with m.If(block.count == 1):
                    m.next = "WAIT"

    def _told(self, m: Module) -> Value:
        """Offer the family of a block that is dropped. Returns whether its place may be freed."""
        if not self._config.nested:
            return Const(1)
        family, lost = self._block.family, self.lost
        m.d.comb += [lost.valid.eq(family.related), lost.payload.eq(family.family)]
        with m.If(lost.ready):
            m.d.sync += family.related.eq(0)
        return ~family.related

    def _adopt(self, m: Module) -> None:
        """The list becomes that of a row; its blocks are undistributed."""
        with m.State("ADOPT"):
            self._advance(m)
            m.d.sync += [
                self._listed.bit_select(self._row, 1).eq(1),
                self._block.count.eq(self._link.data.count),
            ]
            m.next = "ADD"
        with m.State("ADD"):
            m.d.comb += [
                self.add.valid.eq(1),
                self.add.p.row.eq(self._row),
                self.add.p.blocks.eq(self._block.count),
            ]
            with m.If(self.add.ready):
                m.next = "WAIT"

    def _keep(self, m: Module) -> None:
        """Hand over the list of a row."""
        kept, head, link = self.kept, self._head.data, self._write_link
        with m.State("KEEP"):
            some = self._listed.bit_select(self._row, 1)
            m.d.comb += [
                link.en.eq(some),
                link.addr.eq(head.save_place),
                link.data.eq(head),
            ]
            m.d.sync += [
                kept.valid.eq(1),
                kept.p.some.eq(some),
                kept.p.save_place.eq(head.save_place),
                some.eq(0),
            ]
            m.next = "WAIT"

    def _push(self, m: Module) -> None:
        """A stopped block becomes the first one of its row's list; or the place given to a block
        that was not stopped is freed again."""
        stopped, head, block = self.stopped, self._head.data, self._block
        link, new = self._write_link, self._write_head
        some = self._listed.bit_select(self._row, 1)
        with m.State("PUSH"):
            m.d.comb += [
                link.addr.eq(head.save_place),
                link.data.eq(head),
                new.data.eq(block),
                new.data.next.eq(head.save_place),
                new.data.count.eq(Mux(some, head.count, 0) + 1),
            ]
            with m.If(stopped.p.some):
                m.d.comb += [link.en.eq(some), new.en.eq(1)]
                m.d.sync += some.eq(1)
                m.next = "ADD ONE"
                with m.If(self._ceased.bit_select(self._row, 1)):
                    m.next = "LEAVE"
            with m.Else():
                m.d.comb += self._frees.eq(stopped.p.given)
                with m.If(~(self.ended.valid & stopped.p.given)):
                    m.d.comb += stopped.ready.eq(1)
                    m.next = "WAIT"
        with m.State("ADD ONE"):
            ceased = self._ceased.bit_select(self._row, 1)
            m.d.comb += [
                self.add.valid.eq(~ceased),
                self.add.p.row.eq(self._row),
                self.add.p.blocks.eq(1),
            ]
            with m.If(self.add.ready | ceased):
                m.next = "LEAVE"
        with m.State("LEAVE"):
            m.d.comb += [
                self.leaves.valid.eq(1),
                self.leaves.row.eq(self._row),
                stopped.ready.eq(1),
            ]
            m.next = "WAIT"
