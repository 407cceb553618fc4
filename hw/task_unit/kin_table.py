"""Kernel-tree node of each row; registration of new children (NEST-10, NEST-15)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.nested.kernel_tree import TreeEvent, TreeOp, tree_event, tree_request
from signalbox.hw.records.nested import block_family, kernel_kin

__all__ = ["KinTable"]


class KinTable(wiring.Component):
    """Keeps the kernel-tree node of each row's kernel, and gets a node for a new child.

    Latency of a registration, from `birth` to `born`: that of LAUNCHED or REFUSED in the tree, plus
    2 cycles.

    Members
    -------
    row : in, `row_bits` bits: number of a row; stable during a registration.
    kin : out, one cycle later: `kernel_kin` of that row's kernel.
    opened : in, strobe: a row is opened for a kernel with this kin.
    birth : in, stream of `block_family`: launches by a block of `row`; not together with `opened`.
    born : out, strobe: `child` is the kin of the new child; its `known` is 0 if the tree refused
        it. `block` is the family of the block, unchanged in that case.
    tree : out, stream of `tree_request`, to the kernel tree.
    told : in, strobe: an event of the kernel tree, see `tree_event`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nodes, kin, block = config.nested_kernels, kernel_kin(config), block_family(config)
        super().__init__({
            "row": In(config.row_bits),
            "kin": Out(kin),
            "opened": In(data.StructLayout({"valid": 1, "row": config.row_bits, "kin": kin})),
            "birth": In(stream.Signature(block)),
            "born": Out(data.StructLayout({"valid": 1, "child": kin, "block": block})),
            "tree": Out(stream.Signature(tree_request(nodes))),
            "told": In(data.StructLayout({"valid": 1, "event": tree_event(nodes)})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = rows = Memory(shape=self.kin.shape(), depth=self._config.rows, init=[])
        read, write = rows.read_port(), rows.write_port()
        block = Signal(self.birth.payload.shape(), name="launching_block")
        told, event = Signal(name="answered"), self.told.event
        launched, refused = (event.kind == kind for kind in (TreeEvent.LAUNCHED, TreeEvent.REFUSED))
        m.d.comb += [
            read.addr.eq(self.row),
            self.kin.eq(read.data),
            told.eq(self.told.valid & (launched | refused)),
            write.en.eq(self.opened.valid | (told & launched)),
            write.addr.eq(Mux(self.opened.valid, self.opened.row, self.row)),
            write.data.eq(self.opened.kin),
        ]
        with m.If(~self.opened.valid):
            m.d.comb += [write.data.known.eq(1), write.data.kernel.eq(event.kernel)]
        self._ask(m, block)
        m.d.sync += [
            self.born.valid.eq(told),
            self.born.child.known.eq(launched),
            self.born.child.kernel.eq(event.child),
            self.born.block.eq(block),
        ]
        with m.If(launched):
            m.d.sync += [
                self.born.block.related.eq(1),
                self.born.block.family.eq(event.family),
            ]
        return m

    def _ask(self, m: Module, block: Signal) -> None:
        """Ask the tree for a node."""
        tree, birth, asks = self.tree, self.birth, Signal(name="asks")
        m.d.comb += [
            birth.ready.eq(~asks),
            tree.valid.eq(asks),
            tree.p.op.eq(TreeOp.LAUNCH),
            tree.p.known.eq(self.kin.known),
            tree.p.kernel.eq(self.kin.kernel),
            tree.p.related.eq(block.related),
            tree.p.family.eq(block.family),
        ]
        with m.If(birth.ready):
            m.d.sync += [asks.eq(birth.valid), block.eq(birth.payload)]
        with m.Elif(tree.ready):
            m.d.sync += asks.eq(0)
