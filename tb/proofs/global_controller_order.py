"""Proof of the order in which blocks of two rows are placed, on two SMs (PLACE-1, PLACE-6)."""

from typing import Any

from amaranth import Module, Mux, Signal, Value

from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.records.placement import PRIORITY_BITS
from signalbox.tb.proofs.formal import Assert, Assume, Inside, Proof, Wrap, anything
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]


class Kernels:
    """The global logic controller, with rows 0 and 1 in use.

    Decisions may have any result, as the SM table and the choice are unconstrained. The table of
    block counts is replaced by its properties shown by `placement.blocks`. Rows get up to 3 blocks
    at a time, and do not close.

    Attributes
    ----------
    left : undistributed blocks of each row.
    open : whether each row is open.
    sends : whether a block of each row is placed.
    first : row 0 precedes row 1, if both are open.
    changes : the task unit makes a request.
    """

    def __init__(self, m: Module, wrap: Wrap) -> None:
        self.dut = dut = GlobalController(TWO_SMS)
        inside = Inside(dut)
        inside.abstract(*(f"row_{sm}" for sm in range(TWO_SMS.sms)), "choice", "numbering")
        self._running, self._requests = inside.submodule("running"), inside.submodule("requests")
        m.submodules.dut = wrap(dut)
        self.left = [Signal(4, name=f"left_{row}") for row in range(2)]
        self.after = [Signal(4, name=f"left_after_{row}") for row in range(2)]
        self.open = [Signal(name=f"is_open_{row}") for row in range(2)]
        self._levels = [Signal(PRIORITY_BITS, name=f"level_{row}") for row in range(2)]
        self._adds, self._adding, self._stopping = Signal(4), Signal(2), Signal(2)
        self._opened = Signal(2, name="opened")
        sent = self._running.sent
        self.sends = [sent.valid & (sent.row == row) for row in range(2)]
        self._older, self.first, self.changes = Signal(), Signal(), Signal()
        self._ask(m)
        self._count(m)
        for n, link in enumerate(dut.sm):
            m.d.comb += link.block.ready.eq(anything(m, 1, f"ready_{n}"))
        one, other = self._levels
        m.d.comb += self.first.eq((one > other) | ((one == other) & self._older))

    def _ask(self, m: Module) -> None:
        port, asks = self.dut.port, self._requests
        streams = {
            "open": (port.open, port.open.p.row), "add": (port.add, port.add.p.row),
            "stop": (port.stop, port.stop.payload),
        }  # fmt: skip
        taken = {}
        for name, (one, row) in streams.items():
            m.d.comb += [one.valid.eq(anything(m, 1, name)), row.eq(anything(m, 1, f"{name}_row"))]
            taken[name] = one.valid & one.ready
        opens = port.open.p
        m.d.comb += [
            opens.needs.priority.eq(anything(m, 1, "priority")),
            opens.policy.eq(anything(m, 1, "policy")),
            opens.blocks.eq(anything(m, 2, "blocks")),
            port.add.p.blocks.eq(anything(m, 2, "more")),
        ]
        m.d.comb += [
            port.stopped.ready.eq(1),
            Assume((opens.blocks != 0) & (port.add.p.blocks != 0)),
            self.changes.eq(taken["open"] | asks.holds),
        ]
        with m.If(taken["add"]):
            m.d.sync += self._adds.eq(port.add.p.blocks)
        for row in range(2):
            self._row(m, row, {name: taken[name] & (streams[name][1] == row) for name in taken})

    def _row(self, m: Module, row: int, taken: dict[str, Any]) -> None:
        """Events of one row, one at a time."""
        port, asks, left, after = self.dut.port, self._requests, self.left[row], self.after[row]
        adding, stopping, is_open = self._adding[row], self._stopping[row], self.open[row]
        changes = asks.change.valid & (asks.empties.row == row)
        others = taken["add"] | taken["stop"]
        m.d.comb += [
            Assume(~(taken["open"] & is_open) & ~(others & ~is_open)),
            Assume(~((taken["open"] | others) & (adding | stopping))),
            Assume(~taken["add"] | (left < 4)),
            after.eq(left - self.sends[row]),
        ]
        m.d.sync += [
            left.eq(after),
            is_open.eq(is_open | taken["open"]),
            adding.eq((adding | taken["add"]) & ~changes),
            stopping.eq((stopping | taken["stop"]) & ~port.stopped.valid),
            self._opened[row].eq(taken["open"]),
        ]
        with m.If(taken["open"]):
            m.d.comb += after.eq(port.open.p.blocks)
            m.d.sync += [
                self._levels[row].eq(port.open.p.needs.priority),
                self._older.eq(row == 1),
            ]
        with m.Elif(changes):
            m.d.comb += after.eq(Mux(adding, left + self._adds, 0))

    def _count(self, m: Module) -> None:
        """Outputs of the table of block counts for the two rows; it is not written while a row
        opens (see `placement.block_numbers`)."""
        numbering, looked = self.dut.numbering, Signal(3)
        writes = numbering.take | numbering.change.valid
        m.d.sync += looked.eq(numbering.ahead)
        for row, left in enumerate(self.left):
            known, since = self.open[row] & ~self._opened[row], Signal(3, name=f"since_{row}")
            opens = self._opened[row]
            m.d.sync += since.eq(Mux(opens, 2, since + (since.any() & ~since.all())))
            m.d.comb += [
                Assert(~(writes & (looked == row)) | ~opens),
                Assert(~(writes & (looked == row)) | ~since.any() | (since > 3)),
                Assume(~((looked == row) & known) | (numbering.empty == (left == 0))),
                Assume(~((looked == row) & known) | (numbering.last == (left == 1))),
                Assume(~(self.open[row] & (numbering.ask == row)) | (numbering.asked == left)),
            ]


PATIENCE = 6
"""Maximum number of cycles without a decision on a block of the first row, with two SMs."""


class PriorityProof(Proof):
    """It follows that among equal priorities no kernel starves. Blocks of younger kernels do not
    overtake the kernel, and as soon as an SM qualifies, one of its blocks is placed there.
    `placement.commit` shows that decisions succeed."""

    name = "placement.priority"
    shows = (
        "no block of a row is placed while another one of higher priority, or of equal priority "
        "and older, has undistributed blocks; the row that goes first has a decision at least "
        f"every {PATIENCE + 1} cycles while the task unit asks for nothing"
    )
    bounded = 11
    breaks = ("freeze",)
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        whole = Kernels(m, wrap)
        before = (whole.first, ~whole.first)
        for row, goes_first in enumerate(before):
            waits = whole.open[row] & (whole.left[row] != 0)
            m.d.comb += Assert(~(whole.sends[1 - row] & waits & goes_first))
            other = whole.open[1 - row] & (whole.left[1 - row] != 0)
            self._decides(m, whole, row, waits & (goes_first | ~other))

    @staticmethod
    def _decides(m: Module, whole: Kernels, row: int, first: Value) -> None:
        """Decisions on a row come soon."""
        decided, settled = whole.dut.kernels.settled, Signal(name=f"settles_{row}")
        cycles = Signal(4, name=f"undecided_{row}")
        m.d.comb += settled.eq((decided.valid & (decided.row == row)) | whole.sends[row])
        m.d.sync += cycles.eq(Mux(first & ~settled & ~whole.changes, cycles + 1, 0))
        m.d.comb += Assert(cycles <= PATIENCE)


PROOFS = [PriorityProof()]
