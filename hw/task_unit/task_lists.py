"""Tasks without a slot: one list per context and priority level (ASID-23, PREEMPT-7)."""

from amaranth.hdl import Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.compute_control import MOST_LOG_SIZE, list_area
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort
from signalbox.hw.records.nested import kernel_kin
from signalbox.hw.records.placement import task_level, task_pointer, task_saved
from signalbox.hw.task_unit.word_access import WORD_BYTES, WordAccess, word_request

__all__ = ["ListOutcome", "ListVisit", "TaskLists", "list_push", "list_visit", "second_word"]

_COUNT = MOST_LOG_SIZE + 1

_ROW = data.StructLayout({"first": MOST_LOG_SIZE, "count": _COUNT, "live": _COUNT})
"""State of a list: ring position of its first task, number of tasks, and how many of these are not
dropped."""


class ListOutcome(enum.Enum, shape=2):
    """Result of an operation."""

    DONE = 0
    FULL = 1
    """The list is full, apart from places reserved for evicted tasks; nothing changes."""
    MEMORY = 2
    """The memory of the lists could not be accessed. A pushed task is not in the list; a popped
    task is lost; a visited one stays as it is."""
    NONE = 3
    """There is no further task to visit."""


class ListVisit(enum.Enum, shape=2):
    """Step of a visit of all tasks of a list."""

    FIRST = 0
    """Read the first task."""
    NEXT = 1
    """Read the next one."""
    DROP = 2
    """Drop the task just read. A list with only dropped tasks counts as empty."""


class _Op(enum.Enum, shape=3):
    """Operation in progress; the last three are steps of a visit."""

    PUSH = 0
    POP = 1
    FIRST = 2
    NEXT = 3
    DROP = 4


def _entry(config: Config) -> dict[str, ShapeLike]:
    """Entry of a list; with preemption, the second word as well."""
    second = {"second": second_word(config)} if config.preemption else {}
    return {"task": task_pointer, **second}


def second_word(config: Config) -> data.StructLayout:
    """Second word of an entry: the saved blocks of a task that has some; with nested launches, the
    kin of a task that has been in a row, or is a child, otherwise 0."""
    kin = {"kin": kernel_kin(config)} if config.nested else {}
    return data.StructLayout({"saved": task_saved(config), **kin})


def list_push(config: Config) -> data.StructLayout:
    """`task` goes to the tail of its list, or with `head` to the head."""
    return data.StructLayout({"where": task_level(config), "head": 1, **_entry(config)})


def list_visit(config: Config) -> data.StructLayout:
    """A step of the visit of a list; NEXT and DROP are for the list of the last FIRST."""
    return data.StructLayout({"where": task_level(config), "step": ListVisit})


