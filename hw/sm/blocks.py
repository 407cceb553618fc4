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
    """A block with warps to start. `begun`: it has started some; `index` is its next one."""
    return data.StructLayout({
        "valid": 1,
        "slot": config.block_bits,
        "block": needed_block(config),
        "begun": 1,
        "index": _INDEX,
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

    The choices are registered, and show the table of the very cycle in which they are valid: a
    start is seen in advance, and `urgent` is withdrawn for a cycle when a block arrives that
    precedes it. Until then, or until a start of it, a choice stays.

    Members
    -------
    arrive : blocks, taken while a slot is free; in the table in the next cycle.
    urgent : the first block with warps to start.
    overtaken : what arrives in this cycle precedes it.
    other : of blocks with a barrier that have begun and have warps to start, the one that began
        first, which is the last one in the order; if there is none, the first one of all that have
        begun and have warps to start.
    start : bit 0: a warp of `urgent` is started, bit 1: of `other`. They were valid in the cycle
        before, without any start or `overtaken`, and valid now.
    end : a warp of the block in `slot` has ended.
    over : two cycles later, if that was its last one; its slot is free from the next cycle on.
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
            "overtaken": Out(1),
            "other": Out(block_choice(config)),
            "start": In(2),
            "end": In(data.StructLayout({"valid": 1, "slot": config.block_bits})),
            "over": Out(block_over(config)),
            "highest": Out(LEVEL_BITS),
            "received": Out(6),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, slots = self._config, self._config.sm_blocks
        # `final`: the index of the block's last warp.
        row = data.StructLayout({"block": needed_block(config), "final": _INDEX})
        depth = 1 << config.block_bits
        m.submodules.order = self._order = Order(slots, choices=3)
        m.submodules.rows = self._rows = Memory(shape=row, depth=depth, init=[])
        m.submodules.started = self._started = Memory(shape=_INDEX, depth=depth, init=[])
        m.submodules.ended = self._ended = Memory(shape=_INDEX, depth=depth, init=[])
        self._placed, self._barrier = Signal(slots, name="placed"), Signal(slots, name="barrier")
        self._arrive(m)
        self._choose(m)
        self._end(m)
        self._report(m)
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
            order.arrive.priority.eq(arrive.p.needs.priority),
            write.en.eq(place.any()),
            write.addr.eq(encode(place)),
            write.data.block.eq(arrive.payload),
            write.data.final.eq(arrive.p.needs.warps - 1),
        ]
        for slot in range(self._config.sm_blocks):
            with m.If(place[slot]):
                m.d.sync += self._barrier[slot].eq(arrive.p.needs.barrier)

    def _choose(self, m: Module) -> None:
        """Both choices, by the table as it is after the start of this cycle."""
        order, slots = self._order, self._config.sm_blocks
        waiting, begun = Signal(slots, name="waiting_now"), Signal(slots, name="begun_now")
        whole = waiting & begun & self._barrier
        m.d.comb += [
            order.candidates[0].eq(waiting),
            order.candidates[1].eq(waiting & begun),
            order.last_of.eq(whole),
        ]
        firsts = order.first[0], Mux(whole.any(), order.last, order.first[1])
        choices = self.urgent, self.other
        places, lasts = zip(
            *(self._choice(m, n, choices[n], firsts[n], begun) for n in range(2)), strict=True
        )
        starts = [Mux(self.start[n], places[n], 0) for n in range(2)]
        behind, over = Mux(self._placed.any(), order.behind, 0), self.over
        m.d.comb += [
            waiting.eq(self.waiting & ~(Mux(lasts[0], starts[0], 0) | Mux(lasts[1], starts[1], 0))),
            begun.eq(self.begun | starts[0] | starts[1]),
            self.overtaken.eq((places[0] & behind).any()),
        ]
        m.d.sync += [
            self.urgent.valid.eq((firsts[0] & ~behind).any()),
            self.other.valid.eq(firsts[1].any()),
            self.waiting.eq(waiting | self._placed),
            self.begun.eq(begun & ~Mux(over.valid, over.place, 0)),
            self.valid.eq((self.valid | self._placed) & ~Mux(over.valid, over.place, 0)),
        ]
        self._count(m)

    def _choice(
        self, m: Module, number: int, choice: data.View, first: Value, begun: Value
    ) -> tuple[Signal, Signal]:
        """`choice` is `first` in the next cycle; its slot, one-hot; and of a choice that stays,
        whether its next warp is its last."""
        place = Signal(self._config.sm_blocks, name=f"place_{number}")
        last = Signal(name=f"last_{number}")
        row, count = self._rows.read_port(), self._started.read_port(domain="comb")
        m.d.comb += [
            row.addr.eq(encode(first)),
            choice.block.eq(row.data.block),
            count.addr.eq(choice.slot),
            choice.index.eq(Mux(choice.begun, count.data, 0)),
        ]
        m.d.sync += [
            place.eq(first),
            choice.slot.eq(row.addr),
            choice.begun.eq((first & begun).any()),
            last.eq(choice.index == row.data.final),
        ]
        return place, last

    def _count(self, m: Module) -> None:
        """A start is counted."""
        write = self._started.write_port()
        chosen = data.View(block_choice(self._config), Mux(self.start[1], self.other, self.urgent))
        m.d.comb += [
            write.en.eq(self.start.any()),
            write.addr.eq(chosen.slot),
            write.data.eq(chosen.index + 1),
        ]

    def _end(self, m: Module) -> None:
        """The block whose warp has ended is read; a cycle later the warp is counted."""
        config = self._config
        row, count = self._rows.read_port(), self._ended.read_port(domain="comb")
        write = self._ended.write_port()
        some = Signal(config.sm_blocks, name="some_ended")
        valid, place = Signal(name="ending"), Signal(config.sm_blocks, name="ending_in")
        before, over = Signal(_INDEX, name="before"), Signal(name="over_now")
        m.d.sync += [valid.eq(self.end.valid), count.addr.eq(self.end.slot)]
        for slot in range(config.sm_blocks):
            m.d.sync += place[slot].eq(self.end.slot == slot)
        m.d.comb += [
            row.addr.eq(self.end.slot),
            before.eq(Mux((some & place).any(), count.data, 0)),
            over.eq(valid & (before == row.data.final)),
            write.en.eq(valid),
            write.addr.eq(count.addr),
            write.data.eq(before + 1),
        ]
        with m.If(valid):
            m.d.sync += some.eq(Mux(over, some & ~place, some | place))
        m.d.sync += [
            self.over.valid.eq(over),
            self.over.place.eq(place),
            self.over.row.eq(row.data.block.row),
            self.over.shared.eq(row.data.block.needs.shared),
        ]

    def _report(self, m: Module) -> None:
        order, taken = self._order, Signal(6, name="taken")
        m.d.comb += order.candidates[2].eq(self.valid)
        m.d.sync += [
            self.highest.eq(select(order.first[2], order.levels)),
            taken.eq(taken + self._placed.any()),
            self.received.eq(taken),
        ]
