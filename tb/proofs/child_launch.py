"""Proof of the launch of children by the task unit (NEST-10, NEST-11)."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat
from amaranth.lib.wiring import In

from signalbox.hw.config import NESTING
from signalbox.hw.errors import Refusal
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
)
from signalbox.tb.proofs.kernel_ends import CONFIG
from signalbox.tb.proofs.task_unit import PARTS

__all__ = ["PROOFS"]

_CHOICES = ("choice", "levels", "limits", "sweep", "filter")
_BEFORE = ("PARENT", "ADOPT")
_AFTER = ("RESERVE", "RESERVED", "BEAR", "BORN", "READ", "CHECK", "WORDS", "OPEN", "PUSH", "PUSHED")
_REFUSED = ("FAIL", "DISOWN")


class ChildLaunchProof(Proof):
    """Choice of jobs, slots, lists, the kernel tree, memory and the contents of records are
    unconstrained. `parent` is the entry of the launching kernel's row."""

    name = "task_unit.child_launch"
    shows = (
        "a child goes to a list or into a slot with address space, channel and epoch of its "
        "parent, its level plus 1 and its depth plus 1, which is within the limit; its launch is "
        "refused as too deep if that is not, and answered once"
    )
    induction = 3
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = TaskUnit(CONFIG)
        self._inside = inside = Inside(dut)
        inside.abstract(*PARTS, *_CHOICES, "kins")
        self._state = inside.machine("task")
        parent = inside.submodule("tasks").read_port(domain="comb")
        m.submodules.dut = wrap(dut)
        for path, member, signal in dut.signature.flatten(dut):
            if member.flow is In and path[0] not in ("read", "write", "nesting"):
                arbitrary(m, signal, "_".join(map(str, path)))
        m.d.comb += dut.nesting.eq(AnyConst(len(dut.nesting)))
        self._row, self._page = Signal(CONFIG.row_bits, name="row"), Signal(32, name="page")
        m.d.comb += [
            parent.addr.eq(self._row),
            Assume(dut.launch.p.row < CONFIG.rows),
            Assert(self._row < CONFIG.rows),
        ]
        self._asked = Signal(name="asked")
        with m.If(dut.launched.valid):
            m.d.sync += self._asked.eq(0)
        with m.If(dut.launch.ready):
            m.d.sync += self._asked.eq(dut.launch.p.action == LaunchAction.CHILD)
            m.d.sync += [self._row.eq(dut.launch.p.row), self._page.eq(dut.launch.p.task.page)]
        self._parent = parent.data
        self._bears = inside.signal("launches") & (
            inside.signal("action", LaunchAction) == LaunchAction.CHILD
        )
        self._depth(m)
        self._inherit(m)
        self._ways(m)

    def _is(self, *states: str) -> Value:
        """The task unit is in one of these states."""
        return self._state.ongoing(*states)

    def _depth(self, m: Module) -> None:
        """The answer to the launch."""
        dut, lists = self._dut, self._inside.submodule("lists")
        depth, refusal = self._parent.task.depth, dut.launched.verdict.refusal
        limit = Mux(dut.nesting < NESTING, dut.nesting, NESTING)
        answered = dut.launched.valid & self._bears
        given = Cat(dut.port.open.valid, lists.push.valid) & self._bears.replicate(2)
        m.d.comb += [
            Assume(self._inside.submodule("metadata").verdict.refusal != Refusal.DEPTH),
            Assert(~answered | self._asked),
            Assert(self._asked == (self._bears & ~self._is("IDLE", "DISOWN"))),
            Assert(~answered | ((refusal == Refusal.DEPTH) == (depth >= limit))),
            Assert(~given.any() | ((dut.task.depth == depth + 1) & (dut.task.depth <= limit))),
            Cover(answered & (refusal == Refusal.NONE) & dut.port.open.valid),
            Cover(answered & (refusal == Refusal.DEPTH)),
        ]

    def _inherit(self, m: Module) -> None:
        """What a child has from its parent."""
        dut, parent, lists = self._dut, self._parent, self._inside.submodule("lists")
        level, push = parent.level + 1, lists.push.p
        with m.If(self._bears & self._is(*_AFTER)):
            m.d.comb += [
                Assert(dut.task.page == self._page),
                [
                    Assert(dut.task[name] == parent.task[name])
                    for name in ("asid", "channel", "epoch")
                ],
                Assert(dut.task.depth == parent.task.depth + 1),
                Assert(dut.task.depth <= Mux(dut.nesting < NESTING, dut.nesting, NESTING)),
                Assert(~(dut.task.is_queue | dut.task.saved | dut.task.resumed)),
                Assert(dut.port.open.p.needs.priority == level[: CONFIG.level_bits]),
                Assert(push.where.level == level[: CONFIG.level_bits]),
                Assert(push.task.as_value() == dut.task.as_value()),
            ]

    def _ways(self, m: Module) -> None:
        """What is known in each state."""
        inside, bears, depth = self._inside, self._bears, self._parent.task.depth
        row, refusal = inside.submodule("kins").row, self._dut.launched.verdict.refusal
        deep = (depth >= self._dut.nesting) | (depth >= NESTING)
        undone = inside.signal("wakes") | inside.signal("counted") | inside.signal("holds")
        m.d.comb += [
            Assert(~self._is(*_BEFORE) | bears),
            Assert(~bears | self._is(*_BEFORE, *_AFTER, *_REFUSED, "IDLE")),
            Assert(~self._is("RESERVE", "RESERVED", "BEAR", "BORN") | bears),
            Assert(~(bears & ~self._is("IDLE")) | ((row == self._row) & ~undone)),
            Assert(~(bears & self._is("FAIL")) | ((refusal == Refusal.DEPTH) == deep)),
            Assert(~(bears & self._is(*_BEFORE, *_AFTER)) | (refusal != Refusal.DEPTH)),
            Assert(~self._is("PARENT") | (self._dut.task.page == self._page)),
        ]


PROOFS = [ChildLaunchProof()]
