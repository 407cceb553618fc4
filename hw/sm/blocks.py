"""Block status register table of an SM (PLACE-20, 23, 25)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.onehot import encode, lowest, select
from hw.sm.needs import needed_block
from hw.sm.order import Order
from hw.work.records import LEVEL_BITS

__all__ = ["Blocks", "block_choice", "block_over"]

_INDEX = 6
"""Bits of a warp's number in its block."""


def block_choice(config: Config) -> data.StructLayout:
    """A block with warps to start. `begun`: it has started some. `index` is its next one, `last`
    tells whether that is its last."""
    return data.StructLayout({
        "valid": 1,
        "slot": config.block_bits,
        "block": needed_block(config),
        "begun": 1,
        "index": _INDEX,
        "last": 1,
    })


def block_over(config: Config) -> data.StructLayout:
    """The block in the one slot of `place` is over: a strobe."""
    return data.StructLayout({
        "valid": 1,
        "place": config.sm_blocks,
        "row": config.row_bits,
        "shared": config.shared_units.bit_length(),
    })


class Blocks(wiring.Component):
    """One row per block slot: the block, its place in the order, how many of its warps have been
    started and have ended, whether it waits to start more, and whether it has begun.

    What is used of many rows in a cycle lies in flip-flops, the rest in RAMs. Warps are counted up
    in RAMs; a bit says whether there is a count yet.

    The choices are registered, and right in every cycle in which they are valid: `urgent` is
    withdrawn for one cycle when a block arrives that precedes it, and each when its last warp
    starts. Everything else leaves them the first of their kind.

    Members
    -------
    arrive : blocks, taken while a slot is free; in the table in the next cycle.
    urgent : the first block with warps to start.
    other : the first one of those with a barrier that have begun; if there is none, of all that
        have begun, and right only while `urgent` has not.
    start : bit 0: a warp of `urgent` is started, bit 1: of `other`. Only while valid.
    end : a warp of the block in `slot` has ended.
    over : the next cycle: that was its last one; its slot is free from the cycle after that on.
    highest, received : see `hw.work.records.SmLink`; two cycles behind `arrive`, one behind `over`.

    Attributes
    ----------
    valid, waiting, begun : of each slot: in use; has warps to start; has begun (state, for proofs).
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks
        self.valid, self.waiting, self.begun = (
            Signal(slots, name=name) for name in ("valid", "waiting", "begun")
        )
        super().__init__({
            "arrive": In(stream.Signature(needed_block(config))),
            "urgent": Out(block_choice(config)),
            "other": Out(block_choice(config)),
            "start": In(2),
            "end": In(data.StructLayout({"valid": 1, "slot": config.block_bits})),
            "over": Out(block_over(config)),
            "highest": Out(LEVEL_BITS),
            "received": Out(6),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        depth = 1 << config.block_bits
        m.submodules.order = self._order = Order(config.sm_blocks, choices=3)
        m.submodules.rows = self._rows = Memory(shape=needed_block(config), depth=depth, init=[])
        m.submodules.started = self._started = Memory(shape=_INDEX, depth=depth, init=[])
        m.submodules.ended = self._ended = Memory(shape=_INDEX, depth=depth, init=[])
        self._placed, self._started_last, self._started_in = (
            Signal(config.sm_blocks, name=name) for name in ("placed", "last_in", "start_in")
        )
        self._barrier = Signal(config.sm_blocks)
        self._arrive(m)
        self._choose(m)
        self._end(m)
        self._report(m)
        over = Mux(self.over.valid, self.over.place, 0)
        m.d.sync += [
            self.valid.eq((self.valid | self._placed) & ~over),
            self.waiting.eq((self.waiting | self._placed) & ~self._started_last),
            self.begun.eq((self.begun | self._started_in) & ~over),
        ]
        for slot in range(config.sm_blocks):
            with m.If(self._placed[slot]):
                m.d.sync += self._barrier[slot].eq(self.arrive.p.needs.barrier)
        return m

    def _arrive(self, m: Module) -> None:
        """A block takes the lowest free slot."""
        arrive, order, place = self.arrive, self._order, self._placed
        write = self._rows.write_port()
        m.d.comb += [
            arrive.ready.eq(~self.valid.all()),
            place.eq(Mux(arrive.valid, lowest(~self.valid), 0)),
            order.arrive.valid.eq(arrive.valid),
            order.arrive.place.eq(place),
            order.arrive.level.eq(arrive.p.needs.priority + 1),
            write.en.eq(place.any()),
            write.addr.eq(encode(place)),
            write.data.eq(arrive.payload),
        ]

    def _choose(self, m: Module) -> None:
        """Both choices, and what a start of one of them changes."""
        order, choices = self._order, (self.urgent, self.other)
        going, whole = self.waiting & self.begun, Signal(self._config.sm_blocks)
        m.d.comb += [
            whole.eq(going & self._barrier),
            order.candidates[0].eq(self.waiting),
            order.candidates[1].eq(Mux(whole.any(), whole, going)),
        ]
        overtaken = Mux(self._placed.any(), order.behind, 0)
        places = [
            self._choice(m, 0, self.urgent, overtaken | self._started_last),
            self._choice(m, 1, self.other, self._started_last),
        ]
        starts = [Mux(self.start[n], places[n], 0) for n in range(2)]
        lasts = [Mux(choices[n].last, starts[n], 0) for n in range(2)]
        index = Mux(self.start[0], self.urgent.index, self.other.index)
        write = self._started.write_port()
        m.d.comb += [
            self._started_in.eq(starts[0] | starts[1]),
            self._started_last.eq(lasts[0] | lasts[1]),
            write.en.eq(self.start.any()),
            write.addr.eq(Mux(self.start[0], self.urgent.slot, self.other.slot)),
            write.data.eq(index + 1),
        ]

    def _choice(self, m: Module, number: int, choice: data.View, withdrawn: Value) -> Signal:
        """`choice` in the next cycle, unless it is one of the `withdrawn`; its slot, one-hot."""
        first = self._order.first[number]
        place = Signal(self._config.sm_blocks, name=f"place_{number}")
        row, count = self._rows.read_port(), self._started.read_port(domain="comb")
        m.d.comb += [
            row.addr.eq(encode(first)),
            choice.block.eq(row.data),
            count.addr.eq(choice.slot),
            choice.index.eq(Mux(choice.begun, count.data, 0)),
            choice.last.eq(choice.index + 1 == choice.block.needs.warps),
        ]
        m.d.sync += [
            place.eq(first),
            choice.slot.eq(row.addr),
            choice.valid.eq((first & ~withdrawn).any()),
            choice.begun.eq((first & (self.begun | self._started_in)).any()),
        ]
        return place

    def _end(self, m: Module) -> None:
        """The block whose warp has ended is read; a cycle later the warp is counted."""
        config, over = self._config, self.over
        row, count = self._rows.read_port(), self._ended.read_port(domain="comb")
        write = self._ended.write_port()
        some = Signal(config.sm_blocks, name="some_ended")
        valid, place = Signal(name="ending"), Signal(config.sm_blocks, name="ending_in")
        before, after = Signal(_INDEX, name="before"), Signal(_INDEX + 1, name="after")
        m.d.sync += [valid.eq(self.end.valid), count.addr.eq(self.end.slot)]
        for slot in range(config.sm_blocks):
            m.d.sync += place[slot].eq(self.end.slot == slot)
        m.d.comb += [
            row.addr.eq(self.end.slot),
            before.eq(Mux((some & place).any(), count.data, 0)),
            after.eq(before + 1),
            write.en.eq(valid),
            write.addr.eq(count.addr),
            write.data.eq(after),
            over.valid.eq(valid & (after == row.data.needs.warps)),
            over.place.eq(place),
            over.row.eq(row.data.row),
            over.shared.eq(row.data.needs.shared),
        ]
        with m.If(valid):
            m.d.sync += some.eq(Mux(over.valid, some & ~place, some | place))

    def _report(self, m: Module) -> None:
        order, taken = self._order, Signal(6, name="taken")
        m.d.comb += order.candidates[2].eq(self.valid)
        m.d.sync += [
            self.highest.eq(select(order.first[2], order.levels)),
            taken.eq(taken + self._placed.any()),
            self.received.eq(taken),
        ]
