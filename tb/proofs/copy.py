"""Proofs of the copy engine's parts."""

from amaranth import Const, Module, Mux, Signal

from signalbox.hw.config import Config
from signalbox.hw.copy.flop_queue import FlopQueue
from signalbox.hw.copy.read_window import ReadWindow
from signalbox.hw.copy.records import BURST_BEATS, MIN_READ_AHEAD
from signalbox.hw.copy.write_responses import WriteResponses
from signalbox.hw.records.copy import CopyError
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    stays,
)

__all__ = ["PROOFS"]

CONFIG = Config(channels=2, semaphores=8, counters=2, data_width=64, asids=1, copy_engines=2)


class FlopQueueProof(Proof):
    name = "copy.flop_queue"
    shows = "a queue gives out what it took in, in order, soon; offers stay; it is full when full"
    bounded = 8
    cover = 8
    block = False

    def build(self, m: Module, wrap: Wrap) -> None:
        depth, width, latency = 2, 1, 3
        dut = FlopQueue(width, depth, block=self.block)
        m.submodules.dut = wrap(dut)
        m.d.comb += [
            dut.i.valid.eq(anything(m, 1, "i_valid")),
            dut.i.payload.eq(anything(m, width, "i_payload")),
            dut.o.ready.eq(anything(m, 1, "o_ready")),
        ]
        stays(m, dut.o, Assert, "o")
        pushes, pops = (Signal(range(2 * self.bounded), name=name) for name in ("pushes", "pops"))
        push, pop = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        m.d.sync += [pushes.eq(pushes + push), pops.eq(pops + pop)]
        # Any one payload, identified by its number.
        chosen, word = Signal.like(pushes), Signal(width)
        m.d.comb += chosen.eq(AnyConst(len(pushes)))
        with m.If(push & (pushes == chosen)):
            m.d.sync += word.eq(dut.i.payload)
        with m.If(dut.o.valid):
            m.d.comb += Assert(pops < pushes)
            with m.If(pops == chosen):
                m.d.comb += Assert(dut.o.payload == word)
        # Soon, a non-empty queue offers a word, and a queue that is not full accepts one.
        quiet = Signal(range(latency + 1))
        m.d.sync += quiet.eq(Mux(push | pop, 0, Mux(quiet == latency, quiet, quiet + 1)))
        with m.If(quiet == latency):
            m.d.comb += [
                Assert(dut.o.valid == (pops != pushes)),
                Assert(dut.i.ready | (pushes - pops >= depth)),
            ]
        m.d.comb += [Cover(~dut.i.ready & pop & (pops == 2)), Cover(push & pop & (pops == 2))]


class BlockFlopQueueProof(FlopQueueProof):
    name = "copy.flop_queue_block"
    shows = f"{FlopQueueProof.shows}; the same from block RAM"
    block = True


class DeepFlopQueueProof(FlopQueueProof):
    name = "copy.flop_queue_deep"
    bounded = 11
    cover = 11
    long = True


class DeepBlockFlopQueueProof(DeepFlopQueueProof):
    name = "copy.flop_queue_block_deep"
    shows = BlockFlopQueueProof.shows
    block = True


