"""Lines of memory with the state of the next block or warp (PREEMPT-9)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import REGISTER_UNIT, SHARED_UNIT, STATE_LINE, Config
from signalbox.hw.lib.onehot import encode, lowest
from signalbox.hw.records.placement import SAVE_PAGE_BITS
from signalbox.hw.sm.timing.layouts import warp_owner, warp_state
from signalbox.hw.sm.timing.steps import moved_warp

__all__ = ["LINE_BITS", "StateLines", "block_lines", "block_place"]

_PAGE_LINES = 4096 // STATE_LINE
_SHARED_LINES = SHARED_UNIT // STATE_LINE
_REGISTER_LINES = 4 * REGISTER_UNIT // STATE_LINE

LINE_BITS = SAVE_PAGE_BITS + (_PAGE_LINES - 1).bit_length()
"""Width of the number of a line in memory."""


def block_place(config: Config) -> data.StructLayout:
    """Place of a block's state, and the numbers that determine its size: units of shared memory,
    and of registers per warp."""
    return data.StructLayout({
        "row": config.row_bits,
        "page": SAVE_PAGE_BITS,
        "shared": range(config.shared_units + 1),
        "registers": range(config.register_units + 1),
    })


def block_lines(config: Config) -> data.StructLayout:
    """`count` lines from `line` on, which begin with `head`: of a block, its fates and its shared
    memory; otherwise of a warp, its state and its registers. If its row was `killed`, only the
    first line."""
    most = 1 + max(_SHARED_LINES * config.shared_units, _REGISTER_LINES * config.register_units)
    return data.StructLayout({
        "block": 1,
        "owner": warp_owner(config),
        "killed": 1,
        "line": LINE_BITS,
        "count": range(most + 1),
        "head": warp_state.size,
    })


class StateLines(wiring.Component):
    """Finds the lines of memory of the next block or warp to be transferred; blocks go first. One
    every 5 cycles.

    A place in memory has lines of 128 bytes: the fates of the block's warps, its shared memory, and
    per warp its state followed by its registers.

    Members
    -------
    blocks : in, strobe per block slot: transfer the block.
    warps : in, stream of `moved_warp`: warps to transfer.
    look : out, `block_bits` bits: number of a block slot.
    place : in, its `block_place`, 1 cycle later.
    fates : in, 128 bits, 1 cycle later: its fates, ended warps in the low half, saved ones in the
        high half.
    kill : in, per kernel row: killed.
    o : out, stream of `block_lines`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "blocks": In(config.sm_blocks),
            "warps": In(stream.Signature(moved_warp(config))),
            "look": Out(config.block_bits),
            "place": In(block_place(config)),
            "fates": In(warp_state.size),
            "kill": In(config.rows),
            "o": Out(stream.Signature(block_lines(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        o, warps, place = self.o, self.warps, self.place
        lines, owner = Signal(block_lines(self._config), name="lines"), self.o.p.owner
        waiting, chosen = (
            Signal(self._config.sm_blocks, name=name) for name in ("waiting", "chosen")
        )
        m.d.comb += [o.payload.eq(lines), self.look.eq(owner.slot)]
        m.d.sync += waiting.eq(waiting & ~chosen | self.blocks)
        with m.FSM(name="lines"):
            with m.State("CHOOSE"):
                with m.If(waiting.any()):
                    m.d.comb += chosen.eq(lowest(waiting))
                    m.d.sync += [
                        lines.block.eq(1),
                        lines.owner.slot.eq(encode(chosen)),
                        # Index in faults of a block; the last value was that of a warp.
                        lines.owner.index.eq(0),
                    ]
                    m.next = "LOOK"
                with m.Elif(warps.valid):
                    m.d.comb += warps.ready.eq(1)
                    m.d.sync += [
                        lines.block.eq(0),
                        lines.owner.eq(warps.p.owner),
                        lines.head.eq(warps.p.state),
                    ]
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += [lines.line.eq(self._before()), lines.count.eq(self._count())]
                with m.If(lines.block):
                    m.d.sync += [lines.owner.row.eq(place.row), lines.head.eq(self.fates)]
                m.next = "LINES"
            with m.State("LINES"):
                killed = self.kill.bit_select(owner.row, 1)
                m.d.sync += [
                    lines.line.eq(lines.line + place.page * _PAGE_LINES),
                    lines.killed.eq(killed),
                    lines.count.eq(Mux(killed, 1, lines.count)),
                ]
                m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += o.valid.eq(1)
                with m.If(o.ready):
                    m.next = "CHOOSE"
        return m

    def _count(self) -> Value:
        place = self.place
        others = Mux(
            self.o.p.block, place.shared * _SHARED_LINES, place.registers * _REGISTER_LINES
        )
        return 1 + others

    def _before(self) -> Value:
        """Lines ahead of these in the place."""
        place, o = self.place, self.o.p
        warp = 1 + place.registers * _REGISTER_LINES
        return Mux(o.block, 0, 1 + place.shared * _SHARED_LINES + o.owner.index * warp)
