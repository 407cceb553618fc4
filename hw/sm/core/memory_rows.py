"""Queue of rows of memory instructions, with address check."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.sm.core.coalescer import checked_row, of_lowest
from signalbox.hw.sm.core.kernel_rows import local_part
from signalbox.hw.sm.core.records import QUEUED, access_row, row_count

__all__ = ["MemoryRows"]


class MemoryRows(wiring.Component):
    """Queues rows of memory instructions, in order, with room for all rows of `QUEUED`
    instructions; room is reserved in advance.

    Parameters
    ----------
    shared : shared memory, addressed by offsets into the block's `limit` units of 1024 bytes;
        otherwise global memory with 49-bit addresses, and local memory. Offsets in local memory
        become global addresses, ordered by word, then by warp, then by thread.

    Members
    -------
    room : out, there is room for one more instruction.
    reserve : in, strobe: the room is used.
    i : in, strobe, an `access_row`: a row of an instruction with reserved room.
    limit : in, 8 bits: limit of the block of the arriving row.
    local : in, a `local_part`, one cycle later: local memory of the kernel of the arriving row.
    o : out, stream of `checked_row`.
    taken : in, strobe: the last row of an instruction was used.
    """

    def __init__(self, config: Config, *, shared: bool) -> None:
        self._config, self._shared = config, shared
        super().__init__({
            "room": Out(1),
            "reserve": In(1),
            "i": In(data.StructLayout({"valid": 1, "row": access_row(config)})),
            "limit": In(8),
            "local": In(local_part),
            "o": Out(stream.Signature(checked_row(config))),
            "taken": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = checked_row(self._config)
        depth = QUEUED * row_count(self._config)
        m.submodules.queue = queue = StreamFIFO(shape, depth)
        left = Signal(range(QUEUED + 1), init=QUEUED)
        m.d.sync += left.eq(left - self.reserve + self.taken)
        m.d.comb += self.room.eq(left != 0)
        entering = Signal()
        row = Signal(access_row(self._config))
        limit = Signal(8)
        m.d.sync += [entering.eq(self.i.valid), row.eq(self.i.row), limit.eq(self.limit)]
        checked = Signal(shape)
        m.d.comb += [
            queue.i.valid.eq(entering),
            queue.i.payload.eq(checked),
        ]
        connect(m, queue.o, flipped(self.o))
        self._check(m, row, limit, checked)
        return m

    def _check(self, m: Module, row: data.View, limit: Value, checked: data.View) -> None:
        lanes = row.lanes
        odd = Signal(len(lanes))
        bad = Signal(len(lanes))
        m.d.comb += odd.eq(Cat(lane.active & lane.va[:2].any() for lane in lanes))
        m.d.comb += checked.row.eq(row)
        if self._shared:
            m.d.comb += [
                bad.eq(odd | Cat(lane.active & (lane.va[10:32] >= limit) for lane in lanes)),
                checked.cause.eq(Mux(bad.any(), CoreCause.SHARED_RANGE, CoreCause.NONE)),
            ]
        else:
            past = Cat(lane.active & self._past(row.local, lane.va) for lane in lanes)
            first_odd = of_lowest(m, bad, list(odd), "first_odd")
            cause = Mux(first_odd, CoreCause.MEMORY_ALIGNMENT, CoreCause.MEMORY_FAULT)
            cause = Mux(row.local, CoreCause.LOCAL_RANGE, cause)
            m.d.comb += [
                bad.eq(odd | past),
                checked.cause.eq(Mux(bad.any(), cause, CoreCause.NONE)),
            ]
        first = Signal(VA_BITS, name="first_address")
        m.d.comb += [
            first.eq(of_lowest(m, bad, [lane.va[:VA_BITS] for lane in lanes], "first_bad")),
            checked.va.eq(first),
        ]
        for before, after in zip(lanes, checked.row.lanes, strict=True):
            m.d.comb += after.active.eq(before.active & ~bad.any())
            if self._shared:  # the high word of an offset is arbitrary
                m.d.comb += after.va.eq(before.va[:32])
        if not self._shared:
            self._place(m, row, checked)
        with m.If(self._offsets(row)):
            m.d.comb += checked.va.eq(first[:32])

    def _offsets(self, row: data.View) -> Value:
        """Whether the addresses are offsets."""
        return Const(1) if self._shared else row.local

    def _past(self, local: Value, va: Value) -> Value:
        """Whether an address is out of the range of global or local memory."""
        return Mux(local, va[4:32] >= self.local.units, va[VA_BITS:].any())

    def _place(self, m: Module, row: data.View, checked: data.View) -> None:
        """Addresses of words in local memory."""
        word = slice(2, 4 + len(self.local.units))
        for before, after in zip(row.lanes, checked.row.lanes, strict=True):
            inside = Cat(Const(0, 2), before.va[32:37], row.warp, before.va[word])
            with m.If(row.local):
                m.d.comb += after.va.eq(self.local.va + inside)
