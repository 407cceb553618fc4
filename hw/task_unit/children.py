"""Task unit: accepts or refuses tasks that kernels launch (NEST-10)."""

from typing import Any

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import connect, flipped

from signalbox.hw.config import NESTING
from signalbox.hw.errors import Refusal
from signalbox.hw.records.launch import KILLED
from signalbox.hw.task_unit.kin_table import KinTable
from signalbox.hw.task_unit.parts import JobStates
from signalbox.hw.task_unit.qmd_writes import Stored

__all__ = ["Children", "linked"]


class Children(JobStates):
    """Accepts or refuses the launch of a child: checks the parent, reserves a save place, and gets
    a node in the kernel tree. Writes the page of the parent's QMD into the QMD of an accepted
    child.

    Attributes
    ----------
    kins : the `KinTable`: kernel-tree node of each row's kernel.
    has_place : the launching block has a save place, or one is reserved for it.
    """

    def __init__(self, *shared: Any) -> None:
        super().__init__(*shared)
        self.kins, self.has_place = KinTable(self._config), Signal(name="has_place")
        link = {"child": 32, "asid": self._config.asid_bits, "parent": 32}
        self._link, self._links = Signal(data.StructLayout(link), name="link"), Signal(name="links")
        """Pages of a child and its parent, to be written into the child's QMD."""
        self._linking = Signal(data.StructLayout({"valid": 1, "child": 32}), name="linking")
        """The write of the parent into the QMD at page `child` is in progress."""

    def wire(self, m: Module) -> None:
        unit, parts, job = self._unit, self._parts, self._job
        m.submodules.kins = kins = self.kins
        opened = parts.slots.opened
        m.d.comb += [
            kins.row.eq(job.row),
            kins.opened.valid.eq(opened.valid),
            kins.opened.row.eq(opened.row),
            kins.opened.kin.eq(job.kin),
            kins.birth.payload.eq(unit.block),
            kins.told.eq(unit.told),
            unit.failed.p.kin.eq(job.kin),
            unit.disowned.payload.eq(job.kin.kernel),
        ]
        connect(m, kins.tree, flipped(unit.tree))

    def link(self, m: Module, stores: Value) -> None:
        """Write the parent's page into the QMD of an accepted child, unless the job in progress
        `stores` a field."""
        unit, parts, job = self._unit, self._parts, self._job
        link, request = self._link, parts.stores.request
        m.d.comb += parts.stores.parent.eq(link.parent)
        with m.If(parts.stores.answer.valid):
            m.d.sync += self._linking.valid.eq(0)
        with m.If(~stores):
            m.d.comb += [
                request.valid.eq(self._links),
                request.p.what.eq(Stored.PARENT),
                request.p.asid.eq(link.asid),
                request.p.page.eq(link.child),
            ]
            with m.If(self._links & request.ready):
                m.d.sync += [
                    self._links.eq(0),
                    self._linking.valid.eq(1),
                    self._linking.child.eq(link.child),
                ]
        with m.If(unit.launched.valid & job.bears & (job.verdict.refusal == Refusal.NONE)):
            m.d.sync += [
                self._links.eq(1),
                link.child.eq(job.task.page),
                link.asid.eq(job.task.asid),
                link.parent.eq(unit.parent),
            ]

    @property
    def linked(self) -> Value:
        """Whether the parent of the task has been written, or there is none."""
        page, under_way = self._job.task.page, self._linking
        waits = self._links & (self._link.child == page)
        return ~(waits | (under_way.valid & (under_way.child == page)))

    def states(self, m: Module, kept: data.View) -> None:
        """A kernel launches a child. The child gets a node in the kernel tree, and gives it back if
        it is refused later (DISOWN). A save place is reserved with the first child of a block, so
        that the block can leave its SM while it waits for the child (NEST-12)."""
        unit, parts, job = self._unit, self._parts, self._job
        kins, parent, page = self.kins, kept.task, job.task.page
        with m.State("PARENT"):
            with m.If(~self._links):
                m.next = "ADOPT"
        with m.State("ADOPT"):
            m.d.sync += [
                unit.parent.eq(parent.page),
                job.task.eq(0),
                job.task.page.eq(page),
                [job.task[name].eq(parent[name]) for name in ("asid", "channel", "epoch")],
                job.task.depth.eq(parent.depth + 1),
                job.level.eq(kept.level + 1),
                job.context.eq(unit.context),
            ]
            m.next = "FAIL"
            with m.If((parent.depth >= unit.nesting) | (parent.depth >= NESTING)):
                m.d.sync += job.verdict.refusal.eq(Refusal.DEPTH)
            with m.Elif(parts.slots.kill.bit_select(job.row, 1)):
                m.d.sync += job.verdict.eq(KILLED)
            with m.Elif(parent.is_queue):
                m.d.sync += job.verdict.refusal.eq(Refusal.MODEL)
            with m.Else():
                m.next = "BEAR"
                with m.If(~self.has_place):
                    m.next = "RESERVE"
        with m.State("RESERVE"):
            m.d.comb += unit.port.reserve.eq(1)
            m.next = "RESERVED"
        with m.State("RESERVED"):
            m.next = "BEAR"
            with m.If(~unit.port.reserved):
                m.d.sync += job.verdict.refusal.eq(Refusal.ROOM)
                m.next = "FAIL"
        with m.State("BEAR"):
            m.d.comb += kins.birth.valid.eq(1)
            with m.If(kins.birth.ready):
                m.next = "BORN"
        with m.State("BORN"):
            with m.If(kins.born.valid):
                m.d.sync += [job.kin.eq(kins.born.child), unit.block.eq(kins.born.block)]
                m.next = "READ"
                with m.If(~kins.born.child.known):
                    m.d.comb += unit.port.release.eq(~self.has_place)
                    m.d.sync += job.verdict.refusal.eq(Refusal.ROOM)
                    m.next = "FAIL"
        with m.State("DISOWN"):
            m.d.comb += unit.disowned.valid.eq(1)
            with m.If(unit.disowned.ready):
                m.next = "IDLE"


def linked(children: Children | None) -> Value:
    """Whether the parent of the task has been written, or there is none."""
    return children.linked if children else Const(1)
