"""Task unit: assigns tasks to slots (ASID-20 … 26)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import NESTING, Config
from signalbox.hw.errors import Refusal
from signalbox.hw.nested.kernel_tree import tree_event, tree_request
from signalbox.hw.qmd import Placement, Urgency
from signalbox.hw.records.compute_control import kill_request, list_area
from signalbox.hw.records.launch import (
    KILLED,
    LaunchAction,
    slot_limit,
    task_ended,
    task_failure,
    task_launch,
    task_launched,
    task_verdict,
)
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort
from signalbox.hw.records.nested import block_family, kernel_kin
from signalbox.hw.records.placement import (
    DEPTH_BITS,
    SAVE_PAGE_BITS,
    GlobalPort,
    Policy,
    coordinates,
    kernel_word,
    local_area,
    queue_span,
    task_pointer,
    task_saved,
)
from signalbox.hw.registers import PreemptionLevel
from signalbox.hw.task_unit.highest_level import HighestLevel
from signalbox.hw.task_unit.job_choice import Job, JobChoice
from signalbox.hw.task_unit.kernel_words import KernelWords
from signalbox.hw.task_unit.kill_filter import KillFilter
from signalbox.hw.task_unit.kill_sweep import KillSweep, Place
from signalbox.hw.task_unit.kin_table import KinTable
from signalbox.hw.task_unit.memory_share import share_memory
from signalbox.hw.task_unit.oldest_blocks import OldestBlocks
from signalbox.hw.task_unit.qmd_reader import QmdReader
from signalbox.hw.task_unit.qmd_writes import QmdWrites, Stored
from signalbox.hw.task_unit.queue_table import QueueNext, QueueOp, QueueTable
from signalbox.hw.task_unit.slot_limits import SlotLimits
from signalbox.hw.task_unit.slot_table import SlotTable
from signalbox.hw.task_unit.task_lists import ListOutcome, ListVisit, TaskLists

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
    channel and epoch of its parent, its level plus 1 and its depth plus 1 (NEST-10). It is refused
    if its parent is as deep as `nesting` (DEPTH), is about to be killed (KILLED), or is a queue
    (MODEL), if there is no save place for the block, or if the kernel tree is full or its limit is
    reached (both ROOM), in this order; then for the same reasons as any other launch, and as a
    queue (MODEL). Once it is accepted, the page of its parent's QMD is written into its own
    (MODEL_PARENT), before its end or failure is reported. The answer does not wait for that write,
    and nobody is told if it fails.

    A QMD is read and checked again when its task gets a slot, since memory may have changed; the
    task keeps the priority of its list.

    Members
    -------
    area : in, memory of the lists.
    context : in, the running context.
    active : in, its tasks may have slots (ASID-21). `context` and `active` change only while
        `leave` and `empty` are 1, or before the first launch; `context` two cycles or more before
        `active` rises.
    leave : in, all its tasks must give up their slots; at level WFI, once they have ended.
    automatic : in, placement policy of tasks that leave the choice to the context (ASID-32).
    level : in, how its tasks leave their slots (PREEMPT-1).
    saves : in, its tasks may have blocks of lower priority stopped (PREEMPT-5), unless their QMD
        says otherwise.
    save_area : in, number of the first 4 KiB page of its save area; 0: none, no block is stopped.
    channel : out, channel of the task that is being processed.
    local : in, area of its local memory, one cycle later.
    overdue : in, tasks with blocks on SMs are to end early (TIMEOUT).
    limit : in, strobe: slots that a context's tasks may hold. Tasks beyond a new limit keep their
        slots until a task of higher priority waits: then tasks of lower priority are stopped until
        it has a slot.
    on : in, per channel: it is enabled. Tasks of other channels are killed.
    kill_request : in, tasks to be killed; accepted when they have ended.
    finishing : in, a task is being ended, `ended` included.
    calm : in, no launch is in progress.
    launch : in, a task action.
    launched : out, strobe: result of the launch.
    ended : out, a task whose blocks have all ended.
    failed : out, a task that was given up.
    lost : out, strobe: a task of a list could not be read, because system memory is broken; that
        task is not reported otherwise, and a queue keeps its entry in the queue table.
    port : out, the global logic controller.
    kernel : out, kernel words for the SMs.
    fault : in, strobe per row: a warp faulted.
    kill : out, per row: its warps are to end.
    read : out, memory client.
    write : out, memory client.
    waiting : out, per context: one of its lists is not empty.
    empty : out, no row is occupied and no task is on its way into one; stays 1 while `leave` is 1.
    idle : out, like `empty`, and all lists are empty and no queue is open.

    With nested launches
    --------------------
    nesting : in, depth of the deepest kernels of the running context; 0 or 1: none can launch.
    ends : in, strobe: `TaskEnd` takes a task.
    block : out, with `launched` of a CHILD: the family of the launching block from now on.
    parent : out, with `launched` of a CHILD: page of the QMD of the launching kernel.
    disowned : out, number in the kernel tree of a child that was refused after its birth.
    tree : out, the kernel tree, for births.
    told : in, strobe: an event of the kernel tree.

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
        self._slots, self._lists = SlotTable(config), TaskLists(config)
        self._metadata, self._words = QmdReader(config), KernelWords(config)
        self._stores, self._queues = QmdWrites(config), QueueTable(config)
        self._levels, self._limits = HighestLevel(config), SlotLimits(config)
        self._sweep, self._filter = KillSweep(config), KillFilter(config)
        self._choice, self._oldest = JobChoice(config), OldestBlocks(config)
        self.task = Signal(task_pointer)
        self._row = Signal(config.row_bits)
        self._of = Signal(config.context_bits)
        self._launches, self._visits = Signal(name="launches"), Signal(name="visits")
        self._level = Signal(config.level_bits)
        self._has_area, self._may_stop = Signal(name="has_area"), Signal(name="may_stop")
        self._head = Signal()
        self._returns, self._holds = Signal(name="returns"), Signal(name="holds")
        self._advances = Signal(name="advances")
        self._number = Signal(config.number_bits, name="number")
        self._action = Signal(LaunchAction, name="action")
        self._span = Signal(queue_span)
        self._store = Signal(Stored)
        self._op = Signal(QueueOp, name="op")
        self._counted, self._wakes = Signal(name="counted"), Signal(name="wakes")
        """A dependence counter has reached 0; a resting queue is on its way to its list."""
        self._verdict = Signal(task_verdict)
        self._enters = Signal(name="enters")
        self._saved = Signal(task_saved(config), name="saved")
        """Saved blocks of the task, if `task.saved`."""
        if config.nested:
            self._kin, self._kins = Signal(kernel_kin(config), name="kin"), KinTable(config)
            self._has_place = Signal(name="has_place")
            """There is a save place for the launching block."""
            link = {"child": 32, "asid": config.asid_bits, "parent": 32}
            self._link, self._links = Signal(data.StructLayout(link), name="link"), Signal()
            """Pages of a child and its parent, to be written into the child's QMD."""
            self._linking = Signal(data.StructLayout({"valid": 1, "child": 32}), name="linking")
            """That write is under way."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slots, m.submodules.lists = self._slots, self._lists
        m.submodules.metadata, m.submodules.words = self._metadata, self._words
        m.submodules.stores, m.submodules.queues = self._stores, self._queues
        m.submodules.levels, m.submodules.limits = self._levels, self._limits
        m.submodules.sweep, m.submodules.filter = self._sweep, self._filter
        m.submodules.choice, m.submodules.oldest = self._choice, self._oldest
        readers, writers = (self._metadata, self._lists), (self._lists, self._stores)
        share_memory(m, self._config, self, readers, writers)
        self._wire(m)
        self._choose_policy(m)
        if self._config.preemption:
            self._choose_urgency(m)
        kept, place = self._tables(m)
        self._wire_choices(m)
        self._see_room(m)
        self._wire_job_choice(m)
        self._wire_stores(m, place)
        self._wire_queues(m, place)
        self._wire_kills(m)
        with m.FSM(name="task") as fsm:
            self._begin(m)
            self._fill(m)
            self._check(m)
            self._open(m)
            self._push(m)
            self._stop(m)
            self._end_or_return(m, kept)
            self._write(m)
            self._queue(m)
            self._close(m)
            self._visit(m, kept)
            if self._config.nested:
                self._bear(m, kept)
        if self._config.preemption:
            self._return_blocks(m)
        if self._config.nested:
            self._wire_kin(m)
            self._link_child(m, fsm.ongoing("STORE"))
        rests = fsm.ongoing("IDLE") & self._choice.settled
        m.d.sync += [
            self.empty.eq(rests & self._slots.idle & ~self.ended.valid),
            self.idle.eq(
                (rests & self._slots.idle & ~self.ended.valid)
                & ~(self.waiting.any() | self.launch.valid | self._queues.open.any())
            ),
        ]
        return m

    def _wire(self, m: Module) -> None:
        """Connections that do not depend on the state."""
        slots, lists, metadata, words = self._slots, self._lists, self._metadata, self._words
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
                (self.level == PreemptionLevel.CILP) & ~self.task.is_queue & self._has_area
            ),
            self.kill.eq(slots.kill),
            metadata.request.p.asid.eq(self.task.asid),
            metadata.request.p.page.eq(self.task.page),
            metadata.resumed.eq(self.task.resumed & ~self.task.is_queue),
            metadata.entered.eq(~self._launches),
            metadata.decrements.eq(self._decrements),
            words.row.eq(slots.free.row),
            words.asid.eq(self.task.asid),
            words.record.eq(metadata.record),
            words.needs.eq(metadata.needs),
            words.needs.priority.eq(self._level),
            words.needs.saves.eq(self._may_stop),
            words.area.eq(self.save_area),
            words.local.eq(self.local),
            metadata.local.eq(self.local),
            self.kernel.eq(words.kernel),
            self.failed.p.task.eq(self.task),
            self.failed.p.context.eq(self._of),
            self.channel.eq(self.task.channel),
        ]
        with m.If(self.ended.ready):
            m.d.sync += self.ended.valid.eq(0)

    @property
    def _decrements(self) -> Value:
        """The dependence counter is to be decremented."""
        return self._launches & (self._action == LaunchAction.DECREMENT_DEPENDENCE)

    @property
    def _bears(self) -> Value:
        """The task is a child that is being launched."""
        if not self._config.nested:
            return Const(0)
        return self._launches & (self._action == LaunchAction.CHILD)

    def _choose_urgency(self, m: Module) -> None:
        """Whether the task may have blocks of lower priority stopped. It always may where kernels
        are nested, as a wait for it might not end otherwise (NEST-12)."""
        wanted = Signal()
        nests = self.nesting > 1 if self._config.nested else Const(0)
        m.d.sync += self._has_area.eq(self.save_area != 0)
        m.d.comb += self._may_stop.eq(wanted & self._has_area)
        with m.Switch(self._metadata.record.MODEL_URGENCY):
            with m.Case(Urgency.SAVE):
                m.d.comb += wanted.eq(1)
            with m.Case(Urgency.DRAIN):
                m.d.comb += wanted.eq(nests)
            with m.Default():
                m.d.comb += wanted.eq(self.saves)

    def _choose_policy(self, m: Module) -> None:
        policy = self.port.open.p.policy
        with m.Switch(self._metadata.record.MODEL_PLACEMENT):
            for name in Policy:
                with m.Case(Placement[name.name]):
                    m.d.comb += policy.eq(name)
            with m.Default():
                m.d.comb += policy.eq(self.automatic)

    def _tables(self, m: Module) -> tuple[data.View, data.View]:
        """Tables per row: task and level, written when it opens; resume position, written when it
        is stopped. Returns the entries of `_row`, one cycle later."""
        config, slots = self._config, self._slots
        shape = data.StructLayout({"task": task_pointer, "level": config.level_bits})
        m.submodules.tasks = tasks = Memory(shape=shape, depth=config.rows, init=[])
        m.submodules.places = places = Memory(shape=coordinates, depth=config.rows, init=[])
        task, place = tasks.write_port(), places.write_port()
        reads = tasks.read_port(), places.read_port()
        m.d.comb += [
            task.addr.eq(slots.opened.row),
            task.en.eq(slots.opened.valid),
            task.data.task.eq(self.task),
            task.data.task.saved.eq(0),
            task.data.level.eq(self._level),
            place.addr.eq(self._row),
            place.en.eq(slots.stopped.valid),
            place.data.eq(self.port.stopped.p.next),
            [read.addr.eq(self._row) for read in reads],
        ]
        return reads[0].data, reads[1].data

    def _begin(self, m: Module) -> None:
        choice = self._choice
        with m.State("IDLE"):
            m.d.comb += choice.rests.eq(1)
            m.d.sync += [
                self.task.eq(self.launch.p.task),
                self._of.eq(self.launch.p.context),
                self._action.eq(self.launch.p.action),
                self._span.eq(self.launch.p.span),
                self._row.eq(choice.row),
                self._returns.eq(choice.job == Job.RETURN),
                self._advances.eq(choice.job == Job.ADVANCE),
                self._number.eq(self._oldest.moved.number),
                self._holds.eq(0),
                self._launches.eq(choice.job == Job.LAUNCH),
                self._visits.eq(choice.job == Job.VISIT),
                self._counted.eq(0),
                self._wakes.eq(0),
                self._verdict.eq(0),
            ]
            if self._config.nested:
                m.d.sync += self._kin.eq(0)
            with m.Switch(choice.job):
                with m.Case(Job.STOP, Job.EVICT):
                    m.next = "STOP"
                with m.Case(Job.END, Job.RETURN):
                    m.next = "LOOK"
                with m.Case(Job.ADVANCE):
                    m.d.comb += self._oldest.take.eq(1)
                    m.next = "LOOK"
                with m.Case(Job.RECALL):
                    m.next = "RECALL"
                with m.Case(Job.VISIT):
                    self._begin_visit(m)
                with m.Case(Job.LAUNCH):
                    m.d.comb += self.launch.ready.eq(1)
                    m.next = "READ"
                    with m.If(self.launch.p.action == LaunchAction.INCREMENT_PUT):
                        m.next = "APPEND"
                    if self._config.nested:
                        m.d.sync += [
                            self.block.eq(self.launch.p.block),
                            self._has_place.eq(self.launch.p.has_place),
                        ]
                        with m.If(self.launch.p.action == LaunchAction.CHILD):
                            m.d.sync += self._row.eq(self.launch.p.row)
                            m.next = "PARENT"
                with m.Case(Job.FILL):
                    m.next = "POP"

    def _wire_kin(self, m: Module) -> None:
        m.submodules.kins = kins = self._kins
        opened = self._slots.opened
        m.d.comb += [
            kins.row.eq(self._row),
            kins.opened.valid.eq(opened.valid),
            kins.opened.row.eq(opened.row),
            kins.opened.kin.eq(self._kin),
            kins.birth.payload.eq(self.block),
            kins.told.eq(self.told),
            self.failed.p.kin.eq(self._kin),
            self.disowned.payload.eq(self._kin.kernel),
        ]
        connect(m, kins.tree, flipped(self.tree))

    def _link_child(self, m: Module, stores: Value) -> None:
        """Write the parent of an accepted child, unless the job in progress `stores` a field."""
        link, request = self._link, self._stores.request
        m.d.comb += self._stores.parent.eq(link.parent)
        with m.If(self._stores.answer.valid):
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
        with m.If(self.launched.valid & self._bears & (self._verdict.refusal == Refusal.NONE)):
            m.d.sync += [
                self._links.eq(1),
                link.child.eq(self.task.page),
                link.asid.eq(self.task.asid),
                link.parent.eq(self.parent),
            ]

    @property
    def _linked(self) -> Value:
        """The parent of the task has been written, or there is none."""
        if not self._config.nested:
            return Const(1)
        page, under_way = self.task.page, self._linking
        waits = self._links & (self._link.child == page)
        return ~(waits | (under_way.valid & (under_way.child == page)))

    def _bear(self, m: Module, kept: data.View) -> None:
        """A kernel launches a child, which gets a place in the kernel tree, and loses it if it is
        refused after that. A save place is reserved with the first child of a block, so that the
        block can wait for it elsewhere than on an SM (NEST-12)."""
        kins, parent, page = self._kins, kept.task, self.task.page
        with m.State("PARENT"):
            with m.If(~self._links):
                m.next = "ADOPT"
        with m.State("ADOPT"):
            m.d.sync += [
                self.parent.eq(parent.page),
                self.task.eq(0),
                self.task.page.eq(page),
                [self.task[name].eq(parent[name]) for name in ("asid", "channel", "epoch")],
                self.task.depth.eq(parent.depth + 1),
                self._level.eq(kept.level + 1),
                self._of.eq(self.context),
            ]
            m.next = "FAIL"
            with m.If((parent.depth >= self.nesting) | (parent.depth >= NESTING)):
                m.d.sync += self._verdict.refusal.eq(Refusal.DEPTH)
            with m.Elif(self._slots.kill.bit_select(self._row, 1)):
                m.d.sync += self._verdict.eq(KILLED)
            with m.Elif(parent.is_queue):
                m.d.sync += self._verdict.refusal.eq(Refusal.MODEL)
            with m.Else():
                m.next = "BEAR"
                with m.If(~self._has_place):
                    m.next = "RESERVE"
        with m.State("RESERVE"):
            m.d.comb += self.port.reserve.eq(1)
            m.next = "RESERVED"
        with m.State("RESERVED"):
            m.next = "BEAR"
            with m.If(~self.port.reserved):
                m.d.sync += self._verdict.refusal.eq(Refusal.ROOM)
                m.next = "FAIL"
        with m.State("BEAR"):
            m.d.comb += kins.birth.valid.eq(1)
            with m.If(kins.birth.ready):
                m.next = "BORN"
        with m.State("BORN"):
            with m.If(kins.born.valid):
                m.d.sync += [self._kin.eq(kins.born.child), self.block.eq(kins.born.block)]
                m.next = "READ"
                with m.If(~kins.born.child.known):
                    m.d.comb += self.port.release.eq(~self._has_place)
                    m.d.sync += self._verdict.refusal.eq(Refusal.ROOM)
                    m.next = "FAIL"
        with m.State("DISOWN"):
            m.d.comb += self.disowned.valid.eq(1)
            with m.If(self.disowned.ready):
                m.next = "IDLE"

    def _fill(self, m: Module) -> None:
        """Take the first task of the highest list."""
        pop, popped = self._lists.pop, self._lists.popped
        level = self._levels.highest.level
        with m.State("POP"):
            m.d.comb += [
                pop.valid.eq(1),
                pop.p.level.eq(level),
                pop.p.context.eq(self.context),
            ]
            with m.If(pop.ready):
                m.next = "POPPED"
        with m.State("POPPED"):
            m.d.sync += [
                self.task.eq(popped.task),
                self._of.eq(self.context),
                self._level.eq(level),
            ]
            if self._config.preemption:
                m.d.sync += self._saved.eq(popped.second.saved)
            if self._config.nested:
                m.d.sync += self._kin.eq(popped.second.kin)
            with m.If(popped.valid):
                m.next = "READ"
                with m.If(popped.outcome != ListOutcome.DONE):
                    m.d.comb += self.lost.eq(1)
                    m.next = "IDLE"
                with m.Elif(popped.task.dropped):
                    m.next = "IDLE"

    def _check(self, m: Module) -> None:
        """Read the QMD and decide the next step."""
        metadata, needs = self._metadata, self._metadata.needs
        record = metadata.record
        with m.State("READ"):
            m.d.comb += metadata.request.valid.eq(1)
            with m.If(metadata.request.ready):
                m.next = "CHECK"
        with m.State("CHECK"):
            m.d.sync += [
                self._verdict.eq(metadata.verdict),
                self._head.eq(record.ADD_TO_HEAD_OF_QMD_GROUP_LINKED_LIST),
            ]
            with m.If(self._launches & ~self._bears):
                m.d.sync += self._level.eq(needs.priority)
            with m.If(metadata.done):
                with m.If(self._filter.kills):
                    m.d.sync += self._verdict.eq(KILLED)
                    m.next = "FAIL"
                with m.Elif(metadata.verdict.refusal != Refusal.NONE):
                    m.next = "FAIL"
                with m.Elif(~self._launches & (record.IS_QUEUE != self.task.is_queue)):
                    m.d.sync += self._verdict.refusal.eq(Refusal.MODEL)
                    m.next = "FAIL"
                with m.Elif(self._bears & record.IS_QUEUE):
                    m.d.sync += self._verdict.refusal.eq(Refusal.MODEL)
                    m.next = "FAIL"
                with m.Elif(self._decrements):
                    m.d.sync += self._store.eq(Stored.COUNTER)
                    m.next = "STORE"
                with m.Elif(self._launches & record.IS_QUEUE):
                    m.next = "ENTER"
                with m.Else():
                    self._go(m)
        with m.State("GO"):
            self._go(m)
        taken = self.failed.valid & self.failed.ready
        with m.State("FAIL"):
            m.d.comb += [
                self.launched.valid.eq(self._launches),
                self.failed.valid.eq(~self._launches & self._linked),
                self._queues.leave.valid.eq(self.task.is_queue & ~self._wakes),
            ]
            with m.If(self._holds & taken):
                m.next = "CLOSE"
            with m.Elif(self._launches | taken):
                m.next = "IDLE"
            if self._config.preemption:
                with m.If(self.task.saved & taken):
                    m.next = "DISCARD"
            if self._config.nested:
                with m.If(self._launches & self._kin.known):
                    m.next = "DISOWN"
        appends = self._action == LaunchAction.INCREMENT_PUT
        # The row keeps a kill request in progress.
        killed = self._holds & self._filter.kills
        m.d.comb += [
            self.failed.p.verdict.eq(Mux(killed, KILLED, self._verdict)),
            self.launched.verdict.eq(self._verdict),
            self.launched.nothing.eq(appends | (self._decrements & ~self._counted)),
        ]

    def _go(self, m: Module) -> None:
        """To a list, or into a slot."""
        with m.If(self._launches & ~self._enters):
            m.next = "PUSH"
        with m.Elif(self.task.is_queue):
            m.next = "TAKE"
        with m.Else():
            m.d.comb += self._words.start.eq(1)
            m.next = "WORDS"

    def _give_up(self, m: Module) -> None:
        """Refuse a launch and undo its effects."""
        m.next = "FAIL"
        with m.If(self._wakes):
            m.next = "UNDO"
        with m.Elif(self._launches & self._counted):
            m.d.sync += self._store.eq(Stored.RESTORE)
            m.next = "STORE"

    def _open(self, m: Module) -> None:
        """The task gets a slot."""
        metadata, slots, opens = self._metadata, self._slots, self.port.open
        queued = self.task.is_queue
        m.d.comb += [
            opens.p.row.eq(slots.free.row),
            opens.p.asid.eq(self.task.asid),
            [opens.p[name].eq(getattr(metadata, name)) for name in ("needs", "grid")],
            opens.p.blocks.eq(Mux(queued, self._queues.blocks, metadata.blocks)),
            opens.p.first.eq(Mux(queued, self._queues.first, metadata.first.as_value())),
            opens.p.needs.priority.eq(self._level),
            opens.p.needs.saves.eq(self._may_stop),
            slots.opened.row.eq(slots.free.row),
            slots.opened.priority.eq(self._level),
        ]
        with m.State("WORDS"):
            with m.If(self._words.done):
                m.next = "OPEN"
        with m.State("OPEN"):
            m.d.comb += opens.valid.eq(1)
            with m.If(opens.ready):
                m.d.comb += [
                    slots.opened.valid.eq(1),
                    self.launched.valid.eq(self._launches),
                ]
                m.next = "IDLE"

    def _return_blocks(self, m: Module) -> None:
        """Saved blocks go into the row; there may be no others."""
        row, saved = self.port.open.p, self._saved
        m.d.comb += [row.saved.some.eq(self.task.saved), row.saved.save_place.eq(saved.save_place)]
        with m.If(self.task.saved & saved.placed):
            m.d.comb += row.blocks.eq(0)

    def _push(self, m: Module) -> None:
        """The task goes to its list."""
        push, pushed = self._lists.push, self._lists.pushed
        m.d.comb += [
            push.p.where.level.eq(self._level),
            push.p.where.context.eq(self._of),
            push.p.head.eq(self._head),
            push.p.task.eq(self.task),
        ]
        if self._config.preemption:
            m.d.comb += push.p.second.saved.eq(self._saved)
        if self._config.nested:
            m.d.comb += push.p.second.kin.eq(self._kin)
        with m.State("PUSH"):
            m.d.comb += push.valid.eq(1)
            with m.If(push.ready):
                m.next = "PUSHED"
        with m.State("PUSHED"):
            full = pushed.outcome == ListOutcome.FULL
            with m.If(pushed.valid & (pushed.outcome != ListOutcome.DONE)):
                m.d.sync += self._verdict.refusal.eq(Mux(full, Refusal.FULL, Refusal.LISTS))
                self._give_up(m)
            with m.Elif(pushed.valid & self._launches):
                m.d.comb += self.launched.valid.eq(1)
                m.next = "IDLE"
            with m.Elif(pushed.valid):
                m.next = "CLOSE"

    def _stop(self, m: Module) -> None:
        """The task loses its slot (ASID-25)."""
        stop, stopped, slots = self.port.stop, self.port.stopped, self._slots
        m.d.comb += [
            stop.p.eq(self._row),
            slots.stopped.row.eq(self._row),
            slots.stopped.left.eq(stopped.p.blocks != 0),
        ]
        if self._config.preemption:
            drops = slots.kill | slots.saves
            m.d.comb += [
                self.port.drops.eq(drops.bit_select(self._row, 1)),
                self.port.leave.eq(slots.leave),
            ]
        with m.State("STOP"):
            m.d.comb += stop.valid.eq(1)
            with m.If(stop.ready):
                m.next = "STOPPED"
        with m.State("STOPPED"):
            m.d.comb += [stopped.ready.eq(1), slots.stopped.valid.eq(stopped.valid)]
            with m.If(stopped.valid):
                m.next = "IDLE"

    def _end_or_return(self, m: Module, kept: data.View) -> None:
        """All blocks of a row that were placed have ended: the task ends, or a stopped task with
        blocks left returns to its list (ASID-25), by STORE, PUSH and CLOSE. Or some of a queue's
        have: blocks of a killed one may have ended early, so its entries are not processed."""
        with m.State("LOOK"):
            m.next = "KNOW"
        with m.State("KNOW"):
            m.d.sync += [
                self.task.eq(kept.task),
                self._level.eq(kept.level),
                self._of.eq(self.context),
                self._head.eq(1),
                self._holds.eq(~self._advances),
                self._store.eq(Stored.PLACE),
                self._verdict.refusal.eq(
                    Mux(self._slots.late.bit_select(self._row, 1), Refusal.TIMEOUT, Refusal.KERNEL)
                ),
            ]
            if self._config.nested:
                m.d.sync += self._kin.eq(self._kins.kin)
            with m.If(self._slots.kill.bit_select(self._row, 1)):
                m.next = "DIE"
                with m.If(self._advances):
                    m.next = "IDLE"
            with m.Elif(self._advances):
                m.next = "ADVANCE"
            with m.Elif(kept.task.is_queue):
                m.next = "DRAIN"
            if self._config.preemption:
                with m.Elif(self._slots.leave.bit_select(self._row, 1)):
                    m.next = "KEEP"
            with m.Elif(self._returns):
                m.next = "STORE"
            with m.Else():
                m.next = "END"
        with m.State("DIE"):  # `KillFilter` is late by a cycle
            m.next = "FAIL"
        # There is room: no job waits for the end of another task.
        with m.State("END"), m.If(self._linked):
            m.d.sync += [
                self.ended.valid.eq(1),
                self.ended.p.task.eq(self.task),
                self.ended.p.context.eq(self._of),
            ]
            if self._config.nested:
                m.d.sync += self.ended.p.kin.eq(self._kin)
            m.d.comb += self._queues.leave.valid.eq(self.task.is_queue)
            with m.If(self.task.is_queue):  # nothing to restore in its QMD
                m.d.sync += self.ended.p.task.resumed.eq(0)
            with m.If(self._holds):
                m.next = "CLOSE"
            with m.Else():
                m.next = "IDLE"
        if self._config.preemption:
            self._keep_blocks(m)

    def _keep_blocks(self, m: Module) -> None:
        """Take back the saved blocks of a row: a task that has some returns, too, even if all its
        others have ended. Or give up those of a failing task."""
        keep, kept, discard = self.port.keep, self.port.kept, self.port.discard
        m.d.comb += [
            keep.payload.eq(self._row),
            kept.ready.eq(1),
            discard.payload.eq(self._saved.save_place),
        ]
        with m.State("KEEP"):
            m.d.comb += keep.valid.eq(1)
            with m.If(keep.ready):
                m.next = "KEPT"
        with m.State("KEPT"):
            m.d.sync += [
                self._saved.save_place.eq(kept.p.save_place),
                self._saved.placed.eq(~self._returns),
            ]
            with m.If(kept.valid):
                m.d.sync += self.task.saved.eq(kept.p.some)
                with m.If(self._returns):
                    m.next = "STORE"
                with m.Elif(kept.p.some):
                    m.d.sync += self.task.resumed.eq(1)
                    m.next = "PUSH"
                with m.Else():
                    m.next = "END"
        with m.State("DISCARD"):
            m.d.comb += discard.valid.eq(1)
            with m.If(discard.ready):
                m.next = "IDLE"
                with m.If(self._holds):
                    m.next = "CLOSE"

    def _write(self, m: Module) -> None:
        """Write a field of the QMD."""
        request, answer = self._stores.request, self._stores.answer
        with m.State("STORE"):
            m.d.comb += request.valid.eq(1)
            with m.If(request.ready):
                m.next = "STORED"
        with m.State("STORED"):
            with m.If(answer.valid):
                self._written(m)

    def _written(self, m: Module) -> None:
        """Continue after a write. A failed RESTORE is ignored: the counter was writable just
        before. So is a failed GET while the row goes on: it is written again at the end."""
        status, last = self._stores.answer.status, self._stores.answer.last
        restores = self._store == Stored.RESTORE
        with m.If((self._store == Stored.GET) & ~self._holds):
            m.next = "IDLE"
        with m.Elif((status != MemoryStatus.OK) & ~restores):
            bus = status == MemoryStatus.BUS
            m.d.sync += self._verdict.refusal.eq(Mux(bus, Refusal.BUS, Refusal.FAULT))
            m.next = "FAIL"
        with m.Else():
            with m.Switch(self._store):
                with m.Case(Stored.PLACE):
                    m.d.sync += self.task.resumed.eq(1)
                    m.next = "PUSH"
                with m.Case(Stored.COUNTER):
                    m.d.sync += self._counted.eq(last)
                    m.next = "GO"
                    with m.If(~last):
                        m.d.comb += self.launched.valid.eq(1)
                        m.next = "IDLE"
                    with m.Elif(self._metadata.record.IS_QUEUE):
                        m.next = "ENTER"
                with m.Case(Stored.RESTORE):
                    m.next = "FAIL"
                with m.Case(Stored.GET):
                    self._drained(m)

    def _drained(self, m: Module) -> None:
        """A queue's row is drained."""
        m.d.sync += self.task.resumed.eq(1)
        with m.Switch(self._queues.outcome):
            with m.Case(QueueNext.LIST):
                m.next = "PUSH"
            with m.Case(QueueNext.END):
                m.next = "END"
            with m.Default():
                m.next = "CLOSE"

    def _wire_choices(self, m: Module) -> None:
        levels, limits = self._levels, self._limits
        m.d.comb += [
            levels.waiting.eq(self._lists.waiting),
            levels.context.eq(self.context),
            limits.limit.eq(self.limit),
            limits.context.eq(self.context),
            self._slots.limit.eq(limits.most),
        ]

    def _see_room(self, m: Module) -> None:
        """Whether a launch may go into a slot. The lists do not change while its QMD is read."""
        best = self._levels.highest
        level = Mux(self._bears, self._level, self._metadata.needs.priority)
        first = Signal()
        room = self._slots.free.valid
        runs = self.active & ~self.leave & (self._of == self.context)
        m.d.sync += [
            first.eq((level > best.level) | ~best.valid),
            self._enters.eq(runs & room & first),
        ]

    def _wire_job_choice(self, m: Module) -> None:
        choice, slots, moved = self._choice, self._slots, self._oldest.moved
        choices = ("faulty", "ended", "returning", "victim", "sure", "free", "crowded")
        m.d.comb += [
            [getattr(choice, name).eq(getattr(slots, name)) for name in choices],
            choice.active.eq(self.active),
            choice.leave.eq(self.leave),
            choice.drains.eq(self.level == PreemptionLevel.WFI),
            choice.highest.eq(self._levels.highest),
            choice.delivers.eq(self.ended.valid),
            choice.over.eq(self._queues.over.valid),
            choice.visits.eq(self._sweep.visit.valid),
            choice.moved.valid.eq(moved.valid),
            choice.moved.row.eq(moved.row),
            choice.offered.eq(self.launch.valid),
        ]

    def _wire_stores(self, m: Module, place: data.View) -> None:
        stores = self._stores
        m.d.comb += [
            stores.request.p.what.eq(self._store),
            stores.request.p.asid.eq(self.task.asid),
            stores.request.p.page.eq(self.task.page),
            stores.place.eq(place),
            stores.record.eq(self._metadata.record),
            stores.got.eq(self._queues.freed),
        ]

    def _wire_kills(self, m: Module) -> None:
        sweep, kills, slots = self._sweep, self._filter, self._slots
        m.d.comb += [
            sweep.on.eq(self.on),
            kills.on.eq(self.on),
            sweep.waiting.eq(self._lists.waiting),
            sweep.rows.eq(slots.kill.any()),
            sweep.rests.eq(self._choice.rests),
            sweep.queues.eq(self._queues.open),
            sweep.ends.eq(
                self.ends if self._config.nested else self.ended.valid & self.ended.ready
            ),
            sweep.finishing.eq(self.finishing),
            sweep.calm.eq(self.calm),
            kills.request.eq(self.kill_request.p),
            kills.requested.eq(sweep.requested),
            kills.task.eq(self.task),
            kills.context.eq(self._of),
            slots.kills.row.eq(self._row),
            self._lists.visit.p.where.eq(sweep.visit.where),
        ]
        connect(m, flipped(self.kill_request), sweep.request)

    def _wire_queues(self, m: Module, place: data.View) -> None:
        queues, add = self._queues, self.port.add
        m.d.comb += [
            queues.task.eq(self.task),
            queues.context.eq(self._of),
            queues.level.eq(self._metadata.needs.priority),
            queues.span.eq(self._span),
            queues.record.eq(self._metadata.record),
            queues.runs.eq(self._slots.runs),
            queues.leave.queue.eq(self.task.queue),
            queues.request.p.queue.eq(self.task.queue),
            queues.request.p.row.eq(self._slots.free.row),
            queues.request.p.stopped.eq(self._returns),
            queues.request.p.next.eq(place.x),
            queues.request.p.oldest.eq(self._number),
            add.p.row.eq(queues.row),
            add.p.blocks.eq(queues.blocks),
        ]
        self._wire_oldest(m)

    def _wire_oldest(self, m: Module) -> None:
        """Rows with queues: opened, drained but with more blocks, and closed."""
        oldest, slots, queues, add = self._oldest, self._slots, self._queues, self.port.add
        opens = slots.opened.valid & self.task.is_queue
        refills = add.valid & add.ready & (self._op == QueueOp.DRAIN)
        m.d.comb += [
            self._choice.refills.eq(refills),
            oldest.begin.valid.eq(opens | refills),
            oldest.begin.row.eq(Mux(opens, slots.opened.row, queues.row)),
            oldest.begin.number.eq(queues.first),
            oldest.close.eq(slots.closed),
            oldest.ended.eq(self.port.ended),
        ]

    def _queue(self, m: Module) -> None:
        """Queue operations, one request after another."""
        queues, add = self._queues, self.port.add
        for op in QueueOp:
            self._ask_queue(m, op)
        with m.State("QUEUE"):
            with m.If(queues.done & (queues.verdict.refusal != Refusal.NONE)):
                m.d.sync += [self._verdict.eq(queues.verdict), self.task.is_queue.eq(0)]
                self._give_up(m)
            with m.Elif(queues.done):
                self._queue_done(m)
        with m.State("ADD"):
            m.d.comb += add.valid.eq(1)
            with m.If(add.ready):
                m.d.comb += self.launched.valid.eq(self._launches)
                m.next = "STORE"
                with m.If(self._launches):
                    m.next = "IDLE"

    def _ask_queue(self, m: Module, op: QueueOp) -> None:
        request = self._queues.request
        with m.State(op.name):
            m.d.comb += [request.valid.eq(1), request.p.op.eq(op)]
            m.d.sync += self._op.eq(op)
            if op == QueueOp.RECALL:
                over, visit = self._queues.over, self._sweep.visit
                m.d.comb += request.p.queue.eq(Mux(self._visits, visit.queue, over.queue))
            with m.If(request.ready):
                m.next = "QUEUE"

    def _queue_done(self, m: Module) -> None:
        queues = self._queues
        rests = queues.outcome == QueueNext.REST
        with m.Switch(self._op):
            with m.Case(QueueOp.ENTER):
                m.d.sync += [self.task.is_queue.eq(1), self.task.queue.eq(queues.queue)]
                m.next = "GO"
                with m.If(rests):
                    m.d.comb += self.launched.valid.eq(1)
                    m.next = "IDLE"
            with m.Case(QueueOp.APPEND):
                self._appended(m)
            with m.Case(QueueOp.TAKE):
                m.d.comb += self._words.start.eq(1)
                m.next = "WORDS"
            with m.Case(QueueOp.DRAIN, QueueOp.ADVANCE):
                m.d.sync += self._store.eq(Stored.GET)
                m.next = "STORE"
                with m.If(queues.outcome == QueueNext.ADD):
                    m.d.sync += self._holds.eq(0)
                    m.next = "ADD"
            with m.Case(QueueOp.RECALL):
                m.d.sync += [self.task.eq(queues.owner), self._of.eq(queues.home)]
                m.next = "END"
                with m.If(self._visits):
                    m.next = "JUDGE"
                with m.If(self._visits & ~queues.rests):
                    self._visited(m)
            with m.Case(QueueOp.UNDO):
                m.next = "FAIL"

    def _appended(self, m: Module) -> None:
        queues = self._queues
        with m.Switch(queues.outcome):
            with m.Case(QueueNext.ADD):
                m.next = "ADD"
            with m.Case(QueueNext.LIST):
                m.d.sync += [
                    self.task.eq(queues.owner),
                    self._of.eq(queues.home),
                    self._level.eq(queues.rank),
                    self._head.eq(0),
                    self._wakes.eq(1),
                ]
                m.next = "PUSH"
            with m.Default():
                m.d.comb += self.launched.valid.eq(1)
                m.next = "IDLE"

    def _close(self, m: Module) -> None:
        """Free the row."""
        close, slots = self.port.close, self._slots
        m.d.comb += [close.p.eq(self._row), slots.closed.row.eq(self._row)]
        with m.State("CLOSE"):
            m.d.comb += close.valid.eq(1)
            with m.If(close.ready):
                m.d.comb += slots.closed.valid.eq(1)
                m.next = "IDLE"

    def _begin_visit(self, m: Module) -> None:
        """Go to the task that is to be visited."""
        visit = self._sweep.visit
        m.d.sync += self._row.eq(visit.row)
        with m.Switch(visit.place):
            with m.Case(Place.ROW):
                m.next = "INSPECT"
            with m.Case(Place.LIST):
                m.next = "SCAN"
            with m.Default():
                m.next = "RECALL"

    def _visited(self, m: Module, *, last: bool = False) -> None:
        m.d.comb += [self._sweep.next.eq(1), self._sweep.last.eq(last)]
        m.next = "IDLE"

    def _visit(self, m: Module, kept: data.View) -> None:
        """Visit a task of a row or a list, and kill it if it is to be killed."""
        visit, lists = self._sweep.visit, self._lists
        with m.State("INSPECT"):
            m.next = "INSPECTED"
        with m.State("INSPECTED"):
            m.d.sync += [self.task.eq(kept.task), self._of.eq(self.context)]
            m.next = "JUDGE"
        with m.State("SCAN"):
            m.d.comb += [
                lists.visit.valid.eq(1),
                lists.visit.p.step.eq(Mux(visit.first, ListVisit.FIRST, ListVisit.NEXT)),
            ]
            with m.If(lists.visit.ready):
                m.next = "SCANNED"
        with m.State("SCANNED"):
            found = lists.visited
            m.d.sync += [self.task.eq(found.task), self._of.eq(visit.where.context)]
            if self._config.preemption:
                m.d.sync += self._saved.eq(found.second.saved)
            if self._config.nested:
                m.d.sync += self._kin.eq(found.second.kin)
            with m.If(found.valid):
                m.next = "JUDGE"
                with m.If(found.outcome == ListOutcome.NONE):
                    self._visited(m, last=True)
                with m.Elif((found.outcome != ListOutcome.DONE) | found.task.dropped):
                    self._visited(m)
        with m.State("JUDGE"):
            m.next = "KILL"
        with m.State("KILL"):
            self._visited(m)
            with m.If(self._filter.kills):
                m.d.sync += self._verdict.eq(KILLED)
                m.d.comb += self._slots.kills.valid.eq(visit.place == Place.ROW)
                with m.Switch(visit.place):
                    with m.Case(Place.LIST):
                        m.next = "DROP"
                    with m.Case(Place.QUEUE):
                        m.next = "FAIL"
        with m.State("DROP"):
            m.d.comb += [lists.visit.valid.eq(1), lists.visit.p.step.eq(ListVisit.DROP)]
            with m.If(lists.visit.ready):
                m.next = "DROPPED"
        with m.State("DROPPED"):
            with m.If(lists.visited.valid):
                m.next = "FAIL"
                with m.If(lists.visited.outcome != ListOutcome.DONE):
                    m.next = "IDLE"