class TaskLists(wiring.Component):
    """Keeps the tasks that wait for a slot, in a list per context and priority level. Each list is
    a ring in system memory that applications cannot access, so no application can corrupt the list
    of another, and capacity is limited by memory alone. The last places of each list, one per row,
    are reserved for returning tasks (`resumed`), so these always find room.

    One operation at a time. It takes the memory latency plus 8 cycles, and the latency plus 3 again
    for a task with a second word; a push to a full list fails after 6. Pop goes ahead of push, and
    push ahead of visits. `area` may change only while all lists are empty.

    A visit reads the tasks of one list in order. Between its steps, tasks may be pushed and popped:
    it passes over those pushed since its first step, and reads none that was popped. A dropped task
    keeps its place until it is popped.

    Members
    -------
    area : in, a `list_area`: memory of the lists.
    push : in, stream of `list_push`: a task.
    pushed : out, strobe: result of the push.
    pop : in, stream of `task_level`: remove the first task of this list, which is not empty.
    popped : out, strobe: the task and the result.
    visit : in, stream of `list_visit`: a step of a visit.
    visited : out, strobe: the task and the result.
    waiting : out, per level of each context: its list is not empty.
    read : out, memory client.
    write : out, memory client.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        found = data.StructLayout({"valid": 1, "outcome": ListOutcome, **_entry(config)})
        super().__init__({
            "area": In(list_area(config)),
            "push": In(stream.Signature(list_push(config))),
            "pushed": Out(data.StructLayout({"valid": 1, "outcome": ListOutcome})),
            "pop": In(stream.Signature(task_level(config))),
            "popped": Out(found),
            "visit": In(stream.Signature(list_visit(config))),
            "visited": Out(found),
            "waiting": Out(config.contexts * config.levels),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
        })
        self._op = Signal(_Op)
        self._head = Signal()
        self._none = Signal()
        """No memory is accessed, as the list is full or has no further task."""
        self._number = Signal(task_level(config).size)
        self._request = Signal(word_request(config))
        self._after = Signal(_ROW)
        self._index = Signal(MOST_LOG_SIZE)
        self._outcome = Signal(ListOutcome)
        self._mask = Signal(MOST_LOG_SIZE)
        self._ring = Signal(VA_BITS)
        """`_mask`: mask of a ring position. `_ring`: first position of the list's ring in the
        area."""
        self._most = Signal(signed(MOST_LOG_SIZE + 2))
        """Number of tasks at which the list is full."""
        self._level = Signal(config.levels)
        self._whose = Signal(config.contexts)
        """The list: its level and its context, each one-hot."""
        self._some, self._one = Signal(name="some"), Signal(name="one")
        """The list has live tasks (`_some`), exactly one (`_one`): before a pop, but after any
        other operation."""
        self._visited = Signal.like(self._number)
        self._at = Signal(MOST_LOG_SIZE)
        self._left = Signal(_COUNT)
        """`_visited`: list of the visit. `_at`: ring position of the next task. `_left`: number of
        tasks left."""
        self._task = Signal(task_pointer, name="accessed_task")
        """The task that is pushed, or was read."""
        self._first = Signal(task_pointer, name="first_word")
        """The first word of the entry."""
        self._second = Signal(second_word(config), name="second")
        """The second word of a task that is pushed."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=_ROW, depth=1 << len(self._number), init=[])
        m.submodules.word = word = WordAccess(self._config)
        connect(m, word.read, flipped(self.read))
        connect(m, word.write, flipped(self.write))
        look, keep, row = rows.read_port(), rows.write_port(), Signal(_ROW)
        m.d.comb += [
            look.addr.eq(self._number),
            keep.addr.eq(self._number),
            keep.data.eq(self._after),
            word.request.p.eq(self._request),
            [out.task.eq(self._task) for out in (self.popped, self.visited)],
            [out.outcome.eq(self._outcome) for out in (self.popped, self.pushed, self.visited)],
        ]
        held = self._find(m)
        m.d.sync += row.eq(look.data)
        with m.FSM(name="lists"):
            with m.State("IDLE"):
                self._accept(m)
                with m.If(self.pop.valid | self.push.valid | self.visit.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "FETCH"
            with m.State("FETCH"):
                m.next = "PLACE"
            with m.State("PLACE"):
                self._place(m, row, held)
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                self._address(m)
                m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += word.request.valid.eq(~self._none)
                m.next = "WAIT"
            self._wait(m, keep, word)
            if self._config.preemption:
                self._second_word(m, keep, word)
        return m

    def _wait(self, m: Module, keep: memory.WritePort, word: WordAccess) -> None:
        """Wait for the answer."""
        answer, pushes = word.answer, self._op == _Op.PUSH
        with m.State("WAIT"):
            m.d.comb += self._task.eq(Mux(pushes, self._request.data, answer.data))
            m.d.sync += self._first.eq(self._task)
            with m.If(self._none | answer.valid):
                if self._config.preemption:
                    with m.If(self._has_second(answer)):
                        m.next = "ASK SECOND"
                    with m.Else():
                        self._end(m, keep, answer)
                else:
                    self._end(m, keep, answer)

    def _has_second(self, answer: data.View) -> Value:
        """Whether the entry just accessed has a second word."""
        reads = ~self._none & (answer.status == MemoryStatus.OK)
        has = self._task.saved
        if self._config.nested:
            has |= self._task.resumed | (self._task.depth > 1)
        return reads & (self._op != _Op.DROP) & has

    def _second_word(self, m: Module, keep: memory.WritePort, word: WordAccess) -> None:
        """Access the second word of an entry."""
        answer = word.answer
        second = data.View(self._second.shape(), answer.data[: self._second.shape().size])
        found = self.popped.second, self.visited.second
        m.d.comb += [out.saved.eq(second.saved) for out in found]
        with m.State("ASK SECOND"):
            m.d.comb += [
                word.request.valid.eq(1),
                word.request.p.va.eq(self._request.va | WORD_BYTES),
                word.request.p.data.eq(self._second),
            ]
            m.next = "WAIT SECOND"
        with m.State("WAIT SECOND"):
            m.d.comb += self._task.eq(self._first)
            if self._config.nested:
                m.d.comb += [out.kin.eq(second.kin) for out in found]
            with m.If(answer.valid):
                self._end(m, keep, answer)

    def _accept(self, m: Module) -> None:
        pop, push, visit = self.pop, self.push, self.visit
        m.d.comb += [
            pop.ready.eq(1),
            push.ready.eq(~pop.valid),
            visit.ready.eq(~pop.valid & ~push.valid),
        ]
        m.d.sync += [self._head.eq(push.p.head), self._number.eq(visit.p.where.as_value())]
        with m.If(pop.valid):
            m.d.sync += [self._op.eq(_Op.POP), self._number.eq(pop.p.as_value())]
        with m.Elif(push.valid):
            m.d.sync += [
                self._op.eq(_Op.PUSH),
                self._number.eq(push.p.where.as_value()),
                self._request.data.eq(push.p.task),
            ]
            if self._config.preemption:
                m.d.sync += self._second.eq(push.p.second)
        with m.Else():
            m.d.sync += self._op.eq(_Op.FIRST)
            with m.Switch(visit.p.step):
                for step in (ListVisit.NEXT, ListVisit.DROP):
                    with m.Case(step):
                        m.d.sync += [self._op.eq(_Op[step.name]), self._number.eq(self._visited)]

    def _find(self, m: Module) -> Signal:
        """Values derived from the list number and the area. Returns whether the list is not empty.
        All are correct from the second cycle after a new number on."""
        log_size, contexts = self.area.log_size, self._config.contexts
        count, bits = self._config.levels, self._config.level_bits
        level, context = self._number[:bits], self._number[bits:]
        resumed = data.View(task_pointer, self._request.data).resumed
        levels = Signal(count)
        held = Signal()
        size = Signal(MOST_LOG_SIZE + 1)
        shared = Signal.like(self._most)
        m.d.sync += [
            self._level.eq(Const(1, count) << level),
            self._whose.eq(Const(1, contexts) << context),
            levels.eq(self.waiting.word_select(context, count)),
            held.eq((levels & self._level).any()),
            size.eq(1 << log_size),
            shared.eq(size - self._config.rows),
            self._most.eq(Mux(resumed, size, shared)),
            self._mask.eq((1 << log_size) - 1),
            self._ring.eq(self._number << log_size),
        ]
        return held

    def _place(self, m: Module, row: data.View, held: Signal) -> None:
        """Ring position of the task and new state of the list. The RAM contents of an empty list
        are stale."""
        after, mask, op = self._after, self._mask, self._op
        count = Signal(_COUNT)
        first = Signal(MOST_LOG_SIZE)
        m.d.comb += [count.eq(Mux(held, row.count, 0)), first.eq(row.first)]
        m.d.sync += [
            after.first.eq(row.first),
            after.count.eq(count),
            after.live.eq(Mux(held, row.live, 0)),
            self._none.eq(0),
            self._index.eq(row.first & mask),
        ]
        with m.Switch(op):
            with m.Case(_Op.PUSH):
                step = Mux(self._head, ~0, 0)
                m.d.sync += [
                    self._none.eq(count >= self._most),
                    self._index.eq((first + Mux(self._head, ~0, count)) & mask),
                    after.first.eq((first + step) & mask),
                    after.count.eq(count + 1),
                    after.live.eq(Mux(held, row.live, 0) + 1),
                ]
            with m.Case(_Op.POP):
                m.d.sync += [after.first.eq((first + 1) & mask), after.count.eq(count - 1)]
            with m.Case(_Op.FIRST):
                m.d.sync += self._none.eq(~held)
            with m.Case(_Op.NEXT):
                m.d.sync += [self._none.eq(self._left == 0), self._index.eq(self._at)]
            with m.Case(_Op.DROP):
                m.d.sync += [self._index.eq((self._at - 1) & mask), after.live.eq(row.live - 1)]

    def _address(self, m: Module) -> None:
        area, request, live = self.area, self._request, self._after.live
        m.d.sync += [
            request.asid.eq(area.asid),
            request.write.eq((self._op == _Op.PUSH) | (self._op == _Op.DROP)),
            request.strobe.eq((1 << WORD_BYTES) - 1),
            request.va.eq(
                (area.base << 12) + (self._ring | self._index) * self._config.list_entry_bytes
            ),
            self._some.eq(live != 0),
            self._one.eq(live == 1),
        ]

    def _end(self, m: Module, keep: memory.WritePort, answer: data.View) -> None:
        """Answer and update the list: a failed pop has lost its task."""
        op, none = self._op, self._none
        pops, pushes = op == _Op.POP, op == _Op.PUSH
        task = self._task
        m.next = "IDLE"
        failed, less, some = Signal(name="failed"), Signal(name="less"), Signal(name="some")
        m.d.comb += [
            failed.eq(~none & (answer.status != MemoryStatus.OK)),
            less.eq(pops & (failed | ~task.dropped)),
            some.eq(self._some & ~(less & self._one)),
            self.popped.valid.eq(pops),
            self.pushed.valid.eq(pushes),
            self.visited.valid.eq(~pops & ~pushes),
            keep.en.eq(pops | ((pushes | (op == _Op.DROP)) & ~none & ~failed)),
            keep.data.live.eq(self._after.live - less),
        ]
        with m.If(none):
            m.d.comb += self._outcome.eq(Mux(pushes, ListOutcome.FULL, ListOutcome.NONE))
        with m.Elif(failed):
            m.d.comb += self._outcome.eq(ListOutcome.MEMORY)
        for context in range(self._config.contexts):
            levels = self.waiting.word_select(context, self._config.levels)
            with m.If(keep.en & self._whose[context]):
                m.d.sync += levels.eq((levels & ~self._level) | Mux(some, self._level, 0))
        self._go_on(m, keep.en & ~some, task)

    def _go_on(self, m: Module, empties: Value, task: data.View) -> None:
        """Update the visit."""
        op, here = self._op, self._number == self._visited
        passes = (op == _Op.POP) & here & (self._index == self._at) & (self._left != 0)
        with m.If(op == _Op.FIRST):
            m.d.sync += [
                self._visited.eq(self._number),
                self._at.eq((self._index + 1) & self._mask),
                self._left.eq(Mux(self._none, 0, self._after.count - 1)),
            ]
        with m.Elif(empties & here):
            m.d.sync += self._left.eq(0)
        with m.Elif(passes | ((op == _Op.NEXT) & ~self._none)):
            m.d.sync += [self._at.eq((self._at + 1) & self._mask), self._left.eq(self._left - 1)]
        with m.If((op == _Op.FIRST) | (op == _Op.NEXT)):
            seen = data.View(task_pointer, self._request.data)
            m.d.sync += [seen.eq(task), seen.dropped.eq(1)]
