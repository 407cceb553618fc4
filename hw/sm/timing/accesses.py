"""Outstanding accesses of the timing core (ASID-1, ASID-27)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import STATE_LINE, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import MemoryStatus, read_beat, write_beat
from signalbox.hw.sm.port import core_request
from signalbox.hw.sm.timing.layouts import (
    outstanding_accesses,
    state_access,
    state_answer,
    state_bits,
    store_pattern,
    warp_access,
    warp_wake,
)

__all__ = ["Loads", "Stores"]


def _note_state(config: Config) -> dict[str, int]:
    """Marks of an outstanding access. `state`: a line of a state. `last`: its last line."""
    return {"state": 1, "last": 1} if config.preemption else {}


def _wake(m: Module, wake: data.View, head: data.View, status: MemoryStatus) -> None:
    """Wake the warp of `head`."""
    bus = Mux(status == MemoryStatus.BUS, CoreCause.MEMORY_BUS, CoreCause.MEMORY_FAULT)
    m.d.comb += [
        wake.warp.eq(head.warp),
        wake.row.eq(head.row),
        wake.wait.eq(Mux(status == MemoryStatus.OK, head.wait, 0)),
        wake.cause.eq(Mux(status == MemoryStatus.OK, CoreCause.NONE, bus)),
    ]


def _send_line(
    m: Module,
    config: Config,
    goes: Value,
    state: stream.Interface,
    other: stream.Interface,
    request: stream.Interface,
    order: StreamFIFO,
    new: data.View,
) -> None:
    """Request a line of a state if it `goes` in this cycle; the `other` access, of a warp,
    waits."""
    with m.If(order.i.valid):
        m.d.sync += request.p.physical.eq(goes)
    with m.If(goes):
        m.d.comb += [
            other.ready.eq(0),
            order.i.valid.eq(1),
            new.state.eq(1),
            new.last.eq(state.p.last),
        ]
        m.d.sync += [
            request.p.row.eq(state.p.row),
            request.p.va.eq(state.p.va),
            request.p.beats.eq(STATE_LINE // config.beat_bytes - 1),
        ]


class Loads(wiring.Component):
    """Issues the reads of a core: task records, which have priority; states, line by line; and one
    beat per load, with its data dropped. At most `outstanding_accesses` are outstanding. Requests
    are registered, one per cycle.

    Members
    -------
    ask : in, stream of `core_request`: read of a task record.
    beat : out, stream of `read_beat`: its beats.
    load : in, stream of `warp_access`.
    wake : out, stream of `warp_wake`: the warp of a load, when its beat has arrived.
    state : in, with preemption: stream of `state_access`, reads of states.
    arrived : out, with preemption: stream of `state_answer`, their beats.
    request : out, stream of `core_request`, to memory.
    answer : in, stream of `read_beat`, from memory.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        state = {
            "state": In(stream.Signature(state_access(config))),
            "arrived": Out(stream.Signature(state_answer(config))),
        }
        super().__init__({
            "ask": In(stream.Signature(core_request(config))),
            "beat": Out(stream.Signature(read_beat(config))),
            "load": In(stream.Signature(warp_access(config))),
            "wake": Out(stream.Signature(warp_wake(config))),
            "request": Out(stream.Signature(core_request(config))),
            "answer": In(stream.Signature(read_beat(config))),
            **(state if config.preemption else {}),
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
            **_note_state(config),
        })
        m.submodules.order = order = StreamFIFO(entry, outstanding_accesses(config))
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
        if config.preemption:
            self._states(m, free & ~ask.valid, new, order)
        return m

    def _states(self, m: Module, free: Value, new: data.View, order: StreamFIFO) -> None:
        """A line of a state is read with its first beat, in turn with loads."""
        request, state, arrived = self.request, self.state, self.arrived
        answer, head = self.answer, order.o.p
        goes = Signal(name="state_goes")
        m.d.comb += [
            goes.eq(state.valid & state.p.begins & free & ~(request.p.physical & self.load.valid)),
            state.ready.eq(goes | ~state.p.begins),
            arrived.p.last.eq(head.last & answer.p.last),
            arrived.p.status.eq(answer.p.status),
            arrived.p.word.eq(answer.p.data),
        ]
        _send_line(m, self._config, goes, state, self.load, request, order, new)
        with m.If(order.o.valid & head.state):
            m.d.comb += [
                self.wake.valid.eq(0),
                arrived.valid.eq(answer.valid),
                answer.ready.eq(arrived.ready),
            ]


