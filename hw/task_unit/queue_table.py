"""Open queue tasks: entries appended to each, and entries processed (ASID-26)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.lib.onehot import lowest_number
from signalbox.hw.qmd import QMD, SkedCheck
from signalbox.hw.records.launch import task_verdict
from signalbox.hw.records.placement import BLOCK_COUNT_BITS, queue_span, task_pointer

__all__ = ["QueueNext", "QueueOp", "QueuePlace", "QueueTable", "queue_request"]

_COUNT_BITS = 31
"""Width of INNER_PUT, which limits the total number of entries of a queue."""

_START_BITS = 24
"""Width of SEND_PCAS_B FROM."""


class QueueOp(enum.Enum, shape=3):
    """Queue operations."""

    ENTER = 0
    """A task is launched: allocate a table entry."""
    APPEND = 1
    """Append entries; with a count of 0, close the queue."""
    UNDO = 2
    """Undo the last APPEND, as its task could not go to its list."""
    TAKE = 3
    """Move blocks of the queue to `row`."""
    DRAIN = 4
    """The blocks of the row have ended."""
    RECALL = 5
    """Read the entry of a queue."""
    ADVANCE = 6
    """The row's oldest unfinished block is a later one."""


class QueueNext(enum.Enum, shape=2):
    """Next step for a queue's task."""

    REST = 0
    """No step: it waits for entries outside of lists and rows, or stays where it is."""
    LIST = 1
    """It goes to a list or a row."""
    ADD = 2
    """Its row gets more blocks."""
    END = 3
    """It is closed and all entries are processed."""


class QueuePlace(enum.Enum, shape=2):
    """Location of a queue's task."""

    REST = 0
    LIST = 1
    ROW = 2


def queue_request(config: Config) -> data.StructLayout:
    """A queue operation. `queue` selects the queue, except for ENTER and APPEND, which search by
    `task`. `row` is for TAKE; a DRAIN with `stopped` resumes at block `next`; `oldest` is for
    ADVANCE."""
    return data.StructLayout({
        "op": QueueOp,
        "queue": config.queue_bits,
        "row": config.row_bits,
        "stopped": 1,
        "next": BLOCK_COUNT_BITS,
        "oldest": config.number_bits,
    })


