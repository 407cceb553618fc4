"""Withdrawal of warps that have not started, of blocks of killed rows (PREEMPT-7)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode
from signalbox.hw.sm.block_table import block_seen
from signalbox.hw.sm.warp_slots import warp_user

__all__ = ["BlockWithdrawal", "withdrawn_block"]


def withdrawn_block(config: Config) -> data.StructLayout:
    """Strobe: `left` warps of the block are withdrawn."""
    return data.StructLayout({"valid": 1, **block_seen(config).members})


class BlockWithdrawal(wiring.Component):
    """Withdraws the warps left to start of the blocks of killed rows, and of the stopped block.
    Withdrawn warps count as ended, one by one, although they never had any resources. While a row
    is killed and a block has warps to start, the unit looks at one block slot after the other;
    first at the slot of the stopped block. Blocks with a barrier that have begun are left alone:
    they hold all their resources, so their warps start and end soon.

    Per slot 4 cycles; for a block to be withdrawn 1 more, and 3 per warp. Ends of warps are
    accepted in 2 of the 4 cycles, and in 2 of the 3.

    Members
    -------
    kill : in, per kernel row: killed.
    stop : in, per block slot, one-hot: its block is stopped.
    idle : in, per block slot: has warps to start, and may have begun only without a barrier.
    seen : in, a `block_seen`: state of the block in the `slot` of the previous cycle's `end`.
    stall : out, no start may be decided in this cycle.
    hold : out, no end of a warp may be accepted in this cycle.
    accepts : in, an end could be accepted, so a withdrawn warp may count in the next cycle.
    withdraw : out, strobe per block slot, one-hot: no further warp of its block starts.
    end : out, strobe, a `warp_user`: a withdrawn warp counts as ended; without `valid`, look at
        `slot`. Only needed, and used, in a cycle after `hold`.
    withdrawn : out, with `withdraw`, for traces.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kill": In(config.rows),
            "stop": In(config.sm_blocks),
            "idle": In(config.sm_blocks),
            "seen": In(block_seen(config)),
            "stall": Out(1),
            "hold": Out(1),
            "accepts": In(1),
            "withdraw": Out(config.sm_blocks),
            "end": Out(warp_user(config)),
            "withdrawn": Out(withdrawn_block(config)),
        })
        self._slot = Signal(config.block_bits, name="looked_slot")
        self._left = Signal.like(self.seen.left, name="left")
        self._registers = Signal.like(self.seen.registers, name="registers")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.end.slot.eq(self._slot),
            self.end.registers.eq(Mux(self.end.valid, self._registers, 0)),
            [self.withdrawn[name].eq(self.seen[name]) for name in self.seen.shape().members],
        ]
        with m.FSM(name="withdrawal"):
            self._look(m)
            self._free(m)
        return m

    def _look(self, m: Module) -> None:
        """Find a block to withdraw."""
        idle = self.idle.bit_select(self._slot, 1)
        with m.State("PAUSE"):
            stops = (self.stop & self.idle).any()
            with m.If(stops):
                m.d.sync += self._slot.eq(encode(self.stop))
            with m.If(stops | (self.kill.any() & self.idle.any())):
                m.next = "HOLD"
        with m.State("HOLD"):
            m.d.comb += self.hold.eq(1)
            m.next = "LOOK"
        with m.State("LOOK"):
            m.d.comb += self.hold.eq(1)
            m.next = "JUDGE"
        with m.State("JUDGE"):
            m.d.comb += self.stall.eq(1)
            stopped = self.stop.bit_select(self._slot, 1)
            with m.If(idle & (self.kill.bit_select(self.seen.row, 1) | stopped)):
                m.next = "TAKE"
            with m.Else():
                self._pass(m)
        with m.State("TAKE"):  # its last warp may have started since
            m.d.comb += [self.stall.eq(1), self.withdrawn.valid.eq(idle)]
            m.d.sync += [self._left.eq(self.seen.left), self._registers.eq(self.seen.registers)]
            for slot, bit in enumerate(self.withdraw):
                m.d.comb += bit.eq(idle & (self._slot == slot))
            with m.If(idle):
                m.next = "REST"
            with m.Else():
                self._pass(m)

    def _free(self, m: Module) -> None:
        """Count the withdrawn warps as ended."""
        with m.State("REST"):
            m.next = "RESERVE"
        with m.State("RESERVE"):
            m.d.comb += self.hold.eq(1)
            with m.If(self.accepts):
                m.next = "COUNT"
        with m.State("COUNT"):
            m.d.comb += self.end.valid.eq(1)
            m.d.sync += self._left.eq(self._left - 1)
            m.next = "REST"
            with m.If(self._left == 1):
                self._pass(m)

    def _pass(self, m: Module) -> None:
        """Go on to the next slot."""
        m.d.sync += self._slot.eq(self._slot + 1)
        with m.If(self._slot == self._config.sm_blocks - 1):
            m.d.sync += self._slot.eq(0)
        m.next = "PAUSE"
