"""From write answers to the outcome of each copy."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import TAG_BITS
from signalbox.hw.copy.write_requests import owed
from signalbox.hw.records.copy import CopyError
from signalbox.hw.records.memory import MemoryStatus

__all__ = ["Answers"]


class Answers(wiring.Component):
    """Collects the answers of a copy's write bursts, and its first failure (COPY-12).

    First in the order of the bytes, not of time; a burst's read comes before its write. Answers
    are always taken, but for one cycle at the end of a copy: a busy semaphore never holds up
    memory.

    Members
    -------
    owed : write bursts that were requested, and ends of copies.
    done : memory's answers.
    read_failure : the first failed read of a copy, no later than the burst's entry in `owed`.
    failed, failed_tag : strobe; a write of the copy with that tag failed.
    o : outcome per copy, in order; there is always room (at most `COPIES`).
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "owed": In(stream.Signature(owed(config))),
            "done": In(stream.Signature(data.StructLayout({"status": MemoryStatus}))),
            "read_failure": In(stream.Signature(records.failure())),
            "failed": Out(1),
            "failed_tag": Out(TAG_BITS),
            "o": Out(stream.Signature(records.outcome())),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        owed_, done = self.owed, self.done
        answered, bad = Signal(), Signal()
        found, clean = Signal(records.outcome()), Signal(init=1)
        """First failure of the copy whose answers arrive; there is none."""
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
