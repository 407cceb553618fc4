"""State of the task unit's job in progress."""

from amaranth.hdl import Const, Module, Signal, Value

from signalbox.hw.config import Config
from signalbox.hw.records.launch import LaunchAction, task_verdict
from signalbox.hw.records.nested import kernel_kin
from signalbox.hw.records.placement import queue_span, task_pointer, task_saved
from signalbox.hw.task_unit.qmd_writes import Stored

__all__ = ["JobState"]


class JobState:
    """Registers that the states of the task unit's machine share.

    Attributes
    ----------
    task : the task being processed.
    context, level : its context, and its level in lists and rows.
    row : row of the job, or of the parent of a child.
    launches : the job is a launch, with `action`; `span`: the entries to append.
    visits : the job visits a task that may have to be killed.
    returns : a stopped task returns to its list.
    advances : block `number` is the oldest unfinished block of a queue now.
    holds : the task has a row, which the job frees at its end.
    head : the task goes to the head of its list.
    store : field of the QMD to be written.
    counted : a dependence counter has reached 0.
    wakes : a resting queue is on its way to its list.
    verdict : reason of a failure.
    saved : saved blocks of the task, if `task.saved`.
    kin : with nested launches, node of the task in the kernel tree.
    """

    def __init__(self, config: Config) -> None:
        self._nested = config.nested
        self.task = Signal(task_pointer)
        self.row = Signal(config.row_bits, name="job_row")
        self.context = Signal(config.context_bits, name="job_context")
        self.launches, self.visits = Signal(name="launches"), Signal(name="job_visits")
        self.level = Signal(config.level_bits, name="job_level")
        self.head = Signal(name="job_head")
        self.returns, self.holds = Signal(name="returns"), Signal(name="holds")
        self.advances = Signal(name="advances")
        self.number = Signal(config.number_bits, name="number")
        self.action = Signal(LaunchAction, name="action")
        self.span = Signal(queue_span, name="job_span")
        self.store = Signal(Stored, name="job_store")
        self.counted, self.wakes = Signal(name="counted"), Signal(name="wakes")
        self.verdict = Signal(task_verdict, name="job_verdict")
        self.saved = Signal(task_saved(config), name="saved")
        if config.nested:
            self.kin = Signal(kernel_kin(config), name="kin")

    @property
    def decrements(self) -> Value:
        """Whether the dependence counter must be decremented."""
        return self.launches & (self.action == LaunchAction.DECREMENT_DEPENDENCE)

    @property
    def bears(self) -> Value:
        """Whether the task is a child that is being launched."""
        if not self._nested:
            return Const(0)
        return self.launches & (self.action == LaunchAction.CHILD)

    def give_up(self, m: Module) -> None:
        """Refuse a launch and undo its effects."""
        m.next = "FAIL"
        with m.If(self.wakes):
            m.next = "UNDO"
        with m.Elif(self.launches & self.counted):
            m.d.sync += self.store.eq(Stored.RESTORE)
            m.next = "STORE"
