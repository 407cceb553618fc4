"""Proofs of the memory fabric, at its ports, for 64-bit beats and two clients of each kind."""

from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, stream

from signalbox.hw.bus.axi4 import Burst, Response
from signalbox.hw.config import Config
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Proof,
    Wrap,
    anything,
    queue_of_two,
    stays,
    surround,
)
from signalbox.tb.units.mmu.identity import IdentityFabric

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, data_width=64, asids=1, address_width=32)

_PLACES = 1
"""Bits that select a beat in memory; the solver's time grows with each free bit."""

_WANTED = data.StructLayout({"place": _PLACES, "len": 1, "fault": 1})
"""Expected result of a request: a burst of 1 or 2 beats at a place, or a fault."""


def channel(m: Module, axi: Any, prefix: str, names: list[str]) -> stream.Interface:
    """One AXI channel as a stream, for checks."""
    signals = Cat(Value.cast(getattr(axi, f"{prefix}{name}")) for name in names)
    view = stream.Signature(len(signals)).create(path=(prefix,))
    m.d.comb += [
        view.payload.eq(signals),
        view.valid.eq(getattr(axi, f"{prefix}valid")),
        view.ready.eq(getattr(axi, f"{prefix}ready")),
    ]
    return view


def address_rules(m: Module, axi: Any, prefix: str) -> stream.Interface:
    """Check that AR or AW obeys the rules for managers."""
    names = ["id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos"]
    view = channel(m, axi, prefix, names)
    stays(m, view, Assert, prefix)
    with m.If(view.valid):
        m.d.comb += [
            Assert(getattr(axi, f"{prefix}size") == 3),
            Assert(getattr(axi, f"{prefix}burst") == Burst.INCR),
        ]
    return view


def any_requests(m: Module, request: stream.Interface, level: Any, name: str) -> tuple[Any, Any]:
    """Arbitrary requests on a client's port, at most two of which (`level`) are outstanding.
    Returns whether one is taken, and its expected result."""
    wanted = anything(m, _WANTED, f"{name}_wanted")
    m.d.comb += [
        request.valid.eq(anything(m, 1, f"{name}_valid") & (level != 2)),
        request.p.va.eq(Cat(Const(0, 3), wanted.place, Const(0, 29 - _PLACES), wanted.fault)),
        request.p.beats.eq(wanted.len),
    ]
    stays(m, request, Assume, name)
    return request.valid & request.ready, wanted


def fires(one: Any) -> Any:
    return one.valid & one.ready


