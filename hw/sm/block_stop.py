"""Selects the block of an SM to be stopped, and stops it so that its state is saved (PREEMPT-2,
PREEMPT-5)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode
from signalbox.hw.records.nested import block_families
from signalbox.hw.records.placement import (
    LEVEL_BITS,
    SAVE_PAGE_BITS,
    STATE_BITS,
    block_lack,
    block_stop,
    block_victim,
    stopped_block,
)
from signalbox.hw.sm.block_needs import needed_block
from signalbox.hw.sm.block_table import block_over, chosen_block
from signalbox.hw.sm.port import block_save

__all__ = ["BlockStop", "place_page"]

_NAMED = ("row", "at", "restores", "save_place")


def place_page(config: Config, area: Value, place: Value) -> Value:
    """Number of the first page of a save place in an area that begins at page `area`."""
    return (area + place * (config.place_bytes >> 12))[:SAVE_PAGE_BITS]


class BlockStop(wiring.Component):
    """Selects the block to be stopped next, the victim, and stops it. The selection looks at one
    slot per cycle. Blocks of rows that must leave come first; then the block of lowest priority,
    among equals the one with the smallest state. A block that has not begun has no state, but holds
    no resources either. So while the most urgent block lacks resources, less urgent blocks that
    have begun come before all others of rows that may stay; without any, the lack is not reported.

    A block that `stays` (see `needed_block`) is never stopped. While all places are in use or
    reserved, a block with neither a place nor a reservation of its own is passed over, so that it
    does not hide blocks that can be stopped.

    A stopped block starts no further warps, unless it has begun and has a barrier. The core saves
    its warps; when all have ended, it saves the rest of the block's state. Then the block leaves
    the table, and `stopped` answers. If the block has ended or left before it could be stopped, the
    answer is that none was.

    From `stop` to `tell`: at most 13 cycles, plus 3 per warp of a killed row's block being
    withdrawn, plus those in which ends of warps or a new block are not accepted.

    Members
    -------
    arrive : in, strobe: a block enters slot `place` (one-hot) in the next cycle.
    valid : in, per block slot: occupied.
    begun : in, per block slot: a warp has started.
    levels : in, per block slot: priority + 1 of its block.
    idle : in, per block slot: has warps to start, and may have begun only without a barrier.
    leave : in, per kernel row: its blocks must leave.
    victim : out, a `block_victim`: the block to be stopped next.
    spare : in, a block without a save place can be stopped, too: some place is not reserved.
    stop : in, strobe: see `block_stop`.
    stopped : out, stream of `stopped_block`: answers to `stop`.
    over : in, see `block_over`: the last warp of a block has ended.
    quiet : in, with `over`: the stopped block's last warp has ended.
    settled : in, no start is under way, and all begun blocks are known to the core.
    returns : in, strobe per block slot, one-hot: its block leaves the SM without having begun.
    urgent : in, a `chosen_block`: the first block with warps to start.
    fits : in, the next warp of `urgent` can start.
    lacks : out, a `block_lack`: the most urgent block lacks resources, and the victim holds some.
    slot : out, per block slot, one-hot: the slot of the block being stopped.
    withdraw : out, per block slot, one-hot: the slot of that block, while it may have warps to
        start.
    tell : out, stream of `block_save`, to the core.
    finish : out, strobe per block slot, one-hot: all warps of the stopped block have ended.
    saved : in, strobe per block slot: the stopped block's state is in memory.
    release : out, strobe, a `block_over`: the stopped block leaves the table; never together with
        `over`.
    families : in, with nested launches: family of each block.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks
        arrival = {"valid": 1, "place": slots, "block": needed_block(config)}
        super().__init__({
            "arrive": In(data.StructLayout(arrival)),
            "valid": In(slots),
            "begun": In(slots),
            "levels": In(data.ArrayLayout(LEVEL_BITS, slots)),
            "idle": In(slots),
            "leave": In(config.rows),
            "victim": Out(block_victim),
            "spare": In(1),
            "stop": In(block_stop(config)),
            "stopped": Out(stream.Signature(stopped_block(config))),
            "over": In(block_over(config)),
            "quiet": In(1),
            "settled": In(1),
            "returns": In(slots),
            "slot": Out(slots),
            "withdraw": Out(slots),
            "urgent": In(chosen_block(config)),
            "fits": In(1),
            "lacks": Out(block_lack),
            "tell": Out(stream.Signature(block_save(config))),
            "finish": Out(slots),
            "saved": In(slots),
            "release": Out(block_over(config)),
            **({"families": In(block_families(config))} if config.nested else {}),
        })
        known = {"state": STATE_BITS, "area": SAVE_PAGE_BITS, "stays": 1}
        name = needed_block(config).members
        known |= {each: name[each] for each in _NAMED}
        self._known = data.StructLayout(known)
        self._number = Signal(config.block_bits, name="number")
        """The slot of the block being stopped."""
        self._block = Signal(self._known, name="block")
        self._given = Signal(name="given")
        self._place = Signal(config.place_bits, name="save_place")
        """Save place of that block, given with the stop or before."""
        self._lacks = Signal(name="urgent_lacks")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.blocks = self._blocks = Memory(
            shape=self._known, depth=1 << config.block_bits, init=[]
        )
        write, arrived = self._blocks.write_port(), self.arrive.block
        needs = arrived.needs
        m.d.comb += [
            write.en.eq(self.arrive.valid),
            write.addr.eq(encode(self.arrive.place)),
            [write.data[each].eq(arrived[each]) for each in _NAMED],
            write.data.area.eq(arrived.area),
            write.data.stays.eq(arrived.stays),
            write.data.state.eq(needs.block_registers + (needs.shared << 1)),
        ]
        urgent = self.urgent
        m.d.sync += [
            self._lacks.eq(urgent.valid & ~self.fits & urgent.block.needs.saves),
            self.lacks.level.eq(urgent.block.needs.priority + 1),
        ]
        self._seek(m)
        self._stop(m)
        return m

    def _seek(self, m: Module) -> None:
        """Compare one block after the other with the best one of this round. If the best one ends,
        those that it has outranked are not known any more; the rest of the round then accepts only
        a block that must leave. So such a block is found within two rounds, however often others
        end."""
        config = self._config
        here = Signal(config.block_bits, name="here")
        shape = data.StructLayout({**block_victim.members, "helps": 1, "slot": config.block_bits})
        looked, best = Signal(shape, name="looked"), Signal(shape, name="best")
        self._victim = victim = Signal(shape, name="found")
        read = self._blocks.read_port(domain="comb")
        last = here == config.sm_blocks - 1
        left = self.returns | Mux(self.over.valid, self.over.place, 0)
        forgets, forgot = Signal(name="forgets"), Signal(name="forgot")
        placed = Signal(name="has_place")
        better, chosen = Signal(name="better"), Signal(shape, name="chosen")
        begun = self.begun.bit_select(here, 1)
        m.d.comb += [
            read.addr.eq(here),
            looked.valid.eq((self.valid & ~left).bit_select(here, 1) & ~read.data.stays & placed),
            looked.leaves.eq(self.leave.bit_select(read.data.row, 1)),
            looked.restores.eq(read.data.restores),
            looked.reserved.eq(self._related(here) & ~read.data.restores),
            placed.eq(looked.restores | looked.reserved | self.spare),
            looked.level.eq(self.levels[here]),
            looked.state.eq(Mux(begun, read.data.state, 0)),
            looked.helps.eq(self._lacks & begun & (looked.level < self.lacks.level)),
            looked.slot.eq(here),
            forgets.eq(best.valid & left.bit_select(best.slot, 1)),
            better.eq(looked.valid & (~best.valid | forgets | (_rank(looked) < _rank(best)))),
            chosen.eq(Mux(better, looked, best)),
            chosen.valid.eq(looked.valid | (best.valid & ~forgets)),
            [self.victim[each].eq(victim[each]) for each in block_victim.members],
            # Not `helps`, which is as old as the round: the lack may be new.
            self.lacks.valid.eq(self._lacks & self.begun.bit_select(victim.slot, 1)),
        ]
        m.d.sync += [here.eq(Mux(last, 0, here + 1)), best.eq(chosen), forgot.eq(forgot | forgets)]
        with m.If(left.bit_select(victim.slot, 1)):
            m.d.sync += victim.valid.eq(0)
        with m.If(last):
            m.d.sync += [
                victim.eq(chosen),
                victim.valid.eq(chosen.valid & (chosen.leaves | ~(forgot | forgets))),
                best.valid.eq(0),
                forgot.eq(0),
            ]
        with m.If(self.slot.any()):
            m.d.sync += [victim.valid.eq(0), best.valid.eq(0), here.eq(0), forgot.eq(0)]

    def _related(self, slot: Value) -> Value:
        """Whether the block in `slot` has launched kernels, so that a save place is reserved for
        it."""
        return self.families[slot].related if self._config.nested else Const(0)

    def _stop(self, m: Module) -> None:
        config, stop, victim, over = self._config, self.stop, self._victim, self.over
        read = self._blocks.read_port(domain="comb")
        row_leaves, fits, lost = (Signal(name=name) for name in ("row_leaves", "fits", "lost"))
        quiet, ended = Signal(name="is_quiet"), Signal(block_over(config), name="ended")
        in_slot = Signal(config.sm_blocks, name="in_slot")
        m.d.comb += [
            read.addr.eq(victim.slot),
            row_leaves.eq(self.leave.bit_select(read.data.row, 1)),
            fits.eq(
                victim.valid
                & (row_leaves | (victim.level < stop.level))
                & (victim.restores != stop.given)
                & (victim.reserved | ~(stop.given & stop.reserved))
            ),
            in_slot.eq(1 << victim.slot),
            lost.eq(
                (over.valid & (over.place & self.slot).any())
                | ~(self.valid & self.slot).any()
                | (self.returns & self.slot).any()
            ),
        ]
        with m.If(self.quiet):
            m.d.sync += [quiet.eq(1), ended.eq(over)]
        with m.FSM(name="stop"):
            with m.State("SEEK"):
                m.d.sync += [
                    self._given.eq(stop.given),
                    self._place.eq(Mux(stop.given, stop.save_place, read.data.save_place)),
                    self._block.eq(read.data),
                    self._number.eq(victim.slot),
                    quiet.eq(0),
                    self.stopped.p.some.eq(0),
                ]
                with m.If(stop.valid):
                    m.d.sync += self.slot.eq(Mux(fits, in_slot, 0))
                    m.next = "CHECK"
                    self._answer(m, ~fits)
            with m.State("CHECK"):
                m.next = "WITHDRAW"
                self._answer(m, lost)
            with m.State("WITHDRAW"):
                m.d.comb += self.withdraw.eq(self.slot)
                with m.If(self.settled & ~(self.idle & self.slot).any()):
                    m.next = "QUIET"
                    with m.If((self.begun & self.slot).any()):
                        m.next = "TELL"
                self._answer(m, lost)
            with m.State("TELL"):
                m.d.comb += self.tell.valid.eq(1)
                with m.If(self.tell.ready):
                    m.next = "QUIET"
            with m.State("QUIET"):
                with m.If(quiet):
                    m.next = "RELEASE"
                    with m.If(ended.begun):
                        m.d.comb += self.finish.eq(self.slot)
                        m.next = "SAVING"
            with m.State("SAVING"):
                with m.If((self.saved & self.slot).any()):
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                m.d.comb += self.release.valid.eq(~over.valid)
                m.d.sync += self.stopped.p.some.eq(1)
                if config.nested:
                    m.d.sync += self.stopped.p.family.eq(self.families[self._number])
                self._answer(m, ~over.valid)
            with m.State("ANSWER"):
                m.d.comb += self.stopped.valid.eq(1)
                with m.If(self.stopped.ready):
                    m.next = "SEEK"
        self._tell(m, ended)

    def _answer(self, m: Module, when: Value) -> None:
        """Answer the stop `when` the block has left or was not stopped."""
        with m.If(when):
            m.d.sync += self.slot.eq(0)
            m.next = "ANSWER"

    def _tell(self, m: Module, ended: data.View) -> None:
        config, block, stopped = self._config, self._block, self.stopped.p
        m.d.comb += [
            self.tell.p.slot.eq(self._number),
            self.tell.p.page.eq(place_page(config, block.area, self._place)),
            [
                self.release[each].eq(ended[each])
                for each in ended.shape().members
                if each != "valid"
            ],
        ]
        m.d.comb += [
            stopped.row.eq(block.row),
            stopped.at.eq(block.at),
            stopped.save_place.eq(self._place),
            stopped.given.eq(self._given),
            stopped.restores.eq(block.restores | ended.begun),
        ]


def _rank(one: data.View) -> Value:
    """Sort key of victims; the lowest is stopped first."""
    return Cat(one.state, one.level, ~one.helps, ~one.leaves)
