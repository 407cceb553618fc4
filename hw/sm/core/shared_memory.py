"""Loads and stores of shared memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import SHARED_UNIT, Config
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.sm.core.coalescer import Coalescer, access, first_failure, gathered_words
from signalbox.hw.sm.core.memory_rows import MemoryRows
from signalbox.hw.sm.core.records import access_row, bits, completion, result_row
from signalbox.hw.sm.core.unit_allocator import UnitAllocator
from signalbox.hw.sm.core.written_flags import WrittenFlags
from signalbox.hw.sm.port import block_begin

__all__ = ["SharedMemory"]


class SharedMemory(wiring.Component):
    """Executes the loads and stores of shared memory. Lines of `lanes` words, one access per cycle;
    units of 1024 bytes, located through a map per block. An access waits until its block has all
    its units.

    A line that its block has not stored to reads as 0 (PREEMPT-10); the first store covers all its
    words.

    Members
    -------
    begin : in, strobe, a `block_begin`, only while `free`: a block begins.
    free : out, a block may begin.
    finish : in, strobe per slot: its block is over.
    clear : out, per slot: its units are being returned, so a new block must wait.
    room : out, there is room for one more instruction.
    reserve : in, strobe: the room is used.
    row : in, strobe: a row of an instruction with reserved room, an `access_row`.
    result : out, stream of `result_row`: loaded words.
    ends : out, stream of `completion`: completed instructions.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._units = UnitAllocator(config.shared_units, config.sm_blocks, config.shared_units, 1)
        super().__init__({
            "begin": In(data.StructLayout({"valid": 1, "what": block_begin(config)})),
            "free": Out(1),
            "finish": In(config.sm_blocks),
            "clear": Out(config.sm_blocks),
            "room": Out(1),
            "reserve": In(1),
            "row": In(data.StructLayout({"valid": 1, "row": access_row(config)})),
            "result": Out(stream.Signature(result_row(config))),
            "ends": Out(stream.Signature(completion(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.units = self._units
        m.submodules.rows = rows = MemoryRows(config, shared=True)
        m.submodules.gather = gather = Coalescer(config, config.lanes)
        connect(m, rows.o, gather.i)
        m.submodules.cut = cut = StreamRegister(access(config, config.lanes))
        connect(m, gather.o, cut.i)
        limits = Signal(data.ArrayLayout(8, config.sm_blocks))
        m.d.comb += [
            rows.reserve.eq(self.reserve),
            rows.i.eq(self.row),
            rows.limit.eq(limits[self.row.row.place.slot]),
            rows.taken.eq(gather.taken),
            self.room.eq(rows.room),
        ]
        with m.If(self.begin.valid):
            m.d.sync += limits[self.begin.what.slot].eq(self.begin.what.shared)
        self._blocks(m)
        self._access(m, cut.o)
        return m

    def _blocks(self, m: Module) -> None:
        units, begin = self._units, self.begin.what
        leaving = Signal(self._config.sm_blocks)
        slot = Signal(self._config.block_bits)
        busy = Signal()
        given = units.give.valid & units.give.ready
        m.d.comb += [
            units.take.valid.eq(self.begin.valid),
            units.take.p.owner.eq(begin.slot),
            units.take.p.count.eq(begin.shared),
            self.free.eq(units.take.ready),
            units.give.valid.eq(busy),
            units.give.payload.eq(slot),
            self.clear.eq(leaving | self.finish),
        ]
        # Scan the slots until one is found that has got all its units: a block may be over before.
        # Others go first, as it may be waiting for their units.
        found = leaving.bit_select(slot, 1) & units.settled(slot)
        m.d.sync += leaving.eq(leaving | self.finish)
        with m.If(~busy):
            m.d.sync += busy.eq(found)
            with m.If(~found):
                m.d.sync += slot.eq(Mux(slot == self._config.sm_blocks - 1, 0, slot + 1))
        with m.Elif(given):
            m.d.sync += busy.eq(0)
            for n in range(self._config.sm_blocks):
                with m.If((slot == n) & ~self.finish[n]):
                    m.d.sync += leaving[n].eq(0)

    def _access(self, m: Module, one: stream.Interface) -> None:
        """Three pipeline steps, unit, line, words, which move together."""
        config, units = self._config, self._units
        low = 2 + (config.lanes - 1).bit_length()
        inside = bits(SHARED_UNIT)
        lines = SHARED_UNIT >> low
        m.submodules.memory = store = memory.Memory(
            shape=data.ArrayLayout(32, config.lanes), depth=config.shared_units * lines, init=[]
        )
        m.submodules.written = flags = WrittenFlags(config.shared_units, lines, 1)
        moves = Signal()
        settled = units.settled(one.p.slot)
        shape = access(config, config.lanes)
        first, second = (
            Signal(data.StructLayout({"valid": 1, "what": shape}), name=name)
            for name in ("first", "second")
        )
        unit = Signal.like(units.unit[0])
        kept = Signal.like(units.unit[0])
        fresh = Signal()
        m.d.comb += [
            units.look[0].owner.eq(one.p.slot),
            units.look[0].number.eq(one.p.va[inside:]),
            one.ready.eq(moves & settled),
            # The map answers once; the steps may stall.
            unit.eq(Mux(fresh, units.unit[0], kept)),
        ]
        m.d.sync += [fresh.eq(moves), kept.eq(unit)]
        with m.If(moves):
            m.d.sync += [
                first.valid.eq(one.valid & settled),
                first.what.eq(one.payload),
                second.eq(first),
            ]
        at = Cat(first.what.va[low:inside], unit)
        read = store.read_port()
        m.d.comb += [
            read.addr.eq(at),
            read.en.eq(moves),
            flags.look[0].eq(at),
            flags.moves.eq(moves),
            flags.next.eq(units.next),
            units.hold.eq(flags.hold),
        ]
        self._store(m, store.write_port(granularity=1), flags, second, at, moves)
        self._finish(m, second, Mux(flags.written[0], Value.cast(read.data), 0), moves)

    def _store(
        self,
        m: Module,
        port: wiring.PureInterface,
        flags: WrittenFlags,
        one: data.View,
        at: Value,
        moves: Value,
    ) -> None:
        """Write in the last step. `at`: line of the step before; its flag does not show a store in
        this cycle yet."""
        line, ahead = Signal(len(at), name="stored_line"), Signal(name="stored_ahead")
        known = flags.written[0] | ahead
        writes = one.valid & one.what.store & one.what.strobe.any() & moves
        m.d.comb += [
            port.addr.eq(line),
            flags.mark.valid.eq(writes & ~known),
            flags.mark.at.eq(line),
        ]
        for n, word in enumerate(one.what.data):
            stores = one.what.strobe[n]
            m.d.comb += [
                port.data[n].eq(Mux(stores, word, 0)),
                port.en[n].eq(writes & (stores | ~known)),
            ]
        with m.If(moves):
            m.d.sync += [line.eq(at), ahead.eq(writes & (line == at))]

    def _finish(self, m: Module, second: data.View, words: Value, moves: Value) -> None:
        what, result = second.what, self.result
        m.submodules.ended = ended = StreamRegister(completion(self._config))
        connect(m, ended.o, flipped(self.ends))
        loads = what.mask.any() & ~what.store
        written = result.ready | ~loads
        m.d.comb += [
            result.valid.eq(second.valid & loads & (ended.i.ready | ~what.last)),
            ended.i.valid.eq(second.valid & what.last & written),
            moves.eq(~second.valid | (written & (ended.i.ready | ~what.last))),
        ]
        gathered_words(m, result.p, what, words)
        first_failure(m, ended.i, what, what.cause, second.valid & moves)
