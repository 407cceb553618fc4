"""Queue tasks that are open: what was appended to each, and what has been done of it (ASID-26)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.onehot import encode, lowest
from hw.qmd import QMD, SkedCheck
from hw.work.metadata import Refusal, task_verdict
from hw.work.records import BLOCK_COUNT_BITS, queue_span, task_pointer

__all__ = ["QueueNext", "QueueOp", "QueuePlace", "Queues", "queue_request"]

_COUNT_BITS = 31
"""Bits of INNER_PUT: so many entries may be appended to a queue in all."""

_START_BITS = 24
"""Bits of SEND_PCAS_B FROM."""


class QueueOp(enum.Enum, shape=3):
    """What is to be done with a queue."""

    ENTER = 0
    """A task is launched: it gets a place in the table."""
    APPEND = 1
    """Entries were appended, or with none the queue is closed."""
    UNDO = 2
    """The last APPEND was in vain: its task, which was to go to its list, could not."""
    TAKE = 3
    """Its blocks go to a row."""
    DRAIN = 4
    """The row's blocks have ended."""
    RECALL = 5
    """Only tell of it."""
    SHUT = 6
    """One that the task's channel has launched is closed, and entries that make no whole block are
    dropped."""


class QueueNext(enum.Enum, shape=2):
    """What is to become of a task."""

    REST = 0
    """Nothing: it waits for entries, in no list and no row, or has its place already."""
    LIST = 1
    """It is to go to a list, or a row."""
    ADD = 2
    """Its row gets more blocks."""
    END = 3
    """It is closed, and everything is done."""


class QueuePlace(enum.Enum, shape=2):
    """Where a task is."""

    REST = 0
    LIST = 1
    ROW = 2


def queue_request(config: Config) -> data.StructLayout:
    """`queue`: which one, but for ENTER, APPEND and SHUT, which go by `task`. `row` for TAKE; with
    `stopped` a DRAIN goes on at block `next`."""
    return data.StructLayout({
        "op": QueueOp,
        "queue": config.queue_bits,
        "row": config.row_bits,
        "stopped": 1,
        "next": BLOCK_COUNT_BITS,
    })


