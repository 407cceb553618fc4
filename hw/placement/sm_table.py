"""SM status register table: the row of one SM (PLACE-2, 4, 5, 8, 10)."""

from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.sm_asids import SmAsids
from signalbox.hw.records.placement import LEVEL_BITS, Policy, kernel_needs, sm_report

__all__ = ["Rank", "SmRow", "candidate", "sm_flags"]


class Rank(IntEnum):
    """Rank of an SM for a block: the step for which it qualifies, plus 1 if the policy prefers the
    SM."""

    NONE = 0
    LOWER = 2
    """Step C: all blocks on the SM have lower priority."""
    WARP = 4
    """Step B: room for one warp."""
    WHOLE = 6
    """Step A: room for a whole block."""


def candidate(config: Config) -> data.StructLayout:
    """An SM as a candidate for a block. Candidates are compared as whole words; the larger is
    better.

    Members
    -------
    warps : free hardware warps, saturated to `sm_warps` - 1; 0 if negative.
    blocks : one's complement of the number of blocks; with policy deep, all ones if the SM is
        empty.
    rank : see `Rank`.
    """
    return data.StructLayout({
        "warps": max(1, (config.sm_warps - 1).bit_length()),
        "blocks": config.block_bits,
        "rank": 3,
    })


def sm_flags(config: Config) -> data.StructLayout:
    """Flags of one SM, or the OR of all SMs, in a decision.

    Members
    -------
    preferred : qualifies for step A, and the policy prefers it.
    whole : qualifies for step A.
    warp : qualifies for step B.
    lower : qualifies for step C.
    registers : enough registers for a whole block.
    warps : enough hardware warps for a whole block.
    shared : enough shared memory for a whole block.
    slot : a free block slot.
    below : all blocks on the SM have lower priority.
    """
    names = ("preferred", "whole", "warp", "lower", "registers", "warps", "shared", "slot", "below")
    return data.StructLayout(dict.fromkeys(names, 1))


