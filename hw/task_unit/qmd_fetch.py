"""Reads a QMD from memory (HOST-10, ASID-20)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.qmd import QMD, QMD_BITS, QMD_BYTES
from signalbox.hw.records.memory import MemoryStatus, ReadPort

__all__ = ["QMD_DWORDS", "QmdFetch", "qmd_address"]

QMD_DWORDS = QMD_BITS // 32
"""Dwords of a QMD."""


def qmd_address(config: Config) -> data.StructLayout:
    """Address of a QMD: virtual address >> 8, of which the methods provide 32 bits."""
    return data.StructLayout({"asid": config.asid_bits, "page": 32})


class QmdFetch(wiring.Component):
    """Reads one QMD at a time, in one burst, starting in the cycle after its request; a dword can
    be used in the cycle after its beat.

    If the read fails, `status` gives the reason and the QMD is undefined.

    Members
    -------
    request : in, stream of `qmd_address`; accepted when the previous read has ended.
    read : out, memory client.
    record : out, the dwords read so far; stable after `ended` until the next request.
    dwords : out, 0 … 64: number of dwords read, from the lowest.
    ended : out, all dwords are read, or the read has failed; 0 from the next request on.
    status : out, `MemoryStatus` of the read.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(qmd_address(config))),
            "read": Out(ReadPort(config)),
            "record": Out(QMD),
            "dwords": Out(range(QMD_DWORDS + 1)),
            "ended": Out(1),
            "status": Out(MemoryStatus),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, beat = self.read.request, self.read.beat
        asked = Signal(qmd_address(self._config))
        busy = Signal()
        asks = Signal()
        m.d.comb += [
            request.valid.eq(asks),
            request.p.asid.eq(asked.asid),
            request.p.va.eq(asked.page << 8),
            request.p.beats.eq(QMD_BYTES // self._config.beat_bytes - 1),
            self.request.ready.eq(~busy),
            beat.ready.eq(1),
        ]
        with m.If(request.ready):
            m.d.sync += asks.eq(0)
        with m.If(self.request.valid & ~busy):
            m.d.sync += [
                asked.eq(self.request.p),
                busy.eq(1),
                asks.eq(1),
                self.dwords.eq(0),
                self.ended.eq(0),
                self.status.eq(MemoryStatus.OK),
            ]
        with m.Elif(beat.valid):
            m.d.sync += self.dwords.eq(self.dwords + self._config.beat_dwords)
            with m.If(beat.p.status != MemoryStatus.OK):
                m.d.sync += self.status.eq(beat.p.status)
            with m.If(beat.p.last):
                m.d.sync += [busy.eq(0), self.ended.eq(1)]
        self._store(m)
        return m

    def _store(self, m: Module) -> None:
        """Store each beat at its position."""
        width, beat = self._config.data_width, self.read.beat
        record = self.record.as_value()
        for place in range(QMD_BITS // width):
            here = self.dwords == place * self._config.beat_dwords
            with m.If(beat.valid & here):
                m.d.sync += record[place * width : (place + 1) * width].eq(beat.p.data)
