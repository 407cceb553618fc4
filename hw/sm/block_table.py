"""Block status register table of an SM (PLACE-20, 23, 25)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.records.placement import (
    INDEX_BITS,
    LEVEL_BITS,
    block_record,
    ended_block,
    kernel_needs,
    wanted,
)
from signalbox.hw.sm.block_choice import BlockChoice
from signalbox.hw.sm.block_needs import needed_block
from signalbox.hw.sm.block_order import BlockOrder

__all__ = ["BlockTable", "block_over", "block_seen", "chosen_block"]


def chosen_block(config: Config) -> data.StructLayout:
    """A block with warps to start. `begun`: some have started; `index`: number of the next one.
    `place`: its slot, one-hot; `last`: the next warp is its last one; `takes`: resources that warp
    takes. `outranked`, of the most urgent block: the block claimed in the last cycle is more
    urgent."""
    return data.StructLayout({
        "valid": 1,
        "slot": config.block_bits,
        "place": config.sm_blocks,
        "block": needed_block(config),
        "begun": 1,
        "index": INDEX_BITS,
        "last": 1,
        "takes": wanted,
        "outranked": 1,
    })


def block_over(config: Config) -> data.StructLayout:
    """Strobe: all warps of the block in slot `place` (one-hot) have ended or were withdrawn;
    `begun`: some had started."""
    ended = dict(ended_block(config).members)
    ended.pop("reserved", None)
    return data.StructLayout({
        "valid": 1,
        "place": config.sm_blocks,
        "begun": 1,
        **ended,
        "shared": config.shared_units.bit_length(),
    })


def block_seen(config: Config) -> data.StructLayout:
    """A block, its number of warps that have not started, and the register units of a warp."""
    return data.StructLayout({
        **block_record(config).members,
        "left": INDEX_BITS + 1,
        "registers": range(config.register_units + 1),
    })


class BlockTable(wiring.Component):
    """Tracks the blocks of the SM, and selects the blocks that start warps next. Keeps per block
    slot: the block, its place in the order, its started and ended warps, and flags for warps left
    to start and for having begun.

    State read from many rows per cycle is in flip-flops, the rest in RAMs. Warp counts are in RAMs,
    with a flag for a valid count.

    The selections are registered and correct in every cycle in which they are valid: the successor
    is determined in advance, and `urgent` is withdrawn for a cycle when a block arrives that
    precedes it. Until then, or until its last start, a selection stays. `going` is also invalid for
    a cycle when the last warp of `urgent` starts, if both were the same block.

    Members
    -------
    arrive : in, stream of `needed_block`: accepted while a slot is free, from the cycle after it is
        freed on; in the table two cycles later.
    urgent : out, the first block with warps to start.
    overtaken : out, the block entering the table next precedes it.
    going : out, the first begun block without a barrier with warps to start; only while `urgent`
        has not begun.
    whole : out, a begun block with a barrier and warps to start: the one that began first, which is
        the last one in the order. Never `urgent`.
    start : in, 3 bits, one-hot strobe: a warp of `urgent`, `going` or `whole` starts; the selection
        is valid and the same as in the previous cycle.
    finish : in, 3 bits, with each `start`: it is the block's last warp.
    end : in, strobe: a warp of the block in `slot` has ended, or a withdrawn one counts as ended.
    stopped : in, per slot, one-hot: the slot of the block being stopped.
    over : out, two cycles after the `end` of a block's last warp: the block that is over. Not
        `valid` for a stopped block, see `quiet`. Its slot is free from the next cycle on.
    quiet : out, with `over`: the stopped block's last warp has ended.
    release : in, strobe per slot, one-hot: the stopped block leaves the table.
    seen : out, current state of the block in the `slot` of `end` of the previous cycle.
    idle : out, per slot: has warps to start, and may have begun only without a barrier.
    withdraw : in, strobe per slot, one-hot: no further warp of the block in this `idle` slot
        starts; not together with `start`.
    claimed : in, `LEVEL_BITS` bits: priority + 1 of the claimed block, 0 without one.
    leaves : in, strobe per slot, one-hot: the block in this slot leaves the table; it has warps to
        start and has not begun. Not together with `start`.
    highest : out, `LEVEL_BITS` bits: highest priority + 1 of the blocks in the table two cycles
        ago, 0 without blocks.
    received : out, 6 bits: blocks accepted up to then, modulo 64.
    levels : out, per slot: priority + 1 of its block, see `BlockOrder`.
    arrives : out, strobe: the block of `arrive` enters slot `place` (one-hot) in the next cycle.
    valid : out, per slot: occupied; registered, as the next two.
    waiting : out, per slot: warps left to start.
    begun : out, per slot: a warp has started.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks
        self._kept = ("restores", "save_place") if config.preemption else ()
        super().__init__({
            "arrive": In(stream.Signature(needed_block(config))),
            "urgent": Out(chosen_block(config)),
            "overtaken": Out(1),
            "going": Out(chosen_block(config)),
            "whole": Out(chosen_block(config)),
            "start": In(3),
            "finish": In(3),
            "end": In(data.StructLayout({"valid": 1, "slot": config.block_bits})),
            "stopped": In(slots),
            "over": Out(block_over(config)),
            "quiet": Out(1),
            "release": In(slots),
            "seen": Out(block_seen(config)),
            "idle": Out(slots),
            "claimed": In(LEVEL_BITS),
            "leaves": In(slots),
            "withdraw": In(slots),
            "highest": Out(LEVEL_BITS),
            "received": Out(6),
            "levels": Out(data.ArrayLayout(LEVEL_BITS, slots)),
            "arrives": Out(data.StructLayout({"valid": 1, "place": slots})),
            "valid": Out(slots),
            "waiting": Out(slots),
            "begun": Out(slots),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, slots = self._config, self._config.sm_blocks
        # `final`: index of the block's last warp. `takes`: resources of its first warp.
        needs = data.StructLayout({"needs": kernel_needs, "final": INDEX_BITS, "takes": wanted})
        depth = 1 << config.block_bits
        m.submodules.order = self._order = BlockOrder(slots, choices=3)
        m.submodules.needs = self._needs = Memory(shape=needs, depth=depth, init=[])
        named = {name: shape for name, shape in needed_block(config).members.items()}
        del named["needs"]
        m.submodules.names = self._names = Memory(
            shape=data.StructLayout(named), depth=depth, init=[]
        )
        m.submodules.started = self._started = Memory(shape=INDEX_BITS, depth=depth, init=[])
        m.submodules.ended = self._ended = Memory(shape=INDEX_BITS, depth=depth, init=[])
        self._choices = (self.urgent, self.going, self.whole)
        # Begun blocks with warps to start, without and with a barrier.
        self._partial, self._entire = (Signal(slots, name=name) for name in ("partial", "entire"))
        self._ends = [Signal(slots, name=f"ends_{n}") for n in range(3)]
        self._stays = [Signal(slots, name=f"stays_{name}") for name in ("partial", "entire")]
        self._arrive(m)
        self._choose(m)
        self._step(m)
        self._end(m)
        self._report(m)
        return m

    def _arrive(self, m: Module) -> None:
        """A block enters the slot selected in advance, in the next cycle. With a barrier, its first
        warp takes the registers and hardware warps of all, so the others take nothing
        (PLACE-26)."""
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
            self.arrives.valid.eq(order.arrive.valid),
            self.arrives.place.eq(place),
            self.levels.eq(order.levels),
            order.arrive.priority.eq(kernel.priority),
            needs.data.needs.eq(kernel),
            needs.data.final.eq(kernel.warps - 1),
            needs.data.takes.registers.eq(
                Mux(kernel.barrier, kernel.block_registers, kernel.registers)
            ),
            needs.data.takes.warps.eq(Mux(kernel.barrier, kernel.warps, 1)),
            needs.data.takes.shared.eq(kernel.shared),
            [name.data[each].eq(arrive.p[each]) for each in name.data.shape().members],
        ]
        for write in (needs, name):
            m.d.comb += [write.en.eq(order.arrive.valid), write.addr.eq(encode(place))]
        with m.If(arrive.valid | ~found):
            m.d.sync += [place.eq(lowest(others)), found.eq(others.any())]

    def _choose(self, m: Module) -> None:
        """The selections, from the table as it is after the start in this cycle."""
        order, urgent, going, whole = self._order, self.urgent, self.going, self.whole
        # `partial`, `entire`: the most urgent block, if it begins in this cycle and has further
        # warps to start, without or with a barrier.
        ends, (partial, entire) = self._ends[0], self._stays
        # It precedes all other begun blocks.
        others = partial.any().replicate(self._config.sm_blocks)
        gone = self.withdraw | self.leaves
        follow = [
            self._follow(m, 0, self.waiting, order.placed, order.behind | gone),
            self._follow(m, 1, self._partial, partial, ends | others | gone),
            self._follow(m, 2, self._entire, entire, ends),
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

    def _follow(
        self, m: Module, n: int, candidates: Value, comes: Value, drop: Value
    ) -> BlockChoice:
        """Choice `n` among `candidates`, and the read of its data."""
        choice, finish = self._choices[n], self.finish[n]
        m.submodules[f"follow_{n}"] = follow = BlockChoice(self._config.sm_blocks)
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

    def _choice(self, m: Module, n: int, follow: BlockChoice) -> None:
        """Data of the block in choice `n`, read one cycle ahead except for a few bits."""
        choice, final = self._choices[n], Signal(INDEX_BITS, name=f"final_{n}")
        ports = (self._needs, self._names, self._started)
        needs, name, count = (ram.read_port(domain="comb") for ram in ports)
        first, barrier = needs.data.takes, choice.block.needs.barrier
        begun, has = Signal(name=f"begun_{n}"), Signal(name=f"has_{n}")
        begun_there, has_there = (
            (follow.following & table).any() for table in (self.begun, self._entire)
        )
        begun_here = choice.begun | self.start[0]
        # Choices 1 and 2 are begun blocks.
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
        if n == 0:
            m.d.sync += choice.outranked.eq(needs.data.needs.priority + 1 < self.claimed)
        m.d.comb += [
            needs.addr.eq(Mux(follow.moves, encode(follow.following), choice.slot)),
            name.addr.eq(choice.slot),
            count.addr.eq(choice.slot),
            [choice.block[each].eq(name.data[each]) for each in name.data.shape().members],
            choice.index.eq(Mux(choice.begun, count.data, 0)),
            choice.last.eq(choice.index == final),
        ]

    def _step(self, m: Module) -> None:
        """Effects of a start, an arrival, a withdrawal and the end of a block."""
        over = Mux(self.over.valid, self.over.place, 0) | self.release
        barrier = self.urgent.block.needs.barrier
        begins, stays = Signal(self._config.sm_blocks, name="begins"), Signal(name="stays")
        ends = self._ends[0] | self._ends[1] | self._ends[2] | self.withdraw | self.leaves
        m.d.comb += [
            self.idle.eq(self.waiting & ~self._entire),
            begins.eq(Mux(self.start[0] & ~self.urgent.begun, self.urgent.place, 0)),
            stays.eq(self.start[0] & ~self.urgent.begun & ~self.finish[0]),
            self._stays[0].eq(Mux(stays & ~barrier, self.urgent.place, 0)),
            self._stays[1].eq(Mux(stays & barrier, self.urgent.place, 0)),
        ]
        m.d.sync += [
            self.valid.eq((self.valid | self._order.placed) & ~(over | self.leaves)),
            self.waiting.eq(self.waiting & ~ends | self._order.placed),
            self.begun.eq((self.begun | begins) & ~over),
            self._partial.eq(self._partial & ~ends | self._stays[0]),
            self._entire.eq(self._entire & ~ends | self._stays[1]),
        ]
        write = self._started.write_port()
        counts = [Signal(INDEX_BITS, name=f"count_{n}") for n in range(3)]
        m.d.sync += [
            count.eq(choice.index + 1) for count, choice in zip(counts, self._choices, strict=True)
        ]
        m.d.comb += [
            write.en.eq(self.start.any()),
            write.addr.eq(select(self.start, [choice.slot for choice in self._choices])),
            write.data.eq(select(self.start, counts)),
        ]

    def _end(self, m: Module) -> None:
        """Read the block of an ended warp; count the warp one cycle later."""
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
        stopped = (self.stopped & place).any()
        m.d.sync += [
            self.over.valid.eq(over & ~stopped),
            self.quiet.eq(over & stopped),
            self.over.place.eq(place),
            self.over.begun.eq((self.begun & place).any()),
            self.over.row.eq(name.data.row),
            self.over.number.eq(name.data.at.x),
            *(self.over[kept].eq(name.data[kept]) for kept in self._kept),
            self.over.shared.eq(needs.data.needs.shared),
        ]
        self._look(m, needs.data, name.data, count.addr, place)

    def _look(
        self, m: Module, needs: data.View, name: data.View, slot: Value, place: Signal
    ) -> None:
        """Output the state of the block of an ended warp, or of the slot at which the withdrawal
        looks."""
        started = self._started.read_port(domain="comb")
        begun = (self.begun & place).any()
        m.d.comb += [
            started.addr.eq(slot),
            [self.seen[each].eq(name[each]) for each in block_record(self._config).members],
            self.seen.left.eq(needs.final + 1 - Mux(begun, started.data, 0)),
            self.seen.registers.eq(needs.needs.registers),
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