class FabricReadsProof(Proof):
    name = "mmu.fabric_reads"
    shows = (
        "AR keeps the AXI rules; each reader gets exactly the beats of its bursts, with the data "
        "that the bus gave for their addresses, in order; a fault is one beat and no burst"
    )
    bounded = 8
    cover = 14
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = IdentityFabric(CONFIG, readers=2, writers=1, outstanding=2)
        m.submodules.dut = wrap(dut)
        m.d.comb += dut.fault.ready.eq(anything(m, 1, "report_ready"))
        axi = dut.axi
        ar = address_rules(m, axi, "ar")
        r = channel(m, axi, "r", ["id", "data", "resp", "last"])
        m.d.comb += axi.arready.eq(anything(m, 1, "arready"))
        answer = {"valid": 1, "id": 1, "data": _PLACES + 2, "resp": 2, "last": 1}
        for name, width in answer.items():
            signal = Value.cast(getattr(axi, f"r{name}"))
            m.d.comb += signal.eq(anything(m, width, f"r{name}"))
        stays(m, r, Assume, "r")

        ended = [self._client(m, dut.read[index], index) for index in range(2)]
        for index in range(2):
            self._memory(m, axi, fires(ar), fires(r), index)
        m.d.comb += Cover(Cat(ended).all())

    def _client(self, m: Module, port: Any, index: int) -> Any:
        """One reader and its expected beats. Returns whether it has had a burst after a fault."""
        open_ = Signal(2, name=f"open_{index}")
        taken, wanted = any_requests(m, port.request, open_, f"reader_{index}")
        m.d.comb += port.beat.ready.eq(anything(m, 1, f"reader_{index}_ready"))
        stays(m, self._meant(m, port.beat, index), Assert, f"beat_{index}")
        last = fires(port.beat) & port.beat.p.last
        first, _, level = queue_of_two(m, _WANTED, taken, wanted, last, f"owed_{index}")
        m.d.comb += open_.eq(level)
        count = Signal(name=f"count_{index}")
        with m.If(last):
            m.d.sync += count.eq(0)
        with m.Elif(fires(port.beat)):
            m.d.sync += count.eq(count + 1)

        answer = port.beat.p
        with m.If(port.beat.valid):
            m.d.comb += Assert(level != 0)
            with m.If(first.fault):
                m.d.comb += Assert((answer.status == MemoryStatus.FAULT) & answer.last)
            with m.Else():
                m.d.comb += [
                    Assert(answer.data[: _PLACES + 1] == Cat(first.place, count)),
                    Assert(answer.last == (count == first.len)),
                    Assert(Value.cast(answer.status) == answer.data[_PLACES + 1]),  # OK or BUS
                ]
        faulted = Signal(name=f"faulted_{index}")
        m.d.sync += faulted.eq(faulted | (last & first.fault))
        ended = Signal(name=f"ended_{index}")
        m.d.sync += ended.eq(ended | (last & faulted & ~first.fault & (first.len == 1)))
        return ended

    def _meant(self, m: Module, beat: stream.Interface, index: int) -> stream.Interface:
        """`beat` without the data of faults, which have no meaning and may change while offered."""
        view = beat.signature.flip().create(path=(f"meant_{index}",))
        m.d.comb += [
            view.valid.eq(beat.valid),
            view.ready.eq(beat.ready),
            view.payload.eq(beat.payload),
        ]
        with m.If(beat.p.status == MemoryStatus.FAULT):
            m.d.comb += view.p.data.eq(0)
        return view

    def _memory(self, m: Module, axi: Any, asked: Any, given: Any, index: int) -> None:
        """Responses of the bus for one id; the data encode the address, the beat and the
        outcome."""
        place = axi.araddr[3 : 3 + _PLACES]
        m.d.comb += Assert(~axi.arvalid | (axi.araddr == place << 3) & (axi.arlen <= 1))
        word = Cat(place, axi.arlen[0], 0)
        push = asked & (axi.arid == index)
        mine = axi.rid == index
        pop = given & mine & axi.rlast
        first, _, level = queue_of_two(m, _WANTED, push, word, pop, f"burst_{index}")
        count = Signal(name=f"beat_{index}")
        with m.If(pop):
            m.d.sync += count.eq(0)
        with m.Elif(given & mine):
            m.d.sync += count.eq(count + 1)
        failed = axi.rresp.as_value()[1]
        with m.If(axi.rvalid & mine):
            m.d.comb += [
                Assume(level != 0),
                Assume(axi.rdata == Cat(first.place, count, failed)),
                Assume(axi.rlast == (count == first.len)),
                Assume(axi.rresp != Response.EXOKAY),
            ]


