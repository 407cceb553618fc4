"""Entries of a runlist from the beats of its bursts."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.memory import MemoryStatus, read_beat
from signalbox.hw.runlists import ENTRY_BYTES

__all__ = ["RunlistEntries", "read_entry"]

_BITS = 8 * ENTRY_BYTES

read_entry = data.StructLayout({"entry": _BITS, "status": MemoryStatus, "last": 1})
"""An entry, meaningless if `status` is not OK; `last`: the last of its burst."""


class RunlistEntries(wiring.Component):
    """Divides beats into entries, or joins two 64-bit beats into one entry. Combinational.

    Members
    -------
    beat : in, stream of beats.
    entry : out, stream of entries.
    """

    def __init__(self, config: Config) -> None:
        self._width = config.data_width
        super().__init__({
            "beat": In(stream.Signature(read_beat(config))),
            "entry": Out(stream.Signature(read_entry)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._width < _BITS:
            self._join(m)
        else:
            self._divide(m)
        return m

    def _join(self, m: Module) -> None:
        beat, entry = self.beat, self.entry
        low = Signal(self._width)
        low_status = Signal(MemoryStatus)
        second = Signal()
        # A faulted burst has only one beat.
        complete = second | beat.p.last
        m.d.comb += [
            entry.p.entry.eq(Cat(low, beat.p.data)),
            entry.p.status.eq(beat.p.status),
            entry.p.last.eq(beat.p.last),
            entry.valid.eq(beat.valid & complete),
            beat.ready.eq(entry.ready | ~complete),
        ]
        with m.If(second & (low_status != MemoryStatus.OK)):
            m.d.comb += entry.p.status.eq(low_status)
        with m.If(beat.valid & beat.ready):
            m.d.sync += [
                low.eq(beat.p.data),
                low_status.eq(beat.p.status),
                second.eq(~complete),
            ]

    def _divide(self, m: Module) -> None:
        beat, entry = self.beat, self.entry
        parts = self._width // _BITS
        part = Signal(range(parts))
        final = Signal()
        m.d.comb += [
            final.eq(part == parts - 1),
            entry.p.entry.eq(beat.p.data.word_select(part, _BITS)),
            entry.p.status.eq(beat.p.status),
            entry.p.last.eq(beat.p.last & final),
            entry.valid.eq(beat.valid),
            beat.ready.eq(entry.ready & final),
        ]
        with m.If(entry.valid & entry.ready):
            m.d.sync += part.eq(part + 1)
            with m.If(final):
                m.d.sync += part.eq(0)
