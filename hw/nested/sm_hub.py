"""Nested launches of all SMs on their way to the engine (NEST-10)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.nested.kernel_tree import TreeEvent, TreeOp, tree_event, tree_request
from signalbox.hw.nested.link import NestedLink, family_notice
from signalbox.hw.records.launch import child_answer, child_launch

__all__ = ["SmHub"]


class SmHub(wiring.Component):
    """Forwards launches and notices of the SMs, in turn, one launch at a time: a launch waits for
    one launch of each other SM, a notice for one notice of each other SM. Events to the SMs are in
    order, and come one cycle later, as they are registered because of the distance.

    Members
    -------
    sm : out, one `NestedLink` per SM.
    child : out, stream of `child_launch`, to the arbiter.
    answer : in, strobe, a `child_answer`: the result of the launch.
    blocks : out, stream of `tree_request`, to the kernel tree: LEAVE of blocks that are over, ASK
        of restored ones.
    told : in, strobe, a `tree_event`: an event of the kernel tree.
    idle : out, no launch and no notice is on its way.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nodes = config.nested_kernels
        super().__init__({
            "sm": Out(NestedLink(config)).array(config.sms),
            "child": Out(stream.Signature(child_launch(config))),
            "answer": In(child_answer(config)),
            "blocks": Out(stream.Signature(tree_request(nodes))),
            "told": In(data.StructLayout({"valid": 1, "event": tree_event(nodes)})),
            "idle": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, child, blocks = self._config.sms, self.child, self.blocks
        m.submodules.launches = launches = SteadyRoundRobin(count)
        m.submodules.notices = notices = SteadyRoundRobin(count)
        source, busy = Signal(count, name="source"), Signal(name="launch_in_progress")
        notice = Signal(family_notice(self._config), name="notice")
        asked = Cat(sm.launch.valid for sm in self.sm)
        m.d.comb += [
            launches.requests.eq(asked & (~busy).replicate(count)),
            launches.advance.eq(child.ready),
            child.valid.eq(launches.grant.any()),
            child.p.eq(select(launches.grant, [Value.cast(sm.launch.p) for sm in self.sm])),
            notices.requests.eq(Cat(sm.notice.valid for sm in self.sm)),
            notices.advance.eq(blocks.ready),
            notice.eq(select(notices.grant, [Value.cast(sm.notice.p) for sm in self.sm])),
            blocks.valid.eq(notices.grant.any()),
            blocks.p.op.eq(Mux(notice.asks, TreeOp.ASK, TreeOp.LEAVE)),
            blocks.p.related.eq(1),
            blocks.p.family.eq(notice.family),
            self.idle.eq(~(busy | asked.any() | blocks.valid)),
        ]
        with m.If(child.valid & child.ready):
            m.d.sync += [busy.eq(1), source.eq(launches.grant)]
        with m.If(self.answer.valid):
            m.d.sync += busy.eq(0)
        for number, sm in enumerate(self.sm):
            m.d.comb += [
                sm.launch.ready.eq(launches.grant[number] & child.ready),
                sm.notice.ready.eq(notices.grant[number] & blocks.ready),
            ]
            self._tell(m, sm, source[number])
        return m

    def _tell(self, m: Module, sm: wiring.PureInterface, mine: Value) -> None:
        event = self.told.event
        m.d.sync += [
            sm.answer.eq(self.answer),
            sm.answer.valid.eq(self.answer.valid & mine),
            sm.joined.valid.eq(self.told.valid & (event.kind == TreeEvent.JOINED)),
            sm.joined.family.eq(event.family),
            sm.joined.failed.eq(event.failed),
        ]
