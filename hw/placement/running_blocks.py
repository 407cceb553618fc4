"""Rows with blocks undistributed or on SMs (ASID-25)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import FEW, RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.records.placement import ENDS_WAITING, ended_block

__all__ = ["RunningBlocks", "StreamMerger"]


class StreamMerger(wiring.Component):
    """Merges streams into one, at one payload per cycle: a tree of small round-robin arbiters, each
    with a register at its output. An input waits for at most one transfer of every other input.

    Parameters
    ----------
    shape : layout of the payloads.
    count : number of streams.

    Members
    -------
    i : in, `count` streams of `shape`.
    o : out, stream of `shape`: the merged stream.
    """

    def __init__(self, shape: data.Layout, count: int) -> None:
        self._count, self._shape = count, shape
        merged = stream.Signature(shape)
        super().__init__({"i": In(merged).array(count), "o": Out(merged)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        streams, level = [flipped(one) for one in self.i], 0
        while level == 0 or len(streams) > 1:
            streams = [
                self._merge(m, streams[n : n + FEW], f"{level}_{n}")
                for n in range(0, len(streams), FEW)
            ]
            level += 1
        connect(m, streams[0], flipped(self.o))
        return m

    def _merge(self, m: Module, streams: list, name: str) -> object:
        m.submodules[f"turns_{name}"] = turns = RoundRobin(len(streams))
        m.submodules[f"register_{name}"] = register = StreamRegister(self._shape)
        m.d.comb += [
            turns.requests.eq(Cat(one.valid for one in streams)),
            turns.advance.eq(register.i.ready),
            register.i.valid.eq(turns.requests.any()),
            register.i.payload.eq(
                select(turns.grant, (Value.cast(one.payload) for one in streams))
            ),
            [one.ready.eq(register.i.ready & turns.grant[n]) for n, one in enumerate(streams)],
        ]
        return register.o


class RunningBlocks(wiring.Component):
    """Counts the blocks on SMs, per row, and reports which rows are drained.

    Members
    -------
    sent : in, strobe: a block of the row is sent to an SM.
    ended : in, per SM: stream of `ended_block`.
    leaves : in, strobe: a block of the row leaves its SM without having ended.
    fill : in, strobe: the row has undistributed blocks, from the next cycle on.
    empty : in, strobe: the row has no undistributed block, from the next cycle on.
    drained : out, per row: no block is undistributed or on an SM.
    over : out, strobe, an `ended_block`: a block has ended, and counts no longer from the next
        cycle on.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        # Lagging ends: up to ENDS_WAITING per SM queued on the SM, at most as many again in
        # `collect`.
        most = config.sms * (config.sm_blocks + 2 * ENDS_WAITING)
        bits = range(most + 1)
        self._counts = [Signal(bits, name=f"blocks_{row}") for row in range(config.rows)]
        """Blocks on SMs per row, until their end is collected."""
        self._filled = Signal(config.rows, name="filled")
        """Rows with undistributed blocks."""
        event = row_event(config)
        super().__init__({
            "sent": In(event),
            "ended": In(stream.Signature(ended_block(config))).array(config.sms),
            "leaves": In(event),
            "fill": In(event),
            "empty": In(event),
            "drained": Out(config.rows),
            "over": Out(data.StructLayout({"valid": 1, **ended_block(config).members})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.collect = collect = StreamMerger(ended_block(self._config), self._config.sms)
        for outer, inner in zip(self.ended, collect.i, strict=True):
            connect(m, flipped(outer), inner)
        over = self.over
        m.d.comb += [
            collect.o.ready.eq(1),
            over.valid.eq(collect.o.valid),
            [over[name].eq(collect.o.p[name]) for name in collect.o.p.shape().members],
        ]
        for row, count in enumerate(self._counts):
            sent = self.sent.valid & (self.sent.row == row)
            ended = over.valid & (over.row == row)
            leaves = self.leaves.valid & (self.leaves.row == row)
            m.d.sync += count.eq(count + sent - ended - leaves)
            with m.If(self.fill.valid & (self.fill.row == row)):
                m.d.sync += self._filled[row].eq(1)
            with m.Elif(self.empty.valid & (self.empty.row == row)):
                m.d.sync += self._filled[row].eq(0)
            m.d.comb += self.drained[row].eq((count == 0) & ~self._filled[row])
        return m
