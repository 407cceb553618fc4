"""Holds back the end of a kernel until its descendants are complete (NEST-12)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.nested.kernel_tree import TreeOp, kernel_over, tree_request
from signalbox.hw.records.launch import task_ended, task_failure

__all__ = ["KernelEnds"]


class _End(enum.Enum, shape=2):
    """How a kernel has ended."""

    ENDED = 0
    FAILED = 1
    DISOWNED = 2


class KernelEnds(wiring.Component):
    """Kernels outside of the kernel tree pass at once. Those in it are kept, by their numbers, and
    the tree is told that they have ended; once it says that one is complete, it goes on.

    A complete kernel waits for the acceptance of the one before it, but `failed` and `disowned`
    never wait for `complete`: a kernel that is ending may launch another one, and the task unit has
    to accept that.

    Cycles from the acceptance of an end to the request to the tree: 1; from `over` to the offer of
    the kernel: 4, if none is offered.

    Members
    -------
    ended : in, a kernel whose blocks have all ended; combinational to `complete` if it passes.
    failed : in, a kernel that was given up; combinational to `given_up` if it passes.
    disowned : in, number of a child that was refused after it had got a place in the tree.
    tree : out, the kernel tree, for ends.
    over : in, from the kernel tree; always accepted.
    complete : out, each ended kernel, when its descendants are complete.
    given_up : out, each failed kernel, likewise.
    idle : out, no kernel is given or on its way; some may be waiting for their descendants.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nodes = config.nested_kernels
        ended, failed = (
            stream.Signature(shape) for shape in (task_ended(config), task_failure(config))
        )
        super().__init__({
            "ended": In(ended),
            "failed": In(failed),
            "disowned": In(stream.Signature(config.nested_bits)),
            "tree": Out(stream.Signature(tree_request(nodes))),
            "over": In(stream.Signature(kernel_over(nodes))),
            "complete": Out(ended),
            "given_up": Out(failed),
            "idle": Out(1),
        })
        self._asks, self._brings, self._found = (
            Signal(name=name) for name in ("asks", "brings", "found")
        )
        """The tree is to be told of an end; a complete kernel is being read; one goes on."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, nodes = self._config, self._config.nested_kernels
        kept = data.StructLayout({"how": _End, "kernel": task_failure(config)})
        m.submodules.kept = rows = Memory(shape=kept, depth=nodes, init=[])
        m.submodules.done = done = StreamFIFO(config.nested_bits, nodes + 1)
        self._write, self._read = rows.write_port(), rows.read_port()
        given = self.ended.valid | self.failed.valid | self.disowned.valid
        m.d.comb += [
            self.over.ready.eq(1),
            done.i.valid.eq(self.over.valid),
            done.i.payload.eq(self.over.p.kernel),
            self.idle.eq((done.level == 0) & ~(given | self._asks | self._brings | self._found)),
        ]
        self._keep(m)
        self._bring(m, done.o)
        return m

    def _keep(self, m: Module) -> None:
        """Keep a kernel of the tree, and tell the tree."""
        ended, failed, disowned, write = self.ended, self.failed, self.disowned, self._write
        fails, ends = Signal(name="fails"), Signal(name="ends")
        child, failing = Signal(self._config.nested_bits, name="node"), Signal(name="failing")
        m.d.comb += [
            fails.eq(failed.valid & failed.p.kin.known),
            ends.eq(ended.valid & ended.p.kin.known),
            write.en.eq(~self._asks & (fails | ends | disowned.valid)),
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
        """A kernel is kept, if it is in the tree: an ended, and a failed one."""
        m.d.comb += [
            self.tree.valid.eq(self._asks),
            self.tree.p.op.eq(TreeOp.END),
            self.tree.p.known.eq(1),
            self.tree.p.kernel.eq(child),
            self.tree.p.failed.eq(failing),
        ]
        with m.If(write.en):
            m.d.sync += [self._asks.eq(1), child.eq(write.addr)]
            m.d.sync += failing.eq(write.data.how == _End.FAILED)
        with m.Elif(self.tree.ready):
            m.d.sync += self._asks.eq(0)

    def _bring(self, m: Module, done: Value) -> None:
        """Complete kernels go on, ahead of those that pass, unless one of these is offered."""
        read, found, item = self._read, self._found, Signal(self._read.data.shape(), name="item")
        m.d.comb += [read.addr.eq(done.payload), done.ready.eq(~(self._brings | found))]
        with m.If(done.ready):
            m.d.sync += self._brings.eq(done.valid)
        with m.If(self._brings):
            m.d.sync += [
                self._brings.eq(0),
                found.eq(read.data.how != _End.DISOWNED),
                item.eq(read.data),
            ]
        ways = (self.ended, self.complete), (self.failed, self.given_up)
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