class Stores(wiring.Component):
    """Issues the writes of a core: one beat, filled with the pattern, or a line of a state. At most
    `outstanding_accesses` are outstanding. Requests and beats are registered, one per cycle.

    Members
    -------
    store : in, stream of `warp_access`.
    wake : out, stream of `warp_wake`: the warp of a store, when its data are visible.
    state : in, with preemption: stream of `state_access`, writes of states.
    written : out, with preemption: stream of `state_answer`, their lines, when the data are
        visible.
    request : out, stream of `core_request`, to memory.
    beat : out, stream of `write_beat`, to memory.
    done : in, stream of responses from memory, each a `MemoryStatus`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        done = data.StructLayout({"status": MemoryStatus})
        state = {
            "state": In(stream.Signature(state_access(config))),
            "written": Out(stream.Signature(state_answer(config))),
        }
        super().__init__({
            "store": In(stream.Signature(warp_access(config))),
            "wake": Out(stream.Signature(warp_wake(config))),
            "request": Out(stream.Signature(core_request(config))),
            "beat": Out(stream.Signature(write_beat(config))),
            "done": In(stream.Signature(done)),
            **(state if config.preemption else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, store, request, beat = self._config, self.store, self.request, self.beat
        entry = data.StructLayout({
            "warp": config.warp_bits,
            "row": config.row_bits,
            "wait": 32,
            **_note_state(config),
        })
        m.submodules.order = order = StreamFIFO(entry, outstanding_accesses(config))
        new = Signal(entry)
        head = Signal(entry)
        pattern = Signal(store_pattern)
        room = ~beat.valid | beat.ready
        free = order.i.ready & (~request.valid | request.ready) & room
        m.d.comb += [
            store.ready.eq(free),
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
        if config.preemption:
            self._states(m, room, free, new, order)
        return m

    def _states(
        self, m: Module, room: Value, free: Value, new: data.View, order: StreamFIFO
    ) -> None:
        """A line of a state is written in turn with stores; its beats follow each other."""
        request, beat, state, written = self.request, self.beat, self.state, self.written
        head = order.o.p
        goes, writes = Signal(name="state_goes"), Signal(name="writes_state")
        word = Signal(state_bits(self._config), name="word")
        ends = Signal(name="ends_line")
        m.d.comb += [
            state.ready.eq(Mux(state.p.begins, free & ~(writes & self.store.valid), room)),
            goes.eq(state.valid & state.ready),
            written.p.last.eq(head.last),
            written.p.status.eq(self.done.p.status),
        ]
        _send_line(m, self._config, goes & state.p.begins, state, self.store, request, order, new)
        with m.If(order.i.valid):
            m.d.sync += writes.eq(0)
        with m.If(goes):
            m.d.comb += self.store.ready.eq(0)
            m.d.sync += [
                beat.valid.eq(1),
                writes.eq(1),
                word.eq(state.p.word),
                ends.eq(state.p.ends),
            ]
        with m.If(writes):
            m.d.comb += [beat.p.data.eq(word), beat.p.last.eq(ends)]
        with m.If(order.o.valid & head.state):
            m.d.comb += [
                self.wake.valid.eq(0),
                written.valid.eq(self.done.valid),
                self.done.ready.eq(written.ready),
            ]
