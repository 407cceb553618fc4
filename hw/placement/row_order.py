"""Open rows in the order of service (PLACE-1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.records.placement import PRIORITY_BITS

__all__ = ["RowOrder", "ordered_rows", "row_event"]


def row_event(config: Config) -> data.StructLayout:
    """Strobe for one row."""
    return data.StructLayout({"valid": 1, "row": config.row_bits})


def ordered_rows(config: Config) -> data.ArrayLayout:
    """The list: occupied entries (`there`) first. `filled`: the row has undistributed blocks;
    `walked`: it was walked since the last restart."""
    entry = data.StructLayout({
        "there": 1,
        "row": config.row_bits,
        "priority": PRIORITY_BITS,
        "filled": 1,
        "walked": 1,
    })
    return data.ArrayLayout(entry, config.rows)


class RowOrder(wiring.Component):
    """Sorted list of all open rows: highest priority first, then oldest first.

    A new row is inserted behind the rows of its priority or above, a closed row is removed; the
    rows behind it shift by one place. The order is exact from the cycle after `open`, and the place
    of a row is the number of rows ahead of it.

    The list is walked from its head: `next` is the first row with undistributed blocks that has not
    been walked since the last `restart`.

    Cost per row: an entry, one priority comparator, three row number comparators.

    Members
    -------
    open : in, strobe: a row opens; never together with `close`.
    priority : in, 7 bits: its priority.
    close : in, strobe: a row closes.
    refill : in, strobe: the row has undistributed blocks from now on.
    empty : in, strobe: the row has none.
    next : out, combinational from registers, `open` and `priority`: the next row to walk. Invalid
        while a row opens that goes ahead of it.
    walk : in, strobe: `next` is walked; only while it is valid.
    restart : in, no row counts as walked from the next cycle on.
    overtakes : out, combinational: the new row goes ahead of a walked row with undistributed
        blocks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._entries = Signal(ordered_rows(config), name="entries")
        event = row_event(config)
        super().__init__({
            "open": In(event),
            "priority": In(PRIORITY_BITS),
            "close": In(event),
            "refill": In(event),
            "empty": In(event),
            "next": Out(event),
            "walk": In(1),
            "restart": In(1),
            "overtakes": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._config.rows
        first = Signal(rows)
        wanted = Signal(rows)
        before = Signal(rows)
        m.d.comb += [
            before.eq(Cat(one.there & (one.priority >= self.priority) for one in self._entries)),
            wanted.eq(Cat(one.there & one.filled & ~one.walked for one in self._entries)),
            first.eq(lowest(wanted)),
            self.next.valid.eq((wanted & (before | ~self.open.valid.replicate(rows))).any()),
            self.next.row.eq(select(first, (one.row for one in self._entries))),
        ]
        self._overtake(m, before)
        self._move(m, self._updated(m, first), before)
        return m

    def _updated(self, m: Module, first: Value) -> data.View:
        """The entries after this cycle's events, at their old places."""
        updated = Signal(self._entries.shape(), name="updated")
        for n, (old, new) in enumerate(zip(self._entries, updated, strict=True)):
            fills, empties = _is(self.refill, old.row), _is(self.empty, old.row)
            m.d.comb += [
                new.eq(old),
                new.filled.eq((old.filled | fills) & ~empties),
                new.walked.eq(old.walked | (self.walk & first[n])),
            ]
        return updated

    def _overtake(self, m: Module, before: Value) -> None:
        """`empty` arrives late: compute both cases."""
        here = Cat(one.there & one.walked & one.filled for one in self._entries) & ~before
        others = here & Cat(one.row != self.empty.row for one in self._entries)
        m.d.comb += self.overtakes.eq(
            self.open.valid & Mux(self.empty.valid, others.any(), here.any())
        )

    def _move(self, m: Module, updated: data.View, before: Value) -> None:
        """Insert and remove entries."""
        entries = self._entries
        leaves = Signal(self._config.rows)
        behind = Signal(self._config.rows)
        newcomer = Signal(entries[0].shape())
        m.d.comb += [
            leaves.eq(Cat(one.there & _is(self.close, one.row) for one in entries)),
            behind.eq(~(leaves - 1)),
            newcomer.there.eq(1),
            newcomer.filled.eq(1),
            newcomer.row.eq(self.open.row),
            newcomer.priority.eq(self.priority),
        ]
        for n, entry in enumerate(entries):
            above = updated[n - 1] if n else newcomer
            above = Mux(before[n - 1], newcomer, above) if n else above
            below = updated[n + 1] if n + 1 < len(entries) else 0
            m.d.sync += [
                entry.eq(
                    Mux(
                        self.open.valid & ~before[n],
                        above,
                        Mux(self.close.valid & behind[n], below, updated[n]),
                    )
                )
            ]
            with m.If(self.restart):
                m.d.sync += entry.walked.eq(0)


def _is(event: data.View, row: Value) -> Value:
    return event.valid & (event.row == row)
