"""What the host writes to USERD: GP_GET lazily, REF at SET_REFERENCE (spec 2, 3.3)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.context import INDEX_BITS
from hw.host.prefetch import channel_event
from hw.host.settings import setting_event, setting_ram
from hw.lib.arbiter import RoundRobin
from hw.lib.onehot import encode
from hw.records import WritePort

__all__ = ["Writeback"]

REF_OFFSET = 0x48
"""Byte offset of REF in USERD (3.3)."""

GP_GET_OFFSET = 0x88
"""Byte offset of GP_GET in USERD (3.3)."""


class Writeback(wiring.Component):
    """Writes USERD of every channel, one word at a time.

    GP_GET is written `period` cycles after it moved, or at once when the channel has run empty.
    A failed write is dropped: the same page fails when GP_PUT is read, and that is reported.

    Members
    -------
    setting : channel registers as they are written (USERD, CONFIG.ASID).
    period : cycles between lazy write-backs.
    started : GP_GET of `channel` is now `get`.
    cleared : GP_GET of `channel` is 0 again.
    empty : per channel, nothing is left to execute.
    reference : REF of `channel` becomes `value`; accepted when the write is under way.
    peek, peek_get : GP_GET of channel `peek`, one cycle later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._layout = data.StructLayout({"channel": config.channel_bits, "value": 32})
        super().__init__({
            "setting": In(setting_event(config)),
            "period": In(32),
            "started": In(channel_event(config, get=INDEX_BITS)),
            "cleared": In(channel_event(config)),
            "empty": In(config.channels),
            "reference": In(stream.Signature(self._layout)),
            "write": Out(WritePort(config)),
            "peek": In(config.channel_bits),
            "peek_get": Out(INDEX_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.gets = gets = Memory(shape=INDEX_BITS, depth=1 << config.channel_bits, init=[])
        m.submodules.turns = turns = RoundRobin(config.channels)
        moved, peeked, got = gets.write_port(), gets.read_port(), gets.read_port()
        userd = setting_ram(m, config, self.setting, "USERD", "USERD_HI")
        (setup,) = setting_ram(m, config, self.setting, "CONFIG")
        dirty, due, timer = Signal(config.channels), Signal(config.channels), Signal(32)
        channel, value, is_reference = Signal(config.channel_bits), Signal(32), Signal()
        written = Signal()

        m.d.comb += [
            moved.addr.eq(Mux(self.cleared.valid, self.cleared.channel, self.started.channel)),
            moved.data.eq(Mux(self.cleared.valid, 0, self.started.get)),
            moved.en.eq(self.started.valid | self.cleared.valid),
            peeked.addr.eq(self.peek),
            self.peek_get.eq(peeked.data),
            got.addr.eq(channel),
            setup.addr.eq(channel),
            turns.requests.eq(dirty & (due | self.empty)),
        ]
        m.d.comb += [port.addr.eq(channel) for port in userd]
        m.d.sync += timer.eq(timer + 1)
        with m.If(timer >= self.period):
            m.d.sync += [timer.eq(0), due.eq(dirty)]
        for number in range(config.channels):
            mine = Signal(name=f"moved_{number}")
            m.d.comb += mine.eq(moved.en & (moved.addr == number))
            with m.If(mine):
                m.d.sync += dirty[number].eq(1)
            with m.Elif(written & (channel == number)):
                m.d.sync += [dirty[number].eq(0), due[number].eq(0)]

        with m.FSM(name="write_userd"):
            with m.State("PICK"):
                m.d.comb += self.reference.ready.eq(1)
                with m.If(self.reference.valid):
                    m.d.sync += [
                        channel.eq(self.reference.payload.channel),
                        value.eq(self.reference.payload.value),
                        is_reference.eq(1),
                    ]
                    m.next = "LOAD"
                with m.Elif(turns.requests.any()):
                    m.d.comb += turns.advance.eq(1)
                    m.d.sync += [channel.eq(encode(turns.grant)), is_reference.eq(0)]
                    m.next = "LOAD"
            with m.State("LOAD"):
                # GP_GET is read now; a move in this very cycle keeps the channel dirty.
                m.d.comb += written.eq(~is_reference)
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                request = self.write.request.payload
                offset = Mux(is_reference, REF_OFFSET, GP_GET_OFFSET)
                m.d.sync += [
                    request.asid.eq(setup.data[: config.asid_bits]),
                    request.va.eq(Cat(userd[0].data, userd[1].data[:8]) + offset),
                ]
                with m.If(~is_reference):
                    m.d.sync += value.eq(got.data)
                m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += self.write.request.valid.eq(1)
                with m.If(self.write.request.ready):
                    m.next = "DATA"
            with m.State("DATA"):
                beat = self.write.beat.payload
                lane = self.write.request.payload.va[2 : config.offset_bits]
                m.d.comb += [
                    self.write.beat.valid.eq(1),
                    beat.last.eq(1),
                    beat.data.eq(value.replicate(config.beat_dwords)),
                    beat.strobe.word_select(lane, 4).eq(0xF),
                ]
                with m.If(self.write.beat.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.write.done.ready.eq(1)
                with m.If(self.write.done.valid):
                    m.next = "PICK"
        return m
