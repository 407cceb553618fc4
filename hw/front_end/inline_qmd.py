"""QMDs loaded by methods: LOAD_INLINE_QMD_DATA (HOST-9)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.front_end.host_port import compute_setting
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.methods import ComputeMethod
from signalbox.hw.qmd import QMD_BYTES
from signalbox.hw.records.memory import MemoryStatus, WritePort

__all__ = ["InlineQmd"]

_DWORDS = QMD_BYTES // 4
_FIRST = ComputeMethod.LOAD_INLINE_QMD_DATA >> 2


class InlineQmd(wiring.Component):
    """Buffers one QMD per channel with a mask of its loaded dwords, and writes these to memory.

    A write takes the memory latency, one cycle per beat, and 3 more. Other channels can load
    meanwhile.

    Members
    -------
    setting : in, see `ComputePort`.
    clear : in, see `ComputePort`.
    channel : in, the channel to write; stable from two cycles before `start` on.
    asid : in, address space of its QMD.
    page : in, address of its QMD >> 8.
    some : out, dwords of the QMD are loaded.
    start : in, strobe: write them.
    done : out, strobe: the write is complete and the mask is cleared.
    status : out, status of the write.
    write : out, the memory.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "setting": In(compute_setting(config)),
            "clear": In(data.StructLayout(channel)),
            "channel": In(config.channel_bits),
            "asid": In(config.asid_bits),
            "page": In(32),
            "some": Out(1),
            "start": In(1),
            "done": Out(1),
            "status": Out(MemoryStatus),
            "write": Out(WritePort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, write = self._config, self.write
        beats = QMD_BYTES // config.beat_bytes
        place = Signal(range(beats))
        following = Signal(range(beats))
        forget = Signal()
        mask = self._masks(m, forget)
        beat = self._beats(m, following)
        lanes = mask.word_select(place, config.beat_dwords)
        m.d.comb += [
            self.some.eq(mask.any()),
            following.eq(place + (write.beat.valid & write.beat.ready)),
            write.request.p.asid.eq(self.asid),
            write.request.p.va.eq(self.page << 8),
            write.request.p.beats.eq(beats - 1),
            write.beat.p.data.eq(beat),
            write.beat.p.strobe.eq(Cat(lane.replicate(4) for lane in lanes)),
            write.beat.p.last.eq(place == beats - 1),
        ]
        m.d.sync += place.eq(following)
        with m.FSM(name="inline"):
            with m.State("IDLE"):
                m.d.sync += place.eq(0)
                with m.If(self.start):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += write.request.valid.eq(1)
                with m.If(write.request.ready):
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += write.beat.valid.eq(1)
                with m.If(write.beat.ready & write.beat.p.last):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += write.done.ready.eq(1)
                m.d.sync += self.status.eq(write.done.p.status)
                with m.If(write.done.valid):
                    m.next = "FORGET"
            with m.State("FORGET"):
                m.d.comb += [forget.eq(1), self.done.eq(~self._changed.any())]
                with m.If(self.done):
                    m.next = "IDLE"
        return m

    def _loads(self) -> tuple:
        """Whether the setting of the previous cycle is a load, and the number of its dword."""
        number = (self._setting.address - _FIRST)[:12]
        return self._setting.valid & (number < _DWORDS), number[: _DWORDS.bit_length() - 1]

    def _masks(self, m: Module, forget: Signal) -> Signal:
        """Mask of loaded dwords per channel. Returns that of `channel`, one cycle later."""
        config = self._config
        self._setting, self._clear = (
            delayed(m, self.setting, "setting_before"),
            delayed(m, self.clear, "clear_before"),
        )
        self._changed = Signal(2)
        loads, number = self._loads()
        m.submodules.masks = masks = Memory(shape=_DWORDS, depth=1 << config.channel_bits, init=[])
        write, old = masks.write_port(), masks.read_port(domain="comb")
        mine = masks.read_port(domain="comb")
        m.d.comb += [
            old.addr.eq(self._setting.channel),
            mine.addr.eq(self.channel),
            self._changed.eq(Cat(self._setting.valid, self._clear.valid)),
            write.en.eq(Mux(self._setting.valid, loads, self._clear.valid | forget)),
            write.addr.eq(
                Mux(
                    self._setting.valid,
                    self._setting.channel,
                    Mux(self._clear.valid, self._clear.channel, self.channel),
                )
            ),
            write.data.eq(Mux(loads, old.data | (1 << number), 0)),
        ]
        mask = Signal(_DWORDS)
        m.d.sync += mask.eq(mine.data)
        return mask

    def _beats(self, m: Module, following: Signal) -> Signal:
        """The dwords, as beats. Returns beat `following`, one cycle later."""
        config = self._config
        width, dwords = config.data_width, config.beat_dwords
        depth = (QMD_BYTES // config.beat_bytes) << config.channel_bits
        m.submodules.dwords = ram = Memory(shape=width, depth=depth, init=[])
        write, read = ram.write_port(granularity=32), ram.read_port()
        loads, number = self._loads()
        lane = (dwords - 1).bit_length()
        m.d.comb += [
            write.addr.eq(Cat(number[lane:], self._setting.channel)),
            write.data.eq(self._setting.data.replicate(dwords)),
            write.en.eq(Mux(loads, 1 << number[:lane], 0)),
            read.addr.eq(Cat(following, self.channel)),
        ]
        return read.data
