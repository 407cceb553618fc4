"""Prefetch buffer: one FIFO of beats per channel, all in one RAM (HOST-1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.methods.decoder import HeaderCheck
from signalbox.hw.host.ports import ChannelStart, HeadPort, Served
from signalbox.hw.host.records import head_beat, prefetch_beat
from signalbox.hw.records.channel import channel_event

__all__ = ["FetchedBeats", "FillPort", "PrefetchBuffer"]


class FillPort(wiring.Signature):
    """The prefetch buffer, seen from the fetch unit.

    Members
    -------
    fill : out, strobe: `beat` for `channel`; its space was reserved.
    popped : in, strobe: a beat of `channel` has left.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "fill": Out(channel_event(config, beat=prefetch_beat(config))),
            "popped": In(channel_event(config)),
        })


class FetchedBeats(wiring.Signature):
    """Contents of the prefetch buffer.

    Members
    -------
    occupied : out, per channel, holds beats, including the head.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"occupied": Out(config.channels)})


class PrefetchBuffer(wiring.Component):
    """Fetched beats not yet taken, in order per channel.

    The oldest beat of a channel is offered in the cycle after `served.active` rises, and then one
    beat per cycle. A beat filled into an empty FIFO is offered four cycles later. `fill` is always
    accepted: the fetch unit reserves space beforehand.

    There is a register before the RAM and, as the RAM's output is slow, another one behind it, the
    head. The RAM's output is the beat behind the head.

    Members
    -------
    beats : in, the fetch unit.
    start : in, starts of channels. All beats of the channel are dropped.
    served : in, the served channel; `select` is stable from the cycle before `active` on.
    head : in, the method pipeline.
    fetched : out, channels that have beats (`occupied`).
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "beats": In(FillPort(config)),
            "start": In(ChannelStart(config)),
            "served": In(Served(config)),
            "head": In(HeadPort(config)),
            "fetched": Out(FetchedBeats(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, depth = self._config, self._config.prefetch_beats
        pointer = unsigned((depth - 1).bit_length())
        counter = unsigned(depth.bit_length())
        heads = Signal(data.ArrayLayout(pointer, config.channels))
        tails = Signal(data.ArrayLayout(pointer, config.channels))
        counts = Signal(data.ArrayLayout(counter, config.channels))
        take, select, clear = self.head.take, self.served.select, self.start.cleared
        m.d.comb += [self.beats.popped.valid.eq(take), self.beats.popped.channel.eq(select)]
        filling = self._describe(m)
        for channel in range(config.channels):
            filled = filling.valid & (filling.channel == channel)
            taken = take & (select == channel)
            m.d.comb += self.fetched.occupied[channel].eq((counts[channel] != 0) | filled)
            with m.If(filled):
                m.d.sync += tails[channel].eq(tails[channel] + 1)
            with m.If(taken):
                m.d.sync += heads[channel].eq(heads[channel] + 1)
            with m.If(filled != taken):
                m.d.sync += counts[channel].eq(counts[channel] + Mux(filled, 1, -1))
            with m.If(clear.valid & (clear.channel == channel)):
                m.d.sync += [tails[channel].eq(0), heads[channel].eq(0), counts[channel].eq(0)]
        self._read(m, self._store(m, filling, tails), filling, heads, counts)
        return m

    def _describe(self, m: Module) -> data.View:
        """Beat of the previous cycle, with properties that the decoder needs early."""
        fill, clear = self.beats.fill, self.start.cleared
        beat = fill.beat
        filling = Signal(channel_event(self._config, row=head_beat(self._config)))
        for number in range(self._config.beat_dwords):
            m.submodules[f"refusals_{number}"] = one = HeaderCheck()
            m.d.comb += one.dword.eq(beat.data.word_select(number, 32))
            m.d.sync += filling.row.refusals[number].eq(one.refusal)
        dropped = clear.valid & (clear.channel == fill.channel)
        m.d.sync += [
            filling.valid.eq(fill.valid & ~dropped),
            filling.channel.eq(fill.channel),
            filling.row.beat.eq(beat),
            filling.row.single.eq(beat.empty | (beat.cause != 0) | (beat.low == beat.high)),
        ]
        return filling

    def _store(self, m: Module, filling: data.View, tails: data.View) -> tuple:
        """Write the beat; returns the RAM's read port and its address as a record."""
        config = self._config
        row = data.StructLayout({
            "pointer": (config.prefetch_beats - 1).bit_length(),
            "channel": config.channel_bits,
        })
        m.submodules.ram = ram = Memory(
            shape=head_beat(config),
            depth=config.prefetch_beats << config.channel_bits,
            init=[],
            # A beat is not read while it is written, as it is not counted yet.
            attrs={"no_rw_check": 1},
        )
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            write.en.eq(filling.valid),
            write.data.eq(filling.row),
            data.View(row, write.addr).pointer.eq(tails[filling.channel]),
            data.View(row, write.addr).channel.eq(filling.channel),
        ]
        return read, data.View(row, read.addr)

    def _read(
        self, m: Module, port: tuple, filling: data.View, heads: data.View, counts: data.View
    ) -> None:
        """Move the beats of `select` one by one to the RAM's output and on to the head."""
        read, address = port
        head, served, clear = self.head, self.served, self.start.cleared
        # `place`: last read address. `unread`: number of beats from there on. `ahead`: a beat was
        # read there, so the next one is behind it.
        place = Signal.like(heads[0])
        unread = Signal.like(counts[0])
        ahead = Signal()
        next_valid = Signal()
        moves = Signal()
        reads = Signal()
        first = Signal.like(place)
        count = Signal.like(unread)
        filled = filling.valid & (filling.channel == served.select)
        cleared = clear.valid & (clear.channel == served.select)
        m.d.comb += [
            first.eq(Mux(served.active, self._after(place, ahead), heads[served.select])),
            count.eq(Mux(served.active, unread - ahead, counts[served.select])),
            moves.eq(~head.valid | head.take),
            reads.eq(~served.active | ~next_valid | moves),
            read.en.eq(reads),
            address.pointer.eq(first),
            address.channel.eq(served.select),
        ]
        m.d.sync += [
            place.eq(first),
            unread.eq(count + filled),
            ahead.eq(reads & (count != 0)),
        ]
        with m.If(reads):
            m.d.sync += next_valid.eq(count != 0)
        with m.If(moves):
            m.d.sync += [head.oldest.eq(read.data), head.valid.eq(next_valid & served.active)]
        with m.If(~served.active | cleared):
            m.d.sync += head.valid.eq(0)
        with m.If(cleared):
            m.d.sync += [next_valid.eq(0), ahead.eq(0), unread.eq(0), place.eq(0)]

    @staticmethod
    def _after(place: Value, ahead: Value) -> Value:
        """`place` + `ahead`, without a carry chain, which is slower at this width."""
        return Cat(bit ^ (ahead & place[:i].all()) for i, bit in enumerate(place))
