"""Task unit: assigns tasks to slots (ASID-20 … 26)."""

from amaranth.hdl import Module, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.nested.kernel_tree import tree_event, tree_request
from signalbox.hw.records.compute_control import kill_request, list_area
from signalbox.hw.records.launch import (
    LaunchAction,
    slot_limit,
    task_ended,
    task_failure,
    task_launch,
    task_launched,
)
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.nested import block_family
from signalbox.hw.records.placement import (
    DEPTH_BITS,
    SAVE_PAGE_BITS,
    GlobalPort,
    Policy,
    block_form,
    coordinates,
    kernel_word,
    local_area,
    task_pointer,
)
from signalbox.hw.registers import PreemptionLevel
from signalbox.hw.task_unit.admission import Admission
from signalbox.hw.task_unit.children import Children
from signalbox.hw.task_unit.departure import Departure
from signalbox.hw.task_unit.job_choice import Job
from signalbox.hw.task_unit.job_state import JobState
from signalbox.hw.task_unit.kill_jobs import KillJobs
from signalbox.hw.task_unit.memory_share import share_memory
from signalbox.hw.task_unit.parts import TaskParts
from signalbox.hw.task_unit.queue_jobs import QueueJobs

__all__ = ["TaskUnit"]


class TaskUnit(wiring.Component):
    """Keeps tasks in lists and slots, and moves them between these: one job at a time, by the
    priorities of `JobChoice`.

    * The QMD of a launch is checked and the task goes to its list, or straight into a free slot if
      no task of its level or above waits. Entries appended to a queue become blocks of its row, or
      its task goes to its list.
    * OUTER_GET of a queue follows its oldest unfinished block, until its task fails.
    * A task stopped with blocks left returns to the head of its list once its blocks on SMs have
      ended; its resume position is written into the QMD (CTA_RASTER_*_RESUME). At level CILP, its
      blocks on SMs are stopped and saved, unless it is a queue; it returns with them.
    * An ended task is handed on. A queue that is not closed rests outside of lists and rows until
      entries are appended.
    * Tasks of disabled channels, and those named by a kill request, fail (KILLED): in a list or
      resting at once, in a row when its warps have ended, otherwise when they would go to a list or
      get a slot. A launch by a disabled channel is refused.

    With nested launches, a CHILD is launched like any other task, with address space, context,
    channel and epoch of its parent, its level plus 1 and its depth plus 1 (NEST-10). The checks, in
    this order, refuse it if the parent is as deep as `nesting` (DEPTH), is about to be killed
    (KILLED), or is a queue (MODEL); if there is no save place for the block, or the kernel tree is
    full or its limit is reached (ROOM); for the reasons of any other launch; and if the child is a
    queue (MODEL). Once it is accepted, the page of its parent's QMD is written into its own
    (MODEL_PARENT), before its end or failure is reported. The answer does not wait for that write,
    and a failure of the write is not reported.

    A QMD is read and checked again when its task gets a slot, since memory may have changed; the
    task keeps the priority of its list.

    Members
    -------
    area : in, a `list_area`: memory of the lists.
    context : in, `context_bits` bits: the running context.
    active : in, 1 bit: its tasks may have slots (ASID-21). `context` and `active` change only while
        `leave` and `empty` are 1, or before the first launch; `context` two cycles or more before
        `active` rises.
    leave : in, 1 bit: all its tasks must give up their slots; at level WFI, once they have ended.
    automatic : in, a `Policy`: placement of tasks that leave the choice to the context (ASID-32).
    level : in, a `PreemptionLevel`: how its tasks leave their slots (PREEMPT-1).
    saves : in, 1 bit: its tasks may have blocks of lower priority stopped (PREEMPT-5), unless their
        QMD says otherwise.
    save_area : in, `SAVE_PAGE_BITS` bits: number of the first 4 KiB page of its save area; 0: none,
        no block is stopped.
    channel : out, 6 bits, from a register: channel of the task that is being processed.
    local : in, a `local_area`, one cycle later: local memory of that channel.
    overdue : in, 1 bit: tasks with blocks on SMs must end early (TIMEOUT).
    limit : in, strobe, a `slot_limit`: slots that a context's tasks may hold. Tasks beyond a new
        limit keep their slots until a task of higher priority waits: then tasks of lower priority
        are stopped until it has a slot.
    on : in, 1 bit per channel: enabled. Tasks of other channels are killed.
    kill_request : in, stream of `kill_request`: tasks to be killed; accepted when they have ended.
    finishing : in, 1 bit: a task is being ended, `ended` included.
    calm : in, 1 bit: no launch is in progress.
    launch : in, stream of `task_launch`.
    launched : out, a `task_launched`: result of the launch.
    ended : out, stream of `task_ended`: a task whose blocks have all ended.
    failed : out, stream of `task_failure`: a task that was given up.
    lost : out, 1 bit, strobe: a task of a list could not be read, because system memory is broken;
        that task is not reported otherwise, and a queue keeps its entry in the queue table.
    port : out, a `GlobalPort`: the global logic controller.
    kernel : out, strobe, a `kernel_word`, for the SMs.
    fault : in, 1 bit per row, strobes: a warp faulted.
    kill : out, 1 bit per row: warps of the row must end.
    read : out, a `ReadPort`: memory client.
    write : out, a `WritePort`: memory client.
    waiting : out, 1 bit per context: one of its lists is not empty.
    empty : out, 1 bit, registered: no row is occupied, and no job is in progress except visits of
        tasks that may have to be killed. While `leave` is 1, no row becomes occupied then.
    idle : out, 1 bit, registered: no row is occupied, no job is in progress, all lists are empty,
        and no queue is open.

    With nested launches
    --------------------
    nesting : in, `DEPTH_BITS` bits: depth of the deepest kernels of the running context; 0 or 1:
        none can launch.
    ends : in, 1 bit, strobe: `TaskEnd` takes a task.
    sweep_ends : out, 1 bit: search for ended kernels that must be killed; falls in the cycle after
        `ends_swept`.
    ends_swept : in, 1 bit, strobe: all are found.
    block : out, a `block_family`, with `launched` of a CHILD: the family of the launching block
        from now on.
    parent : out, 32 bits, with `launched` of a CHILD: page of the QMD of the launching kernel.
    disowned : out, stream of `nested_bits` bits: number in the kernel tree of a child that was
        refused after its birth.
    tree : out, stream of `tree_request`: the kernel tree, for births.
    told : in, strobe, a `tree_event`: an event of the kernel tree.

    Attributes
    ----------
    task : the task being processed; while `port.open` is offered, the task of the new row.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nodes = config.nested_kernels
        nested = {
            "nesting": In(DEPTH_BITS),
            "ends": In(1),
            "sweep_ends": Out(1),
            "ends_swept": In(1),
            "block": Out(block_family(config)),
            "parent": Out(32),
            "disowned": Out(stream.Signature(config.nested_bits)),
            "tree": Out(stream.Signature(tree_request(nodes))),
            "told": In(data.StructLayout({"valid": 1, "event": tree_event(nodes)})),
        }
        super().__init__({
            **(nested if config.nested else {}),
            "area": In(list_area(config)),
            "context": In(config.context_bits),
            "active": In(1),
            "leave": In(1),
            "automatic": In(Policy),
            "level": In(PreemptionLevel),
            "saves": In(1),
            "save_area": In(SAVE_PAGE_BITS),
            "channel": Out(task_pointer["channel"].shape),
            "local": In(local_area),
            "launch": In(stream.Signature(task_launch(config))),
            "launched": Out(task_launched),
            "overdue": In(1),
            "limit": In(slot_limit(config)),
            "on": In(config.channels),
            "kill_request": In(stream.Signature(kill_request(config))),
            "finishing": In(1),
            "calm": In(1),
            "ended": Out(stream.Signature(task_ended(config))),
            "failed": Out(stream.Signature(task_failure(config))),
            "lost": Out(1),
            "port": Out(GlobalPort(config)),
            "kernel": Out(kernel_word(config)),
            "fault": In(config.rows),
            "kill": Out(config.rows),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "waiting": Out(config.contexts),
            "empty": Out(1),
            "idle": Out(1),
        })
        self._parts, self._job = TaskParts(config), JobState(config)
        self.task = self._job.task
        shared = config, self, self._parts, self._job
        self._children = Children(*shared) if config.nested else None
        self._admission = Admission(*shared, children=self._children)
        self._departure = Departure(*shared, children=self._children)
        self._kills = KillJobs(*shared)
        self._queues = QueueJobs(*shared, kills=self._kills)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, parts, children = self._config, self._parts, self._children
        for name, part in vars(parts).items():
            m.submodules[name] = part
        admission, departure = self._admission, self._departure
        queues, kills = self._queues, self._kills
        readers, writers = (parts.metadata, parts.lists), (parts.lists, parts.stores)
        share_memory(m, config, self, readers, writers)
        self._wire(m)
        admission.choose_policy(m)
        if config.preemption:
            admission.choose_urgency(m)
            admission.find_form(m)
        kept, place = self._tables(m)
        self._wire_choices(m)
        admission.see_room(m)
        self._wire_job_choice(m)
        departure.wire(m, place)
        queues.wire(m, place)
        kills.wire(m)
        with m.FSM(name="task") as fsm:
            self._begin(m)
            admission.fill(m)
            admission.check(m)
            admission.open(m)
            admission.push(m)
            departure.stop(m)
            departure.end_or_return(m, kept)
            departure.write(m)
            queues.states(m)
            departure.close(m)
            kills.states(m, kept)
            if children:
                children.states(m, kept)
        if config.preemption:
            admission.return_blocks(m)
        if children:
            children.wire(m)
            children.link(m, fsm.ongoing("STORE"))
        self._tell_idle(m, fsm.ongoing("IDLE") & parts.choice.settled)
        return m

    def _tell_idle(self, m: Module, rests: Value) -> None:
        """`rests`: no job is in progress. Visits follow each other without a pause, and there may
        be many; none leads a task into a row."""
        parts, free = self._parts, self._parts.slots.idle & ~self.ended.valid
        waits = self.waiting.any() | self.launch.valid | parts.queues.open.any()
        m.d.sync += [
            self.empty.eq(free & (rests | parts.choice.visiting)),
            self.idle.eq(free & rests & ~waits),
        ]

    def _wire(self, m: Module) -> None:
        """Connections that do not depend on the state."""
        parts, job = self._parts, self._job
        slots, lists, metadata, words = parts.slots, parts.lists, parts.metadata, parts.words
        m.d.comb += [
            lists.area.eq(self.area),
            [
                bit.eq(lists.waiting.word_select(context, self._config.levels).any())
                for context, bit in enumerate(self.waiting)
            ],
            slots.drained.eq(self.port.drained),
            slots.fault.eq(self.fault),
            slots.overdue.eq(self.overdue),
            slots.opened.saves.eq(
                (self.level == PreemptionLevel.CILP) & ~job.task.is_queue & self._admission.has_area
            ),
            self.kill.eq(slots.kill),
            metadata.request.p.asid.eq(job.task.asid),
            metadata.request.p.page.eq(job.task.page),
            metadata.resumed.eq(self._resumes(job)),
            metadata.entered.eq(~job.launches),
            metadata.decrements.eq(job.decrements),
            words.row.eq(slots.free.row),
            words.asid.eq(job.task.asid),
            words.record.eq(metadata.record),
            words.needs.eq(metadata.needs),
            words.needs.priority.eq(job.level),
            words.needs.saves.eq(self._admission.may_stop),
            words.area.eq(self.save_area),
            words.local.eq(self.local),
            metadata.local.eq(self.local),
            self.kernel.eq(words.kernel),
            self.failed.p.task.eq(job.task),
            self.failed.p.context.eq(job.context),
            self.channel.eq(job.task.channel),
        ]
        with m.If(self.ended.ready):
            m.d.sync += self.ended.valid.eq(0)

    def _resumes(self, job: JobState) -> Value:
        """Whether the QMD has a resume position, written when the task left its row: not for a
        queue, nor for a task that has only saved blocks left."""
        resumes = job.task.resumed & ~job.task.is_queue
        if not self._config.preemption:
            return resumes
        return resumes & ~(job.task.saved & job.saved.placed)

    def _tables(self, m: Module) -> tuple[data.View, data.View]:
        """Tables per row: task, level and form of blocks, written when it opens; resume position,
        written when it is stopped. Returns the entries of the job's row, one cycle later."""
        parts, job = self._parts, self._job
        config, slots = self._config, parts.slots
        saved = {"form": block_form} if config.preemption else {}
        entry = data.StructLayout({"task": task_pointer, "level": config.level_bits, **saved})
        m.submodules.tasks = tasks = Memory(shape=entry, depth=config.rows, init=[])
        m.submodules.places = places = Memory(shape=coordinates, depth=config.rows, init=[])
        task, place = tasks.write_port(), places.write_port()
        reads = tasks.read_port(), places.read_port()
        m.d.comb += [
            task.addr.eq(slots.opened.row),
            task.en.eq(slots.opened.valid),
            task.data.task.eq(job.task),
            task.data.task.saved.eq(0),
            task.data.level.eq(job.level),
            place.addr.eq(job.row),
            place.en.eq(slots.stopped.valid),
            place.data.eq(self.port.stopped.p.next),
            [read.addr.eq(job.row) for read in reads],
        ]
        if config.preemption:
            m.d.comb += task.data.form.eq(self._admission.form)
        return reads[0].data, reads[1].data

    def _begin(self, m: Module) -> None:
        parts, job = self._parts, self._job
        choice = parts.choice
        with m.State("IDLE"):
            m.d.comb += choice.rests.eq(1)
            m.d.sync += [
                job.task.eq(self.launch.p.task),
                job.context.eq(self.launch.p.context),
                job.action.eq(self.launch.p.action),
                job.span.eq(self.launch.p.span),
                job.row.eq(choice.row),
                job.returns.eq(choice.job == Job.RETURN),
                job.advances.eq(choice.job == Job.ADVANCE),
                job.number.eq(parts.oldest.moved.number),
                job.holds.eq(0),
                job.launches.eq(choice.job == Job.LAUNCH),
                job.visits.eq(choice.job == Job.VISIT),
                job.counted.eq(0),
                job.wakes.eq(0),
                job.verdict.eq(0),
            ]
            if self._config.nested:
                m.d.sync += job.kin.eq(0)
            with m.Switch(choice.job):
                with m.Case(Job.STOP, Job.EVICT):
                    m.next = "STOP"
                with m.Case(Job.END, Job.RETURN):
                    m.next = "LOOK"
                with m.Case(Job.ADVANCE):
                    m.d.comb += parts.oldest.take.eq(1)
                    m.next = "LOOK"
                with m.Case(Job.RECALL):
                    m.next = "RECALL"
                with m.Case(Job.VISIT):
                    self._kills.begin(m)
                with m.Case(Job.LAUNCH):
                    m.d.comb += self.launch.ready.eq(1)
                    m.next = "READ"
                    with m.If(self.launch.p.action == LaunchAction.INCREMENT_PUT):
                        m.next = "APPEND"
                    if self._config.nested:
                        m.d.sync += [
                            self.block.eq(self.launch.p.block),
                            self._children.has_place.eq(self.launch.p.has_place),
                        ]
                        with m.If(self.launch.p.action == LaunchAction.CHILD):
                            m.d.sync += job.row.eq(self.launch.p.row)
                            m.next = "PARENT"
                with m.Case(Job.FILL):
                    m.next = "POP"

    def _wire_choices(self, m: Module) -> None:
        parts = self._parts
        levels, limits = parts.levels, parts.limits
        m.d.comb += [
            levels.waiting.eq(parts.lists.waiting),
            levels.context.eq(self.context),
            limits.limit.eq(self.limit),
            limits.context.eq(self.context),
            parts.slots.limit.eq(limits.most),
        ]

    def _wire_job_choice(self, m: Module) -> None:
        parts = self._parts
        choice, slots, moved = parts.choice, parts.slots, parts.oldest.moved
        choices = ("faulty", "ended", "returning", "victim", "sure", "free", "crowded")
        m.d.comb += [
            [getattr(choice, name).eq(getattr(slots, name)) for name in choices],
            choice.active.eq(self.active),
            choice.leave.eq(self.leave),
            choice.drains.eq(self.level == PreemptionLevel.WFI),
            choice.highest.eq(parts.levels.highest),
            choice.delivers.eq(self.ended.valid),
            choice.over.eq(parts.queues.over.valid),
            choice.visits.eq(parts.sweep.visit.valid),
            choice.moved.valid.eq(moved.valid),
            choice.moved.row.eq(moved.row),
            choice.offered.eq(self.launch.valid),
        ]
