"""The SM status register table: one SM's row (PLACE-2, 4, 5, 8, 10)."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.sm_asids import SmSpaces
from signalbox.hw.records.placement import LEVEL_BITS, Policy, kernel_needs, sm_report

__all__ = ["Rank", "SmRow", "candidate", "sight"]


class Rank(IntEnum):
    """How well an SM qualifies: the step, and in each of them those that the policy prefers (their
    rank is one more)."""

    NONE = 0
    LOWER = 2
    """Step C: it has only blocks of lower priority."""
    WARP = 4
    """Step B: room for one warp."""
    WHOLE = 6
    """Step A: room for a whole block."""


def candidate(config: Config) -> data.StructLayout:
    """An SM as a candidate for a block; of two, that with the larger number as a whole is better.

    warps : free hardware warps, 0 when some are owed, at most one less than there are.
    blocks : the one's complement of the blocks on it; policy deep: whether there is none.
    """
    return data.StructLayout({
        "warps": max(1, (config.sm_warps - 1).bit_length()),
        "blocks": config.block_bits,
        "rank": 3,
    })


def sight(config: Config) -> data.StructLayout:
    """What is true of an SM, or of any SM, in a decision.

    whole, warp, lower : it qualifies for step A, B, C. preferred : for A, and the policy prefers
    it. registers, warps, shared : of these it has as much as a whole block needs. slot : it has a
    block slot. below : it runs only blocks of lower priority.
    """
    names = ("preferred", "whole", "warp", "lower", "registers", "warps", "shared", "slot", "below")
    return data.StructLayout(dict.fromkeys(names, 1))


class SmRow(wiring.Component):
    """What one SM has left, and how well it qualifies for a block of the kernel that is looked at.

    `left` is signed: what blocks need that were sent in steps B and C, as far as it is not free
    yet, is owed to them. The controller takes all that a block needs when it is sent and gives back
    what comes free, so left + sent − freed is the SM's size, always.

    An SM that has not taken its last block from its link does not qualify.

    Members
    -------
    needs, asid, policy : of the kernel that is looked at. last : the SM took its last block.
    taken, sent, space : a block of such needs, of address space `space`, is sent to the SM.
    freed, highest, received : see `SmLink`. ready : the link can take a block.
    candidate : the SM as a candidate for the kernel of the last cycle. Its rank is NONE in the
        cycle after a block was sent to it, for what it has left was not known then.
    seen : the same, in that cycle as well.
    one, two : it had room, in the last cycle, for one whole block, for two.

    Attributes
    ----------
    registers, warps, shared, blocks : left; blocks on the SM. top : at least the highest priority
    there, of LEVEL_BITS. count : blocks sent, modulo 64 (all state, for proofs).
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks

        def amount(size: int) -> Signal:
            return Signal(range(-(slots - 1) * size, size + 1), init=size)

        self.registers = amount(config.register_units)
        self.warps = amount(config.sm_warps)
        self.shared = amount(config.shared_units)
        self.blocks = Signal(range(slots + 1))
        self.top = Signal(LEVEL_BITS)
        self.count = Signal(6)
        super().__init__({
            "needs": In(kernel_needs),
            "asid": In(config.asid_bits),
            "policy": In(Policy),
            "last": In(1),
            "taken": In(1),
            "sent": In(kernel_needs),
            "space": In(config.asid_bits),
            "freed": In(sm_report(config)),
            "highest": In(LEVEL_BITS),
            "received": In(6),
            "ready": In(1),
            "candidate": Out(candidate(config)),
            "seen": Out(sight(config)),
            "one": Out(1),
            "two": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.spaces = self._spaces = SmSpaces(self._config)
        self._count(m)
        self._height(m)
        self._show(m, self._qualify(m))
        return m

    def _count(self, m: Module) -> None:
        """What is left, and how many blocks there are."""
        freed, sent = self.freed, self.sent
        for left, back, needed in (
            (self.registers, freed.registers, sent.block_registers),
            (self.warps, freed.warps, sent.warps),
            (self.shared, freed.shared, sent.shared),
        ):
            kept = left + back
            m.d.sync += left.eq(Mux(self.taken, kept - needed, kept))
        m.d.sync += [
            self.blocks.eq(self.blocks + self.taken - freed.block),
            self.count.eq(self.count + self.taken),
        ]

    def _height(self, m: Module) -> None:
        """The SM's own report counts when it covers all that was sent there."""
        level = Signal(LEVEL_BITS)
        m.d.comb += level.eq(self.sent.priority + 1)
        with m.If(self.taken):
            m.d.sync += self.top.eq(Mux(level > self.top, level, self.top))
        with m.Elif(self.count == self.received):
            m.d.sync += self.top.eq(self.highest)

    def _qualify(self, m: Module) -> data.View:
        """Steps A, B and C, with what they lack."""
        needs, config, spaces = self.needs, self._config, self._spaces
        sees = Signal(sight(config))
        open_, preferred = Signal(), Signal()
        m.d.comb += [
            spaces.taken.eq(self.taken),
            spaces.sent.eq(self.space),
            spaces.asked.eq(self.asid),
            preferred.eq(
                Mux(self.policy == Policy.DEEP, self.last, spaces.serves)
                & (self.policy != Policy.WIDE)
            ),
            sees.registers.eq(self.registers >= needs.block_registers),
            sees.warps.eq(self.warps >= needs.warps),
            sees.shared.eq(self.shared >= needs.shared),
            sees.slot.eq(self.blocks != config.sm_blocks),
            sees.below.eq(self.top <= needs.priority),
            open_.eq(sees.slot & self.ready),
            sees.whole.eq(sees.registers & sees.warps & sees.shared & open_),
            sees.preferred.eq(sees.whole & preferred),
            sees.warp.eq(
                (self.registers >= needs.registers)
                & (self.warps >= 1)
                & sees.shared
                & ~needs.barrier
                & open_
            ),
            sees.lower.eq(sees.below & open_),
        ]
        self._rank(m, sees, preferred)
        return sees

    def _rank(self, m: Module, sees: data.View, preferred: Value) -> None:
        out, config = self.candidate, self._config
        rank = Mux(
            sees.whole,
            Rank.WHOLE,
            Mux(sees.warp, Rank.WARP, Mux(sees.lower, Rank.LOWER, Rank.NONE)),
        )
        rank = rank | (preferred & (rank != Rank.NONE))
        most = config.sm_warps - 1
        few = Mux(self.warps > most, most, self.warps)
        empty = (self.blocks == 0).replicate(config.block_bits)
        m.d.sync += [
            out.rank.eq(Mux(self.taken, Rank.NONE, rank)),
            out.warps.eq(Mux(self.warps < 0, 0, few)),
            out.blocks.eq(Mux(self.policy == Policy.DEEP, empty, ~self.blocks)),
        ]

    def _show(self, m: Module, sees: data.View) -> None:
        needs, slots = self.needs, self._config.sm_blocks
        m.d.sync += [
            self.seen.eq(sees),
            self.one.eq(sees.registers & sees.warps & sees.shared & sees.slot),
            self.two.eq(
                (self.registers >= needs.block_registers << 1)
                & (self.warps >= needs.warps << 1)
                & (self.shared >= needs.shared << 1)
                & (self.blocks + 2 <= slots)
            ),
        ]
