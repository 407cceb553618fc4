"""Proof of the launch of children by the task unit (NEST-10, NEST-11)."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat
from amaranth.lib import data

from signalbox.hw.config import NESTING
from signalbox.hw.errors import Refusal
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.records.nested import kernel_kin
from signalbox.hw.task_unit.task_lists import ListOutcome
from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    surround,
)
from signalbox.tb.proofs.kernel_ends import CONFIG
from signalbox.tb.proofs.task_unit import PARTS

__all__ = ["PROOFS"]

_CHOICES = ("choice", "levels", "limits", "sweep", "filter")
_BEFORE = ("PARENT", "ADOPT")
_BEARS = ("RESERVE", "RESERVED", "BEAR", "BORN")
_GOES = ("READ", "CHECK", "WORDS", "OPEN", "PUSH", "PUSHED")
_REFUSED = ("FAIL", "DISOWN")


class ChildLaunchProof(Proof):
    """Follows any launch of a child to its outcome. Unconstrained: the choice of jobs, slots,
    lists, the kernel tree, memory and the contents of records. `parent` is the entry of the
    launching kernel's row."""

    name = "task_unit.child_launch"
    shows = (
        "a child goes to a list or into a slot with address space, channel and epoch of its "
        "parent, its level plus 1 and its depth plus 1, which is within the limit; its launch is "
        "refused as too deep if that is not, and answered once; a refused child is in no list or "
        "slot, and its place in the kernel tree is given back"
    )
    induction = 3
    cover = 9

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = TaskUnit(CONFIG)
        self._inside = inside = Inside(dut)
        inside.abstract(*PARTS, *_CHOICES, "kins")
        self._state = inside.machine("task")
        parent = inside.submodule("tasks").read_port(domain="comb")
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut", but=("read", "write", "nesting"))
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
        self._born = Signal(kernel_kin(CONFIG), name="born")
        """Place of the child in the kernel tree, until the child is launched or the place is given
        back."""
        self._reserved = Signal(name="reserved_place")
        """Whether a save place is reserved for the launching block."""
        self._verdict = dut.launched.verdict.refusal
        self._depth(m)
        self._inherit(m)
        self._trace(m)
        self._ways(m)

    def _is(self, *states: str) -> Value:
        """Whether the task unit is in one of these states."""
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
        """Properties that a child inherits from its parent."""
        dut, parent, lists = self._dut, self._parent, self._inside.submodule("lists")
        level, push = parent.level + 1, lists.push.p
        with m.If(self._bears & self._is(*_BEARS, *_GOES)):
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

    def _trace(self, m: Module) -> None:
        """The place of a child in the kernel tree is passed on with it, or given back once. The
        save place reserved for its parent's block is kept only if the block has a family."""
        dut, inside, bears = self._dut, self._inside, self._bears
        kins, lists, born = inside.submodule("kins"), inside.submodule("lists"), self._born
        answered, accepted = dut.launched.valid & bears, Signal(name="accepted")
        pushed = lists.pushed.valid & self._is("PUSHED")
        enters = inside.submodule("slots").opened.valid | (
            pushed & (lists.pushed.outcome == ListOutcome.DONE)
        )
        gives_back = dut.disowned.valid & dut.disowned.ready
        m.d.comb += [
            accepted.eq(answered & (dut.launched.verdict.refusal == Refusal.NONE)),
            Assert(accepted == (enters & bears)),
            Assert(~dut.disowned.valid | (born.known & ~self._asked)),
            Assert(~dut.disowned.valid | (dut.disowned.payload == born.kernel)),
            Assert(~kins.birth.valid | (self._asked & ~born.known)),
            Assert(~dut.port.release | self._reserved),
            Assert(~(self._reserved & answered) | born.known),
            Cover(gives_back),
            Cover(dut.port.release),
        ]
        with m.If(self._is("BORN") & kins.born.valid):
            m.d.sync += born.eq(kins.born.child)
        with m.If(accepted | gives_back):
            m.d.sync += born.eq(0)
        with m.If(self._is("RESERVED")):
            m.d.sync += self._reserved.eq(dut.port.reserved)
        with m.If(dut.port.release | answered):
            m.d.sync += self._reserved.eq(0)

    def _ways(self, m: Module) -> None:
        """Invariants of each state."""
        inside, bears, depth = self._inside, self._bears, self._parent.task.depth
        row, refusal = inside.submodule("kins").row, self._dut.launched.verdict.refusal
        deep = (depth >= self._dut.nesting) | (depth >= NESTING)
        undone = inside.signal("wakes") | inside.signal("counted") | inside.signal("holds")
        m.d.comb += [
            Assert(~self._is(*_BEFORE) | bears),
            Assert(~bears | self._is(*_BEFORE, *_BEARS, *_GOES, *_REFUSED, "IDLE")),
            Assert(~self._is(*_BEARS) | bears),
            Assert(~(bears & ~self._is("IDLE")) | ((row == self._row) & ~undone)),
            Assert(~(bears & self._is("FAIL")) | ((refusal == Refusal.DEPTH) == deep)),
            Assert(~(bears & self._is(*_BEFORE, *_BEARS, *_GOES)) | (refusal != Refusal.DEPTH)),
            Assert(~self._is("PARENT") | (self._dut.task.page == self._page)),
        ]
        self._places(m)

    def _is_born(self, kin: data.View) -> Value:
        """Whether `kin` is the place of the child, if it has one."""
        born = self._born
        return (kin.known == born.known) & (~born.known | (kin.kernel == born.kernel))

    def _places(self, m: Module) -> None:
        """Places of the child in the kernel tree, and of the launching block."""
        inside, bears, born = self._inside, self._bears, self._born
        kin, has_place = inside.signal("kin", kernel_kin(CONFIG)), inside.signal("has_place")
        busy, birth = bears & ~self._is("IDLE"), self._is("BEAR", "BORN")
        launches = inside.signal("launches")
        going = self._is(*_BEFORE, *_BEARS, *_GOES)
        opened, pushed = inside.submodule("kins").opened, inside.submodule("lists").push.p
        m.d.comb += [
            Assert(~busy | self._is_born(kin)),
            Assert(busy | ~born.known),
            Assert(~launches | bears | self._is("IDLE") | ~kin.known),
            Assert(~launches | ~self._is("POP", "POPPED", "LOOK", "KNOW", "SCAN", "SCANNED")),
            Assert(~self._is("DISOWN") | bears),
            Assert(~(busy & self._is(*_GOES, "DISOWN")) | born.known),
            Assert(~self._is(*_BEFORE, *_BEARS) | ~born.known),
            Assert(~(opened.valid & bears) | self._is_born(opened.kin)),
            Assert(~(self._is("PUSH") & bears) | self._is_born(pushed.second.kin)),
            Assert(busy | ~self._reserved),
            Assert(~birth | (self._reserved != has_place)),
            Assert(~(busy & self._is(*_BEFORE, "RESERVE", "RESERVED", "DISOWN")) | ~self._reserved),
            Assert(~self._is("RESERVE", "RESERVED") | ~has_place),
            Assert(~(self._reserved & self._is("FAIL")) | born.known),
            Assert(~(bears & self._is(*_REFUSED)) | (self._verdict != Refusal.NONE)),
            Assert(~(bears & going & ~self._is("CHECK")) | (self._verdict == Refusal.NONE)),
        ]


PROOFS = [ChildLaunchProof()]
