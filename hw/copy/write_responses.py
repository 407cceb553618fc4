"""Collects write responses into the outcome of each copy."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import TAG_BITS
from signalbox.hw.copy.write_requests import outstanding_write
from signalbox.hw.records.copy import CopyError
from signalbox.hw.records.memory import MemoryStatus

__all__ = ["WriteResponses"]


class WriteResponses(wiring.Component):
    """Collects the responses to a copy's write bursts, and its first failure (COPY-12).

    The first failure is the first in byte order, not in time; within a burst, a failed read comes
    before a failed write. Responses are accepted at once, except for one cycle at the end of a
    copy. So a busy semaphore unit never blocks memory.

    Members
    -------
    owed : in, stream of `outstanding_write`: issued write bursts and ends of copies.
    done : in, stream of responses from memory, each a `MemoryStatus`.
    read_failure : in, stream of `failure`: first failed read of a copy, not later than the burst's
        entry in `owed`.
    failed : out, strobe, 1 cycle after the response: a write of copy `failed_tag` failed.
    failed_tag : out, `TAG_BITS` bits: tag of that copy.
    o : out, stream of `outcome`, one per copy, in order; no back-pressure, as at most `COPIES` are
        in flight.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "owed": In(stream.Signature(outstanding_write(config))),
            "done": In(stream.Signature(data.StructLayout({"status": MemoryStatus}))),
            "read_failure": In(stream.Signature(records.failure())),
            "failed": Out(1),
            "failed_tag": Out(TAG_BITS),
            "o": Out(stream.Signature(records.outcome())),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        owed_, done = self.owed, self.done
        answered = Signal()
        bad = Signal()
        found = Signal(records.outcome())
        clean = Signal(init=1)
        """`found`: first failure of the current copy. `clean`: no failure so far."""
        m.d.comb += [
            done.ready.eq(owed_.valid & ~owed_.p.end),
            answered.eq(done.valid & done.ready),
            owed_.ready.eq(Mux(owed_.p.end, 1, done.valid)),
            bad.eq(done.p.status != MemoryStatus.OK),
            self.read_failure.ready.eq(answered & owed_.p.failed),
            self.o.valid.eq(owed_.valid & owed_.p.end),
            self.o.payload.eq(found),
        ]
        with m.If(answered & clean & (owed_.p.failed | bad)):
            m.d.sync += clean.eq(0)
            self._note(m, found)
        with m.If(self.o.valid):
            m.d.sync += [clean.eq(1), found.error.eq(CopyError.NONE)]
        m.d.sync += [self.failed.eq(answered & bad), self.failed_tag.eq(owed_.p.tag)]
        return m

    def _note(self, m: Module, found) -> None:
        read = self.read_failure.p
        with m.If(self.owed.p.failed):
            m.d.sync += [
                found.error.eq(
                    Mux(
                        read.status == MemoryStatus.FAULT,
                        CopyError.READ_FAULT,
                        CopyError.READ_BUS,
                    )
                ),
                found.va.eq(read.va),
            ]
        with m.Else():
            m.d.sync += [
                found.error.eq(
                    Mux(
                        self.done.p.status == MemoryStatus.FAULT,
                        CopyError.WRITE_FAULT,
                        CopyError.WRITE_BUS,
                    )
                ),
                found.va.eq(self.owed.p.va),
            ]
