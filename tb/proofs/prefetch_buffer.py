"""Proof of the prefetch buffer."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data

from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.records import head_beat
from signalbox.hw.records.channel import channel_event
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)
from signalbox.tb.proofs.host import CONFIG, concerns, drive

__all__ = ["PROOFS"]


class PrefetchProof(Proof):
    name = "host.prefetch"
    shows = (
        "while its filler keeps to the space, every channel's beats come out once each, unchanged "
        "and in order; `occupied` tells whether there are any"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PrefetchBuffer(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        depth, width = CONFIG.prefetch_beats, CONFIG.data_width
        ram = inside.submodule("ram")
        behind = ram.read_ports[0].data
        look = ram.read_port(domain="comb")
        channel = Signal(CONFIG.channel_bits)
        m.d.comb += channel.eq(AnyConst(CONFIG.channel_bits))
        served, fill = dut.served, dut.beats.fill
        drive(m, served, "served", "select", "active")
        drive(m, dut.head, "head", "take")
        drive(m, dut.start, "start", "cleared")
        drive(m, fill, "fill", "valid", "channel")
        m.d.comb += fill.beat.data.eq(anything(m, width, "beat"))

        selected = Signal(CONFIG.channel_bits)
        m.d.sync += selected.eq(served.select)
        m.d.comb += [
            Assume(~served.active | (served.select == selected)),
            Assume(~dut.head.take | (dut.head.valid & served.active)),
        ]
        popped, took = dut.beats.popped, dut.head.take
        m.d.comb += Assert((popped.valid == took) & (~took | (popped.channel == served.select)))
        level = Signal(range(depth + 1))
        fills, clears = concerns(fill, channel), concerns(dut.start.cleared, channel)
        takes = dut.head.take & (served.select == channel)
        m.d.sync += level.eq(Mux(clears, 0, level + fills - takes))
        m.d.comb += [Assume(~fills | (level < depth)), Assert(level <= depth)]

        # Any one beat of the channel, and the number of beats before it.
        follow, word = Signal(), Signal(width)
        before = Signal(range(depth))
        starts = anything(m, 1, "follow") & fills & ~follow
        with m.If(clears):
            m.d.sync += follow.eq(0)
        with m.Elif(starts):
            m.d.sync += [follow.eq(1), word.eq(fill.beat.data), before.eq(level - takes)]
        with m.Elif(takes):
            m.d.sync += [before.eq(before - 1), follow.eq(follow & (before != 0))]

        pointer = (depth - 1).bit_length()
        head = inside.signal("heads").word_select(channel, pointer)
        tail = inside.signal("tails").word_select(channel, pointer)
        count = inside.signal("counts").word_select(channel, depth.bit_length())
        filling = data.View(channel_event(CONFIG, row=head_beat(CONFIG)), inside.signal("filling"))
        enters = concerns(filling, channel)
        next_valid, ours = inside.signal("next_valid"), selected == channel
        ahead, unread = inside.signal("ahead"), inside.signal("unread")
        read = dut.head.valid + next_valid
        m.d.comb += [
            look.addr.eq(Cat((head + before)[:pointer], channel)),
            Assert(count + enters == level),
            Assert((tail - head)[:pointer] == count[:pointer]),
            Assert(dut.fetched.occupied.bit_select(channel, 1) == (level != 0)),
            Cover(follow & takes & (before == 0) & (level == depth)),
        ]
        with m.If(ours):
            m.d.comb += [
                Assert(~ahead | (next_valid & (unread != 0))),
                Assert(level + ahead == read + unread + enters),
                Assert((inside.signal("place") + ahead)[:pointer] == (head + read)[:pointer]),
            ]
        with m.If(follow):
            m.d.comb += Assert(before < level)
            with m.If(enters & (before == count)):
                m.d.comb += Assert(filling.row.beat.data == word)
            with m.Else():
                m.d.comb += Assert(look.data.beat.data == word)
            with m.If(ours & dut.head.valid & (before == 0)):
                m.d.comb += Assert(dut.head.oldest.beat.data == word)
            with m.If(ours & next_valid & (before == dut.head.valid)):
                m.d.comb += Assert(behind.beat.data == word)


PROOFS = (PrefetchProof(),)