class Queues(wiring.Component):
    """A table of open queues, in RAM. Blocks are numbered from 0 on; each stands for
    1 << QUEUE_ENTRIES_PER_CTA_LOG2 entries, and starts when all of them are there, or those that
    are when the queue is closed.

    One request at a time, answered after 7 cycles; ENTER, APPEND and SHUT after up to two more per
    queue, and one. Of the free places one is kept for each other context that has no queue.

    Members
    -------
    request : what is to be done. done : strobe; everything below counts, until the next request.
    task, context, level : whose it is: for ENTER, APPEND and SHUT. span : what APPEND brings.
    record : of a task that enters.
    runs : per row, blocks can be added to it.
    leave : strobe: a queue is no more.
    verdict : why nothing was done.
    queue, outcome : which one it is, what is to become of its task.
    owner, home, rank : its task, context and level. row : for QueueNext.ADD.
    first, blocks : what goes to the row.
    freed : so many entries are done; room for others.
    over : one that rests, and is to end. some : a queue is open.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        choice = data.StructLayout({"valid": 1, "queue": config.queue_bits})
        super().__init__({
            "request": In(stream.Signature(queue_request(config))),
            "task": In(task_pointer),
            "context": In(config.context_bits),
            "level": In(6),
            "span": In(queue_span),
            "record": In(QMD),
            "runs": In(config.rows),
            "leave": In(choice),
            "done": Out(1),
            "verdict": Out(task_verdict),
            "queue": Out(config.queue_bits),
            "outcome": Out(QueueNext),
            "owner": Out(task_pointer),
            "home": Out(config.context_bits),
            "rank": Out(6),
            "row": Out(config.row_bits),
            "first": Out(BLOCK_COUNT_BITS),
            "blocks": Out(BLOCK_COUNT_BITS),
            "freed": Out(_COUNT_BITS),
            "over": Out(choice),
            "some": Out(1),
        })
        self._shape = data.StructLayout({
            "task": task_pointer,
            "context": config.context_bits,
            "level": 6,
            "size": 25,
            "group": 5,
            "put": _COUNT_BITS,
            "freed": _COUNT_BITS,
            "taken": BLOCK_COUNT_BITS,
            "closed": 1,
            "place": QueuePlace,
            "row": config.row_bits,
        })
        self._asked, self._kept = Signal(queue_request(config)), Signal(self._shape)
        self._held, self._ends = Signal(config.queues), Signal(config.queues)
        self._total = Signal(BLOCK_COUNT_BITS)
        self._others = Signal(config.contexts)
        """Contexts of which queues were found."""
        self._room = Signal(range(config.queues + config.contexts))
        """Places that were found free, and other contexts that have one."""
        self._rest = Signal(_COUNT_BITS)
        """Entries that make no whole block."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(
            shape=self._shape, depth=1 << self._config.queue_bits, init=[]
        )
        read, write = table.read_port(), table.write_port()
        m.d.comb += [
            read.addr.eq(self.queue),
            write.addr.eq(self.queue),
            write.data.eq(self._kept),
            write.en.eq(self.done & (self.verdict.refusal == Refusal.NONE)),
        ]
        self._tell(m)
        with m.FSM(name="queues"):
            self._begin(m)
            self._search(m, read.data)
            with m.State("READ"):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += self._kept.eq(read.data)
                m.next = "CHANGE"
            with m.State("CHANGE"):
                self._change(m)
                m.next = "TOTAL"
            with m.State("TOTAL"):
                self._sum(m)
                m.next = "COUNT"
            with m.State("COUNT"):
                m.d.sync += self.blocks.eq(self._total - self._kept.taken)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                self._decide(m)
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        self._follow(m)
        return m

    def _tell(self, m: Module) -> None:
        kept = self._kept
        first = Signal(self._config.queues)
        m.d.comb += [
            self.owner.eq(kept.task),
            self.owner.is_queue.eq(1),
            self.owner.queue.eq(self.queue),
            self.home.eq(kept.context),
            self.rank.eq(kept.level),
            self.row.eq(kept.row),
            self.freed.eq(kept.freed),
            self._rest.eq(kept.put & ((1 << kept.group) - 1)),
            self.some.eq(self._held.any()),
            first.eq(lowest(self._ends)),
        ]
        m.d.sync += [self.over.valid.eq(self._ends.any()), self.over.queue.eq(encode(first))]

    def _begin(self, m: Module) -> None:
        request = self.request
        with m.State("IDLE"):
            m.d.comb += request.ready.eq(1)
            m.d.sync += [
                self._asked.eq(request.p),
                self.verdict.eq(0),
                self._others.eq(0),
                self._room.eq(0),
            ]
            with m.If(request.valid):
                with m.Switch(request.p.op):
                    with m.Case(QueueOp.ENTER, QueueOp.APPEND, QueueOp.SHUT):
                        m.d.sync += self.queue.eq(0)
                        m.next = "SEEK"
                    with m.Default():
                        m.d.sync += self.queue.eq(request.p.queue)
                        m.next = "READ"

    def _search(self, m: Module, read: data.View) -> None:
        """Look at one queue after another, for one that has this record, or this channel."""
        enters = self._asked.op == QueueOp.ENTER
        found = self._fits(m, read)
        with m.State("SEEK"):
            m.next = "SEEN"
        with m.State("SEEN"):
            self._count(m, read)
            m.d.sync += self.queue.eq(self.queue + 1)
            m.next = "SEEK"
            with m.If(found & enters):
                self._refuse(m, Refusal.QUEUE)
                m.next = "DONE"
            with m.Elif(found):
                m.d.sync += self.queue.eq(self.queue)
                m.next = "READ"
            with m.Elif(self.queue == self._config.queues - 1):
                m.next = "ROOM"
        free = Signal(self._config.queues)
        m.d.comb += free.eq(lowest(~self._held))
        with m.State("ROOM"):
            m.d.sync += self.queue.eq(encode(free))
            m.next = "CHANGE"
            with m.If(~enters | (self._room < self._config.contexts)):
                self._refuse(m, Refusal.QUEUE)
                m.next = "DONE"

    def _fits(self, m: Module, read: data.View) -> Signal:
        """The queue that is looked at is the one that is sought."""
        found, held = Signal(), self._held.bit_select(self.queue, 1)
        own = Cat(read.task.asid, read.task.page, read.context)
        record = own == Cat(self.task.asid, self.task.page, self.context)
        channel = (read.task.channel == self.task.channel) & ~read.closed
        m.d.comb += found.eq(held & Mux(self._asked.op == QueueOp.SHUT, channel, record))
        return found

    def _count(self, m: Module, read: data.View) -> None:
        """The place that is looked at is free, or its context needs no other one."""
        held = self._held.bit_select(self.queue, 1)
        others = self._others.bit_select(read.context, 1)
        new = (read.context != self.context) & ~others
        m.d.sync += self._room.eq(self._room + (~held | new))
        with m.If(held & new):
            m.d.sync += others.eq(1)

    def _refuse(self, m: Module, refusal: Refusal, check: SkedCheck = SkedCheck.NONE) -> None:
        m.d.sync += [self.verdict.refusal.eq(refusal), self.verdict.check.eq(check)]

    def _change(self, m: Module) -> None:
        """What the request does to the queue's own counts."""
        kept, asked, span = self._kept, self._asked, self.span
        with m.Switch(asked.op):
            with m.Case(QueueOp.ENTER):
                self._enter(m)
            with m.Case(QueueOp.APPEND):
                after = kept.put + span.count
                room = kept.freed + kept.size
                with m.If((kept.put[:_START_BITS] != span.start) & ~span.behind):
                    self._refuse(m, Refusal.CHECK, SkedCheck.SPAN)
                with m.Elif(kept.closed | (after > room) | after[_COUNT_BITS]):
                    self._refuse(m, Refusal.CHECK, SkedCheck.QUEUE_GET_PUT)
                with m.Else():
                    m.d.sync += [kept.put.eq(after), kept.closed.eq(span.count == 0)]
            with m.Case(QueueOp.SHUT):
                m.d.sync += [kept.put.eq(kept.put - self._rest), kept.closed.eq(1)]
            with m.Case(QueueOp.UNDO):
                m.d.sync += [
                    kept.put.eq(kept.put - span.count),
                    kept.closed.eq(0),
                    kept.place.eq(QueuePlace.REST),
                ]
            with m.Case(QueueOp.DRAIN):
                with m.If(asked.stopped):
                    m.d.sync += kept.taken.eq(asked.next)

    def _enter(self, m: Module) -> None:
        kept, record = self._kept, self.record
        m.d.sync += [
            kept.eq(0),
            kept.task.eq(self.task),
            kept.context.eq(self.context),
            kept.level.eq(self.level),
            kept.size.eq(record.CIRCULAR_QUEUE_SIZE),
            kept.group.eq(record.QUEUE_ENTRIES_PER_CTA_LOG2),
            kept.put.eq(record.INNER_PUT),
        ]

    def _sum(self, m: Module) -> None:
        """How many blocks there are in all."""
        kept = self._kept
        m.d.sync += self._total.eq((kept.put >> kept.group) + (kept.closed & self._rest.any()))

    def _decide(self, m: Module) -> None:
        """Where its task belongs now."""
        kept, asked, blocks = self._kept, self._asked, self.blocks
        row_runs = self.runs.bit_select(kept.row, 1)
        taken: Value = kept.taken + blocks
        m.d.sync += [self.first.eq(kept.taken), self.outcome.eq(QueueNext.REST)]
        with m.Switch(asked.op):
            with m.Case(QueueOp.ENTER):
                self._place(m)
            with m.Case(QueueOp.APPEND):
                with m.If(kept.place == QueuePlace.REST):
                    self._place(m)
                with m.Elif((kept.place == QueuePlace.ROW) & row_runs & (blocks != 0)):
                    m.d.sync += [kept.taken.eq(taken), self.outcome.eq(QueueNext.ADD)]
            with m.Case(QueueOp.SHUT):
                with m.If(kept.place == QueuePlace.REST):
                    self._place(m)
            with m.Case(QueueOp.TAKE):
                m.d.sync += [
                    kept.taken.eq(taken),
                    kept.place.eq(QueuePlace.ROW),
                    kept.row.eq(asked.row),
                ]
            with m.Case(QueueOp.DRAIN):
                done = Mux(kept.closed & (blocks == 0), kept.put, kept.taken << kept.group)
                m.d.sync += kept.freed.eq(done)
                self._place(m)

    def _place(self, m: Module) -> None:
        """It is in no row and no list: it waits there if it has blocks."""
        some = self.blocks != 0
        m.d.sync += self._kept.place.eq(Mux(some, QueuePlace.LIST, QueuePlace.REST))
        with m.If(some):
            m.d.sync += self.outcome.eq(QueueNext.LIST)
        with m.Elif(self._kept.closed):
            m.d.sync += self.outcome.eq(QueueNext.END)

    def _follow(self, m: Module) -> None:
        """Which queues are open, and which of them rest and are to end."""
        asked, here = self._asked, Signal(self._config.queues)
        done = self.done & (self.verdict.refusal == Refusal.NONE)
        closes = (asked.op == QueueOp.APPEND) | (asked.op == QueueOp.SHUT)
        ends = closes & (self.outcome == QueueNext.END)
        gone = Signal(self._config.queues)
        one = Const(1, self._config.queues)
        m.d.comb += [
            here.eq(Mux(done, one << self.queue, 0)),
            gone.eq(Mux(self.leave.valid, one << self.leave.queue, 0)),
        ]
        enters = asked.op == QueueOp.ENTER
        m.d.sync += [
            self._held.eq((self._held | Mux(enters, here, 0)) & ~gone),
            self._ends.eq((self._ends | Mux(ends, here, 0)) & ~gone),
        ]
