"""Kernel status register table: selects the kernel to be served (PLACE-1, PLACE-6)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.passed_kernels import PassedKernels
from signalbox.hw.placement.row_order import RowOrder, row_event
from signalbox.hw.records.placement import (
    BLOCK_COUNT_BITS,
    Policy,
    block_lack,
    disabled_sms,
    kernel_needs,
)

__all__ = ["KernelTable", "decision", "kernel"]

_FLIGHT_BITS = 5
"""Width of the count of a kernel's decisions in flight, at most one per pipeline step."""

_MANY = 1 << _FLIGHT_BITS
"""More than the number of decisions ever in flight."""


def kernel(config: Config) -> data.StructLayout:
    """Kernel data needed by a decision."""
    return data.StructLayout({
        "row": config.row_bits,
        "needs": kernel_needs,
        "asid": config.asid_bits,
        "policy": Policy,
        **disabled_sms(config),
    })


def decision(config: Config) -> data.StructLayout:
    """If `valid`, a decision in flight: the choice of an SM for a block of the kernel."""
    return data.StructLayout({"valid": 1, **kernel(config).members})


class KernelTable(wiring.Component):
    """Selects the kernel and issues decisions for its blocks, one per cycle.

    Without masks, kernels are served in the order of `RowOrder`. Once every undistributed block of
    a kernel has a decision in flight, decisions for the next kernel are issued. `restart` undoes
    this when such a decision fails after its kernel was left (`lost`), or when a new row goes ahead
    of a served one (`overtakes`); all decisions in flight are then dropped (`flush`, one cycle
    later). So no block is placed while an earlier kernel has an undistributed block without a
    successful decision.

    Without masks, a kernel without a suitable SM waits: decisions for it are issued in every cycle
    until one succeeds, and no other kernel is served (PLACE-6). With policies other than wide, one
    decision is in flight at a time unless the kernel waits, and none during a `batch`.

    With `Config.sm_masks`, a kernel waits only for the SMs that take its blocks. If there are
    others, it is passed over: the kernels behind it are served, but not on its SMs, until all
    passes are dropped and the first kernel is served again (`again`); see `PassedKernels`. Only a
    kernel that is served until its decision fails is passed over. So after a `lost` decision or a
    pass, a kernel stays served until its last block is sent, and its last block has one decision in
    flight at a time. This ends when a block is sent while no SM is held.

    From `open` of a row to its first decision: 3 cycles. In the first of these, the row is in the
    order.

    Members
    -------
    open : in, strobe: a row opens.
    close : in, strobe: a row closes; see `RowOrder`.
    refill : in, strobe: see `RowOrder`.
    empty : in, strobe: see `RowOrder`.
    overtakes : out, see `RowOrder`.
    ask : out, `row_bits` bits: the row to be served next.
    asked : in, 32 bits, in the same cycle: its undistributed blocks.
    begins : out, the served kernel, if any; with `valid`, a decision is issued for it.
    barred : out, per SM, with `Config.sm_masks`: no block of the served kernel goes there.
    last : out, the SM of the served kernel's last block, if any.
    sent : in, strobe: a block of `row` is sent to `sm`.
    settled : in, strobe: a decision for `row` is complete.
    failed : in, the completed decision failed.
    lost : out, combinational: the completed decision failed, and its kernel is no longer served.
    restart : in, serve the first kernel.
    flush : in, `restart` delayed by one cycle.
    batch : in, blocks are being sent without decisions.
    waits : out, the served kernel waits, and may have blocks of lower priority stopped.
    again : out, with `Config.sm_masks`: all passes are dropped, and the first kernel is served
        again.
    refused : in, with `failed`: no SM qualified by any step when the decision began.
    grows : in, per SM, see `SmRow`.
    placing : in, with `Config.sm_masks`: see `Preemption`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_event(config)
        self._place = data.StructLayout({"valid": 1, "sm": config.sm_bits})
        masks = {
            "refused": In(1),
            "grows": In(config.sms),
            "placing": In(1),
            "barred": Out(config.sms),
            "again": Out(1),
        }
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
            "waits": Out(block_lack),
            **(masks if config.masked_sms else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._served = Signal(kernel(self._config))
        self._serves = Signal(name="serves")
        self._moves_on = Signal()
        self._walk = Signal()
        self._sends = Signal()
        self._settles = Signal()
        self._passed = Signal(self._config.rows, name="passed")
        self._passes, self._at_once = Signal(name="passes"), Signal(name="at_once")
        self._stays = Signal(name="stays")
        """The served kernel is left only once its last block is sent."""
        m.d.comb += [
            self._sends.eq(self.sent.valid & (self.sent.row == self._served.row)),
            self._settles.eq(self.settled.valid & (self.settled.row == self._served.row)),
            self.lost.eq(
                self.settled.valid
                & self.failed
                & ~(self._settles & self._serves & ~self._moves_on)
                & ~((self._settles & self._passes) | self._was_passed(self.settled.row))
            ),
        ]
        self._order(m)
        loads, fetched, last = self._fetch(m)
        self._serve(m, loads, fetched, last)
        self._begin(m, loads)
        if self._config.masked_sms:
            self._pass(m, loads)
        return m

    def _order(self, m: Module) -> None:
        m.submodules.order = order = RowOrder(self._config)
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
        """Read the row to be served next. Returns a strobe on its load, the row, and its last
        SM."""
        config = self._config
        self._walked = walked = Signal(name="walked")
        loads = Signal()
        row = Signal(config.row_bits)
        rows = self._ram(m, "kernels", kernel(config))
        lasts = self._ram(m, "lasts", config.sm_bits)
        write, write_last = rows.write_port(), lasts.write_port()
        read, read_last = rows.read_port(domain="comb"), lasts.read_port(domain="comb")
        placed = Signal(config.rows)
        last = Signal(self._place)
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
        """The served kernel and its number of undistributed blocks."""
        # Undistributed blocks: `count`, plus `packets` * `_MANY` while `more`. While `more`, a
        # packet is moved to `count` whenever `count` is below `_MANY`.
        self._count = count = Signal(_FLIGHT_BITS + 1)
        self._more = more = Signal()
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

    def _begin(self, m: Module, loads: Signal) -> None:
        """Issue decisions for blocks without one; while the kernel `waits`, also for the others."""
        served, count, more = self._served, self._count, self._more
        flight = Signal(_FLIGHT_BITS)
        waits = Signal()
        some = Signal()
        one = Signal()
        two = Signal()
        begins = Signal()
        alone = Signal()
        after = Signal(_FLIGHT_BITS)
        m.d.comb += [
            some.eq(more | (count != 0)),
            # At least one, at least two blocks without a decision.
            one.eq(more | (flight < count)),
            two.eq(more | (flight + 1 < count)),
            alone.eq((served.policy == Policy.WIDE) | ((flight == 0) & ~self.batch)),
            begins.eq(self._serves & ((one & alone) | (waits & ~self.batch)) & ~self._at_once),
            after.eq(flight + begins),
            self._moves_on.eq(
                self._serves
                & (
                    ~some
                    | self._passes
                    | (~waits & ~self.batch & ~Mux(begins, two, one) & ~self._stays)
                )
            ),
            self.begins.valid.eq(begins & ~self.flush),
            [self.begins[name].eq(served[name]) for name in served.shape().members],
        ]
        # After a flush with masks, no SM is held any more, and dropped decisions show nothing.
        anew = self.flush if self._config.masked_sms else Const(0)
        waiter = Signal.like(self.ask, name="waiter")
        other = (loads & (self.ask != waiter)) | (self.empty.valid & (self.empty.row == waiter))
        m.d.comb += [
            # In a flush, the failed decision may be for another kernel than the served one.
            self.waits.valid.eq(self._serves & waits & some & served.needs.saves & ~self.flush),
            self.waits.level.eq(served.needs.priority + 1),
        ]
        m.d.sync += flight.eq(Mux(self._moves_on | ~self._serves, 0, after - self._settles))
        with m.If(self.sent.valid | self._passes | anew):
            m.d.sync += waits.eq(0)
        with m.Elif(self.settled.valid & self.failed & ~self._was_passed(self.settled.row)):
            m.d.sync += [waits.eq(1), waiter.eq(self.settled.row)]
        with m.Elif(other):
            m.d.sync += waits.eq(0)

    def _was_passed(self, row: Value) -> Value:
        """Whether a row was passed over."""
        return self._passed.bit_select(row, 1) if self._config.masked_sms else Const(0)

    def _pass(self, m: Module, loads: Signal) -> None:
        """Pass over a kernel that finds no room on its SMs."""
        served = self._served
        m.submodules.passed = passed = PassedKernels(self._config)
        with m.If(self.lost | self._passes):
            m.d.sync += self._stays.eq(1)
        with m.Elif(self.sent.valid & ~passed.holds):
            m.d.sync += self._stays.eq(0)
        m.d.comb += [
            passed.served.row.eq(served.row),
            passed.served.saves.eq(served.needs.saves),
            passed.served.disabled.eq(served.disabled),
            passed.loads.valid.eq(loads),
            passed.loads.row.eq(self.ask),
            passed.opens.valid.eq(self.open.valid),
            passed.opens.row.eq(self.open.row),
            passed.begins.eq(self.begins.valid),
            passed.refused.eq(self._serves & ~self._moves_on & self._settles & self.refused),
            passed.waits.eq(self.waits.valid),
            passed.placing.eq(self.placing),
            passed.idle.eq(~(self._serves | self._walked | self._next.valid | self.batch)),
            passed.sent.valid.eq(self.sent.valid),
            passed.sent.row.eq(self.sent.row),
            passed.grows.eq(self.grows),
            passed.restart.eq(self.restart),
            self._at_once.eq(passed.at_once),
            self._passes.eq(passed.passes),
            self._passed.eq(passed.passed),
            self.again.eq(passed.again),
            self.barred.eq(passed.barred),
        ]
