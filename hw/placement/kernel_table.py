"""The kernel status register table: which kernel is served (PLACE-1, PLACE-6)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.row_order import KernelOrder, row_event
from signalbox.hw.records.placement import BLOCK_COUNT_BITS, Policy, kernel_needs

__all__ = ["Kernels", "decision", "kernel"]

_FLIGHT_BITS = 5
"""Of the number of decisions of a kernel that are under way; there are at most as many as steps."""

_MANY = 1 << _FLIGHT_BITS
"""More than there are ever decisions under way."""


def kernel(config: Config) -> data.StructLayout:
    """What a decision has to know of a kernel."""
    return data.StructLayout({
        "row": config.row_bits,
        "needs": kernel_needs,
        "asid": config.asid_bits,
        "policy": Policy,
    })


def decision(config: Config) -> data.StructLayout:
    """A decision on an SM for a block of a kernel, if `valid`."""
    return data.StructLayout({"valid": 1, **kernel(config).members})


class Kernels(wiring.Component):
    """Chooses the kernel and begins decisions for its blocks, one per cycle.

    Kernels are served in the order of `KernelOrder`. As soon as a decision is under way for each
    undistributed block of one, decisions for the next begin. That is undone, by `restart`, when one
    of them fails whose kernel is not served any more (`lost`), or when a row goes before one that
    has been served (`overtakes`); all decisions under way are dropped then (`flush`, a cycle
    later). So no block is placed while one of a kernel before its own is undistributed and has no
    successful decision.

    A kernel that found no SM waits: decisions for it begin in every cycle until one succeeds, and
    no other kernel is served (PLACE-6). With other policies than wide one decision is under way at
    a time, unless the kernel waits, and none during a `batch`.

    From a row's opening to the cycle in which a decision begins: 3 cycles, the first with it in the
    order.

    Members
    -------
    open : a row opens; close, refill, empty : see `KernelOrder`. overtakes : likewise.
    ask, asked : the row to be served next, and its undistributed blocks.
    begins : the kernel that is served, if one is; if valid, with a decision.
    last : the SM that took the last block of the kernel that is served, if there is one.
    sent : a block of `row` goes to `sm`. settled, failed : a decision for `row` is over; it failed.
    lost : it has failed, and its kernel is not the one that is served; combinational.
    restart, flush : serve the first kernel; `flush` one cycle later.
    batch : blocks are being sent without decisions.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_event(config)
        self._place = data.StructLayout({"valid": 1, "sm": config.sm_bits})
        super().__init__({
            "open": In(decision(config)),
            "close": In(event),
            "refill": In(event),
            "empty": In(event),
            "overtakes": Out(1),
            "ask": Out(config.row_bits),
            "asked": In(BLOCK_COUNT_BITS),
            "begins": Out(decision(config)),
            "last": Out(self._place),
            "sent": In(data.StructLayout({**event.members, "sm": config.sm_bits})),
            "settled": In(event),
            "failed": In(1),
            "lost": Out(1),
            "restart": In(1),
            "flush": In(1),
            "batch": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._served, self._serves = Signal(kernel(self._config)), Signal(name="serves")
        self._moves_on, self._walk = Signal(), Signal()
        self._sends, self._settles = Signal(), Signal()
        m.d.comb += [
            self._sends.eq(self.sent.valid & (self.sent.row == self._served.row)),
            self._settles.eq(self.settled.valid & (self.settled.row == self._served.row)),
            self.lost.eq(
                self.settled.valid & self.failed & ~(self._settles & self._serves & ~self._moves_on)
            ),
        ]
        self._order(m)
        self._serve(m, *self._fetch(m))
        self._begin(m)
        return m

    def _order(self, m: Module) -> None:
        m.submodules.order = order = KernelOrder(self._config)
        m.d.comb += [
            order.open.valid.eq(self.open.valid),
            order.open.row.eq(self.open.row),
            order.priority.eq(self.open.needs.priority),
            order.close.eq(self.close),
            order.refill.eq(self.refill),
            order.empty.eq(self.empty),
            order.restart.eq(self.restart),
            order.walk.eq(self._walk),
            self.overtakes.eq(order.overtakes),
        ]
        self._next = order.next

    def _fetch(self, m: Module) -> tuple[Signal, data.View, data.View]:
        """Read the row that is served next; whether it is taken, what it is and its last SM."""
        config = self._config
        walked, loads, row = Signal(), Signal(), Signal(config.row_bits)
        rows = self._ram(m, "kernels", kernel(config))
        lasts = self._ram(m, "lasts", config.sm_bits)
        write, write_last = rows.write_port(), lasts.write_port()
        read, read_last = rows.read_port(domain="comb"), lasts.read_port(domain="comb")
        placed, last = Signal(config.rows), Signal(self._place)
        m.d.comb += [
            loads.eq(walked & ~self.flush & (~self._serves | self._moves_on)),
            self._walk.eq(self._next.valid & (~walked | loads | self.flush)),
            self.ask.eq(row),
            read.addr.eq(row),
            read_last.addr.eq(row),
            last.valid.eq(placed.bit_select(row, 1)),
            last.sm.eq(read_last.data),
            write.en.eq(self.open.valid),
            write.addr.eq(self.open.row),
            [write.data[name].eq(self.open[name]) for name in kernel(config).members],
            write_last.en.eq(self.sent.valid),
            write_last.addr.eq(self.sent.row),
            write_last.data.eq(self.sent.sm),
        ]
        with m.If(self._walk):
            m.d.sync += row.eq(self._next.row)
        m.d.sync += walked.eq(~self.restart & (self._walk | (walked & ~loads & ~self.flush)))
        with m.If(self.sent.valid):
            m.d.sync += placed.bit_select(self.sent.row, 1).eq(1)
        with m.If(self.open.valid):
            m.d.sync += placed.bit_select(self.open.row, 1).eq(0)
        return loads, read.data, last

    def _ram(self, m: Module, name: str, shape: data.Layout | int) -> Memory:
        m.submodules[name] = ram = Memory(
            MemoryData(shape=shape, depth=1 << self._config.row_bits, init=[])
        )
        return ram

    def _serve(self, m: Module, loads: Signal, fetched: data.View, last: data.View) -> None:
        """The kernel that is served, and how many of its blocks are undistributed."""
        # So many, or `more` of them in packets of `_MANY`: while there is one, `count` is too large
        # to matter, or will be in the next cycle.
        self._count, self._more = count, more = Signal(_FLIGHT_BITS + 1), Signal()
        packets = Signal(BLOCK_COUNT_BITS - _FLIGHT_BITS)
        opens = more & ~count[-1]
        m.d.sync += count.eq((count | Mux(opens, _MANY, 0)) - self._sends)
        with m.If(opens):
            m.d.sync += [packets.eq(packets - 1), more.eq(packets != 1)]
        with m.If(self._sends):
            m.d.sync += [self.last.valid.eq(1), self.last.sm.eq(self.sent.sm)]
        with m.If(loads):
            m.d.sync += [
                self._serves.eq(1),
                self._served.eq(fetched),
                count.eq(self.asked[:_FLIGHT_BITS]),
                packets.eq(self.asked[_FLIGHT_BITS:]),
                more.eq(self.asked[_FLIGHT_BITS:].any()),
                self.last.eq(last),
            ]
        with m.Elif(self._moves_on):
            m.d.sync += self._serves.eq(0)
        with m.If(self.flush):
            m.d.sync += self._serves.eq(0)

    def _begin(self, m: Module) -> None:
        """Begin decisions for blocks that have none; `waits`: for those that have one, too."""
        served, count, more = self._served, self._count, self._more
        flight, waits = Signal(_FLIGHT_BITS), Signal()
        some, one, two = Signal(), Signal(), Signal()
        begins, alone, after = Signal(), Signal(), Signal(_FLIGHT_BITS)
        m.d.comb += [
            some.eq(more | (count != 0)),
            # At least one block has no decision; at least two.
            one.eq(more | (flight < count)),
            two.eq(more | (flight + 1 < count)),
            alone.eq((served.policy == Policy.WIDE) | ((flight == 0) & ~self.batch)),
            begins.eq(self._serves & ((one & alone) | (waits & ~self.batch))),
            after.eq(flight + begins),
            self._moves_on.eq(
                self._serves & (~some | (~waits & ~self.batch & ~Mux(begins, two, one)))
            ),
            self.begins.valid.eq(begins & ~self.flush),
            [self.begins[name].eq(served[name]) for name in served.shape().members],
        ]
        m.d.sync += flight.eq(Mux(self._moves_on | ~self._serves, 0, after - self._settles))
        with m.If(self.sent.valid):
            m.d.sync += waits.eq(0)
        with m.Elif(self.settled.valid & self.failed):
            m.d.sync += waits.eq(1)
