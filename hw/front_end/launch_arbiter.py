"""Arbiter of launches by channels, ending tasks, and blocks (HOST-9, HOST-10, NEST-10)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.qmd import DependentAction, SkedCheck
from signalbox.hw.records.launch import (
    LaunchAction,
    child_answer,
    child_launch,
    task_action,
    task_completed,
    task_failure,
    task_launch,
    task_launched,
    task_refused,
    task_verdict,
)
from signalbox.hw.records.nested import block_family
from signalbox.hw.records.placement import task_pointer

__all__ = ["LaunchArbiter"]

_ACTIONS = {
    DependentAction.INCREMENT_PUT: LaunchAction.INCREMENT_PUT,
    DependentAction.SCHEDULE: LaunchAction.SCHEDULE,
    # SCHEDULE, as there is no QMD cache to invalidate or copy to.
    DependentAction.INVALIDATE_COPY_SCHEDULE: LaunchAction.SCHEDULE,
    DependentAction.DECREMENT_DEPENDENCE: LaunchAction.DECREMENT_DEPENDENCE,
}


class LaunchArbiter(wiring.Component):
    """Forwards launches to the task unit one at a time, alternating between channels and ending
    tasks, and, with nested launches, between these two and blocks.

    Every accepted task is reported once, as complete or failed, unless `TaskUnit` has lost it. No
    channel waits for the response to a dependent action, so its result is reported, too: as failed
    if it is refused; as complete if it launches nothing, which is so when the task still has
    dependences or only gets a queue entry.

    Members
    -------
    channel : in, launches by channels.
    answer : out, strobe: result of a channel's launch; before the next one is accepted.
    act : in, action of an ending task on its dependent task.
    launch : out, to the task unit.
    launched : in, from the task unit.
    failed : in, tasks that were given up; see `TaskUnit`.
    completed : in, completed tasks; see `TaskEnd`.
    began : out, strobe: a dependent task is launched; never together with `answer`, nor with the
        acceptance of a channel's launch.
    over : out, reports of tasks: complete, failed, or refused as a dependent task.
    calm : out, no launch is in progress.
    idle : out, like `calm`, and no launch is offered and no task awaits its report.

    With nested launches
    --------------------
    child : in, launches by blocks.
    child_answer : out, strobe: result of such a launch; before the next one is accepted.
    block : in, with `launched` of a child: the family of the launching block.
    task : in, with `launched` of a child: the child, see `TaskUnit`.
    parent : in, 32 bits, with `launched` of a child: page of the record of its parent, see
        `TaskUnit`.
    began : out, also strobes for an accepted child, with `child_answer`.
    refused : out, strobe, with `child_answer`: the child was refused; for the registers.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nested = {
            "child": In(stream.Signature(child_launch(config))),
            "child_answer": Out(child_answer(config)),
            "block": In(block_family(config)),
            "task": In(task_pointer),
            "parent": In(32),
            "refused": Out(task_refused),
        }
        super().__init__({
            **(nested if config.nested else {}),
            "channel": In(stream.Signature(task_launch(config))),
            "answer": Out(task_launched),
            "act": In(stream.Signature(task_action(config))),
            "launch": Out(stream.Signature(task_launch(config))),
            "launched": In(task_launched),
            "failed": In(stream.Signature(task_failure(config))),
            "completed": In(stream.Signature(task_completed)),
            "over": Out(stream.Signature(task_completed)),
            "calm": Out(1),
            "idle": Out(1),
            "began": Out(data.StructLayout({"valid": 1, "task": task_pointer})),
        })
        self._act = Signal()
        self._child = Signal(name="is_child") if config.nested else Const(0)
        """The current or last launch is by an ending task (`_act`); by a block (`_child`)."""
        self._verdict = Signal(task_verdict)
        self._from = Signal(task_launch(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        act, channel, launched = self.act, self.channel, self.launched
        m.d.comb += [
            self.launch.p.eq(self._from),
            self.answer.verdict.eq(launched.verdict),
            self.answer.nothing.eq(launched.nothing),
            self.began.task.eq(act.p.task),
        ]
        bears = self._bear(m, act.valid | channel.valid)
        none = Signal()
        told = Signal()
        acts = Signal()
        self._tell(m, none, told)
        action, known = _action_of(m, act.p.action)
        with m.FSM(name="launches") as fsm:
            with m.State("IDLE"):
                m.d.comb += [
                    acts.eq(act.valid & ~(channel.valid & self._act) & ~bears),
                    act.ready.eq(acts),
                    channel.ready.eq(~(acts | bears)),
                    self.began.valid.eq(acts),
                ]
                with m.If(~bears):
                    m.d.sync += self._act.eq(Mux(acts | channel.valid, acts, self._act))
                if self._config.nested:
                    self._take_child(m, bears, act.valid | channel.valid)
                with m.If(bears):
                    m.next = "LAUNCH"
                with m.Elif(acts):
                    m.d.sync += [
                        self._from.task.eq(act.p.task),
                        self._from.context.eq(act.p.context),
                        self._from.action.eq(action),
                        self._from.span.count.eq(1),
                        self._from.span.behind.eq(1),
                    ]
                with m.Else():
                    m.d.sync += self._from.eq(channel.p)
                with m.If(acts & ~known):
                    m.d.sync += [
                        self._verdict.refusal.eq(Refusal.MODEL),
                        self._verdict.check.eq(SkedCheck.NONE),
                    ]
                    m.next = "OVER"
                with m.Elif((act.valid | channel.valid) & ~bears):
                    m.next = "LAUNCH"
            with m.State("LAUNCH"):
                m.d.comb += self.launch.valid.eq(1)
                with m.If(self.launch.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += self.answer.valid.eq(launched.valid & ~self._act & ~self._child)
                m.d.sync += self._verdict.eq(launched.verdict)
                with m.If(launched.valid):
                    m.next = "IDLE"
                    refused = launched.verdict.refusal != Refusal.NONE
                    if self._config.nested:
                        self._answer_child(m, refused)
                    with m.If(self._act & ~self._child & (refused | launched.nothing)):
                        m.next = "OVER"
            with m.State("OVER"):
                m.d.comb += none.eq(1)
                with m.If(told):
                    m.next = "IDLE"
        offered = act.valid | channel.valid | self.over.valid
        if self._config.nested:
            offered |= self.child.valid
        m.d.comb += [self.calm.eq(fsm.ongoing("IDLE")), self.idle.eq(self.calm & ~offered)]
        return m

    def _bear(self, m: Module, others: Value) -> Value:
        """Whether a launch by a block is next; never twice in a row while other launches wait."""
        if not self._config.nested:
            return Const(0)
        bears = Signal(name="bears")
        m.d.comb += bears.eq(self.child.valid & ~(others & self._child))
        return bears

    def _take_child(self, m: Module, bears: Value, others: Value) -> None:
        child = self.child
        m.d.comb += child.ready.eq(bears)
        m.d.sync += self._child.eq(Mux(bears | others, bears, self._child))
        with m.If(bears):
            m.d.sync += [
                self._from.eq(0),
                self._from.task.page.eq(child.p.page),
                self._from.row.eq(child.p.row),
                self._from.block.eq(child.p.block),
                self._from.has_place.eq(child.p.has_place),
                self._from.action.eq(LaunchAction.CHILD),
            ]

    def _answer_child(self, m: Module, refused: Value) -> None:
        answer = self.child_answer
        m.d.comb += [
            answer.valid.eq(self._child),
            answer.verdict.eq(self.launched.verdict),
            answer.block.eq(self.block),
            self.refused.valid.eq(self._child & refused),
            self.refused.task.eq(self.task),
            self.refused.verdict.eq(self.launched.verdict),
            self.refused.parent.eq(self.parent),
        ]
        with m.If(self._child):
            m.d.comb += [self.began.valid.eq(~refused), self.began.task.eq(self.task)]

    def _tell(self, m: Module, none: Signal, told: Signal) -> None:
        """Report tasks, one at a time."""
        m.submodules.turns = turns = SteadyRoundRobin(3)
        over, failed, completed = self.over, self.failed, self.completed
        m.d.comb += [
            turns.requests.eq(Cat(none, failed.valid, completed.valid)),
            turns.advance.eq(over.ready),
            over.valid.eq(turns.requests.any()),
            told.eq(over.ready & turns.grant[0]),
            failed.ready.eq(over.ready & turns.grant[1]),
            completed.ready.eq(over.ready & turns.grant[2]),
        ]
        with m.If(turns.grant[0]):
            m.d.comb += [over.p.task.eq(self._from.task), over.p.verdict.eq(self._verdict)]
        with m.Elif(turns.grant[1]):
            m.d.comb += [over.p.task.eq(failed.p.task), over.p.verdict.eq(failed.p.verdict)]
        with m.Else():
            m.d.comb += over.p.eq(completed.p)


def _action_of(m: Module, dependent: Value) -> tuple[Signal, Signal]:
    """The launch action of a dependent action, and whether it is supported."""
    action = Signal(LaunchAction)
    known = Signal()
    with m.Switch(dependent):
        for one, launch in _ACTIONS.items():
            with m.Case(one):
                m.d.comb += [action.eq(launch), known.eq(1)]
    return action, known
