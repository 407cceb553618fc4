"""Outstanding page-table reads, issued and answered in order (ASID-4)."""

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.page_table_entry import ENTRY_BITS
from signalbox.hw.records.memory import MemoryStatus, ReadPort

__all__ = ["PageTableReads"]

_WAITING = 4
"""Depth of the queue of reads not yet accepted by memory."""


class PageTableReads(wiring.Component):
    """Issues reads to memory, tracks their owners and assembles entries from beats.

    A read is offered in the cycle after `add`, unless others are queued. Memory may answer 1 cycle
    after it accepted a read. One beat per cycle, no back-pressure; `came`, `entry` and `status` are
    combinational from the beat, the other outputs come from registers.

    Parameters
    ----------
    walks : limit of outstanding reads.
    owner : layout of the data kept with each read.

    Members
    -------
    add : in, strobe: issues a read. Ignored without `room`.
    address : in, `address_width` bits: byte address of the entry.
    wide : in, the entry has 16 bytes instead of 8.
    number : in, 0 … `walks` - 1: number of the walk that reads.
    owner : in, data kept with the read.
    room : out, a read may be added.
    ample : out, `room` is guaranteed for the next cycle, even after one more read.
    read : out, memory client with physical addresses.
    head : out, owner of the next beat.
    number_head : out, 0 … `walks` - 1: walk of the next beat.
    slot : out, per walk, one-hot: the walk of the next beat; 0 when no read is outstanding.
    came : out, strobe: an entry has arrived.
    entry : out, 128 bits: the entry; one of 8 bytes in the low 64.
    status : out, `MemoryStatus` of its read.
    """

    def __init__(self, config: Config, walks: int, owner: data.StructLayout) -> None:
        self._config, self._walks = config, walks
        self._bits = bits = (walks - 1).bit_length()
        self._ask = data.StructLayout({"address": config.address_width, "wide": 1})
        lanes = config.data_width // 64
        self._owed = data.StructLayout({
            "lane": (lanes - 1).bit_length(), "wide": 1, "number": bits, "owner": owner,
        })  # fmt: skip
        super().__init__({
            "add": In(1),
            "address": In(config.address_width),
            "wide": In(1),
            "number": In(bits),
            "owner": In(owner),
            "room": Out(1, init=1),
            "ample": Out(1, init=1),
            "read": Out(ReadPort(config)),
            "head": Out(owner),
            "number_head": Out(bits),
            "slot": Out(walks),
            "came": Out(1),
            "entry": Out(ENTRY_BITS),
            "status": Out(MemoryStatus),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Counts of reads added, accepted by memory, and moved to the head.
        width = max(self._bits + 1, _WAITING.bit_length())
        self.added, self.taken, self.seen = (
            Signal(width, name=name) for name in ("added", "taken", "seen")
        )
        self._offer(m)
        self._remember(m)
        self._assemble(m)
        return m

    def _offer(self, m: Module) -> None:
        m.submodules.asks = asks = Memory(shape=self._ask, depth=_WAITING, init=[])
        write, ask = asks.write_port(), asks.read_port(domain="comb")
        request, waiting = self.read.request, Signal(_WAITING.bit_length())
        m.d.comb += [
            # A write takes effect when `added` advances.
            write.en.eq(self.room),
            write.addr.eq(self.added),
            write.data.address.eq(self.address),
            write.data.wide.eq(self.wide),
            ask.addr.eq(self.taken),
            waiting.eq(self.added - self.taken),
            request.valid.eq(self.added != self.taken),
            request.p.va.eq(ask.data.address),
            request.p.physical.eq(1),
            request.p.beats.eq(ask.data.wide if self._config.data_width < ENTRY_BITS else 0),
        ]
        # Computed from the last cycle's level, to which one read may have been added since.
        m.d.sync += [
            self.room.eq(waiting < _WAITING - 1),
            self.ample.eq(waiting < _WAITING - 2),
        ]
        with m.If(self.add):
            m.d.sync += self.added.eq(self.added + 1)
        with m.If(request.valid & request.ready):
            m.d.sync += self.taken.eq(self.taken + 1)

    def _remember(self, m: Module) -> None:
        """Keeps the oldest read in a register, so that its owner is known when the beat arrives."""
        m.submodules.order = order = Memory(shape=self._owed, depth=1 << self._bits, init=[])
        write, next_ = order.write_port(), order.read_port(domain="comb")
        self._head = head = Signal(self._owed, name="oldest")
        self.held = Signal()
        there = Signal()
        moves = Signal()
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.added),
            write.data.lane.eq(self.address[3:]),
            write.data.wide.eq(self.wide),
            write.data.number.eq(self.number),
            write.data.owner.eq(self.owner),
            next_.addr.eq(self.seen),
            there.eq(self.added != self.seen),
            moves.eq(self.came | ~self.held),
            self.head.eq(head.owner),
            self.number_head.eq(head.number),
        ]
        with m.If(moves):
            m.d.sync += [
                head.eq(next_.data),
                self.slot.eq(Mux(there, 1 << next_.data.number, 0)),
                self.held.eq(there),
                self.seen.eq(self.seen + there),
            ]

    def _assemble(self, m: Module) -> None:
        """Assembles entries from beats."""
        beat, head = self.read.beat, self._head
        m.d.comb += [
            beat.ready.eq(1),
            self.came.eq(beat.valid & beat.p.last),
            self.status.eq(beat.p.status),
        ]
        if self._config.data_width >= ENTRY_BITS:
            wide: Any = beat.p.data
            if self._config.data_width > ENTRY_BITS:
                wide = beat.p.data.word_select(head.lane[1:], ENTRY_BITS)
            m.d.comb += self.entry.eq(wide)
            with m.If(head.lane[0]):
                m.d.comb += self.entry[:64].eq(wide[64:])
            return
        # The low half of a wide entry comes first.
        first = Signal(64)
        failed = Signal(MemoryStatus)
        m.d.comb += self.entry.eq(Mux(head.wide, first, beat.p.data) | (beat.p.data << 64))
        with m.If(beat.valid):
            m.d.sync += [first.eq(beat.p.data), failed.eq(beat.p.status)]
        with m.If(head.wide & (failed != MemoryStatus.OK) & (beat.p.status == MemoryStatus.OK)):
            m.d.comb += self.status.eq(failed)
        with m.If(self.came):
            m.d.sync += failed.eq(MemoryStatus.OK)