class QueueTable(wiring.Component):
    """Keeps the open queues, in RAM. Blocks are numbered from 0; each stands for 1 <<
    QUEUE_ENTRIES_PER_CTA_LOG2 entries and starts once all of them are appended, or with the
    remaining ones when the queue is closed. A row gets the first `queue_window` blocks from the
    oldest unfinished one on; further ones when that block advances, or when these have ended.

    One request at a time, with a latency of 9 cycles. ENTER and APPEND take up to five more, plus
    one per queue. One free entry is reserved for each other context without a queue.

    Members
    -------
    request : in, stream of `queue_request`.
    done : out, strobe; the outputs below are valid until the next request.
    task : in, for ENTER and APPEND: the task.
    context : in, `context_bits` bits: its context.
    level : in, `level_bits` bits: its level.
    span : in, a `queue_span`, for APPEND: the entries.
    record : in, for ENTER: the QMD.
    runs : in, per row: blocks can be added.
    leave : in, strobe: remove `queue`.
    verdict : out, a `task_verdict`: reason of a refusal, which has no effect.
    queue : out, `queue_bits` bits: number of the queue.
    outcome : out, a `QueueNext`: next step for the task of the queue.
    owner : out, a `task_pointer`: task of the queue.
    home : out, `context_bits` bits: context of that task.
    rank : out, `level_bits` bits: level of that task.
    row : out, `row_bits` bits: row of that task, for QueueNext.ADD.
    first : out, 32 bits: number of the first block for the row.
    blocks : out, 32 bits: number of blocks for the row.
    freed : out, 31 bits: number of processed entries: those before the oldest unfinished block.
        Their space can be reused.
    over : out, a resting queue that is closed and must end; two cycles late.
    rests : out, the queue is outside of lists and rows.
    open : out, per queue: open.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        choice = data.StructLayout({"valid": 1, "queue": config.queue_bits})
        super().__init__({
            "request": In(stream.Signature(queue_request(config))),
            "task": In(task_pointer),
            "context": In(config.context_bits),
            "level": In(config.level_bits),
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
            "rank": Out(config.level_bits),
            "row": Out(config.row_bits),
            "first": Out(BLOCK_COUNT_BITS),
            "blocks": Out(BLOCK_COUNT_BITS),
            "freed": Out(_COUNT_BITS),
            "over": Out(choice),
            "rests": Out(1),
            "open": Out(config.queues),
        })
        self._shape = data.StructLayout({
            "task": task_pointer,
            "context": config.context_bits,
            "level": config.level_bits,
            "size": 25,
            "group": 5,
            "put": _COUNT_BITS,
            "freed": _COUNT_BITS,
            "taken": BLOCK_COUNT_BITS,
            "done": BLOCK_COUNT_BITS,
            "closed": 1,
            "place": QueuePlace,
            "row": config.row_bits,
        })
        self._asked = Signal(queue_request(config), name="asked")
        self._kept = Signal(self._shape, name="kept")
        self._held = Signal(config.queues, name="open_queues")
        self._ends = Signal(config.queues, name="ending_queues")
        self._total = Signal(BLOCK_COUNT_BITS, name="total")
        self._begun = Signal(_COUNT_BITS, name="begun")
        """`_total`: number of blocks; an intermediate result until COUNT. `_begun`: entries before
        the oldest unfinished block."""
        self._none, self._odd, self._runs = (
            Signal(name=name) for name in ("none", "odd", "row_runs")
        )
        """`_none`: no block is left to be placed. `_odd`: a partial block remains at the end.
        `_runs`: blocks can be added to the row."""
        self._end = Signal(BLOCK_COUNT_BITS, name="window_end")
        """Number of the first block beyond the window."""
        self._clips, self._full, self._all = (
            Signal(name=name) for name in ("clips", "full", "all_done")
        )
        """`_clips`: there are blocks from `_end` on. `_full`: the row has all blocks before it.
        `_all`: all blocks have ended."""
        self._others = Signal(config.contexts, name="others")
        """Other contexts with a queue, as far as the search has come."""
        self._room = Signal(range(config.queues + config.contexts), name="entries_left")
        """Free entries found, plus number of other contexts that have an entry."""
        self._part = Signal(_COUNT_BITS, name="part")
        """Mask of the entry count bits below a whole block."""
        self._place = Signal(config.queue_bits, name="free_entry")
        """A free entry."""
        self._step = Signal(range(config.queues + 2), name="step")
        """Progress of the search."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(
            shape=self._shape, depth=1 << self._config.queue_bits, init=[]
        )
        read, write, asked = table.read_port(), table.write_port(), self._asked
        m.d.comb += [
            read.addr.eq(self.queue),
            write.addr.eq(self.queue),
            write.data.eq(self._kept),
            write.en.eq(self.done & (self.verdict.refusal == Refusal.NONE)),
        ]
        self._tell(m)
        m.d.sync += self.done.eq(0)
        with m.FSM(name="queues"):
            self._begin(m)
            self._search(m, read.data)
            with m.State("READ"):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += self._kept.eq(read.data)
                m.next = "CHANGE"
                with m.If(asked.op == QueueOp.APPEND):
                    m.next = "WEIGH"
            self._change(m)
            self._divide(m)
            with m.State("COUNT"):
                self._compare(m)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                self._decide(m)
                self._answer(m)
            with m.State("DONE"):
                m.next = "IDLE"
        self._follow(m)
        return m

    def _tell(self, m: Module) -> None:
        kept = self._kept
        over, number = lowest_number(m, self._ends)
        m.d.comb += [
            self.owner.eq(kept.task),
            self.owner.is_queue.eq(1),
            self.owner.queue.eq(self.queue),
            self.home.eq(kept.context),
            self.rank.eq(kept.level),
            self.row.eq(kept.row),
            self.freed.eq(kept.freed),
            self.rests.eq(kept.place == QueuePlace.REST),
            self.open.eq(self._held),
        ]
        m.d.sync += [
            self.over.valid.eq(over),
            self.over.queue.eq(number),
            self._part.eq((1 << kept.group) - 1),
            self._runs.eq(self.runs.bit_select(kept.row, 1)),
        ]

    def _begin(self, m: Module) -> None:
        request = self.request
        with m.State("IDLE"):
            m.d.comb += request.ready.eq(1)
            m.d.sync += [
                self._asked.eq(request.p),
                self.verdict.eq(0),
                self._others.eq(0),
                self._room.eq(0),
                self._step.eq(0),
            ]
            with m.If(request.valid):
                with m.Switch(request.p.op):
                    with m.Case(QueueOp.ENTER, QueueOp.APPEND):
                        m.d.sync += self.queue.eq(0)
                        m.next = "SEEK"
                    with m.Default():
                        m.d.sync += self.queue.eq(request.p.queue)
                        m.next = "READ"

    def _search(self, m: Module, read: data.View) -> None:
        """Search for the queue with this QMD, one entry per cycle: read, compared and found in
        consecutive cycles."""
        enters, step = self._asked.op == QueueOp.ENTER, self._step
        held, found = Signal(name="held"), Signal()
        own = Cat(read.task.asid, read.task.page, read.context)
        m.d.sync += [
            held.eq(self._held.bit_select(self.queue, 1)),
            found.eq(held & (own == Cat(self.task.asid, self.task.page, self.context))),
        ]
        with m.State("SEEK"):
            m.d.sync += [self.queue.eq(self.queue + 1), step.eq(step + 1)]
            with m.If((step != 0) & (step <= self._config.queues)):
                self._count(m, read, held)
            with m.If((step > 1) & found):
                m.next = "FOUND"
            with m.Elif(step == self._config.queues + 1):
                m.next = "ROOM"
        with m.State("FOUND"):
            m.d.sync += self.queue.eq(self.queue - 3)  # three more were addressed since
            m.next = "READ"
            with m.If(enters):
                self._refuse(m, Refusal.QUEUE)
                self._answer(m)
        with m.State("ROOM"):
            m.d.sync += self.queue.eq(self._place)
            m.next = "CHANGE"
            with m.If(~enters | (self._room < self._config.contexts)):
                self._refuse(m, Refusal.QUEUE)
                self._answer(m)

    def _count(self, m: Module, read: data.View, held: Signal) -> None:
        """Count the entry just read if it is free, or if it is the first one found of another
        context, which then needs no reserved entry."""
        others = self._others.bit_select(read.context, 1)
        new = (read.context != self.context) & ~others
        m.d.sync += self._room.eq(self._room + (~held | new))
        with m.If(~held):
            m.d.sync += self._place.eq(self.queue - 1)
        with m.If(held & new):
            m.d.sync += others.eq(1)

    def _answer(self, m: Module) -> None:
        m.d.sync += self.done.eq(1)
        m.next = "DONE"

    def _refuse(self, m: Module, refusal: Refusal, check: SkedCheck = SkedCheck.NONE) -> None:
        m.d.sync += [self.verdict.refusal.eq(refusal), self.verdict.check.eq(check)]

    def _change(self, m: Module) -> None:
        """Effect of the request on the queue's counts."""
        kept, asked, span = self._kept, self._asked, self.span
        after, room = Signal(_COUNT_BITS + 1, name="after"), Signal(_COUNT_BITS + 1)
        joins, much = Signal(name="joins"), Signal()
        passed = Signal(self._config.number_bits, name="passed")
        m.d.comb += passed.eq(asked.oldest - kept.done)
        with m.State("WEIGH"):
            m.d.sync += [
                after.eq(kept.put + span.count),
                room.eq(kept.freed + kept.size),
                joins.eq((kept.put[:_START_BITS] == span.start) | span.behind),
            ]
            m.next = "COMPARE"
        with m.State("COMPARE"):
            m.d.sync += much.eq((after > room) | after[_COUNT_BITS])
            m.next = "CHANGE"
        with m.State("CHANGE"):
            m.next = "NEAR"
            with m.Switch(asked.op):
                with m.Case(QueueOp.ENTER):
                    self._enter(m)
                with m.Case(QueueOp.APPEND):
                    with m.If(~joins):
                        self._refuse(m, Refusal.CHECK, SkedCheck.SPAN)
                    with m.Elif(kept.closed | much):
                        self._refuse(m, Refusal.CHECK, SkedCheck.QUEUE_GET_PUT)
                    with m.Else():
                        m.d.sync += [kept.put.eq(after), kept.closed.eq(span.count == 0)]
                with m.Case(QueueOp.UNDO):
                    m.d.sync += [
                        kept.put.eq(kept.put - span.count),
                        kept.closed.eq(0),
                        kept.place.eq(QueuePlace.REST),
                    ]
                with m.Case(QueueOp.DRAIN):
                    m.d.sync += kept.done.eq(Mux(asked.stopped, asked.next, kept.taken))
                    with m.If(asked.stopped):
                        m.d.sync += kept.taken.eq(asked.next)
                with m.Case(QueueOp.ADVANCE):
                    m.d.sync += kept.done.eq(kept.done + passed)

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

    def _divide(self, m: Module) -> None:
        """Total number of blocks, and entries before the oldest unfinished one."""
        kept, total, begun = self._kept, self._total, self._begun
        near, far = kept.group[:2], kept.group[2:] << 2
        with m.State("NEAR"):
            m.d.sync += [
                total.eq(kept.put >> near),
                begun.eq(kept.done << near),
                self._end.eq(kept.done + self._config.queue_window),
            ]
            m.next = "FAR"
        with m.State("FAR"):
            m.d.sync += [
                total.eq(total >> far),
                begun.eq(begun << far),
                self._odd.eq(kept.closed & (kept.put & self._part).any()),
            ]
            m.next = "TOTAL"
        with m.State("TOTAL"):
            m.d.sync += total.eq(total + self._odd)
            m.next = "COUNT"

    def _compare(self, m: Module) -> None:
        """Blocks left to be placed; whether all are done."""
        kept, total, end = self._kept, self._total, self._end
        m.d.sync += [
            self.blocks.eq(total - kept.taken),
            self._none.eq(total == kept.taken),
            self._clips.eq(total > end),
            self._full.eq(end == kept.taken),
            self._all.eq(total == kept.done),
        ]

    def _decide(self, m: Module) -> None:
        """New location of the task."""
        kept, asked, none = self._kept, self._asked, self._none
        adds = self._runs & ~none & ~self._full
        frees = Mux(kept.closed & self._all, kept.put, self._begun)
        m.d.sync += [self.first.eq(kept.taken), self.outcome.eq(QueueNext.REST)]
        with m.If(self._clips):
            m.d.sync += self.blocks.eq(self._end - kept.taken)
        with m.Switch(asked.op):
            with m.Case(QueueOp.ENTER):
                self._settle(m)
            with m.Case(QueueOp.APPEND):
                with m.If(kept.place == QueuePlace.REST):
                    self._settle(m)
                with m.Elif((kept.place == QueuePlace.ROW) & adds):
                    self._add(m)
            with m.Case(QueueOp.TAKE):
                self._take(m)
                m.d.sync += [kept.place.eq(QueuePlace.ROW), kept.row.eq(asked.row)]
            with m.Case(QueueOp.DRAIN):
                m.d.sync += kept.freed.eq(frees)
                with m.If(adds):
                    self._add(m)
                with m.Else():
                    self._settle(m)
            with m.Case(QueueOp.ADVANCE):
                m.d.sync += kept.freed.eq(frees)
                with m.If(adds):
                    self._add(m)

    def _take(self, m: Module) -> None:
        """The row gets all blocks up to the end of the window."""
        m.d.sync += self._kept.taken.eq(Mux(self._clips, self._end, self._total))

    def _add(self, m: Module) -> None:
        self._take(m)
        m.d.sync += self.outcome.eq(QueueNext.ADD)

    def _settle(self, m: Module) -> None:
        """A task outside of rows and lists goes to a list if blocks are left; otherwise it rests or
        ends."""
        m.d.sync += self._kept.place.eq(Mux(self._none, QueuePlace.REST, QueuePlace.LIST))
        with m.If(~self._none):
            m.d.sync += self.outcome.eq(QueueNext.LIST)
        with m.Elif(self._kept.closed):
            m.d.sync += self.outcome.eq(QueueNext.END)

    def _follow(self, m: Module) -> None:
        """Track the open queues, and the resting ones that must end."""
        asked, here = self._asked, Signal(self._config.queues)
        done = self.done & (self.verdict.refusal == Refusal.NONE)
        ends = (asked.op == QueueOp.APPEND) & (self.outcome == QueueNext.END)
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
