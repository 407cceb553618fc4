"""Load/store unit (ASID-1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO, StreamRegister
from signalbox.hw.records.memory import MemoryStatus, read_beat, write_beat
from signalbox.hw.sm.core.coalescer import Coalescer, access, first_failure, gathered_words
from signalbox.hw.sm.core.kernel_rows import local_part
from signalbox.hw.sm.core.memory_rows import MemoryRows
from signalbox.hw.sm.core.read_port import OUTSTANDING
from signalbox.hw.sm.core.records import access_row, completion, result_row
from signalbox.hw.sm.port import core_request

__all__ = ["LoadStoreUnit"]


def _cause(one: data.View, status: Value) -> Value:
    """Result of an access."""
    bus = Mux(status == MemoryStatus.BUS, CoreCause.MEMORY_BUS, CoreCause.MEMORY_FAULT)
    read = Mux(one.mask.any() & (status != MemoryStatus.OK), bus, CoreCause.NONE)
    return Mux(one.cause == CoreCause.NONE, read, one.cause)


class LoadStoreUnit(wiring.Component):
    """Issues the memory accesses of instructions, single beats in program order; loads and stores
    complete in order, independently of each other. An instruction completes with its last access,
    so a warp's stores are visible before it continues. A load is issued when there is room for its
    beat, a store together with its beat.

    Members
    -------
    room : out, 1 bit: there is room for one more instruction; from the cycle after `reserve`
        without the room that it used.
    reserve : in, 1 bit, strobe: the room is used.
    row : in, strobe, an `access_row`: a row of an instruction with reserved room.
    local : in, a `local_part`, one cycle after `row`: local memory of the row's kernel.
    ask : out, stream of `core_request`: reads of one beat.
    beat : in, strobe, a `read_beat`: a beat of these, in order.
    request : out, stream of `core_request`: writes of one beat.
    data : out, stream of `write_beat`: the beat of each, in order.
    done : in, stream of `MemoryStatus`: the response to each, in order.
    result : out, stream of `result_row`: loaded words; arbitrary after a failed access, as its warp
        executes nothing more.
    ends : out, two streams of `completion`, of loads and of stores, from registers: one cycle after
        the last result of a load is taken, or the last response of a store.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._access = access(config, config.beat_dwords)
        done = data.StructLayout({"status": MemoryStatus})
        given = data.StructLayout({"valid": 1, "beat": read_beat(config)})
        super().__init__({
            "room": Out(1),
            "reserve": In(1),
            "row": In(data.StructLayout({"valid": 1, "row": access_row(config)})),
            "local": In(local_part),
            "ask": Out(stream.Signature(core_request(config))),
            "beat": In(given),
            "request": Out(stream.Signature(core_request(config))),
            "data": Out(stream.Signature(write_beat(config))),
            "done": In(stream.Signature(done)),
            "result": Out(stream.Signature(result_row(config))),
            "ends": Out(stream.Signature(completion(config))).array(2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = rows = MemoryRows(self._config, shared=False)
        m.submodules.gather = gather = Coalescer(self._config, self._config.beat_dwords)
        connect(m, rows.o, gather.i)
        # Registers: `ready` must not depend on `valid`, since completion and writeback may depend
        # on each other.
        self._ends = []
        for n, name in enumerate(("loaded", "stored")):
            m.submodules[name] = register = StreamRegister(completion(self._config))
            connect(m, register.o, flipped(self.ends[n]))
            self._ends.append(register.i)
        m.d.comb += [
            rows.reserve.eq(self.reserve),
            rows.i.eq(self.row),
            rows.local.eq(self.local),
            rows.taken.eq(gather.taken),
            self.room.eq(rows.room),
        ]
        m.submodules.cut = cut = StreamRegister(self._access)
        connect(m, gather.o, cut.i)
        one, is_store = cut.o, cut.o.p.store
        loads = self._load(m, one.payload, one.valid & ~is_store)
        stores = self._store(m, one.payload, one.valid & is_store)
        m.d.comb += one.ready.eq(Mux(is_store, stores, loads))
        return m

    def _request(self, m: Module, target: stream.Interface, one: data.View) -> None:
        m.d.comb += [target.p.row.eq(one.row), target.p.va.eq(one.va), target.p.beats.eq(0)]
        if self._config.preemption:
            m.d.comb += target.p.physical.eq(one.transfer)

    def _load(self, m: Module, one: data.View, wanted: Value) -> Value:
        """Returns whether the access is accepted."""
        shape = access(self._config, 1)
        names = ("warp", "transfer", "last", "cause", "va", "dest", "mask")
        kept = {name: one[name] for name in names}
        layout = data.StructLayout({
            **{name: shape[name].shape for name in kept},
            "places": self._access["places"].shape,
        })
        entry = Signal(layout)
        head = Signal(layout)
        m.submodules.loads = order = StreamFIFO(layout, OUTSTANDING)
        beat_shape = read_beat(self._config)
        m.submodules.beats = beats = StreamFIFO(beat_shape, OUTSTANDING)
        beat = Signal(beat_shape)
        real = one.mask.any()
        taken = Signal()
        m.d.comb += [
            *(entry[name].eq(value) for name, value in kept.items()),
            entry.places.eq(one.places),
            self.ask.valid.eq(wanted & real & order.i.ready),
            taken.eq(order.i.ready & (self.ask.ready | ~real)),
            order.i.valid.eq(wanted & taken),
            order.i.payload.eq(entry),
            head.eq(order.o.payload),
            beats.i.valid.eq(self.beat.valid),
            beats.i.payload.eq(self.beat.beat),
            beat.eq(beats.o.payload),
        ]
        self._request(m, self.ask, one)
        self._loaded(m, order, head, beats, beat)
        return taken

    def _loaded(self, m: Module, order: Value, head: data.View, beats: Value, beat: data.View):
        """Oldest load: its beat arrives, its words are written, it completes."""
        ends, result = self._ends[0], self.result
        real = head.mask.any()
        here = Signal()
        moves = Signal()
        m.d.comb += [
            here.eq(order.o.valid & (beats.o.valid | ~real)),
            result.valid.eq(here & real & (ends.ready | ~head.last)),
            ends.valid.eq(here & head.last & (result.ready | ~real)),
            moves.eq(here & (result.ready | ~real) & (ends.ready | ~head.last)),
            order.o.ready.eq(moves),
            beats.o.ready.eq(moves & real),
        ]
        gathered_words(m, result.p, head, beat.data)
        first_failure(m, ends, head, _cause(head, beat.status), moves)

    def _store(self, m: Module, one: data.View, wanted: Value) -> Value:
        """Returns whether the access is accepted."""
        config = self._config
        names = ("warp", "transfer", "last", "cause", "va", "mask")
        layout = data.StructLayout({name: self._access[name].shape for name in names})
        entry = Signal(layout)
        head = Signal(layout)
        m.submodules.stores = order = StreamFIFO(layout, OUTSTANDING)
        m.submodules.requests = requests = StreamRegister(core_request(config))
        m.submodules.data = beats = StreamRegister(write_beat(config))
        connect(m, requests.o, flipped(self.request))
        connect(m, beats.o, flipped(self.data))
        real, taken = one.mask.any(), Signal()
        free = requests.i.ready & beats.i.ready | ~real
        m.d.comb += [
            *(entry[name].eq(one[name]) for name in names),
            taken.eq(order.i.ready & free),
            order.i.valid.eq(wanted & taken),
            order.i.payload.eq(entry),
            head.eq(order.o.payload),
            requests.i.valid.eq(wanted & taken & real),
            beats.i.valid.eq(wanted & taken & real),
            beats.i.p.data.eq(one.data),
            beats.i.p.strobe.eq(Cat(bit.replicate(4) for bit in one.strobe)),
            beats.i.p.last.eq(1),
        ]
        self._request(m, requests.i, one)
        self._stored(m, order, head)
        return taken

    def _stored(self, m: Module, order: Value, head: data.View) -> None:
        ends, done, real = self._ends[1], self.done, head.mask.any()
        here = Signal()
        moves = Signal()
        m.d.comb += [
            here.eq(order.o.valid & (done.valid | ~real)),
            ends.valid.eq(here & head.last),
            moves.eq(here & (ends.ready | ~head.last)),
            done.ready.eq(moves & real),
            order.o.ready.eq(moves),
        ]
        first_failure(m, ends, head, _cause(head, done.p.status), moves)
