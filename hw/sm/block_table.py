"""Block status register table of an SM (PLACE-20, 23, 25)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.records.placement import LEVEL_BITS, block_record, kernel_needs
from signalbox.hw.sm.block_needs import needed_block
from signalbox.hw.sm.block_order import Order
from signalbox.hw.sm.early_choice import Follow
from signalbox.hw.sm.resources import wanted

__all__ = ["Blocks", "block_choice", "block_over"]

_INDEX = 6
"""Bits of a warp's number in its block."""


def block_choice(config: Config) -> data.StructLayout:
    """A block with warps to start. `begun`: it has started some; `index` is its next one. `place`
    is its slot one-hot; `last`: the next one is its last, and `takes` that of all resources."""
    return data.StructLayout({
        "valid": 1,
        "slot": config.block_bits,
        "place": config.sm_blocks,
        "block": needed_block(config),
        "begun": 1,
        "index": _INDEX,
        "last": 1,
        "takes": wanted,
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

    The choices are registered, and true in every cycle in which they are valid: who follows is
    found in advance, and `urgent` is withdrawn for a cycle when a block arrives that precedes it.
    Until then, or until its last start, a choice stays. `going` is invalid for a cycle, too, when
    the last warp of `urgent` starts, if that was the same.

    Members
    -------
    arrive : blocks, taken while a slot is free, from the cycle after it came free on; in the table
        two cycles later.
    urgent : the first block with warps to start.
    overtaken : what gets into the table next precedes it.
    going : the first block without a barrier that has begun and has warps to start; only while
        `urgent` has not begun.
    whole : of blocks with a barrier that have begun and have warps to start, without `urgent`, the
        one that began first, which is the last one in the order.
    start : one-hot, a warp of `urgent`, `going`, `whole` is started, of one that is valid, and was
        the same in the cycle before.
    finish : of each, and with `start`, it was the last one.
    end : a warp of the block in `slot` has ended.
    over : two cycles later, if that was its last one; its slot is free from the next cycle on.
    highest, received : see `hw.records.placement.SmLink`; of the table two cycles before.

    Attributes
    ----------
    valid, waiting, begun : of each slot: in use; has warps to start; has begun (state, for proofs).
    partial, entire : both of the latter, without and with a barrier (state, for proofs).
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks
        self.valid, self.waiting, self.begun, self.partial, self.entire = (
            Signal(slots, name=name) for name in ("valid", "waiting", "begun", "partial", "entire")
        )
        super().__init__({
            "arrive": In(stream.Signature(needed_block(config))),
            "urgent": Out(block_choice(config)),
            "overtaken": Out(1),
            "going": Out(block_choice(config)),
            "whole": Out(block_choice(config)),
            "start": In(3),
            "finish": In(3),
            "end": In(data.StructLayout({"valid": 1, "slot": config.block_bits})),
            "over": Out(block_over(config)),
            "highest": Out(LEVEL_BITS),
            "received": Out(6),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, slots = self._config, self._config.sm_blocks
        # `final`: the index of the block's last warp. `takes`: of its first one.
        needs = data.StructLayout({"needs": kernel_needs, "final": _INDEX, "takes": wanted})
        depth = 1 << config.block_bits
        m.submodules.order = self._order = Order(slots, choices=3)
        m.submodules.needs = self._needs = Memory(shape=needs, depth=depth, init=[])
        m.submodules.names = self._names = Memory(shape=block_record(config), depth=depth, init=[])
        m.submodules.started = self._started = Memory(shape=_INDEX, depth=depth, init=[])
        m.submodules.ended = self._ended = Memory(shape=_INDEX, depth=depth, init=[])
        self._choices = (self.urgent, self.going, self.whole)
        self._ends = [Signal(slots, name=f"ends_{n}") for n in range(3)]
        self._stays = [Signal(slots, name=f"stays_{name}") for name in ("partial", "entire")]
        self._arrive(m)
        self._choose(m)
        self._step(m)
        self._end(m)
        self._report(m)
        return m

    def _arrive(self, m: Module) -> None:
        """A block takes the slot that was picked ahead, in the next cycle. With a barrier its first
        warp takes registers and hardware warps for all, so the others take nothing (PLACE-26)."""
        arrive, order, slots = self.arrive, self._order, self._config.sm_blocks
        needs, name = self._needs.write_port(), self._names.write_port()
        kernel = arrive.p.needs
        others, place = Signal(slots, name="other_free"), Signal(slots, init=1, name="picked")
        found = Signal(init=1, name="found")
        m.d.comb += [
            others.eq(~(self.valid | order.placed | place)),
            arrive.ready.eq(found),
            order.arrive.valid.eq(arrive.valid & arrive.ready),
            order.arrive.place.eq(place),
            order.arrive.priority.eq(kernel.priority),
            needs.data.needs.eq(kernel),
            needs.data.final.eq(kernel.warps - 1),
            needs.data.takes.registers.eq(
                Mux(kernel.barrier, kernel.block_registers, kernel.registers)
            ),
            needs.data.takes.warps.eq(Mux(kernel.barrier, kernel.warps, 1)),
            needs.data.takes.shared.eq(kernel.shared),
            name.data.row.eq(arrive.p.row),
            name.data.at.eq(arrive.p.at),
        ]
        for write in (needs, name):
            m.d.comb += [write.en.eq(order.arrive.valid), write.addr.eq(encode(place))]
        with m.If(arrive.valid | ~found):
            m.d.sync += [place.eq(lowest(others)), found.eq(others.any())]

    def _choose(self, m: Module) -> None:
        """The choices, by the table as it is after the start of this cycle."""
        order, urgent, going, whole = self._order, self.urgent, self.going, self.whole
        # Who has been the most urgent one, and now goes on without a barrier, or with one.
        ends, (partial, entire) = self._ends[0], self._stays
        # It precedes all others that go on.
        others = partial.any().replicate(self._config.sm_blocks)
        follow = [
            self._follow(m, 0, self.waiting, order.placed, order.behind),
            self._follow(m, 1, self.partial, partial, ends | others),
            self._follow(m, 2, self.entire, entire, ends),
        ]
        for n in range(2):
            m.d.comb += [
                order.candidates[n].eq(follow[n].others),
                follow[n].best.eq(order.first[n]),
            ]
        m.d.comb += [
            order.last_of.eq(follow[2].others),
            follow[2].best.eq(order.last),
            self.overtaken.eq((urgent.place & order.behind).any()),
            urgent.valid.eq(follow[0].some),
            going.valid.eq(follow[1].some),
            whole.valid.eq(follow[2].some & (whole.slot != urgent.slot)),
        ]

    def _follow(self, m: Module, n: int, candidates: Value, comes: Value, drop: Value) -> Follow:
        """What keeps choice `n`, of `candidates`, and reads what is told of it."""
        choice, finish = self._choices[n], self.finish[n]
        m.submodules[f"follow_{n}"] = follow = Follow(self._config.sm_blocks)
        m.d.comb += [
            follow.candidates.eq(candidates),
            follow.comes.eq(comes),
            follow.drop.eq(drop),
            follow.leave.eq(finish),
            choice.place.eq(follow.place),
            self._ends[n].eq(Mux(finish, choice.place, 0)),
        ]
        self._choice(m, n, follow)
        return follow

    def _choice(self, m: Module, n: int, follow: Follow) -> None:
        """Choice `n` is the block in its place; what is told of it is read a cycle before, but for
        a few bits."""
        choice, final = self._choices[n], Signal(_INDEX, name=f"final_{n}")
        ports = (self._needs, self._names, self._started)
        needs, name, count = (ram.read_port(domain="comb") for ram in ports)
        first, barrier = needs.data.takes, choice.block.needs.barrier
        begun, has = Signal(name=f"begun_{n}"), Signal(name=f"has_{n}")
        begun_there, has_there = (
            (follow.following & table).any() for table in (self.begun, self.entire)
        )
        begun_here = choice.begun | self.start[0]
        # Those that go on have begun.
        m.d.comb += [
            begun.eq(1 if n else Mux(follow.moves, begun_there, begun_here)),
            has.eq(Mux(follow.moves, has_there, begun_here & barrier)),
        ]
        m.d.sync += [
            choice.slot.eq(needs.addr),
            choice.begun.eq(begun),
            choice.block.needs.eq(needs.data.needs),
            final.eq(needs.data.final),
            choice.takes.registers.eq(Mux(has, 0, first.registers)),
            choice.takes.warps.eq(Mux(has, 0, first.warps)),
            choice.takes.shared.eq(Mux(begun, 0, first.shared)),
        ]
        m.d.comb += [
            needs.addr.eq(Mux(follow.moves, encode(follow.following), choice.slot)),
            name.addr.eq(choice.slot),
            count.addr.eq(choice.slot),
            choice.block.row.eq(name.data.row),
            choice.block.at.eq(name.data.at),
            choice.index.eq(Mux(choice.begun, count.data, 0)),
            choice.last.eq(choice.index == final),
        ]

    def _step(self, m: Module) -> None:
        """What a start, an arrival and a block's end change."""
        over = Mux(self.over.valid, self.over.place, 0)
        barrier = self.urgent.block.needs.barrier
        begins, stays = Signal(self._config.sm_blocks, name="begins"), Signal(name="stays")
        ends = self._ends[0] | self._ends[1] | self._ends[2]
        m.d.comb += [
            begins.eq(Mux(self.start[0] & ~self.urgent.begun, self.urgent.place, 0)),
            stays.eq(self.start[0] & ~self.urgent.begun & ~self.finish[0]),
            self._stays[0].eq(Mux(stays & ~barrier, self.urgent.place, 0)),
            self._stays[1].eq(Mux(stays & barrier, self.urgent.place, 0)),
        ]
        m.d.sync += [
            self.valid.eq((self.valid | self._order.placed) & ~over),
            self.waiting.eq(self.waiting & ~ends | self._order.placed),
            self.begun.eq((self.begun | begins) & ~over),
            self.partial.eq(self.partial & ~ends | self._stays[0]),
            self.entire.eq(self.entire & ~ends | self._stays[1]),
        ]
        write = self._started.write_port()
        counts = [Signal(_INDEX, name=f"count_{n}") for n in range(3)]
        m.d.sync += [
            count.eq(choice.index + 1) for count, choice in zip(counts, self._choices, strict=True)
        ]
        m.d.comb += [
            write.en.eq(self.start.any()),
            write.addr.eq(select(self.start, [choice.slot for choice in self._choices])),
            write.data.eq(select(self.start, counts)),
        ]

    def _end(self, m: Module) -> None:
        """The block whose warp has ended is read; a cycle later the warp is counted."""
        config = self._config
        needs = self._needs.read_port()
        name, count = (ram.read_port(domain="comb") for ram in (self._names, self._ended))
        write = self._ended.write_port()
        some = Signal(config.sm_blocks, name="some_ended")
        valid, place = Signal(name="ending"), Signal(config.sm_blocks, name="ending_in")
        counted, over = Signal(name="counted"), Signal(name="over_now")
        m.d.sync += [valid.eq(self.end.valid), count.addr.eq(self.end.slot)]
        for slot in range(config.sm_blocks):
            m.d.sync += place[slot].eq(self.end.slot == slot)
        m.d.comb += [
            needs.addr.eq(self.end.slot),
            name.addr.eq(count.addr),
            counted.eq((some & place).any()),
            over.eq(valid & (Mux(counted, count.data, 0) == needs.data.final)),
            write.en.eq(valid),
            write.addr.eq(count.addr),
            write.data.eq(Mux(counted, count.data + 1, 1)),
        ]
        with m.If(valid):
            m.d.sync += some.eq(Mux(over, some & ~place, some | place))
        m.d.sync += [
            self.over.valid.eq(over),
            self.over.place.eq(place),
            self.over.row.eq(name.data.row),
            self.over.shared.eq(needs.data.needs.shared),
        ]

    def _report(self, m: Module) -> None:
        order, taken = self._order, Signal(6, name="taken")
        highest, counted = Signal(self._config.sm_blocks, name="highest"), Signal(6, name="counted")
        m.d.comb += order.candidates[2].eq(self.valid)
        m.d.sync += [
            highest.eq(order.first[2]),
            self.highest.eq(select(highest, order.levels)),
            taken.eq(taken + order.placed.any()),
            counted.eq(taken),
            self.received.eq(counted),
        ]
