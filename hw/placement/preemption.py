"""Decides which SM stops a block (PREEMPT-1, PREEMPT-5)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number, select
from signalbox.hw.lib.tournament import tournament
from signalbox.hw.placement.sm_choice import fan_ins
from signalbox.hw.records.placement import (
    LEVEL_BITS,
    STATE_BITS,
    block_lack,
    block_stop,
    block_victim,
)

__all__ = ["Preemption", "choice_cycles"]


def choice_cycles(config: Config) -> int:
    """Cycles from a change of the waiting kernel until its victim is known."""
    return 1 + (config.sms - 1).bit_length()


class Preemption(wiring.Component):
    """Tells SMs to stop blocks, at most one SM per cycle and one block per SM:

    * on an SM with a block that must leave;
    * on an SM, if its most urgent block lacks resources, may have others stopped, and is more
      urgent than the SM's victim;
    * for a kernel that finds no SM: on the SM with the least urgent victim, among equals the one
      with the smallest state. Considers only SMs that take the kernel's blocks and are not held for
      an earlier kernel. No stop may be in progress on any of these, and a block must have had time
      to be placed in the room made by the last stop.

    A victim that has no save place, and for which none is reserved, waits for a free one that is
    not reserved.

    Members
    -------
    victims : in, per SM: the block to be stopped next, a `block_victim`.
    lacks : in, per SM: its most urgent block lacks resources, a `block_lack`.
    waits : in, a `block_lack`: the served kernel finds no SM, and may have blocks stopped.
    barred : in, per SM, with `Config.sm_masks`: does not take blocks of that kernel, or is held for
        an earlier one.
    place : in, stream of free save places.
    spare : in, more places are free than are reserved, so any victim may get one.
    stop : out, strobe per SM: see `block_stop`.
    answered : in, strobe per SM: its answer is accepted.
    changes : in, lists of saved blocks change: all decisions are dropped.
    placing : out, with `Config.sm_masks`: a block may still be placed in the room of the last stop,
        so none is stopped for a kernel that finds no SM.
    """

    def __init__(self, config: Config) -> None:
        self._config, sms = config, config.sms
        super().__init__({
            "victims": In(block_victim).array(sms),
            "lacks": In(block_lack).array(sms),
            "waits": In(block_lack),
            **({"barred": In(sms)} if config.masked_sms else {}),
            "place": In(stream.Signature(config.place_bits)),
            "spare": In(1),
            "stop": Out(block_stop(config)).array(sms),
            "answered": In(sms),
            "changes": In(1),
            **({"placing": Out(1)} if config.masked_sms else {}),
        })
        self._placing = len(fan_ins(sms)) + 8
        """Cycles from an answer, or from the last change of a list, until a kernel that fits into
        the room no longer waits: it is served again, a decision sees the room, a block is sent."""
        self._busy = Signal(sms, name="stopping")
        self._sm = Signal(sms, name="sm")
        self._level = Signal.like(self.waits.level, name="level")
        """`_sm`: one-hot, the SM that is told to stop a block. `_level`: limit of the block's
        level; 0: the limit is the level in the SM's `lacks`."""
        self._placed = Signal(sms, name="placed")
        """Per SM: there is a save place for its victim."""
        self._closed = Signal(sms, name="closed")
        """Per SM: no block of the waiting kernel goes there."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sms = self._config.sms
        able = Signal(sms, name="able")
        if self._config.masked_sms:
            m.d.comb += self._closed.eq(self.barred)
        for number, (victim, lacks) in enumerate(zip(self.victims, self.lacks, strict=True)):
            lower = lacks.valid & (victim.level < lacks.level)
            m.d.comb += [
                self._placed[number].eq(
                    victim.restores | (self.place.valid & (victim.reserved | self.spare))
                ),
                able[number].eq(victim.valid & (victim.leaves | lower) & self._placed[number]),
            ]
        found, number = lowest_number(m, able & ~(self._busy | self._sm))
        urgent = select(self._sm, [Mux(lacks.valid, lacks.level, 0) for lacks in self.lacks])
        best, best_sm = self._least_urgent(m)
        fits, has_placed = Signal(name="fits"), self._has_placed(m)
        m.d.comb += fits.eq(
            self.waits.valid
            & best
            & ~((self._busy | self._sm) & ~self._closed).any()
            # The victims were compared some cycles ago, for the kernel served then.
            & ~self._closed.bit_select(best_sm, 1)
            & has_placed
        )
        if self._config.masked_sms:
            m.d.comb += self.placing.eq(~has_placed)
        m.d.sync += self._sm.eq(0)
        with m.If(found):
            m.d.sync += [self._sm.eq(1 << number), self._level.eq(0)]
        with m.Elif(fits):
            m.d.sync += [self._sm.eq(1 << best_sm), self._level.eq(self.waits.level)]
        self._send(m, Mux(self._level == 0, urgent, self._level))
        return m

    def _has_placed(self, m: Module) -> Value:
        """Returns whether blocks that fit into the room of the last stop have had time to be placed
        there."""
        left = Signal(range(self._placing + 1), name="placing")
        with m.If(self.answered.any() | self.changes):
            m.d.sync += left.eq(self._placing)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return left == 0

    def _least_urgent(self, m: Module) -> tuple[Value, Value]:
        """Returns whether some victim is less urgent than the waiting kernel, and the SM of the
        least urgent one."""
        shape = data.StructLayout({
            "valid": 1,
            "rank": LEVEL_BITS + STATE_BITS,
            "sm": self._config.sm_bits,
        })
        nodes = [Signal(shape, name=f"victim_{n}") for n in range(self._config.sms)]
        for number, (node, victim) in enumerate(zip(nodes, self.victims, strict=True)):
            m.d.sync += [
                node.valid.eq(
                    victim.valid
                    & (victim.level < self.waits.level)
                    & self._placed[number]
                    & ~self._closed[number]
                ),
                node.rank.eq(Cat(victim.state, victim.level)),
                node.sm.eq(number),
            ]
        best, _ = tournament(m, nodes, _lower)
        return best.valid, best.sm

    def _send(self, m: Module, level: Value) -> None:
        """Stop the victim of the SM, with a place if it needs one."""
        sends, given = Signal(self._config.sms, name="sends"), Signal(name="given")
        m.d.comb += self.place.ready.eq((sends & self._sm).any() & given)
        restored = Cat(victim.restores for victim in self.victims)
        m.d.comb += [
            given.eq(~(restored & self._sm).any()),
            sends.eq(self._sm & self._placed & ~self._busy),
        ]
        m.d.sync += self._busy.eq(self._busy & ~self.answered | sends)
        for number, stop in enumerate(self.stop):
            m.d.sync += [
                stop.valid.eq(sends[number]),
                stop.level.eq(level),
                stop.given.eq(given),
                stop.reserved.eq(~self.spare),
                stop.save_place.eq(self.place.payload),
            ]


def _lower(one: data.View, other: data.View) -> Value:
    """Whether the first one is valid and, if both are, of no higher rank."""
    return one.valid & (~other.valid | (one.rank <= other.rank))