class ReadWindowProof(Proof):
    name = "copy.read_window"
    shows = (
        "beats on their way are counted exactly; at most `max_read_ahead`, 5 and one chunk are, "
        "and a chunk is never held up while fewer than `MIN_READ_AHEAD` are"
    )
    induction = 4
    cover = 20

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = ReadWindow(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        longest = BURST_BEATS + 1
        flying = Signal(range(4 * dut.most))
        since = Signal(range(4), init=3)
        """Cycles since the last request, at most 3."""
        m.d.comb += [
            dut.wanted.eq(anything(m, 1, "wanted")),
            dut.requested.eq(anything(m, len(dut.requested), "requested")),
            dut.taken.eq(anything(m, 1, "taken")),
            Assume(dut.requested <= longest),
            Assume((dut.requested == 0) | (dut.open & (since == 3))),
            Assume(~dut.taken | (flying != 0)),
        ]
        m.d.sync += [
            flying.eq(flying + dut.requested - dut.taken),
            since.eq(Mux(dut.requested != 0, 1, Mux(since == 3, 3, since + 1))),
        ]
        width, pending = inside.signal("width"), inside.signal("requested")
        most = dut.most + 6
        # Comparisons are delayed by one cycle.
        width_before, flying_before = (
            Signal.like(width, init=MIN_READ_AHEAD),
            Signal.like(dut.flying),
        )
        m.d.sync += [width_before.eq(width), flying_before.eq(dut.flying)]
        few = Signal(range(8))
        """Number of cycles, at most 7, with few beats in flight."""
        m.d.sync += few.eq(Mux(flying < MIN_READ_AHEAD, Mux(few == 7, 7, few + 1), 0))
        m.d.comb += [
            Assert(flying == dut.flying + pending),
            Assert((pending != 0) == (since == 1)),
            Assert(pending <= longest),
            Assert((width >= MIN_READ_AHEAD) & (width < most) & (width <= width_before + 3)),
            Assert(inside.signal("widest") == (width_before >= dut.most)),
            Assert(~dut.open | (flying_before < width_before)),
            Assert((since != 3) | (flying <= flying_before)),
            Assert(flying < most + longest),
            Assert((few < 2) | dut.open),
            Cover(flying > MIN_READ_AHEAD),
            Cover(width > MIN_READ_AHEAD + 1),
        ]


class WriteResponsesProof(Proof):
    name = "copy.write_responses"
    shows = (
        "a copy's outcome comes once, when all of its write bursts were answered, and is its first "
        "failure in the order of the bytes; answers are refused at the end of a copy alone"
    )
    induction = 3
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = WriteResponses(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        owed, done, failure = dut.owed, dut.done, dut.read_failure
        m.d.comb += [
            owed.valid.eq(anything(m, 1, "owed")),
            owed.p.end.eq(anything(m, 1, "end")),
            owed.p.failed.eq(anything(m, 1, "failed")),
            owed.p.va.eq(anything(m, len(owed.p.va), "va")),
            done.valid.eq(anything(m, 1, "done")),
            done.p.status.eq(anything(m, 2, "status")),
            failure.p.status.eq(anything(m, 2, "read_status")),
            failure.p.va.eq(anything(m, len(failure.p.va), "read_va")),
            Assume(
                (failure.p.status == MemoryStatus.BUS) | (failure.p.status == MemoryStatus.FAULT)
            ),
            Assume(done.p.status.as_value() <= MemoryStatus.FAULT.value),
        ]
        stays(m, owed, Assume, "owed")
        answered, ended = owed.valid & ~owed.p.end & done.valid, owed.valid & owed.p.end
        error, va = Signal(CopyError), Signal(owed.p.va.shape())
        wrong = done.p.status != MemoryStatus.OK
        fault = Mux(owed.p.failed, failure.p.status, done.p.status) == MemoryStatus.FAULT
        first = Const(CopyError.READ_BUS.value, 3) + Mux(owed.p.failed, 0, 2) + fault
        with m.If(ended):
            m.d.sync += error.eq(CopyError.NONE)
        with m.Elif(answered & (error == CopyError.NONE) & (owed.p.failed | wrong)):
            m.d.sync += [error.eq(first), va.eq(Mux(owed.p.failed, failure.p.va, owed.p.va))]
        m.d.comb += [
            Assert(done.ready == (owed.valid & ~owed.p.end)),
            Assert((owed.valid & owed.ready) == (answered | ended)),
            Assert(failure.ready == (answered & owed.p.failed)),
            Assert(dut.o.valid == ended),
            Assert(dut.o.p.error == error),
            Assert(inside.signal("clean") == (error == CopyError.NONE)),
            Cover(ended & (error == CopyError.READ_FAULT)),
            Cover(ended & (error == CopyError.WRITE_BUS)),
        ]
        with m.If(error != CopyError.NONE):
            m.d.comb += Assert(dut.o.p.va == va)


PROOFS = [
    FlopQueueProof(),
    BlockFlopQueueProof(),
    DeepFlopQueueProof(),
    DeepBlockFlopQueueProof(),
    ReadWindowProof(),
    WriteResponsesProof(),
]
