"""Proof of the tree of kernels: when kernels are complete and waits end (NEST-12, NEST-15)."""

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from signalbox.hw.nested.kernel_tree import KernelTree, TreeEvent, TreeOp, tree_request
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    surround,
)

__all__ = ["PROOFS"]


NODES = 4

_kernel = data.StructLayout({
    "alive": 1,
    "child": 1,
    "family": range(NODES),
    "depth": range(2 * NODES),
    "ended": 1,
    "over": 1,
})
"""`alive`: the kernel is in the tree. That is until it is done; for a `child` of `family`, from its
own launch on, otherwise from the first launch of a child on. `over`: it is reported as complete.
`depth`: depth of the parent plus 1, modulo a number greater than the length of any cycle, so that
no cycle of parents has matching depths."""

_family = data.StructLayout({"open": 1, "kernel": range(NODES), "waits": 1})
"""Family of a block of `kernel`. `open`: the block is not over. `waits`: the block must be told
when all its children are done."""

_LAUNCHING = ("LAUNCH", "KERNEL", "FAMILY", "COUNT", "CHILD")


class KernelTreeProof(Proof):
    """For trees of up to four kernels. Blocks launch, leave and ask, and kernels end and are done,
    in any order that the machine allows. The lists of free nodes are replaced by sets, of which any
    node may come next.

    The memories equal the model: a refused launch changes neither, and the numbers of children and
    families agree. The parent of each child is in the tree, and its depth is one less, so there is
    no cycle.
    """

    name = "nested.kernel_tree"
    shows = (
        "a kernel is reported as complete once, after its blocks are over and no descendant is "
        "left, and before the next request is accepted; a block is told when all its children are "
        "done, and not earlier; each launch has one answer, each child a parent and a node that no "
        "other has, and a refused one changes nothing; children within the limit"
    )
    induction = 2
    cover = 19

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = KernelTree(NODES)
        self._inside = inside = Inside(dut)
        inside.abstract("free_kernels", "free_families")
        self._state = inside.machine("tree")
        self._read = {
            name: [inside.submodule(name).read_port(domain="comb") for _ in range(NODES)]
            for name in ("kernels", "families")
        }
        m.submodules.dut = wrap(dut)
        for ports in self._read.values():
            m.d.comb += [port.addr.eq(number) for number, port in enumerate(ports)]
        self._kernels = Array(Signal(_kernel, name=f"kernel_{n}") for n in range(NODES))
        self._families = Array(Signal(_family, name=f"family_{n}") for n in range(NODES))
        self._asked = Signal(tree_request(NODES), name="asked")
        self._launching = Signal(name="launching")
        for name in ("i", "told", "over"):
            surround(m, getattr(dut, name), name)
        m.d.comb += dut.limit.eq(AnyConst(len(dut.limit)))
        self._ask(m)
        self._tell(m)
        self._complete(m)
        self._rest(m)
        self._parents(m)
        self._nodes(m)
        self._rows(m)
        self._counts(m)
        self._ways(m)

    def _children(self, family: Value | int) -> Value:
        """Kernels of the family that are not done."""
        return Cat(one.alive & one.child & (one.family == family) for one in self._kernels)

    def _ask(self, m: Module) -> None:
        """Requests of the machine."""
        dut, asked, i = self._dut, self._asked, self._dut.i.p
        kernel, family = self._kernels[i.kernel], self._families[i.family]
        runs = kernel.alive & ~kernel.ended
        legal = {
            TreeOp.LAUNCH: Mux(
                i.known,
                runs & (~i.related | (family.open & (family.kernel == i.kernel))),
                ~i.related,
            ),
            TreeOp.END: runs,
            TreeOp.LEAVE: family.open,
            TreeOp.ASK: family.open,
            TreeOp.DONE: kernel.alive & kernel.over,
        }
        with m.If(dut.i.valid & dut.i.ready):
            m.d.comb += Assume(Cat((i.op == op) & allowed for op, allowed in legal.items()).any())
            m.d.comb += Assert(~self._launching)
            m.d.sync += asked.eq(i)
            with m.Switch(i.op):
                with m.Case(TreeOp.LAUNCH):
                    m.d.sync += self._launching.eq(1)
                with m.Case(TreeOp.END):
                    m.d.sync += kernel.ended.eq(1)
                with m.Case(TreeOp.LEAVE):
                    m.d.sync += family.open.eq(0)
                with m.Case(TreeOp.ASK):
                    m.d.sync += family.waits.eq(1)
                with m.Case(TreeOp.DONE):
                    m.d.sync += kernel.alive.eq(0)

    def _tell(self, m: Module) -> None:
        """Answers to launches, and blocks whose children are done."""
        told, asked = self._dut.told, self._asked
        kernel, child = self._kernels[told.p.kernel], self._kernels[told.p.child]
        family, children = self._families[told.p.family], self._children(told.p.family).any()
        known = Mux(asked.known, told.p.kernel == asked.kernel, ~kernel.alive)
        related = Mux(asked.related, told.p.family == asked.family, ~(family.open | children))
        with m.If(told.valid & told.ready), m.Switch(told.p.kind):
            with m.Case(TreeEvent.JOINED):
                m.d.comb += [Assert(family.open & family.waits & ~children), Cover(1)]
                m.d.sync += family.waits.eq(0)
            with m.Default():
                m.d.comb += Assert(self._launching)
                m.d.sync += self._launching.eq(0)
        launched = told.p.kind == TreeEvent.LAUNCHED
        with m.If(told.valid & told.ready & launched):
            m.d.comb += Assert(known & related & ~child.alive & (told.p.child != told.p.kernel))
            m.d.sync += [
                kernel.alive.eq(1),
                family.eq(_family.const({"open": 1, "waits": 1})),
                family.kernel.eq(told.p.kernel),
                child.eq(_kernel.const({"alive": 1, "child": 1})),
                child.family.eq(told.p.family),
                child.depth.eq(Mux(asked.known, kernel.depth, 0) + 1),
            ]
            with m.If(~asked.known):
                m.d.sync += kernel.eq(_kernel.const({"alive": 1}))

    def _complete(self, m: Module) -> None:
        """A kernel is reported."""
        over, kernel = self._dut.over, self._kernels[self._dut.over.p.kernel]
        number = over.p.kernel
        of = Cat(self._kernel_of(one) == number for one in self._kernels)
        left = of & Cat(one.alive & one.child for one in self._kernels)
        opens = Cat(one.open & (one.kernel == number) for one in self._families)
        with m.If(over.valid):
            m.d.comb += Assert(kernel.alive & kernel.ended & ~kernel.over)
            m.d.comb += Assert((left == 0) & (opens == 0))
        with m.If(over.valid & over.ready):
            m.d.sync += kernel.over.eq(1)
            m.d.comb += Cover(kernel.child)

    def _kernel_of(self, child: data.View) -> Value:
        """The parent of a kernel."""
        return self._families[child.family].kernel

    def _rest(self, m: Module) -> None:
        """A request is accepted only after all consequences of earlier ones have been reported."""
        with m.If(self._dut.i.ready):
            for number, kernel in enumerate(self._kernels):
                families = Cat(
                    (one.open | self._children(n).any()) & (one.kernel == number)
                    for n, one in enumerate(self._families)
                )
                waits = kernel.alive & kernel.ended & ~kernel.over
                m.d.comb += Assert(~waits | families.any())
            for number, family in enumerate(self._families):
                waits = family.open & family.waits
                m.d.comb += Assert(~waits | self._children(number).any())

    def _parents(self, m: Module) -> None:
        """Each child has a parent in the tree, one level above it."""
        grandchildren = []
        for kernel in self._kernels:
            parent, child = self._kernels[self._kernel_of(kernel)], kernel.alive & kernel.child
            below = (parent.depth + 1)[: len(kernel.depth)]
            m.d.comb += Assert(~child | (parent.alive & (kernel.depth == below)))
            grandchildren.append(child & parent.child)
        m.d.comb += Cover(Cat(grandchildren).any())

    # -- invariants -------------------------------------------------------------------------------

    def _is(self, *states: str) -> Value:
        return self._state.ongoing(*states)

    def _free(self, m: Module, name: str) -> Signal:
        """The set of free nodes instead of a list of them."""
        nodes, free = self._inside.submodule(name), Signal(NODES, name=name)
        push, pop = nodes.i.valid, nodes.o.valid & nodes.o.ready
        has = free.bit_select(nodes.o.payload, 1)
        m.d.comb += [
            Assume(~nodes.o.valid | has),
            Assume(nodes.level == sum(free[n] for n in range(NODES))),
            Assert(~push | ~free.bit_select(nodes.i.payload, 1)),
        ]
        for number in range(NODES):
            with m.If(push & (nodes.i.payload == number)):
                m.d.sync += free[number].eq(1)
            with m.If(pop & (nodes.o.payload == number)):
                m.d.sync += free[number].eq(0)
        return free

    def _nodes(self, m: Module) -> None:
        """Nodes in use: the nodes of the tree, and nodes being given or given back."""
        inside, kernels, families = self._inside, self._kernels, self._families
        self._kernel, self._family = inside.signal("kernel"), inside.signal("family")
        known, related = inside.signal("known"), inside.signal("related")
        filled, full = inside.signal("filled"), inside.signal("lists_full")
        kind = inside.signal("kind", TreeEvent)
        self._launched = launched = self._is("TELL") & (kind == TreeEvent.LAUNCHED)
        self._joins = self._is("TELL") & (kind == TreeEvent.JOINED)
        going = self._is("FAMILY", "COUNT", "CHILD") | launched
        done, gone = self._kernels[self._kernel], self._is("DONE")
        self._goes = [
            (gone & done.child & (done.family == n))
            | (self._is("PARENT", "CHILD DONE") & (self._family == n))
            for n in range(NODES)
        ]
        """A child of this family is done, but still counted in it."""
        free = self._free(m, "free_kernels"), self._free(m, "free_families")
        used = [Signal(NODES, name=f"used_{n}") for n in range(2)]
        self._used_kernels, self._used_families = used
        new_family = (self._is("COUNT", "CHILD") | launched) & ~related
        self._new_families = [new_family & (self._family == n) for n in range(NODES)]
        m.d.comb += [
            [some.eq(~none & full.replicate(NODES)) for some, none in zip(used, free, strict=True)],
            Assert(filled <= NODES),
            Assert(full | self._is("WAIT")),
            [Assert(full | (none == (1 << filled)[:NODES] - 1)) for none in free],
        ]
        for n, kernel in enumerate(kernels):
            new = going & ~known & (self._kernel == n)
            child = launched & (inside.signal("child") == n)
            late = gone & (self._kernel == n)
            m.d.comb += [
                Assert(used[0][n] == (kernel.alive | new | child | late)),
                Assert(kernel.alive + new + child + late <= 1),
            ]
        for n, family in enumerate(families):
            lives = family.open | self._children(n).any()
            new = self._new_families[n]
            late = self._goes[n] | (self._is("LEAVE", "CLOSE") & (self._family == n))
            m.d.comb += [
                Assert(used[1][n] | ~(lives | new | late)),
                Assert(~used[1][n] | lives | new | late),
                Assert(~(new & (lives | late))),
            ]

    def _rows(self, m: Module) -> None:
        """Contents of the memories, except for counts."""
        kernels, families = self._read["kernels"], self._read["families"]
        for n, (kernel, port) in enumerate(zip(self._kernels, kernels, strict=True)):
            row, this = port.data, self._kernel == n
            with m.If(kernel.alive | (self._is("DONE") & this)):
                m.d.comb += [
                    Assert(row.child == kernel.child),
                    Assert(~kernel.child | (row.family == kernel.family)),
                    Assert(row.ended == (kernel.ended & ~(self._is("END") & this))),
                ]
            with m.Elif(self._used_kernels[n]):
                m.d.comb += [
                    Assert(row.child == ~this),
                    Assert(this | (row.family == self._family)),
                    Assert(~row.ended),
                ]
        for n, (family, port) in enumerate(zip(self._families, families, strict=True)):
            row, new = port.data, self._new_families[n]
            leaves = self._is("LEAVE") & (self._family == n)
            with m.If(self._used_families[n]):
                m.d.comb += [
                    Assert(row.kernel == Mux(new, self._kernel, family.kernel)),
                    Assert(row.left == ~(new | family.open | leaves)),
                ]

    def _counts(self, m: Module) -> None:
        """Numbers of children, of families, and of all children."""
        owners = [port.data.kernel for port in self._read["families"]]
        pending, below = self._inside.signal("pending"), self._inside.signal("below_limit")
        children = sum(one.alive & one.child for one in self._kernels)
        limit = self._dut.limit
        m.d.comb += [
            Assert(pending == children + sum(self._goes) + self._launched),
            Assert((limit == 0) | (pending <= limit)),
            Assert(~self._is(*_LAUNCHING[1:]) | (limit == 0) | (pending < limit)),
            Assert(~self._is("LAUNCH") | (below == ((limit == 0) | (pending < limit)))),
        ]
        for n in range(NODES):
            used = self._used_families
            row = self._read["kernels"][n].data
            of = Cat(used[f] & (owner == n) for f, owner in enumerate(owners))
            own = sum(of[f] for f in range(NODES))
            this, kernel = self._kernel == n, self._kernels[n]
            ready = kernel.alive & kernel.ended & ~kernel.over & ~of.any()
            m.d.comb += [
                Assert(
                    ~self._used_kernels[n]
                    | (
                        row.families + (self._is("COUNT") & this)
                        == own + (self._is("CLOSED") & this)
                    )
                ),
                # Complete kernels are reported, and others are not.
                Assert(~ready | (self._is("END", "CLOSED", "COMPLETE") & this)),
                Assert(~(self._is("COMPLETE") & this) | ready),
                Assert(~(kernel.alive & kernel.over) | (kernel.ended & ~of.any())),
                Assert(~(self._is("DONE") & this) | (kernel.over & ~of.any())),
                Assert(~(self._is("CLOSED") & this) | (kernel.alive & ~kernel.over)),
                Assert(~(self._is("END") & this) | (kernel.alive & kernel.ended & ~kernel.over)),
            ]
            held = self._read["families"][n].data
            counted = self._goes[n] + (self._launched & (self._family == n))
            number = sum(self._children(n)[k] for k in range(NODES))
            m.d.comb += Assert(~self._used_families[n] | (held.children == number + counted))
        for n, owner in enumerate(owners):
            alive, new = self._kernels[owner].alive, self._new_families[n]
            m.d.comb += Assert(~self._used_families[n] | alive | new)

    def _ways(self, m: Module) -> None:
        """Invariants of each state."""
        asked, launching = self._asked, self._launching
        known, related = self._inside.signal("known"), self._inside.signal("related")
        kind, states = self._inside.signal("kind", TreeEvent), ("WAIT", *_LAUNCHING, "TELL")
        refused = self._is("TELL") & (kind == TreeEvent.REFUSED)
        answers = self._is(*_LAUNCHING) | self._launched | refused
        kernel, family = self._kernels[self._kernel], self._families[self._family]
        m.d.comb += [
            Assert(
                self._is(
                    *states,
                    "END",
                    "COMPLETE",
                    "DONE",
                    "PARENT",
                    "CHILD DONE",
                    "LEAVE",
                    "CLOSE",
                    "CLOSED",
                    "ASK",
                )
            ),
            Assert(launching == answers),
            Assert(~answers | ((known == asked.known) & (related == asked.related))),
            Assert(kind.as_value() <= TreeEvent.JOINED.value),
            Assert(~self._is(*_LAUNCHING[1:]) | (kind == TreeEvent.LAUNCHED)),
            Assert(~(self._is("KERNEL") & known)),
            Assert(~(self._is("COUNT") & related)),
            Assert(~(self._is("CLOSE", "CLOSED")) | (self._kernel == family.kernel)),
            Assert(~self._is("CLOSE") | ~(family.open | self._children(self._family).any())),
            Assert(~self._is("LEAVE") | ~family.open),
            Assert(~self._is("ASK") | family.open),
            Assert(
                ~self._joins | (family.open & family.waits & ~self._children(self._family).any())
            ),
        ]
        with m.If(answers & ~refused & known):
            m.d.comb += Assert((self._kernel == asked.kernel) & kernel.alive & ~kernel.ended)
        with m.If(answers & ~refused & related):
            m.d.comb += Assert(known & (self._family == asked.family) & family.open)
            m.d.comb += Assert(family.kernel == self._kernel)
        for n, one in enumerate(self._families):
            told = (self._joins | self._is("ASK")) & (self._family == n)
            comes = self._children(n).any() | self._goes[n] | told
            m.d.comb += Assert(~one.open | (one.waits == comes))


PROOFS = [KernelTreeProof()]