class SmRow(wiring.Component):
    """Keeps the free resources of one SM, and finds its rank for the kernel of the current
    decision.

    The free amounts are signed: blocks sent in steps B and C are charged for resources that are not
    free yet. The controller charges the full needs of a block when it is sent and credits the
    amounts freed, so free + sent − freed always equals the SM's capacity.

    An SM that has not accepted its last block from the link does not qualify.

    Members
    -------
    needs : in, a `kernel_needs`: needs of the current kernel.
    spares : in, the current kernel does not get the last free block slot of the SM.
    asid : in, `asid_bits` bits: address space of the current kernel.
    policy : in, a `Policy`: that of the current kernel.
    last : in, the SM received the kernel's last block.
    barred : in, with `Config.sm_masks`: no block of the kernel goes to the SM.
    taken : in, strobe: a block is sent to the SM.
    sent : in, a `kernel_needs`: needs of that block.
    space : in, `asid_bits` bits: address space of that block.
    freed : in, resources freed in this cycle, see `sm_report`.
    highest : in, `LEVEL_BITS` bits: highest priority + 1 of any block on the SM, 0 without blocks.
    received : in, 6 bits: blocks accepted since reset, modulo 64; `highest` covers all of them.
    ready : in, the link can accept a block.
    returned : in, strobe: a block with needs `sent` leaves the SM without having begun; not
        together with `taken`.
    candidate : out, a `candidate` for the kernel of the previous cycle. Its rank is NONE in the
        cycle after a block was sent, since the free amounts were not up to date.
    accepts : out, the link can accept a block, and a block slot is free.
    seen : out, `sm_flags` for the kernel of the previous cycle; valid in the cycle after a block
        was sent, too.
    one : out, the SM had room for one whole block in the previous cycle.
    two : out, the SM had room for two whole blocks in the previous cycle.
    heard : out, combinational: `highest` covers all blocks sent.
    occupied : out, the SM has been sent blocks that are not over; for counters.
    grows : out, with `Config.sm_masks`, strobe: since the last cycle, or from this one on, the SM
        may qualify for a block for which it did not before. Not for changes of `spares`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        slots = config.sm_blocks

        def amount(name: str, size: int) -> Signal:
            return Signal(range(-(slots - 1) * size, size + 1), init=size, name=name)

        self._registers = amount("registers", config.register_units)
        self._warps = amount("warps", config.sm_warps)
        self._shared = amount("shared", config.shared_units)
        """Free resources."""
        self._blocks = Signal(range(slots + 1), name="blocks")
        """Blocks on the SM."""
        self._top = Signal(LEVEL_BITS, name="top")
        """Upper bound of the priorities on the SM."""
        self._sent_count = Signal(6, name="count")
        """Blocks sent, modulo 64."""
        super().__init__({
            "needs": In(kernel_needs),
            "spares": In(1),
            "asid": In(config.asid_bits),
            "policy": In(Policy),
            "last": In(1),
            **({"barred": In(1)} if config.masked_sms else {}),
            "taken": In(1),
            "sent": In(kernel_needs),
            "space": In(config.asid_bits),
            "freed": In(sm_report(config)),
            "highest": In(LEVEL_BITS),
            "received": In(6),
            "ready": In(1),
            "returned": In(1),
            "candidate": Out(candidate(config)),
            "accepts": Out(1),
            "seen": Out(sm_flags(config)),
            "one": Out(1),
            "two": Out(1),
            "heard": Out(1),
            "occupied": Out(1),
            **({"grows": Out(1)} if config.masked_sms else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.spaces = self._spaces = SmAsids(self._config)
        self._count(m)
        self._height(m)
        self._show(m, self._qualify(m))
        if self._config.masked_sms:
            self._grow(m)
        return m

    def _count(self, m: Module) -> None:
        """Free resources and number of blocks."""
        freed, sent = self.freed, self.sent
        for left, back, needed in (
            (self._registers, freed.registers, sent.block_registers),
            (self._warps, freed.warps, sent.warps),
            (self._shared, freed.shared, sent.shared),
        ):
            kept = left + back
            m.d.sync += left.eq(kept)
            with m.If(self.taken):
                m.d.sync += left.eq(kept - needed)
            with m.Elif(self.returned):
                m.d.sync += left.eq(kept + needed)
        m.d.comb += self.occupied.eq(self._blocks != 0)
        m.d.sync += [
            self._blocks.eq(self._blocks + self.taken - freed.block - self.returned),
            self._sent_count.eq(self._sent_count + self.taken),
        ]

    def _height(self, m: Module) -> None:
        """Upper bound of the priorities: the SM's report, once it covers all blocks sent."""
        level = Signal(LEVEL_BITS)
        m.d.comb += [
            level.eq(self.sent.priority + 1),
            self.heard.eq(self._sent_count == self.received),
        ]
        with m.If(self.taken):
            m.d.sync += self._top.eq(Mux(level > self._top, level, self._top))
        with m.Elif(self.heard):
            m.d.sync += self._top.eq(self.highest)

    def _grow(self, m: Module) -> None:
        was_ready = Signal(name="was_ready")
        m.d.sync += [
            was_ready.eq(self.ready),
            self.grows.eq(
                self.freed.as_value().any()
                | self.returned
                | (self.ready & ~was_ready)
                | (self.heard & (self._top != self.highest))
            ),
        ]

    def _qualify(self, m: Module) -> data.View:
        """Flags for steps A, B and C and for each resource."""
        needs, config, spaces = self.needs, self._config, self._spaces
        sees = Signal(sm_flags(config))
        open_ = Signal()
        preferred = Signal()
        m.d.comb += [
            spaces.taken.eq(self.taken),
            spaces.sent.eq(self.space),
            spaces.asked.eq(self.asid),
            preferred.eq(
                Mux(self.policy == Policy.DEEP, self.last, spaces.serves)
                & (self.policy != Policy.WIDE)
            ),
            sees.registers.eq(self._registers >= needs.block_registers),
            sees.warps.eq(self._warps >= needs.warps),
            sees.shared.eq(self._shared >= needs.shared),
            sees.slot.eq(self._blocks < config.sm_blocks - self.spares),
            sees.below.eq(self._top <= needs.priority),
            open_.eq(sees.slot & self.ready),
            self.accepts.eq((self._blocks != config.sm_blocks) & self.ready),
            sees.whole.eq(sees.registers & sees.warps & sees.shared & open_),
            sees.preferred.eq(sees.whole & preferred),
            sees.warp.eq(
                (self._registers >= needs.registers)
                & (self._warps >= 1)
                & sees.shared
                & ~needs.barrier
                & open_
            ),
            sees.lower.eq(sees.below & open_),
        ]
        if config.masked_sms:
            allowed = Signal.like(sees, name="allowed")
            m.d.comb += allowed.eq(Mux(self.barred, 0, sees.as_value()))
            sees = allowed
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
        few = Mux(self._warps > most, most, self._warps)
        empty = (~self.occupied).replicate(config.block_bits)
        m.d.sync += [
            out.rank.eq(Mux(self.taken, Rank.NONE, rank)),
            out.warps.eq(Mux(self._warps < 0, 0, few)),
            out.blocks.eq(Mux(self.policy == Policy.DEEP, empty, ~self._blocks)),
        ]

    def _show(self, m: Module, sees: data.View) -> None:
        needs, slots = self.needs, self._config.sm_blocks
        m.d.sync += [
            self.seen.eq(sees),
            self.one.eq(sees.registers & sees.warps & sees.shared & sees.slot),
            self.two.eq(
                (self._registers >= needs.block_registers << 1)
                & (self._warps >= needs.warps << 1)
                & (self._shared >= needs.shared << 1)
                & (self._blocks + 2 <= slots - self.spares)
            ),
        ]