class FabricWritesProof(Proof):
    name = "mmu.fabric_writes"
    shows = (
        "AW and W keep the AXI rules: bursts as asked, beats in the order and number of AW, none "
        "of a fault; each burst gets one done, in order, after its beats were taken"
    )
    bounded = 8
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = IdentityFabric(CONFIG, readers=1, writers=1, outstanding=2)
        m.submodules.dut = wrap(dut)
        m.d.comb += dut.fault.ready.eq(anything(m, 1, "report_ready"))
        axi, port = dut.axi, dut.write[0]
        aw = address_rules(m, axi, "aw")
        w = channel(m, axi, "w", ["data", "strb", "last"])
        b = channel(m, axi, "b", ["id", "resp"])
        stays(m, w, Assert, "w")
        stays(m, b, Assume, "b")
        for name, width in {"awready": 1, "wready": 1, "bvalid": 1, "bresp": 2}.items():
            m.d.comb += Value.cast(getattr(axi, name)).eq(anything(m, width, name))

        open_ = Signal(2, name="open")
        taken, wanted = any_requests(m, port.request, open_, "writer")
        self._beats(m, port, taken, wanted)
        mapped = taken & ~wanted.fault
        w_last = fires(w) & axi.wlast
        next_aw, _, aw_level = queue_of_two(m, _WANTED, mapped, wanted, fires(aw), "aw")
        next_w, _, w_level = queue_of_two(m, _WANTED, mapped, wanted, w_last, "w")
        w_count = self._counter(m, fires(w), w_last, "w_count")
        with m.If(aw.valid):
            m.d.comb += [
                Assert(aw_level != 0),
                Assert(axi.awaddr == next_aw.place << 3),
                Assert(axi.awlen == next_aw.len),
            ]
        with m.If(w.valid):
            m.d.comb += [
                Assert(w_level != 0),
                Assert(axi.wdata == Cat(next_w.place, w_count)),
                Assert(axi.wlast == (w_count == next_w.len)),
            ]

        # The bus responds only to bursts that it has received completely.
        answered = Signal(2)
        m.d.sync += answered.eq(answered + mapped - fires(b))
        with m.If(b.valid):
            m.d.comb += [Assume(answered > aw_level), Assume(answered > w_level)]
        m.d.comb += open_.eq(self._outcomes(m, port, taken, wanted))

    def _counter(self, m: Module, step: Any, last: Any, name: str) -> Signal:
        """Number of beats of the current burst so far."""
        count = Signal(name=name)
        with m.If(last):
            m.d.sync += count.eq(0)
        with m.Elif(step):
            m.d.sync += count.eq(count + 1)
        return count

    def _beats(self, m: Module, port: Any, taken: Any, wanted: Any) -> None:
        """The client's beats encode their place and number."""
        last = fires(port.beat) & port.beat.p.last
        first, _, level = queue_of_two(m, _WANTED, taken, wanted, last, "beats")
        count = self._counter(m, fires(port.beat), last, "beat_count")
        m.d.comb += [
            port.beat.valid.eq(anything(m, 1, "beat_valid") & (level != 0)),
            port.beat.p.data.eq(Cat(first.place, count)),
            port.beat.p.last.eq(count == first.len),
        ]
        stays(m, port.beat, Assume, "beat")
        self.unmoved = level

    def _outcomes(self, m: Module, port: Any, taken: Any, wanted: Any) -> Any:
        """Check the outcomes reported to the client. Returns the number of unreported bursts."""
        done = port.done
        m.d.comb += done.ready.eq(anything(m, 1, "done_ready"))
        stays(m, done, Assert, "done")
        first, _, level = queue_of_two(m, _WANTED, taken, wanted, fires(done), "owed")
        with m.If(done.valid):
            m.d.comb += [
                Assert(level > self.unmoved),
                Assert((done.p.status == MemoryStatus.FAULT) == first.fault),
            ]
        faulted = Signal()
        m.d.sync += faulted.eq(faulted | (fires(done) & first.fault))
        m.d.comb += Cover(faulted & fires(done) & (done.p.status == MemoryStatus.BUS))
        return level


class FabricPortProof(Proof):
    name = "mmu.fabric_port"
    shows = "whatever clients and bus do: offers on AR, AW and W stay; bursts are INCR, full width"
    induction = 2
    cover = 6
    breaks = ("forget",)  # a frozen design holds its offers

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = IdentityFabric(CONFIG, readers=2, writers=2)
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        w = channel(m, dut.axi, "w", ["data", "strb", "last"])
        stays(m, w, Assert, "w")
        offers = [address_rules(m, dut.axi, "ar"), address_rules(m, dut.axi, "aw"), w]
        m.d.comb += Cover(Cat(view.valid & ~view.ready for view in offers).all())


PROOFS = (FabricPortProof(), FabricReadsProof(), FabricWritesProof())
