"""Outstanding accesses of the timing core (ASID-1, ASID-27)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import MemoryStatus, read_beat, write_beat
from signalbox.hw.sm.port import core_request
from signalbox.hw.sm.timing.layouts import store_pattern, warp_access, warp_wake

__all__ = ["Loads", "Stores"]


def _depth(config: Config) -> int:
    """Most outstanding accesses of each kind: one per warp."""
    return max(2, config.sm_warps)


def _wake(m: Module, wake: data.View, head: data.View, status: MemoryStatus) -> None:
    """Wake the warp of `head`."""
    bus = Mux(status == MemoryStatus.BUS, CoreCause.MEMORY_BUS, CoreCause.MEMORY_FAULT)
    m.d.comb += [
        wake.warp.eq(head.warp),
        wake.row.eq(head.row),
        wake.wait.eq(Mux(status == MemoryStatus.OK, head.wait, 0)),
        wake.cause.eq(Mux(status == MemoryStatus.OK, CoreCause.NONE, bus)),
    ]


class Loads(wiring.Component):
    """Reads: task records, which have priority, and one beat per load, whose data are dropped. At
    most as many outstanding reads as warps. Requests are registered, one per cycle.

    Members
    -------
    ask : in, read of a task record.
    beat : out, its beats.
    load : in, loads.
    wake : out, their warps, when the beat has arrived.
    request : out, see `SmPort`.
    answer : in, see `SmPort`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ask": In(stream.Signature(core_request(config))),
            "beat": Out(stream.Signature(read_beat(config))),
            "load": In(stream.Signature(warp_access(config))),
            "wake": Out(stream.Signature(warp_wake(config))),
            "request": Out(stream.Signature(core_request(config))),
            "answer": In(stream.Signature(read_beat(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, ask, load = self._config, self.ask, self.load
        request, answer = self.request, self.answer
        entry = data.StructLayout({
            "record": 1,
            "warp": config.warp_bits,
            "row": config.row_bits,
            "wait": 32,
        })
        m.submodules.order = order = StreamFIFO(entry, _depth(config))
        new = Signal(entry)
        head = Signal(entry)
        free = Signal()
        m.d.comb += [
            free.eq(order.i.ready & (~request.valid | request.ready)),
            ask.ready.eq(free),
            load.ready.eq(free & ~ask.valid),
            new.record.eq(ask.valid),
            *(new[name].eq(load.p[name]) for name in ("warp", "row", "wait")),
            order.i.valid.eq(free & (ask.valid | load.valid)),
            order.i.payload.eq(new),
            head.eq(order.o.payload),
            self.beat.valid.eq(answer.valid & order.o.valid & head.record),
            self.beat.payload.eq(answer.payload),
            self.wake.valid.eq(answer.valid & order.o.valid & ~head.record),
            answer.ready.eq(order.o.valid & Mux(head.record, self.beat.ready, self.wake.ready)),
            order.o.ready.eq(answer.valid & answer.ready & answer.p.last),
        ]
        _wake(m, self.wake.p, head, answer.p.status)
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(order.i.valid):
            m.d.sync += [
                request.valid.eq(1),
                request.p.row.eq(Mux(ask.valid, ask.p.row, load.p.row)),
                request.p.va.eq(Mux(ask.valid, ask.p.va, load.p.va)),
                request.p.beats.eq(Mux(ask.valid, ask.p.beats, 0)),
            ]
        return m


class Stores(wiring.Component):
    """Writes of one beat, filled with the pattern. At most as many outstanding writes as warps.
    Requests and beats are registered, one per cycle.

    Members
    -------
    store : in, stores.
    wake : out, their warps, when the data are visible.
    request : out, see `SmPort`.
    beat : out, see `SmPort`.
    done : in, see `SmPort`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        done = data.StructLayout({"status": MemoryStatus})
        super().__init__({
            "store": In(stream.Signature(warp_access(config))),
            "wake": Out(stream.Signature(warp_wake(config))),
            "request": Out(stream.Signature(core_request(config))),
            "beat": Out(stream.Signature(write_beat(config))),
            "done": In(stream.Signature(done)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, store, request, beat = self._config, self.store, self.request, self.beat
        entry = data.StructLayout({"warp": config.warp_bits, "row": config.row_bits, "wait": 32})
        m.submodules.order = order = StreamFIFO(entry, _depth(config))
        new = Signal(entry)
        head = Signal(entry)
        pattern = Signal(store_pattern)
        m.d.comb += [
            store.ready.eq(
                order.i.ready & (~request.valid | request.ready) & (~beat.valid | beat.ready)
            ),
            *(new[name].eq(store.p[name]) for name in ("warp", "row", "wait")),
            order.i.valid.eq(store.valid & store.ready),
            order.i.payload.eq(new),
            head.eq(order.o.payload),
            self.wake.valid.eq(self.done.valid & order.o.valid),
            self.done.ready.eq(order.o.valid & self.wake.ready),
            order.o.ready.eq(self.done.valid & self.done.ready),
            beat.p.data.eq(Cat(pattern for _ in range(config.data_width // store_pattern.size))),
            beat.p.strobe.eq(~0),
            beat.p.last.eq(1),
        ]
        _wake(m, self.wake.p, head, self.done.p.status)
        for stream_ in (request, beat):
            with m.If(stream_.ready):
                m.d.sync += stream_.valid.eq(0)
        with m.If(order.i.valid):
            m.d.sync += [
                request.valid.eq(1),
                beat.valid.eq(1),
                request.p.row.eq(store.p.row),
                request.p.va.eq(store.p.va),
                request.p.beats.eq(0),
                pattern.eq(store.p.pattern),
            ]
        return m
