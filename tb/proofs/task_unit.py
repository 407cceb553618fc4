"""Proofs of the task unit: location of tasks between their launch and their end (ASID-23 … 25)."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.task_unit.job_choice import Job
from signalbox.hw.task_unit.kill_sweep import Place
from signalbox.hw.task_unit.task_lists import ListOutcome, ListVisit
from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.tb.proofs.formal import Assert, Assume, Inside, Proof, Wrap, surround

__all__ = ["PROOFS"]

CONFIG = Config(
    channels=1,
    semaphores=8,
    counters=1,
    asids=2,
    contexts=1,
    slots=4,
    spare_rows=1,
    sms=1,
    queues=1,
)
ROWS = CONFIG.rows
PLACE, COUNTER, RESTORE, GET = range(4)  # values written into a record
COUNT = 6  # bits of a count of tasks
KNOWN = 3  # cycles for which the priority in a record is known before its check is done
PARTS = ("slots", "lists", "metadata", "words", "stores", "queues", "oldest")
VISIT_STATES = (
    "INSPECT",
    "INSPECTED",
    "SCAN",
    "SCANNED",
    "JUDGE",
    "KILL",
    "DROP",
    "DROPPED",
)
TO_ROW = ("POP", "POPPED", "WORDS", "OPEN")
QUEUE_STATES = ("ENTER", "APPEND", "UNDO", "TAKE", "DRAIN", "RECALL", "ADVANCE", "QUEUE", "ADD")


class TasksProof(Proof):
    """For grid tasks. Slots behave as shown by `task_unit.slot_table`. Lists, memory and the
    contents of records are unconstrained, except that tasks leave a list only if it contains one,
    and that the priority in a record is known some cycles before its check is done."""

    name = "task_unit.tasks"
    shows = (
        "every task that was accepted and has not ended, failed or been lost is in a list, in a "
        "row, on its way from one to the other, or at its end, and no two of these; the task unit "
        "is idle only when there is none, and empty only when none is in a row or on its way "
        "there; a task leaves a list for a row only while all lists of higher levels are empty, "
        "and a launched one goes into a row at once only if that of its own level is empty, too"
    )
    induction = 3
    bounded = 8
    breaks = ("forget",)  # a design frozen as a whole stays consistent

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = TaskUnit(CONFIG)
        self._inside = inside = Inside(dut)
        inside.abstract(*PARTS)
        self._state = inside.machine("task")
        self._slots, self._lists = inside.submodule("slots"), inside.submodule("lists")
        self._levels, self._choice = inside.submodule("levels"), inside.submodule("choice")
        self._left = Inside(self._choice).signal("settle")
        """Remaining settle cycles."""
        self._sweep = inside.submodule("sweep")
        tasks = inside.submodule("tasks")
        m.submodules.dut = wrap(dut)
        for row in range(ROWS):
            port = tasks.read_port(domain="comb")
            m.d.comb += [port.addr.eq(row), Assert(~port.data.task.is_queue)]
        self._grids(m)
        self._inputs(m)
        self._settled = self._settle(m)
        self._rows, self._listed = Signal(COUNT, name="in_rows"), Signal(COUNT, name="in_lists")
        self._follow_rows(m)
        self._follow_lists(m)
        self._order(m)
        self._held(m)

    def _grids(self, m: Module) -> None:
        """There are no queue tasks."""
        dut, inside = self._dut, self._inside
        queues, launch = inside.submodule("queues"), dut.launch.p
        action = inside.signal("action", LaunchAction)
        m.d.comb += [
            Assume(~inside.submodule("metadata").record.IS_QUEUE),
            Assume(~launch.task.is_queue & (launch.action != LaunchAction.INCREMENT_PUT)),
            Assume(~(queues.over.valid | queues.open.any() | queues.done | queues.request.ready)),
            Assume(~inside.submodule("oldest").moved.valid),
            Assert(~inside.signal("advances")),
            Assume(~self._lists.popped.task.is_queue),
            Assume(~self._lists.visited.task.is_queue),
            Assert(~dut.task.is_queue & (action != LaunchAction.INCREMENT_PUT)),
        ]

    def _inputs(self, m: Module) -> None:
        dut = self._dut
        m.d.comb += Assume(dut.context == 0)
        surround(m, dut, "dut", but=("read", "write"))

    def _settle(self, m: Module) -> Value:
        """Whether the choices of the slots include the last change (see `SlotTable`); they are used
        only then."""
        slots = self._slots
        age = Signal(2, init=2, name="age")
        events = Cat(slots.opened.valid, slots.stopped.valid, slots.closed.valid)
        settled = age == 2
        m.d.sync += age.eq(Mux(events.any(), 0, Mux(settled, 2, age + 1)))
        m.d.comb += [
            Assert((events & (events - 1)) == 0),
            Assert(~events.any() | settled),
            Assert(settled | (self._is("IDLE") & (self._left + age == 3))),
        ]
        return settled

    def _follow_rows(self, m: Module) -> None:
        slots, rows, idle = self._slots, self._rows, Signal(init=1, name="were_free")
        m.d.sync += [
            rows.eq(rows + slots.opened.valid - slots.closed.valid),
            idle.eq(rows == 0),
        ]
        named = slots.ended.valid | slots.returning.valid | slots.faulty.valid | slots.victim.valid
        full = rows == ROWS
        choices = (slots.ended, slots.returning, slots.faulty, slots.victim)
        m.d.comb += [Assume(choice.row < ROWS) for choice in choices]
        m.d.comb += [
            Assume(slots.idle == idle),
            Assume(~(self._settled & named) | (rows != 0)),
            Assume(~(self._settled & slots.free.valid) | ~full),
            Assert(rows <= ROWS),
        ]

    def _follow_lists(self, m: Module) -> None:
        lists, count, best = self._lists, self._listed, self._levels.highest
        asked, before = Signal(3, name="list_asked"), Signal(lists.waiting.shape(), name="before")
        answers = Cat(lists.popped.valid, lists.pushed.valid, lists.visited.valid)
        requests = [stream.valid & stream.ready for stream in (lists.pop, lists.push, lists.visit)]
        adds = lists.pushed.valid & (lists.pushed.outcome == ListOutcome.DONE)
        changes = Signal(name="lists_changed")
        drops, leaves = Signal(name="list_drops"), Signal(name="list_loses")
        good = lists.visited.outcome == ListOutcome.DONE
        live = lists.visited.valid & good & ~drops & ~lists.visited.task.dropped
        gone = (lists.popped.outcome == ListOutcome.DONE) & lists.popped.task.dropped
        m.d.comb += leaves.eq((lists.popped.valid & ~gone) | (lists.visited.valid & good & drops))
        m.d.sync += [
            count.eq(count + adds - leaves),
            asked.eq((asked | Cat(requests)) & ~answers),
            drops.eq(Mux(requests[2], lists.visit.p.step == ListVisit.DROP, drops)),
            before.eq(lists.waiting),
            changes.eq(adds | leaves),
        ]
        m.d.comb += [
            Assume((lists.waiting != 0) == (count != 0)),
            Assume(changes | (lists.waiting == before)),
            Assume((answers & ~asked) == 0),
            Assume(~live | (count != 0)),
            Assert(~self._visits_list | (count != 0)),
            Assert(~self._is("DROPPED") | (drops & (count != 0))),
            Assert(~self._is("SCANNED") | ~drops),
            Assert(asked[2] == self._is("SCANNED", "DROPPED")),
            Assume(~adds | (count < 1 << COUNT - 2)),
            Assert(~(changes & self._is("IDLE", "POP")) | (self._left == 3)),
            Assert(~changes | ~self._is("POP", "JUDGE", "KILL", "DROP")),
            Assert(~(self._is("POP") | self._begins(Job.FILL)) | best.valid),
            Assert(asked[0] == self._is("POPPED")),
            Assert(asked[1] == self._is("PUSHED")),
            Assert(~asked[0] | (count != 0)),
        ]

    def _order(self, m: Module) -> None:
        """Tasks go into rows by level."""
        lists, metadata, pop = self._lists, self._inside.submodule("metadata"), self._lists.pop
        launches, level, enters, first = (
            self._inside.signal(name) for name in ("launches", "level", "enters", "first")
        )
        best, priority = self._levels.highest, metadata.needs.priority
        before, known = Signal.like(priority, name="priority"), Signal(2, name="priority_known")
        accepted = self._dut.launched.verdict.refusal == Refusal.NONE
        checked = launches & (
            self._is("GO", "WORDS", "OPEN") | (self._is("STORE", "STORED") & accepted)
        )
        begins = metadata.request.valid & metadata.request.ready
        same = (priority == before) & ~begins
        judged = checked | (launches & self._is("CHECK") & same & (known == KNOWN))
        chosen = self._is("POP") | (self._is("IDLE") & (self._left <= 1))
        settled = chosen | checked | (launches & self._is("READ", "CHECK"))
        m.d.sync += [before.eq(priority), known.eq(Mux(same, known + (known < KNOWN), 0))]
        m.d.comb += [
            Assume(priority < CONFIG.levels),
            Assume(~(launches & metadata.done) | (same & (known == KNOWN))),
            Assume(~checked | same),
            Assert(~settled | (best.valid == lists.waiting.any())),
            Assert(~settled | ((lists.waiting >> best.level) == best.valid)),
            Assert(~checked | ((known == KNOWN) & (level == priority))),
            Assert(~judged | (first == ((lists.waiting >> priority) == 0))),
            Assert(~(judged & enters) | first),
            Assert(~(launches & self._is("WORDS", "OPEN")) | ((lists.waiting >> level) == 0)),
            Assert(~(pop.valid & pop.ready) | ((lists.waiting >> pop.p.level) == 1)),
        ]

    @property
    def _visits_list(self) -> Value:
        """Whether a live task of a list is being visited."""
        return self._is("DROP") | (self._is("JUDGE", "KILL") & self._visits(Place.LIST))

    def _visits(self, place: Place) -> Value:
        visit = self._sweep.visit
        return visit.valid & (visit.place == place)

    def _begins(self, *jobs: Job) -> Value:
        """Whether the next job is one of these."""
        return Cat(self._choice.job == job for job in jobs).any()

    def _is(self, *states: str) -> Value:
        """Whether the task unit is in one of these states."""
        return Cat(self._state.ongoing(state) for state in states).any()

    def _held(self, m: Module) -> None:
        """Count the tasks that were accepted and are not over, and locate them."""
        dut, refused = self._dut, self._dut.launched.verdict.refusal != Refusal.NONE
        launched, ended, failed = dut.launched, dut.ended, dut.failed
        held, hand = Signal(COUNT, name="held"), Signal(name="in_hand")
        accepts = launched.valid & (launched.verdict.refusal == Refusal.NONE) & ~launched.nothing
        over = (ended.valid & ended.ready, failed.valid & failed.ready, dut.lost)
        leaves = Signal(name="was_to_leave")
        m.d.sync += [held.eq(held + accepts - sum(over)), leaves.eq(dut.leave)]
        from_list = ~(self._inside.signal("launches") | self._inside.signal("holds"))
        visits = self._inside.signal("job_visits")
        nobody = (self._rows == 0) & ~ended.valid
        m.d.comb += [
            hand.eq(self._is("READ", "CHECK", "WORDS", "OPEN", "FAIL") & from_list),
            # While its row is being freed, a task is already elsewhere.
            Assert(
                held == (self._listed + self._rows + ended.valid + hand - self._is("CLOSE"))[:COUNT]
            ),
            Assert(~dut.idle | (nobody & (self._listed == 0) & ~hand & (held == 0))),
            Assert(~dut.empty | nobody),
            # A task being visited fails; it does not go into a row.
            Assert(~(dut.empty & leaves & dut.leave) | (nobody & ~(hand & ~visits))),
        ]
        self._states(m, hand, refused)

    def _states(self, m: Module, hand: Value, refused: Value) -> None:
        """Invariants of the states of the task unit."""
        dut = self._dut
        launches, holds, wakes, returns, counted = (
            self._inside.signal(name)
            for name in ("launches", "holds", "wakes", "returns", "counted")
        )
        ended, slots = dut.ended.valid, self._slots
        store = Value.cast(self._inside.submodule("stores").request.p.what)
        counts, row = store != PLACE, slots.closed.row
        told = Signal.like(row, name="told")
        m.d.sync += told.eq(row)
        goes = self._is("GO", "WORDS", "OPEN", "PUSH", "PUSHED") & launches
        stores = self._is("STORE", "STORED")
        keeps = holds & self._is("DIE", "FAIL", "STORE", "STORED", "PUSH", "PUSHED", "END", "CLOSE")
        m.d.comb += [
            Assert(~self._is(*QUEUE_STATES) & ~wakes),
            Assert(~self._is("INSPECT", "INSPECTED") | self._visits(Place.ROW)),
            Assert(~self._is("SCAN", "SCANNED") | self._visits(Place.LIST)),
            Assert(~self._begins(Job.VISIT) | ~self._visits(Place.QUEUE)),
            Assert(~self._is("JUDGE", "KILL") | self._sweep.visit.valid),
            Assert(~(self._is(*VISIT_STATES) & (launches | holds))),
            # Required by `task_unit.slot_table`.
            Assert(~(slots.stopped.valid | slots.closed.valid) | (row == told)),
            Assert(~(launches & holds) | self._is("IDLE")),
            Assert(
                ~self._is("LOOK", "KNOW", "DIE", "STOP", "STOPPED", "POP", "POPPED") | ~launches
            ),
            Assert(~(self._is(*TO_ROW, "READ", "CHECK", "GO") & holds)),
            Assert(~self._is("GO") | launches),
            Assert(~(stores | self._is("PUSH", "PUSHED")) | (launches != holds)),
            Assert(~self._is("END", "CLOSE") | holds),
            Assert(~stores | ((counts == launches) & (store != GET))),
            Assert(~(keeps | self._is("LOOK", "KNOW", "CLOSE")) | (self._rows != 0)),
            Assert(~self._is("LOOK", "KNOW") | returns | ~ended),
            Assert(~self._is("END") | ~ended),
            Assert(~self._is("LOOK", "INSPECT") | (row < ROWS)),
            Assert(~self._visits(Place.ROW) | (self._sweep.visit.row < ROWS)),
            Assert(~self._is("DIE", "DROP", "DROPPED", "FAIL") | refused),
            Assert(~goes | (~refused & ~dut.launched.nothing)),
            Assert(~(stores & launches) | (refused == (store == RESTORE))),
            Assert(~(self._is("READ", "CHECK") & launches) | ~counted),
            Assert(~(stores & (store == COUNTER)) | dut.launched.nothing),
            Assert(~(hand & ~self._is("FAIL") | self._is(*TO_ROW)) | (self._rows != ROWS)),
        ]
        self._jobs(m)

    def _jobs(self, m: Module) -> None:
        """Invariants when a job is about to begin, or a launch is about to go into a slot."""
        dut, choice, inside = self._dut, self._choice, self._inside
        rests, begins = self._is("IDLE"), Inside(choice).signal("some")
        visits, visited = inside.signal("job_visits"), Inside(choice).signal("visited")
        checks = self._is("CHECK", "GO", "STORE", "STORED") & inside.signal("launches")
        m.d.comb += [
            Assert(begins == (choice.job != Job.NONE)),
            Assert(rests | (self._left == 3)),
            Assert(rests | (visits == visited)),
            Assert(~visits | rests | (self._is(*VISIT_STATES, "FAIL") & ~inside.signal("holds"))),
            Assert(~begins | (rests & (self._left == 0))),
            Assert(~self._begins(Job.RECALL, Job.ADVANCE)),
            Assert(~self._begins(Job.VISIT) | self._sweep.visit.valid),
            Assert(~self._begins(Job.END, Job.RETURN) | (self._rows != 0)),
            Assert(~self._begins(Job.END, Job.RETURN) | (choice.row < ROWS)),
            Assert(~self._begins(Job.END) | ~dut.ended.valid),
            Assert(~self._begins(Job.FILL) | (self._rows != ROWS)),
            Assert(~(checks & inside.signal("enters")) | (self._rows != ROWS)),
        ]


PROOFS = [TasksProof()]
