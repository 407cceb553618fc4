"""Proofs of whose blocks are placed first, on two SMs, for two rows (PLACE-1, PLACE-6)."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat

from hw.config import Config
from hw.work.placement import Placement
from hw.work.records import kernel_needs
from tb.proofs.formal import Assert, Assume, Cover, Inside, Proof, Wrap, anything

__all__ = ["PROOFS"]

CONFIG = Config(
    channels=1, semaphores=8, counters=1, asids=2, slots=4, sms=2,
    sm_warps=2, sm_blocks=2, sm_registers=512, sm_shared=2048,
)  # fmt: skip
MANY = 4
"""A row opens with less blocks than these, and gets less at a time."""


class Whole:
    """The global logic controller, of which the task unit uses rows 0 and 1 as it may.

    left : undistributed blocks of each. open : whether it is. needs : of its blocks. sends : a block
    of it is placed. first : row 0 goes before row 1, if both are open. changes : the task unit asks
    for something.
    """

    def __init__(self, m: Module, wrap: Wrap) -> None:
        self.dut = dut = Placement(CONFIG)
        inside = Inside(dut)
        self._running, self._requests = inside.submodule("running"), inside.submodule("requests")
        self._collect = Inside(self._running).submodule("collect")
        m.submodules.dut = wrap(dut)
        self.left = [Signal(8, name=f"left_{row}") for row in range(2)]
        self.open = [Signal(name=f"is_open_{row}") for row in range(2)]
        self.needs = [Signal(kernel_needs, name=f"needs_{row}") for row in range(2)]
        self._adding, self._stopping = Signal(2), Signal(2)
        sent = self._running.sent
        self.sends = [sent.valid & (sent.row == row) for row in range(2)]
        self._older, self.first, self.changes = Signal(), Signal(), Signal()
        self._ask(m)
        self._sms(m)
        one, other = (needs.priority for needs in self.needs)
        m.d.comb += self.first.eq((one > other) | ((one == other) & self._older))

    def _ask(self, m: Module) -> None:
        port, asks = self.dut.port, self._requests
        streams = {
            "open": (port.open, port.open.p.row), "add": (port.add, port.add.p.row),
            "stop": (port.stop, port.stop.payload), "close": (port.close, port.close.payload),
        }  # fmt: skip
        taken = {}
        for name, (one, row) in streams.items():
            payload = Value.cast(one.payload)
            m.d.comb += [
                one.valid.eq(anything(m, 1, name)),
                payload.eq(anything(m, len(payload), f"{name}_payload")),
                Assume(~one.valid | (row < 2)),
            ]
            taken[name] = one.valid & one.ready
        needs = port.open.p.needs
        m.d.comb += [
            port.stopped.ready.eq(1),
            Assume(~port.open.valid | ((port.open.p.blocks != 0) & (port.open.p.blocks < MANY))),
            Assume(~port.add.valid | ((port.add.p.blocks != 0) & (port.add.p.blocks < MANY))),
            Assume(needs.warps.any() & (needs.warps <= CONFIG.sm_warps)),
            Assume(needs.block_registers <= CONFIG.register_units),
            Assume(needs.registers <= needs.block_registers),
            Assume(needs.shared <= CONFIG.shared_units),
            self.changes.eq(taken["open"] | taken["add"] | taken["stop"] | asks.holds),
        ]
        for row in range(2):
            self._row(m, row, {name: taken[name] & (streams[name][1] == row) for name in taken})

    def _row(self, m: Module, row: int, taken: dict[str, Any]) -> None:
        """What happens to one row, one thing after the other."""
        port, asks, left = self.dut.port, self._requests, self.left[row]
        adding, stopping, is_open = self._adding[row], self._stopping[row], self.open[row]
        changes = asks.change.valid & (asks.empties.row == row)
        others = taken["add"] | taken["stop"] | taken["close"]
        m.d.comb += [
            Assume(~(taken["open"] & is_open) & ~(others & ~is_open)),
            Assume(~((taken["open"] | others) & (adding | stopping))),
            Assume(~taken["close"] | port.drained[row]),
        ]
        m.d.sync += [
            is_open.eq((is_open | taken["open"]) & ~taken["close"]),
            adding.eq((adding | taken["add"]) & ~changes),
            stopping.eq((stopping | taken["stop"]) & ~(port.stopped.valid)),
        ]
        with m.If(taken["open"]):
            m.d.sync += [
                left.eq(port.open.p.blocks),
                self.needs[row].eq(port.open.p.needs),
                self._older.eq(row == 1),
            ]
        with m.Elif(changes):
            m.d.sync += left.eq(asks.change.count)
        with m.Elif(self.sends[row]):
            m.d.sync += left.eq(left - 1)

    def _sms(self, m: Module) -> None:
        """SMs give back what they have, at any moment."""
        ends = [[], []]
        for n, (row, link) in enumerate(zip(self.dut.rows, self.dut.sm, strict=True)):
            for port, name in (
                (link.freed, "freed"), (link.highest, "highest"), (link.received, "received"),
                (link.block.ready, "ready"), (link.ended.payload, "end_of"),
                (link.ended.valid, "ended"),
            ):  # fmt: skip
                value = Value.cast(port)
                m.d.comb += value.eq(anything(m, len(value), f"{name}_{n}"))
            freed, blocks = link.freed, row.blocks - link.block.valid
            m.d.comb += [
                Assume(~freed.block | (blocks != 0)),
                Assume(~link.ended.valid | (link.ended.payload < 2)),
            ]
            for left, size, free in (
                (row.registers, CONFIG.register_units, freed.registers),
                (row.warps, CONFIG.sm_warps, freed.warps),
                (row.shared, CONFIG.shared_units, freed.shared),
            ):
                held = size - left - free
                m.d.comb += Assume((held >= 0) & (held <= size * (blocks - freed.block)))
            for one in range(2):
                ends[one].append(link.ended.valid & (link.ended.payload == one))
        collected = self._collect.o
        for one in range(2):
            going = sum(ends[one]) + (collected.valid & (collected.payload == one))
            m.d.comb += Assume(self._running.counts[one] >= going)


class PriorityProof(Proof):
    name = "work.priority"
    shows = (
        "no block of a row is placed while another one of higher priority, or of equal priority "
        "and older, has undistributed blocks: as many as 0 pass it"
    )
    bounded = 13
    cover = 13
    breaks = ("freeze",)
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        whole = Whole(m, wrap)
        before = (whole.first, ~whole.first)
        for row, goes_first in enumerate(before):
            waits = whole.open[row] & (whole.left[row] != 0)
            m.d.comb += Assert(~(whole.sends[1 - row] & waits & goes_first))
        m.d.comb += Cover(whole.sends[1] & ~whole.first & (whole.left[0] != 0) & whole.open[0])


PROOFS = [PriorityProof()]
