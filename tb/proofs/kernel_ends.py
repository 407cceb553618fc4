"""Proof of the ends of kernels that wait for their descendants (NEST-12)."""

from dataclasses import replace

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from signalbox.hw.nested.kernel_ends import KernelEnds
from signalbox.hw.nested.kernel_tree import TreeOp, tree_request
from signalbox.hw.records.nested import kernel_kin
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    stays,
    surround,
)
from signalbox.tb.proofs.task_unit import CONFIG as TASKS

__all__ = ["CONFIG", "PROOFS"]

CONFIG = replace(TASKS, save_places=4, nested_kernels=2)

ENDED, FAILED, DISOWNED = range(3)  # kinds of ends


class Stage(enum.Enum, shape=3):
    """Progress of a kernel of the tree, once it ends."""

    LIVES = 0
    GIVEN = 1
    """The end is stored, but not yet reported to the tree."""
    WAITS = 2
    """The kernel waits for its descendants."""
    COMPLETE = 3
    """Reported as complete by the tree."""
    READ = 4
    OFFERED = 5
    RELEASES = 6
    """`TaskEnd` makes its releases."""
    DONE = 7
    """The releases are made, which is not yet reported to the tree."""


class KernelEndsProof(Proof):
    """Follows the end of any kernel of the tree, chosen by the solver.

    Assumed: the kernel ends once, and the tree reports it as complete once after that (see
    `nested.kernel_tree`); `TaskEnd` has one kernel at a time. Queues are replaced by sets, of which
    any member may come next. Turns are arbitrary (see `lib.arbiter`).
    """

    name = "nested.kernel_ends"
    shows = (
        "the end of a kernel of the tree is passed on once, as it was given, after the tree has "
        "been told of it and has reported the kernel complete; the tree is told once that it is "
        "done, after its releases; it fails as killed only if its channel is off, or if a sweep "
        "has found it named since it ended"
    )
    induction = 3
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = KernelEnds(CONFIG)
        self._inside = inside = Inside(dut)
        inside.abstract("over", "done", "turns")
        kept, other = (inside.submodule("kept").read_port(domain="comb") for _ in range(2))
        marked = inside.submodule("killed").read_port(domain="comb")
        m.submodules.dut = wrap(dut)
        surround(m, dut, "dut")
        for name in ("ended", "failed", "disowned", "completed"):
            stays(m, getattr(dut, name), Assume, name)
        self._kernel, self._stage = Signal(CONFIG.nested_bits, name="kernel"), Signal(Stage)
        self._end = Signal(kept.data.shape(), name="end")
        """End of the kernel, as it was given."""
        self._off = Signal(name="was_off")
        """Its channel is disabled, or it is marked as killed, when its end is read."""
        self._killed = Signal(name="was_marked")
        m.d.comb += [
            self._kernel.eq(AnyConst(CONFIG.nested_bits)),
            kept.addr.eq(self._kernel),
            marked.addr.eq(self._kernel),
        ]
        self._give(m)
        self._pass(m)
        self._take(m)
        self._tell(m)
        m.d.comb += other.addr.eq(inside.submodule("over").o.payload)
        self._tables(m, kept.data)
        self._sweep(m, marked.data)
        self._others(m, other.data)
        stays(m, dut.complete, Assert, "complete")
        stays(m, dut.given_up, Assert, "given_up")

    def _is(self, *stages: Stage) -> Value:
        return Value.cast(self._stage).matches(*stages)

    def _mine(self, kin: data.View) -> Value:
        return kin.known & (kin.kernel == self._kernel)

    def _give(self, m: Module) -> None:
        """The kernel ends."""
        dut, end = self._dut, self._end
        ways = [
            (dut.ended, self._mine(dut.ended.p.kin), ENDED),
            (dut.failed, self._mine(dut.failed.p.kin), FAILED),
            (dut.disowned, dut.disowned.payload == self._kernel, DISOWNED),
        ]
        m.d.comb += Assume(sum(port.valid & mine for port, mine, _ in ways) <= 1)
        self._gives = Cat(port.valid & port.ready & mine for port, mine, _ in ways).any()
        for port, mine, how in ways:
            m.d.comb += Assume(~(port.valid & mine) | self._is(Stage.LIVES))
            with m.If(port.valid & port.ready & mine):
                m.d.sync += [self._stage.eq(Stage.GIVEN), Value.cast(end.how).eq(how)]
                if how != DISOWNED:
                    m.d.sync += [
                        end.kernel[name].eq(port.p[name]) for name in port.p.shape().members
                    ]

    def _pass(self, m: Module) -> None:
        """The tree reports the kernel; its stored end is read, and passed on."""
        dut, inside = self._dut, self._inside
        over, item = dut.over, inside.signal("item", self._end.shape())
        queue = inside.submodule("over")
        pops = queue.o.valid & queue.o.ready & (queue.o.payload == self._kernel)
        m.d.comb += [
            Assume(~(over.valid & (over.p.kernel == self._kernel)) | self._is(Stage.WAITS)),
            Assume(~(queue.o.valid & (queue.o.payload == self._kernel)) | self._is(Stage.COMPLETE)),
            Assert(
                (queue.i.valid & (queue.i.payload == self._kernel))
                == (over.valid & (over.p.kernel == self._kernel))
            ),
        ]
        with m.If(over.valid & (over.p.kernel == self._kernel)):
            m.d.sync += self._stage.eq(Stage.COMPLETE)
        with m.If(pops):
            m.d.sync += self._stage.eq(Stage.READ)
        with m.If(self._is(Stage.READ)):
            channel = self._end.kernel.task.channel[: CONFIG.channel_bits]
            m.d.sync += [
                self._stage.eq(Stage.OFFERED),
                self._off.eq(self._killed | ~dut.on.bit_select(channel, 1)),
            ]
        how = Value.cast(self._end.how)
        fails = (how == FAILED) | ((how == ENDED) & self._off)
        with m.If(self._is(Stage.OFFERED)):
            m.d.comb += Assert(Value.cast(item.how) == Mux(fails, FAILED, how))
        with m.If(self._is(Stage.OFFERED) & (how != DISOWNED)):
            m.d.comb += [
                Assert(item.kernel.kin.as_value() == self._end.kernel.kin.as_value()),
                Assert(item.kernel.task.as_value() == self._end.kernel.task.as_value()),
                Assert(item.kernel.context == self._end.kernel.context),
            ]
        for port, right in ((dut.complete, (how == ENDED) & ~self._off), (dut.given_up, fails)):
            with m.If(port.valid & self._mine(port.p.kin)):
                m.d.comb += [
                    Assert(self._is(Stage.OFFERED) & right),
                    Assert(port.p.task.as_value() == self._end.kernel.task.as_value()),
                    Assert(port.p.context == self._end.kernel.context),
                ]

    def _take(self, m: Module) -> None:
        """`TaskEnd` takes kernels one by one, and completes each."""
        dut, taken = self._dut, Signal(name="taken")
        takes, given = dut.complete.valid & dut.complete.ready, dut.given_up
        completes = dut.completed.valid & dut.completed.ready
        gives = given.valid & given.ready
        m.d.comb += [
            Assume(~(dut.complete.ready & taken)),
            Assume(~dut.completed.valid | taken),
            Assume(~(completes & gives)),
            Assert(~self._is(Stage.RELEASES) | taken),
            Cover(completes & self._is(Stage.RELEASES)),
        ]
        m.d.sync += taken.eq(Mux(takes, 1, taken & ~completes))
        ending = self._inside.signal("ending", kernel_kin(CONFIG))
        m.d.comb += Assert(self._is(Stage.RELEASES) == (taken & self._mine(ending)))
        with m.If(takes & self._mine(dut.complete.p.kin)):
            m.d.sync += self._stage.eq(Stage.RELEASES)
        disowned = self._is(Stage.OFFERED) & (Value.cast(self._end.how) == DISOWNED)
        done = (
            (gives & self._mine(given.p.kin))
            | (completes & self._is(Stage.RELEASES))
            | (disowned & ~(completes & ending.known))
        )
        with m.If(done):
            m.d.sync += self._stage.eq(Stage.DONE)
        queue = self._inside.submodule("done")
        pushes = queue.i.valid & (queue.i.payload.kernel == self._kernel)
        pops = queue.o.valid & (queue.o.payload.kernel == self._kernel)
        m.d.comb += [Assert(pushes == done), Assume(~pops | self._is(Stage.DONE))]
        stays(m, queue.o, Assume, "next_done")

    def _tell(self, m: Module) -> None:
        """The tree is told when the kernel ends and when it is done, in any order of turns."""
        tree, turns = self._dut.tree, self._inside.submodule("turns")
        held = Signal(2, name="held_grant")
        m.d.sync += held.eq(Mux(turns.advance, 0, turns.grant))
        m.d.comb += [
            Assume((turns.grant & ~turns.requests) == 0),
            Assume(~turns.grant.all()),
            Assume((held == 0) | (turns.grant == held)),
        ]
        with m.If(tree.valid & (tree.p.kernel == self._kernel)):
            m.d.comb += Assert(tree.p.known)
            with m.If(tree.p.op == TreeOp.END):
                m.d.comb += [
                    Assert(self._is(Stage.GIVEN)),
                    Assert(tree.p.failed == (Value.cast(self._end.how) == FAILED)),
                ]
                with m.If(tree.ready):
                    m.d.sync += self._stage.eq(Stage.WAITS)
            with m.Else():
                m.d.comb += [Assert(self._is(Stage.DONE)), Assert(tree.p.op == TreeOp.DONE)]
                with m.If(tree.ready):
                    m.d.sync += self._stage.eq(Stage.LIVES)

    def _tables(self, m: Module, kept: data.View) -> None:
        """Invariants: the end is stored until it has been read."""
        inside, how = self._inside, Value.cast(self._end.how)
        asks, brings, found = (inside.signal(name) for name in ("asks", "brings", "found"))
        end = inside.signal("end_request", tree_request(CONFIG.nested_kernels))
        mine = inside.signal("number") == self._kernel
        stored = self._is(Stage.GIVEN, Stage.WAITS, Stage.COMPLETE, Stage.READ)
        m.d.comb += [
            Assert((asks & (end.kernel == self._kernel)) == self._is(Stage.GIVEN)),
            Assert(~asks | ((end.op == TreeOp.END) & end.known)),
            Assert(~self._is(Stage.GIVEN) | (end.failed == (how == FAILED))),
            Assert((brings & mine) == self._is(Stage.READ)),
            Assert((found & mine) == self._is(Stage.OFFERED)),
            Assert(~(brings & found)),
            Assert(how <= DISOWNED),
            Assert(~stored | (Value.cast(kept.how) == how)),
        ]
        with m.If(stored & (how != DISOWNED)):
            m.d.comb += [
                Assert(kept.kernel.kin.as_value() == self._end.kernel.kin.as_value()),
                Assert(kept.kernel.task.as_value() == self._end.kernel.task.as_value()),
                Assert(kept.kernel.context == self._end.kernel.context),
                Assert(self._mine(self._end.kernel.kin)),
            ]

    def _sweep(self, m: Module, marked: Value) -> None:
        """The kernel is marked once the sweep has looked at its end and heard that it is named."""
        dut, inside, killed = self._dut, self._inside, self._killed
        sweep = inside.machine("sweep")
        number, named, stale = (inside.signal(name) for name in ("visit", "was_named", "stale"))
        stored = self._is(Stage.GIVEN, Stage.WAITS, Stage.COMPLETE, Stage.READ)
        here = stored & (number == self._kernel)
        seen, must = Signal(name="seen"), Signal(name="must")
        """`seen`: the sweep looks at the kernel's end. `must`: it was named then."""
        write = inside.signal("stores")
        looks = sweep.ongoing("READ") & dut.sweep & inside.signal("free")
        marks = sweep.ongoing("MARK") & ~write
        m.d.sync += [
            seen.eq(Mux(sweep.ongoing("READ"), looks & here, seen & here)),
            must.eq(Mux(sweep.ongoing("KNOW"), dut.named & seen & here, must & here & ~marks)),
        ]
        with m.If(self._gives):
            m.d.sync += [seen.eq(0), must.eq(0), killed.eq(0)]
        with m.Elif(marks & must):
            m.d.sync += killed.eq(1)
        with m.If(sweep.ongoing("LOOK") & seen & here & (Value.cast(self._end.how) != DISOWNED)):
            m.d.comb += [
                Assert(dut.visited.task.as_value() == self._end.kernel.task.as_value()),
                Assert(dut.visited.context == self._end.kernel.context),
            ]
        with m.If(sweep.ongoing("MARK") & here):
            m.d.comb += Assert((named & ~stale) == must)
        m.d.comb += [Assert(~stored | (marked == killed)), Cover(killed & self._is(Stage.READ))]

    def _others(self, m: Module, kept: data.View) -> None:
        """The same holds for other kernels: the entry read names the kernel that was requested."""
        inside, queue = self._inside, self._inside.submodule("over")
        number, item = inside.signal("number"), inside.signal("item", kept.shape())

        def names(row: data.View, kernel: Value) -> Value:
            own = row.kernel.kin.known & (row.kernel.kin.kernel == kernel)
            return own | (Value.cast(row.how) == DISOWNED)

        pops, mine = queue.o.valid & queue.o.ready, queue.o.payload == self._kernel
        m.d.comb += [
            Assume(~pops | mine | names(kept, queue.o.payload)),
            Assert(~(pops & mine) | names(kept, queue.o.payload)),
            Assert(~inside.signal("found") | names(item, number)),
        ]


PROOFS = [KernelEndsProof()]
