"""Tree of kernels that launch kernels: when each is complete, and when a wait ends (NEST-12)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.registers import GLOBAL

__all__ = ["KernelTree", "TreeEvent", "TreeOp", "kernel_over", "tree_event", "tree_request"]


class TreeOp(enum.Enum, shape=3):
    """Request to the kernel tree."""

    LAUNCH = 0
    """A block launches a child."""
    END = 1
    """All blocks of a kernel are over, and there will be no others."""
    LEAVE = 2
    """A block that has launched children is over."""
    ASK = 3
    """A block that has launched children is on an SM again."""
    DONE = 4
    """The releases of a complete kernel are made: it counts as complete for its parent."""


class TreeEvent(enum.Enum, shape=2):
    """Event sent to a block."""

    LAUNCHED = 0
    REFUSED = 1
    """The tree has no room for the child, or its limit is reached (NEST-15)."""
    JOINED = 2
    """All children that the block has launched so far are done."""


def tree_request(nodes: int) -> data.StructLayout:
    """`kernel`: node of the kernel that launches, ends or is done. `known`: it has one, as it is a
    child or has launched one. `family`: family of the block. `related`: it has one, as it has
    launched a child. `failed`, with END: a warp of the kernel has faulted, or the kernel was
    killed; with DONE: that, or a release was refused."""
    return data.StructLayout({
        "op": TreeOp,
        "known": 1,
        "kernel": range(nodes),
        "related": 1,
        "family": range(nodes),
        "failed": 1,
    })


def tree_event(nodes: int) -> data.StructLayout:
    """LAUNCHED: the kernel and the family of the launching block, and the node of its `child`.
    JOINED: the family; `failed`: one of its children so far, or one of their descendants, has
    failed."""
    return data.StructLayout({
        "kind": TreeEvent,
        "kernel": range(nodes),
        "family": range(nodes),
        "child": range(nodes),
        "failed": 1,
    })


def kernel_over(nodes: int) -> data.StructLayout:
    """A kernel is complete, and its releases are due; `failed`: it or one of its descendants has
    failed."""
    return data.StructLayout({"kernel": range(nodes), "failed": 1})


def _kernel_node(nodes: int) -> data.StructLayout:
    """A kernel: `family` to which it belongs, if it is a `child`; number of `families` of its
    blocks."""
    return data.StructLayout({
        "child": 1,
        "family": range(nodes),
        "families": range(nodes + 1),
        "ended": 1,
        "failed": 1,
    })


def _family(nodes: int) -> data.StructLayout:
    """Children of a block: `kernel` of the block; number of `children` that are not done; `left`:
    the block is over."""
    return data.StructLayout({
        "kernel": range(nodes),
        "children": range(nodes + 1),
        "left": 1,
        "failed": 1,
    })


class KernelTree(wiring.Component):
    """Finds when kernels are complete, and when waits for children end. The children of a block are
    a family; the tree counts the children of each family and the families of each kernel. A family
    is over when its block has left and all its children are done. A kernel is complete when its
    blocks and all its families are over. A kernel that is neither parent nor child has no node.

    Requests are processed one after the other. Cycles from acceptance: LAUNCHED 4 for a further
    child, 5 for the first one of a block, 6 for the first one of a kernel; REFUSED 2; JOINED, if
    asked for, 2, and 4 after DONE; `over` 2 after END, 4 after LEAVE, 6 after DONE. Events of a
    block are in order: after LAUNCHED, the block has children until the next JOINED. `told` and
    `over` must be accepted independently of `i`.

    `known` and `related` say whether kernel and block had a node when the request was accepted. So
    while a launch gives its kernel or block a node, no other launch of that kernel may be offered.

    Parameters
    ----------
    nodes : number of nodes for kernels, and of nodes for families.

    Members
    -------
    i : in, stream of `tree_request`; after reset, accepted when the lists of free nodes are full.
    limit : in, 12 bits: maximum number of children that are not done; 0: only the nodes limit them.
        A lower limit takes effect with the next launch; existing children stay.
    told : out, stream of `tree_event`: events for blocks, by family.
    over : out, stream of `kernel_over`: complete kernels, each once, after its descendants are
        done. The node of a kernel is free once the kernel is done, too.
    idle : out, no request is being processed.
    empty : out, there is no kernel; late by 2 cycles.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        super().__init__({
            "i": In(stream.Signature(tree_request(nodes))),
            "limit": In(GLOBAL["CHILD_LIMIT"].field("COUNT").width),
            "told": Out(stream.Signature(tree_event(nodes))),
            "over": Out(stream.Signature(kernel_over(nodes))),
            "idle": Out(1),
            "empty": Out(1),
        })
        self._kernel, self._family = (
            Signal(range(nodes), name=name) for name in ("kernel", "family")
        )
        self._failed, self._known, self._related = (
            Signal(name=name) for name in ("failed", "known", "related")
        )
        self._kind, self._child = Signal(TreeEvent, name="kind"), Signal(range(nodes), name="child")
        self._idle = Signal(name="is_idle")
        self._pending = Signal(range(nodes + 1), name="pending")
        """Children that are not done."""
        self._below = Signal(name="below_limit")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self._below.eq((self.limit == 0) | (self._pending < self.limit))
        self._memories(m)
        self._lists(m)
        with m.FSM(name="tree"):
            self._wait(m)
            self._launch(m)
            self._end(m)
            self._complete(m)
            self._done(m)
            self._leave(m)
            with m.State("TELL"):
                m.d.comb += self.told.valid.eq(1)
                with m.If(self.told.ready):
                    m.next = "WAIT"
        m.d.comb += [
            self.idle.eq(self._idle),
            self.empty.eq(self._free_kernels.level == self._nodes),
            self.told.p.kind.eq(self._kind),
            self.told.p.child.eq(self._child),
            self.told.p.kernel.eq(self._kernel),
            self.told.p.family.eq(self._family),
            self.told.p.failed.eq(self._failed),
            self.over.p.kernel.eq(self._kernel),
            self.over.p.failed.eq(self._failed),
        ]
        return m

    def _memories(self, m: Module) -> None:
        """Kernels and families. Those of the request in progress are read; while idle, those of the
        next one."""
        nodes, i = self._nodes, self.i.p
        m.submodules.kernels = kernels = Memory(shape=_kernel_node(nodes), depth=nodes, init=[])
        m.submodules.families = families = Memory(shape=_family(nodes), depth=nodes, init=[])
        self._read_kernel, self._write_kernel = kernels.read_port(), kernels.write_port()
        self._read_family, self._write_family = families.read_port(), families.write_port()
        m.d.comb += [
            self._read_kernel.addr.eq(Mux(self._idle, i.kernel, self._kernel)),
            self._read_family.addr.eq(Mux(self._idle, i.family, self._family)),
            self._write_kernel.addr.eq(self._kernel),
            self._write_kernel.data.eq(self._read_kernel.data),
            self._write_family.addr.eq(self._family),
            self._write_family.data.eq(self._read_family.data),
        ]

    def _lists(self, m: Module) -> None:
        """Free nodes; after reset, all, one per cycle."""
        nodes = self._nodes
        filled = Signal(range(nodes + 1), name="filled")
        self._full = Signal(name="lists_full")
        m.d.comb += self._full.eq(filled == nodes)
        m.d.sync += filled.eq(filled + ~self._full)
        m.submodules.free_kernels = self._free_kernels = StreamFIFO(range(nodes), nodes + 1)
        m.submodules.free_families = self._free_families = StreamFIFO(range(nodes), nodes + 1)
        for list_, returned in (
            (self._free_kernels, self._kernel),
            (self._free_families, self._family),
        ):
            m.d.comb += [
                list_.i.valid.eq(~self._full),
                list_.i.payload.eq(Mux(self._full, returned, filled)),
            ]

    def _wait(self, m: Module) -> None:
        i = self.i
        with m.State("WAIT"):
            m.d.comb += [self._idle.eq(1), i.ready.eq(self._full)]
            m.d.sync += [
                self._kernel.eq(i.p.kernel),
                self._family.eq(i.p.family),
                self._failed.eq(i.p.failed),
                self._known.eq(i.p.known),
                self._related.eq(i.p.related),
            ]
            with m.If(i.valid & i.ready), m.Switch(i.p.op):
                for op in TreeOp:
                    with m.Case(op):
                        m.next = op.name

    def _launch(self, m: Module) -> None:
        """Allocates the missing nodes: of the kernel, of the family, of the child."""
        kernels, families = self._free_kernels, self._free_families
        kernel, family = self._write_kernel, self._write_family
        with m.State("LAUNCH"):
            nodes = (kernels.level > ~self._known) & (families.level >= ~self._related)
            room = nodes & self._below
            m.d.sync += self._kind.eq(Mux(room, TreeEvent.LAUNCHED, TreeEvent.REFUSED))
            m.next = "KERNEL"
            with m.If(~room):
                m.next = "TELL"
            with m.Elif(self._known):
                m.next = "FAMILY"
        with m.State("KERNEL"):
            m.d.comb += [
                kernels.o.ready.eq(1),
                kernel.en.eq(kernels.o.valid),
                kernel.addr.eq(kernels.o.payload),
                kernel.data.eq(0),
            ]
            m.d.sync += self._kernel.eq(kernels.o.payload)
            with m.If(kernels.o.valid):
                m.next = "FAMILY"
        with m.State("FAMILY"):
            m.d.comb += [
                families.o.ready.eq(~self._related),
                family.en.eq(families.o.valid & ~self._related),
                family.addr.eq(families.o.payload),
                family.data.eq(0),
                family.data.kernel.eq(self._kernel),
            ]
            with m.If(self._related):
                m.next = "CHILD"
            with m.Elif(families.o.valid):
                m.d.sync += self._family.eq(families.o.payload)
                m.next = "COUNT"
        with m.State("COUNT"):
            m.d.comb += [
                kernel.en.eq(1),
                kernel.data.families.eq(self._read_kernel.data.families + 1),
            ]
            m.next = "CHILD"
        with m.State("CHILD"):
            child = kernels.o
            m.d.comb += [
                child.ready.eq(1),
                kernel.en.eq(child.valid),
                kernel.addr.eq(child.payload),
                kernel.data.eq(0),
                kernel.data.child.eq(1),
                kernel.data.family.eq(self._family),
                family.en.eq(child.valid),
                family.data.children.eq(self._read_family.data.children + 1),
            ]
            m.d.sync += self._child.eq(child.payload)
            with m.If(child.valid):
                m.d.sync += self._pending.eq(self._pending + 1)
                m.next = "TELL"

    def _end(self, m: Module) -> None:
        node, new = self._read_kernel.data, self._write_kernel
        with m.State("END"):
            m.d.comb += [new.en.eq(1), new.data.ended.eq(1), self._fail(new.data, node)]
            self._go_on(m, node.families == 0, node)

    def _fail(self, new: data.View, node: data.View) -> Value:
        """A node has failed if any part of it has failed."""
        return new.failed.eq(node.failed | self._failed)

    def _go_on(self, m: Module, over: Value, node: data.View) -> None:
        """Go on to COMPLETE if the kernel of this node is `over`."""
        m.d.sync += self._failed.eq(node.failed | self._failed)
        m.next = "WAIT"
        with m.If(over):
            m.next = "COMPLETE"

    def _complete(self, m: Module) -> None:
        with m.State("COMPLETE"):
            m.d.comb += self.over.valid.eq(1)
            with m.If(self.over.ready):
                m.next = "WAIT"

    def _done(self, m: Module) -> None:
        """Free the node, and count the kernel in its family, which may be over, too."""
        kernel, node, new = self._read_kernel.data, self._read_family.data, self._write_family
        with m.State("DONE"):
            m.d.comb += self._free_kernels.i.valid.eq(1)
            m.d.sync += [
                self._family.eq(kernel.family),
                self._failed.eq(kernel.failed | self._failed),
            ]
            m.next = "WAIT"
            with m.If(kernel.child):
                m.next = "PARENT"
        with m.State("PARENT"):
            m.next = "CHILD DONE"
        with m.State("CHILD DONE"):
            m.d.comb += [
                new.en.eq(1),
                new.data.children.eq(node.children - 1),
                self._fail(new.data, node),
            ]
            m.d.sync += [
                self._failed.eq(node.failed | self._failed),
                self._kind.eq(TreeEvent.JOINED),
                self._pending.eq(self._pending - 1),
            ]
            m.next = "WAIT"
            with m.If(node.children == 1):
                m.next = "TELL"
                with m.If(node.left):
                    m.d.sync += self._kernel.eq(node.kernel)
                    m.next = "CLOSE"

    def _leave(self, m: Module) -> None:
        """A family that is over is counted in its kernel, which may be complete."""
        family, new = self._read_family.data, self._write_family
        with m.State("LEAVE"):
            m.d.comb += [new.en.eq(1), new.data.left.eq(1)]
            m.next = "WAIT"
            with m.If(family.children == 0):
                m.d.sync += [self._kernel.eq(family.kernel), self._failed.eq(family.failed)]
                m.next = "CLOSE"
        with m.State("CLOSE"):
            m.d.comb += self._free_families.i.valid.eq(1)
            m.next = "CLOSED"
        with m.State("CLOSED"):
            node, kernel = self._read_kernel.data, self._write_kernel
            m.d.comb += [
                kernel.en.eq(1),
                kernel.data.families.eq(node.families - 1),
                self._fail(kernel.data, node),
            ]
            self._go_on(m, node.ended & (node.families == 1), node)
        with m.State("ASK"):
            m.d.sync += [self._kind.eq(TreeEvent.JOINED), self._failed.eq(family.failed)]
            m.next = "WAIT"
            with m.If(family.children == 0):
                m.next = "TELL"
