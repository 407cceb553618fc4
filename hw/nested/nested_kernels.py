"""Shares the kernel tree among task unit, ends of kernels and SMs (NEST-12, NEST-15)."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.nested.kernel_ends import KernelEnds
from signalbox.hw.nested.kernel_tree import KernelTree, TreeOp, tree_event, tree_request

__all__ = ["NestedKernels"]

_GIVEN = "ended", "failed", "disowned", "completed"
_TAKEN = "complete", "given_up", "reported"
"""Streams into `KernelEnds`, and out of it."""
_SWEPT = "sweep", "visited", "named", "swept"


class NestedKernels(wiring.Component):
    """Shares the kernel tree between the task unit, the ends of kernels, and the SMs, in turn; a
    request waits for one request of each of the others.

    Members
    -------
    births : in, stream of `tree_request`: launches by blocks, from the task unit.
    blocks : in, stream of `tree_request`: LEAVE and ASK of blocks, from the SMs.
    lost : in, stream of families of saved blocks that will not continue.
    ended : in, from the task unit: a kernel whose blocks have all ended, see `KernelEnds`.
    failed : in, from the task unit: a kernel that was given up.
    disowned : in, from the task unit: number of a child that was refused after its registration.
    told : out, strobe, a `tree_event`: LAUNCHED and REFUSED are for the task unit, JOINED is for
        the SMs.
    complete : out, each ended kernel, when its descendants are complete; see `KernelEnds`.
    completed : in, the kernel that `TaskEnd` took last.
    given_up : out, each failed kernel, when its descendants are complete.
    reported : out, `completed`, passed on.
    on : in, per channel: enabled.
    sweep, visited, named, swept : search for ended kernels that must be killed, see `KernelEnds`.
    limit : in, 12 bits: maximum number of incomplete children; 0: no limit.
    ending : out, a kernel is on its way to its releases, or has been given up.
    idle : out, no kernel and no request is on its way; some kernels may be waiting for their
        descendants.
    empty : out, there is no kernel in the tree.
    """

    def __init__(self, config: Config) -> None:
        nodes = config.nested_kernels
        request = stream.Signature(tree_request(nodes))
        self._tree, self._ends = KernelTree(nodes), KernelEnds(config)
        ends = self._ends.signature.members
        super().__init__({
            **{name: ends[name] for name in (*_GIVEN, *_TAKEN, "on", *_SWEPT)},
            "births": In(request),
            "blocks": In(request),
            "lost": In(stream.Signature(config.nested_bits)),
            "limit": In(self._tree.limit.shape()),
            "told": Out(data.StructLayout({"valid": 1, "event": tree_event(nodes)})),
            "ending": Out(1),
            "idle": Out(1),
            "empty": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tree, m.submodules.ends = tree, ends = self._tree, self._ends
        for name in _GIVEN:
            connect(m, flipped(getattr(self, name)), getattr(ends, name))
        for name in _TAKEN:
            connect(m, getattr(ends, name), flipped(getattr(self, name)))
        connect(m, tree.over, ends.over)
        lost = self.births.signature.create(path=("lost_family",))
        m.d.comb += [
            self.told.valid.eq(tree.told.valid),
            self.told.event.eq(tree.told.p),
            tree.told.ready.eq(1),
            self.empty.eq(tree.empty),
            ends.on.eq(self.on),
            ends.sweep.eq(self.sweep),
            ends.named.eq(self.named),
            self.visited.eq(ends.visited),
            self.swept.eq(ends.swept),
            tree.limit.eq(self.limit),
            self.ending.eq(~(ends.idle & tree.idle)),
            self.idle.eq(~(self.ending | self.births.valid | self.blocks.valid | lost.valid)),
            lost.valid.eq(self.lost.valid),
            lost.p.op.eq(TreeOp.LEAVE),
            lost.p.related.eq(1),
            lost.p.family.eq(self.lost.payload),
            self.lost.ready.eq(lost.ready),
        ]
        self._share(m, (self.births, self.blocks, lost, ends.tree))
        return m

    def _share(self, m: Module, clients: tuple) -> None:
        """Serves one request of each client in turn."""
        m.submodules.turns = turns = SteadyRoundRobin(len(clients))
        i = self._tree.i
        m.d.comb += [
            turns.requests.eq(Cat(client.valid for client in clients)),
            turns.advance.eq(i.ready),
            i.valid.eq(turns.grant.any()),
            i.p.eq(select(turns.grant, [Value.cast(client.p) for client in clients])),
        ]
        for number, client in enumerate(clients):
            m.d.comb += client.ready.eq(turns.grant[number] & i.ready)
