"""Tasks without a slot: one list per context and priority level (ASID-23)."""

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import PRIORITIES, VA_BITS, Config
from signalbox.hw.records.compute_control import MOST_LOG_SIZE, list_area
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort
from signalbox.hw.records.placement import task_level, task_pointer
from signalbox.hw.task_unit.word_access import WORD_BYTES, WordAccess, word_request

__all__ = ["ListOutcome", "TaskLists", "list_push"]

_ROW = data.StructLayout({"first": MOST_LOG_SIZE, "count": MOST_LOG_SIZE + 1})
"""State of a list: ring position of its first task, and number of tasks."""


class ListOutcome(enum.Enum, shape=2):
    """Result of an operation."""

    DONE = 0
    FULL = 1
    """The list is full, apart from places reserved for evicted tasks; nothing changes."""
    MEMORY = 2
    """The memory of the lists could not be accessed. A pushed task is not in the list; a popped
    task is lost."""


def list_push(config: Config) -> data.StructLayout:
    """`task` goes to the tail of its list, or with `head` to the head."""
    return data.StructLayout({"where": task_level(config), "head": 1, "task": task_pointer})


class TaskLists(wiring.Component):
    """Each list is a ring in system memory that applications cannot access, so no application can
    corrupt the list of another, and capacity is limited by memory alone. The last places of each
    list, one per row, are reserved for returning tasks (`resumed`), so these always find room.

    One operation at a time, which takes the memory latency plus 8 cycles; a push to a full list
    fails after 6. Pop goes ahead of push. `area` may change only while all lists are empty.

    Members
    -------
    area : in, memory of the lists.
    push : in, a task.
    pushed : out, strobe: result of the push.
    pop : in, a non-empty list whose first task is to be removed.
    popped : out, strobe: the task and the result.
    waiting : out, per level of each context: its list is not empty.
    read : out, the memory.
    write : out, the memory.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "area": In(list_area(config)),
            "push": In(stream.Signature(list_push(config))),
            "pushed": Out(data.StructLayout({"valid": 1, "outcome": ListOutcome})),
            "pop": In(stream.Signature(task_level(config))),
            "popped": Out(
                data.StructLayout({"valid": 1, "outcome": ListOutcome, "task": task_pointer})
            ),
            "waiting": Out(config.contexts * PRIORITIES),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
        })
        self._pops = Signal()
        self._head = Signal()
        self._full = Signal()
        self._number = Signal(task_level(config).size)
        self._request = Signal(word_request(config))
        self._after = Signal(_ROW)
        self._index = Signal(MOST_LOG_SIZE)
        self._outcome = Signal(ListOutcome)
        self._mask = Signal(MOST_LOG_SIZE)
        self._ring = Signal(VA_BITS)
        """Mask of a ring position; first position of the list's ring in the area."""
        self._most = Signal(signed(MOST_LOG_SIZE + 2))
        """Number of tasks at which the list is full."""
        self._level = Signal(PRIORITIES)
        self._whose = Signal(config.contexts)
        """The list, one-hot."""
        self._some = Signal()
        """The list is not empty afterwards."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = rows = Memory(shape=_ROW, depth=1 << len(self._number), init=[])
        m.submodules.word = word = WordAccess(self._config)
        connect(m, word.read, flipped(self.read))
        connect(m, word.write, flipped(self.write))
        look, keep, row = rows.read_port(), rows.write_port(), Signal(_ROW)
        m.d.comb += [
            look.addr.eq(self._number),
            keep.addr.eq(self._number),
            keep.data.eq(self._after),
            word.request.p.eq(self._request),
            self.popped.task.eq(word.answer.data),
            self.popped.outcome.eq(self._outcome),
            self.pushed.outcome.eq(self._outcome),
        ]
        held = self._find(m)
        m.d.sync += row.eq(look.data)
        with m.FSM(name="lists"):
            with m.State("IDLE"):
                self._accept(m)
                with m.If(self.pop.valid | self.push.valid):
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
                m.d.comb += word.request.valid.eq(~self._full)
                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self._full | word.answer.valid):
                    self._end(m, keep.en, word.answer.status)
                    m.next = "IDLE"
        return m

    def _accept(self, m: Module) -> None:
        pop, push = self.pop, self.push
        m.d.comb += [pop.ready.eq(1), push.ready.eq(~pop.valid)]
        m.d.sync += [
            self._pops.eq(pop.valid),
            self._head.eq(push.p.head),
            self._number.eq(Mux(pop.valid, pop.p.as_value(), push.p.where.as_value())),
            self._request.data.eq(push.p.task),
        ]

    def _find(self, m: Module) -> Signal:
        """Values derived from the list number and the area. Returns whether the list is not empty.
        All are correct from the second cycle after a new number on."""
        log_size, contexts = self.area.log_size, self._config.contexts
        level, context = self._number[:6], self._number[6:]
        resumed = data.View(task_pointer, self._request.data).resumed
        levels = Signal(PRIORITIES)
        held = Signal()
        size = Signal(MOST_LOG_SIZE + 1)
        shared = Signal.like(self._most)
        m.d.sync += [
            self._level.eq(Const(1, PRIORITIES) << level),
            self._whose.eq(Const(1, contexts) << context),
            levels.eq(self.waiting.word_select(context, PRIORITIES)),
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
        after, mask = self._after, self._mask
        count = Signal(MOST_LOG_SIZE + 1)
        further = Signal(MOST_LOG_SIZE + 1)
        step = Signal(MOST_LOG_SIZE + 1)
        m.d.comb += [
            count.eq(Mux(held, row.count, 0)),
            further.eq(Mux(self._pops, 0, Mux(self._head, ~0, count))),
            step.eq(Mux(self._pops, 1, Mux(self._head, ~0, 0))),
        ]
        m.d.sync += [
            self._full.eq((count >= self._most) & ~self._pops),
            self._index.eq((row.first + further) & mask),
            after.first.eq((row.first + step) & mask),
            after.count.eq(count + Mux(self._pops, ~0, 1)),
        ]

    def _address(self, m: Module) -> None:
        area, request = self.area, self._request
        m.d.sync += [
            request.asid.eq(area.asid),
            request.write.eq(~self._pops),
            request.strobe.eq((1 << WORD_BYTES) - 1),
            request.va.eq((area.base << 12) + (self._ring | self._index) * WORD_BYTES),
            self._some.eq(self._after.count != 0),
        ]

    def _end(self, m: Module, keep: Value, status: Value) -> None:
        """Answer and update the list: a failed pop has lost its task."""
        failed = ~self._full & (status != MemoryStatus.OK)
        m.d.comb += [
            self.popped.valid.eq(self._pops),
            self.pushed.valid.eq(~self._pops),
            keep.eq(self._pops | ~(self._full | failed)),
        ]
        with m.If(self._full):
            m.d.comb += self._outcome.eq(ListOutcome.FULL)
        with m.Elif(failed):
            m.d.comb += self._outcome.eq(ListOutcome.MEMORY)
        for context in range(self._config.contexts):
            levels = self.waiting.word_select(context, PRIORITIES)
            with m.If(keep & self._whose[context]):
                m.d.sync += levels.eq((levels & ~self._level) | Mux(self._some, self._level, 0))
