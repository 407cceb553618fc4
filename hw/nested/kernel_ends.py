"""Holds back the end of a kernel until its descendants are complete (NEST-12)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.nested.kernel_tree import TreeOp, kernel_over, tree_request
from signalbox.hw.records.launch import KILLED, task_completed, task_ended, task_failure
from signalbox.hw.records.nested import kernel_kin

__all__ = ["KernelEnds"]


class _End(enum.Enum, shape=2):
    """Kind of a stored end."""

    ENDED = 0
    FAILED = 1
    DISOWNED = 2
    """Refused after its birth; it never ran."""


class KernelEnds(wiring.Component):
    """Holds back the end of each kernel in the kernel tree until its descendants are complete;
    kernels outside of the tree pass at once. The end is stored under the kernel's number, and
    reported to the tree as END. When the tree reports the kernel complete, the end goes to
    `TaskEnd`, or to `given_up` if the kernel has failed. The tree gets DONE once the releases are
    made; a failed kernel makes none.

    A complete kernel waits until `TaskEnd` takes it; `failed` and `disowned` are accepted without
    waiting for that. Otherwise there could be a deadlock: `TaskEnd` may wait for the launch of a
    dependent task, and the task unit takes no launch while it offers `failed` or `disowned`.

    A sweep visits all numbers and marks stored ends of kernels that must be killed; marked kernels
    go on as failed, KILLED. At its end, at most one of those that ended before it is not marked,
    apart from kernels that have gone on: it is being read, or waits to go on.

    Cycles from the acceptance of an end to END: 1; from `over` to the offer of the kernel: 4, if
    none is offered; from its completion to DONE: 2; of a sweep: 4 per number, and more for kernels
    that end or become complete meanwhile.

    Members
    -------
    ended : in, stream of `task_ended`: kernels whose blocks have all ended; combinational to
        `complete` if they pass.
    failed : in, stream of `task_failure`: kernels that were given up; combinational to `given_up`
        if they pass.
    disowned : in, stream of `nested_bits` bits: number of a child that was refused after its birth.
    tree : out, stream of `tree_request`, to the kernel tree.
    over : in, stream of `kernel_over`, from the kernel tree; always accepted.
    complete : out, stream of `task_ended`, to `TaskEnd`: each ended kernel, when its descendants
        are complete.
    completed : in, stream of `task_completed`, from `TaskEnd`: the kernel that it took last; not
        accepted together with `given_up`.
    given_up : out, stream of `task_failure`: each failed kernel, when its descendants are complete.
    reported : out, stream of `task_completed`: `completed`, passed on.
    on : in, per channel: enabled. Ended kernels of other channels go on as failed, KILLED.
    sweep : in, a sweep is in progress; falls in the cycle after `swept`.
    visited : out, a `task_ended`: the kernel visited by the sweep; arbitrary for a number without a
        stored end.
    named : in, 1 cycle later: that kernel must be killed.
    swept : out, strobe: all numbers have been visited.
    idle : out, no kernel is offered or on its way; some may be waiting for their descendants.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nodes = config.nested_kernels
        ended, failed, completed = (
            stream.Signature(shape)
            for shape in (task_ended(config), task_failure(config), task_completed)
        )
        super().__init__({
            "ended": In(ended),
            "failed": In(failed),
            "disowned": In(stream.Signature(config.nested_bits)),
            "tree": Out(stream.Signature(tree_request(nodes))),
            "over": In(stream.Signature(kernel_over(nodes))),
            "complete": Out(ended),
            "completed": In(completed),
            "given_up": Out(failed),
            "reported": Out(completed),
            "on": In(config.channels),
            "sweep": In(1),
            "visited": Out(task_ended(config)),
            "named": In(1),
            "swept": Out(1),
            "idle": Out(1),
        })
        self._asks, self._brings, self._found = (
            Signal(name=name) for name in ("asks", "brings", "found")
        )
        """`_asks`: END must be sent to the tree. `_brings`: a complete kernel is being read.
        `_found`: it has been read, and waits to go on."""
        self._end = Signal(tree_request(nodes), name="end_request")
        done = data.StructLayout({"kernel": config.nested_bits, "failed": 1})
        # Each kernel is at most once in either queue.
        self._over, self._done = (
            StreamFIFO(shape, nodes + 1) for shape in (config.nested_bits, done)
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, nodes = self._config, self._config.nested_kernels
        kept = data.StructLayout({"how": _End, "kernel": task_failure(config)})
        m.submodules.kept = rows = Memory(shape=kept, depth=nodes, init=[])
        m.submodules.killed = killed = Memory(shape=1, depth=nodes, init=[])
        m.submodules.over, m.submodules.done = over, done = self._over, self._done
        self._write, self._read = rows.write_port(), rows.read_port()
        self._mark, self._marked = killed.write_port(), killed.read_port(domain="comb")
        given = self.ended.valid | self.failed.valid | self.disowned.valid | self.completed.valid
        left = (over.level != 0) | (done.level != 0)
        m.d.comb += [
            self.over.ready.eq(1),
            over.i.valid.eq(self.over.valid),
            over.i.payload.eq(self.over.p.kernel),
            self.idle.eq(~(given | left | self._asks | self._brings | self._found)),
        ]
        self._keep(m)
        self._visit(m)
        self._bring(m)
        self._finish(m)
        self._tell(m)
        return m

    def _keep(self, m: Module) -> None:
        """Store the end of a kernel of the tree."""
        ended, failed, disowned, write = self.ended, self.failed, self.disowned, self._write
        fails, ends = Signal(name="fails"), Signal(name="ends")
        self._stores = Signal(name="stores")
        m.d.comb += [
            self._stores.eq(~self._asks & (fails | ends | disowned.valid)),
            fails.eq(failed.valid & failed.p.kin.known),
            ends.eq(ended.valid & ended.p.kin.known),
            write.en.eq(self._stores),
            write.data.kernel.eq(failed.p),
            disowned.ready.eq(~self._asks),
        ]
        with m.If(disowned.valid):
            m.d.comb += [write.addr.eq(disowned.payload), write.data.how.eq(_End.DISOWNED)]
        with m.Elif(fails):
            m.d.comb += [write.addr.eq(failed.p.kin.kernel), write.data.how.eq(_End.FAILED)]
        with m.Else():
            m.d.comb += [write.addr.eq(ended.p.kin.kernel), write.data.how.eq(_End.ENDED)]
            m.d.comb += [
                write.data.kernel[name].eq(ended.p[name]) for name in ended.p.shape().members
            ]
        self._keeps = ends & ~(fails | disowned.valid | self._asks), ~(disowned.valid | self._asks)
        """Ready for kernels of the tree: an ended one is stored; a failed one would be."""
        with m.If(self._stores):
            m.d.sync += [
                self._asks.eq(1),
                self._end.op.eq(TreeOp.END),
                self._end.known.eq(1),
                self._end.kernel.eq(write.addr),
                self._end.failed.eq(write.data.how == _End.FAILED),
            ]

    def _visit(self, m: Module) -> None:
        """Mark the stored ends of kernels that must be killed. An end that is stored during a visit
        of its number stays unmarked: `KillSweep` has already visited that kernel in its row."""
        write, read, mark = self._write, self._read, self._mark
        number = Signal(read.addr.shape(), name="visit")
        named, stale = (Signal(name=name) for name in ("was_named", "stale"))
        """`stale`: the end that was read is no longer stored."""
        over, free = self._over.o, Signal(name="free")
        overwrites = self._stores & (write.addr == number)
        m.d.comb += [
            free.eq(~(over.valid & over.ready)),
            mark.en.eq(self._stores),
            mark.addr.eq(write.addr),
            [
                self.visited[name].eq(read.data.kernel[name])
                for name in self.visited.shape().members
            ],
            read.addr.eq(Mux(free, number, over.payload)),
        ]
        with m.If(overwrites):
            m.d.sync += stale.eq(1)
        with m.FSM(name="sweep"):
            with m.State("READ"):
                m.d.sync += stale.eq(overwrites)
                with m.If(self.sweep & free):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "KNOW"
            with m.State("KNOW"):
                m.d.sync += named.eq(self.named)
                m.next = "MARK"
            with m.State("MARK"):
                with m.If(~self._stores):
                    m.d.comb += [
                        mark.en.eq(named & ~stale),
                        mark.addr.eq(number),
                        mark.data.eq(1),
                        self.swept.eq(number == self._config.nested_kernels - 1),
                    ]
                    m.d.sync += number.eq(Mux(self.swept, 0, number + 1))
                    m.next = "READ"

    def _bring(self, m: Module) -> None:
        """Complete kernels go on, ahead of those that pass, unless one of these is offered."""
        read, found, over = self._read, self._found, self._over.o
        item = Signal(read.data.shape())
        self._number = Signal(self._config.nested_bits, name="number")
        m.d.comb += [
            over.ready.eq(~(self._brings | found)),
            self._marked.addr.eq(self._number),
        ]
        with m.If(over.ready):
            m.d.sync += [self._brings.eq(over.valid), self._number.eq(over.payload)]
        with m.If(self._brings):
            m.d.sync += [self._brings.eq(0), found.eq(1), item.eq(read.data)]
            channel = read.data.kernel.task.channel[: self._config.channel_bits]
            off = ~self.on.bit_select(channel, 1)
            with m.If((read.data.how == _End.ENDED) & (off | self._marked.data)):
                m.d.sync += [item.how.eq(_End.FAILED), item.kernel.verdict.eq(KILLED)]
        ways = (self.ended, self.complete), (self.failed, self.given_up)
        self._goes = []
        """Strobes: a complete kernel goes on as ended; as failed."""
        for how, (given, out) in zip((_End.ENDED, _End.FAILED), ways, strict=True):
            here, passes = Signal(name=f"brings_{how.name}"), Signal(name=f"passes_{how.name}")
            offered = Signal(name=f"offered_{how.name}")
            m.d.comb += [
                here.eq(found & (item.how == how) & ~offered),
                passes.eq(given.valid & ~given.p.kin.known & ~here),
                out.valid.eq(here | passes),
                out.p.eq(given.p),
                given.ready.eq(Mux(given.p.kin.known, self._keeps[how.value], passes & out.ready)),
            ]
            m.d.sync += offered.eq(passes & ~out.ready)
            with m.If(here):
                m.d.comb += [out.p[name].eq(item.kernel[name]) for name in out.p.shape().members]
                with m.If(out.ready):
                    m.d.sync += found.eq(0)
            self._goes.append(here & out.ready)
        self._disowned = found & (item.how == _End.DISOWNED)

    def _finish(self, m: Module) -> None:
        """Kernels that are done: their releases are made, or there are none."""
        done, completed, reported = self._done.i, self.completed, self.reported
        ending, finishes = Signal(kernel_kin(self._config), name="ending"), Signal(name="finishes")
        goes, fails = self._goes
        m.d.comb += [
            reported.valid.eq(completed.valid),
            reported.p.eq(completed.p),
            completed.ready.eq(reported.ready),
            finishes.eq(completed.valid & reported.ready & ending.known),
            done.valid.eq(finishes | fails | self._disowned),
            done.p.kernel.eq(Mux(finishes, ending.kernel, self._number)),
            done.p.failed.eq(
                Mux(finishes, completed.p.verdict.refusal != Refusal.NONE, ~self._disowned)
            ),
        ]
        with m.If(self.complete.valid & self.complete.ready):
            m.d.sync += [ending.known.eq(goes), ending.kernel.eq(self._number)]
        with m.If(self._disowned & ~finishes):
            m.d.sync += self._found.eq(0)

    def _tell(self, m: Module) -> None:
        """END and DONE in turn."""
        m.submodules.turns = turns = SteadyRoundRobin(2)
        tree, done = self.tree, self._done.o
        m.d.comb += [
            turns.requests.eq(Cat(self._asks, done.valid)),
            turns.advance.eq(tree.ready),
            tree.valid.eq(turns.grant.any()),
            tree.p.eq(self._end),
            done.ready.eq(turns.grant[1] & tree.ready),
        ]
        with m.If(turns.grant[1]):
            m.d.comb += [
                tree.p.op.eq(TreeOp.DONE),
                tree.p.known.eq(1),
                tree.p.kernel.eq(done.p.kernel),
                tree.p.failed.eq(done.p.failed),
            ]
        with m.If(turns.grant[0] & tree.ready):
            m.d.sync += self._asks.eq(0)
