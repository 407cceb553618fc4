"""Buffer for dwords that methods write to memory: LOAD_INLINE_QMD_DATA (HOST-9), LOAD_INLINE_DATA
(HOST-14)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.front_end.host_port import INLINE_DWORDS, compute_setting
from signalbox.hw.methods import ComputeMethod
from signalbox.hw.records.memory import MemoryStatus, WritePort

__all__ = ["InlineBuffer", "qmd_dword"]

_BYTES = 4 * INLINE_DWORDS
_PAGE_BITS = 12
_NUMBER_BITS = (INLINE_DWORDS - 1).bit_length()


def qmd_dword(setting: Value) -> tuple[Value, Value]:
    """Whether a setting is LOAD_INLINE_QMD_DATA, and the number of its dword."""
    number = (setting.address - (ComputeMethod.LOAD_INLINE_QMD_DATA >> 2))[:12]
    return setting.valid & (number < INLINE_DWORDS), number[:_NUMBER_BITS]


class InlineBuffer(wiring.Component):
    """Stores 64 dwords per channel, and writes them to memory from any byte address on.

    Dword n of the buffer goes to the n-th dword of memory, counted from the beat that contains
    `va`, and shifted up by `va` % 4 bytes. LOAD_INLINE_DATA fills consecutive dwords.

    A write takes the memory latency, one cycle per beat, and 3 more cycles. If it crosses a page, a
    second burst follows the response to the first. Other channels can load meanwhile.

    Members
    -------
    setting : in, strobe: a method, one cycle later than in `ComputePort`.
    channel : in, `channel_bits` bits: the channel to store to or write.
    free : out, no setting is being stored.
    store : in, with `free`: store `dword` in the place of the next dword; that place does not
        advance.
    dword : in, 32 bits, see `store`.
    move : in, with `free`: the next dword will go to place `to`.
    to : in, 6 bits, see `move`.
    asid : in, `asid_bits` bits: address space of the write; like those below, stable from `start`
        to `done`.
    va : in, 49 bits: first byte of the write.
    size : in, 0 … 256: number of bytes. The first one is the lowest byte of its dword in the
        buffer. `va` % (bytes of a beat) + `size` is at most 256.
    mask : in, 64 bits: write enable per dword, as placed in memory.
    start : in, strobe: write; not before `channel` was stable for a cycle.
    done : out, the write is complete, or has failed; until `taken`.
    taken : in, strobe: ends `done`.
    status : out, with `done`: the `MemoryStatus` of the write.
    at : out, 49 bits, with `done`: first byte of the last burst.
    write : out, memory client.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "setting": In(compute_setting(config)),
            "channel": In(config.channel_bits),
            "free": Out(1),
            "store": In(1),
            "dword": In(32),
            "move": In(1),
            "to": In(range(INLINE_DWORDS)),
            "asid": In(config.asid_bits),
            "va": In(VA_BITS),
            "size": In(range(_BYTES + 1)),
            "mask": In(INLINE_DWORDS),
            "start": In(1),
            "done": Out(1),
            "taken": In(1),
            "status": Out(MemoryStatus),
            "at": Out(VA_BITS),
            "write": Out(WritePort(config)),
        })
        self._beats = _BYTES // config.beat_bytes
        self._place = Signal(range(self._beats))
        """Beat of the buffer offered to memory."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        write, place = self.write, self._place
        following = Signal.like(place)
        beat = self._store(m, following)
        m.d.comb += following.eq(place + (write.beat.valid & write.beat.ready))
        m.d.sync += place.eq(following)
        final = self._burst(m)
        self._align(m, beat, final)
        return m

    # -- loading -----------------------------------------------------------------------------------

    def _store(self, m: Module, following: Signal) -> Value:
        """Store dwords. Returns beat `following` of the buffer, one cycle later."""
        config, setting = self._config, self.setting
        loads_qmd, number = qmd_dword(setting)
        loads = setting.valid & (setting.address == ComputeMethod.LOAD_INLINE_DATA >> 2)
        coming = self._next(m, loads)
        where = Signal(_NUMBER_BITS)
        owner = Signal(config.channel_bits)
        dwords = config.beat_dwords
        lane = (dwords - 1).bit_length()
        ram = Memory(shape=config.data_width, depth=self._beats << config.channel_bits, init=[])
        m.submodules.dwords = ram
        write, read = ram.write_port(granularity=32), ram.read_port()
        m.d.comb += [
            self.free.eq(~setting.valid),
            where.eq(Mux(loads_qmd, number, coming)),
            owner.eq(Mux(setting.valid, setting.channel, self.channel)),
            write.addr.eq(Cat(where[lane:], owner)),
            write.data.eq(Mux(setting.valid, setting.data, self.dword).replicate(dwords)),
            write.en.eq(Mux(loads_qmd | loads | (self.store & self.free), 1 << where[:lane], 0)),
            read.addr.eq(Cat(following, self.channel)),
        ]
        return read.data

    def _next(self, m: Module, loads: Value) -> Value:
        """Place of the next dword of each channel. Returns the place for the channel that
        stores."""
        setting = self.setting
        places = Memory(shape=_NUMBER_BITS, depth=1 << self._config.channel_bits, init=[])
        m.submodules.places = places
        write, read = places.write_port(), places.read_port(domain="comb")
        owner = Mux(setting.valid, setting.channel, self.channel)
        m.d.comb += [
            read.addr.eq(owner),
            write.addr.eq(owner),
            write.data.eq(Mux(setting.valid, read.data + 1, self.to)),
            write.en.eq(Mux(setting.valid, loads, self.move)),
        ]
        return read.data

    # -- writing -----------------------------------------------------------------------------------

    def _burst(self, m: Module) -> Value:
        """Issues requests, one per page. Returns whether the offered beat is the last of the
        write."""
        config, write = self._config, self.write
        page_beats = 1 << _PAGE_BITS - config.offset_bits
        to_page = Signal(range(page_beats + 1))
        left = Signal(range(self._beats + 1))
        """Beats not yet requested."""
        run = Signal.like(left)
        burst = Signal.like(left)
        first = self.va[: config.offset_bits]
        beats = (first + self.size + (config.beat_bytes - 1)) >> config.offset_bits
        m.d.comb += [
            burst.eq(Mux(left > to_page, to_page, left)),
            write.request.p.asid.eq(self.asid),
            write.request.p.va.eq(self.at),
            write.request.p.beats.eq(burst - 1),
            write.beat.p.last.eq(run == 1),
        ]
        with m.FSM(name="inline"):
            with m.State("IDLE"):
                m.d.sync += [
                    self._place.eq(0),
                    self.at.eq(self.va),
                    left.eq(beats),
                    to_page.eq(page_beats - self.va[config.offset_bits : _PAGE_BITS]),
                ]
                with m.If(self.start):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += write.request.valid.eq(1)
                with m.If(write.request.ready):
                    m.d.sync += [run.eq(burst), left.eq(left - burst), to_page.eq(page_beats)]
                    m.next = "GIVE"
            with m.State("GIVE"):
                m.d.comb += write.beat.valid.eq(1)
                with m.If(write.beat.ready):
                    m.d.sync += run.eq(run - 1)
                    with m.If(write.beat.p.last):
                        m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += write.done.ready.eq(1)
                m.d.sync += self.status.eq(write.done.p.status)
                with m.If(write.done.valid):
                    m.next = "DONE"
                    with m.If((left != 0) & (write.done.p.status == MemoryStatus.OK)):
                        m.d.sync += self.at.eq(Cat(Const(0, _PAGE_BITS), self.at[_PAGE_BITS:] + 1))
                        m.next = "ASK"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                with m.If(self.taken):
                    m.next = "IDLE"
        return (run == 1) & (left == 0)

    def _align(self, m: Module, beat: Value, final: Value) -> None:
        """Shift the bytes of a beat up, behind the last bytes of the previous beat, and mark the
        bytes to write."""
        config, write = self._config, self.write
        size = config.beat_bytes
        before = Signal(24)
        with m.If(write.beat.valid & write.beat.ready):
            m.d.sync += before.eq(beat[-24:])
        down = Cat(Const(0, 3), ~self.va[:2])
        first = self.va[: config.offset_bits]
        last = (first + self.size - 1)[: config.offset_bits]
        dwords = self.mask.word_select(self._place, config.beat_dwords)
        m.d.comb += [
            write.beat.p.data.eq(Cat(before, beat) >> down),
            write.beat.p.strobe.eq(
                Cat(one.replicate(4) for one in dwords)
                & Mux(self._place == 0, (-1 << first)[:size], ~0)
                & Mux(final, (2 << last)[: size + 1] - 1, ~0)
            ),
        ]
