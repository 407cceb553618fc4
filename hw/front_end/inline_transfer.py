"""Inline-to-memory transfers of channels: LAUNCH_DMA and LOAD_INLINE_DATA (HOST-14)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.front_end.host_port import INLINE_DWORDS, compute_setting, inline_progress
from signalbox.hw.front_end.kept_settings import KeptSettings
from signalbox.hw.methods import ComputeMethod, InlineCompletion, InlineLaunch
from signalbox.hw.records.memory import MemoryStatus

__all__ = ["InlineTransfer", "inline_completion"]

_BYTES = 4 * INLINE_DWORDS
"""Bytes of the buffer."""

_KEPT = {
    ComputeMethod.LINE_LENGTH_IN: 32,
    ComputeMethod.LINE_COUNT: 32,
    ComputeMethod.OFFSET_OUT_UPPER: VA_BITS - 32,
    ComputeMethod.OFFSET_OUT: 32,
    ComputeMethod.PITCH_OUT: 32,
}

_position = data.StructLayout({"line": VA_BITS, "done": 32, "lines": 32})
"""Position of a transfer. `line`: address of the present line; `done`: bytes of it that are
written. `lines`: lines left, including this one."""

inline_completion = data.StructLayout({"release": 1, "one_word": 1, "interrupt": 1})
"""Completion actions of a transfer. `one_word`: size of the released semaphore."""


class InlineTransfer(wiring.Component):
    """Splits a transfer into parts that fit into `InlineBuffer`. A part extends to the end of its
    line or of the buffer. The dwords of a line begin with its first byte; surplus bytes of its last
    dword are not written. All dwords of a part but the last only set state; the last one starts the
    write.

    Latency: `over` comes 3 cycles after `begin`. `start` comes 4 cycles after `load`, or later if
    settings are being stored; then `over` comes with `done`, or 3 cycles later if the transfer
    goes on.

    Members
    -------
    setting : in, strobe: a method, see `ComputePort`.
    clear : in, strobe: see `ComputePort`.
    channel : in, `channel_bits` bits: channel of the method; stable from two cycles before `begin`
        or `load` on.
    value : in, 32 bits: data of the method; stable as `channel`.
    modelled : out, combinational: LAUNCH_DMA with `value` is modelled.
    empty : out, one cycle after `channel`: a transfer of the channel has no bytes.
    begin : in, strobe: LAUNCH_DMA, modelled and not empty.
    load : in, strobe: LOAD_INLINE_DATA with the last dword of a part.
    free : in, `InlineBuffer` stores no setting.
    store : out, with `free`: store the last dword.
    move : out, with `free`: the next dword will go to place `to`.
    to : out, 6 bits: number of a dword in the buffer.
    va : out, 49 bits: first byte of the part.
    size : out, 0 … 256: bytes of the part.
    start : out, strobe: write it.
    done : in, the write is complete, or has failed; until `taken`.
    taken : out, strobe: ends `done`.
    status : in, with `done`: its `MemoryStatus`.
    writes : out, level: 1 from `start` to `done`.
    over : out, strobe: `begin` or `load` is complete, or the write has failed with `status`.
    progress : out, with `over`, see `inline_progress`.
    completion : out, one cycle after `channel`: `inline_completion` of the channel's transfer.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "setting": In(compute_setting(config)),
            "clear": In(data.StructLayout(channel)),
            "channel": In(config.channel_bits),
            "value": In(32),
            "modelled": Out(1),
            "empty": Out(1),
            "begin": In(1),
            "load": In(1),
            "free": In(1),
            "store": Out(1),
            "move": Out(1),
            "to": Out(range(INLINE_DWORDS)),
            "va": Out(VA_BITS),
            "size": Out(range(_BYTES + 1)),
            "start": Out(1),
            "done": In(1),
            "taken": Out(1),
            "status": In(MemoryStatus),
            "writes": Out(1),
            "over": Out(1),
            "progress": Out(inline_progress),
            "completion": Out(inline_completion),
        })
        self._kept = KeptSettings(config, _KEPT)
        self._position = Signal(_position)
        self._final = Signal()
        """The part ends its line."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.kept = kept = self._kept
        m.d.comb += [
            kept.setting.eq(self.setting),
            kept.clear.eq(self.clear),
            kept.channel.eq(self.channel),
        ]
        self._check(m)
        positions, save = self._positions(m)
        last = Signal()
        m.d.comb += [
            last.eq(self._final & (self._position.lines == 1)),
            self.to.eq(self.va[2 : self._config.offset_bits]),
        ]
        with m.FSM(name="transfer") as fsm:
            self._begin(m, positions)
            self._aim(m)
            self._write(m, last)
            self._go_on(m, save)
        m.d.comb += self.writes.eq(fsm.ongoing("START") | fsm.ongoing("WRITE"))
        return m

    def _check(self, m: Module) -> None:
        """The mode of a LAUNCH_DMA."""
        launch, kept = data.View(InlineLaunch, self.value), self._kept
        reserved = Cat(launch.reserved0, launch.reserved1, launch.reserved2)
        m.d.comb += [
            self.modelled.eq(
                launch.pitch
                & ~launch.reduction_enable
                & (launch.completion <= InlineCompletion.RELEASE_SEMAPHORE)
                & (launch.interrupt <= 1)
                & (reserved == 0)
            ),
            self.empty.eq(
                (kept[ComputeMethod.LINE_LENGTH_IN] == 0) | (kept[ComputeMethod.LINE_COUNT] == 0)
            ),
        ]
        ram = Memory(shape=inline_completion, depth=1 << self._config.channel_bits, init=[])
        m.submodules.completions = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            read.addr.eq(self.channel),
            self.completion.eq(read.data),
            write.addr.eq(self.channel),
            write.en.eq(self.begin),
            write.data.release.eq(launch.completion == InlineCompletion.RELEASE_SEMAPHORE),
            write.data.one_word.eq(launch.one_word),
            write.data.interrupt.eq(launch.interrupt != 0),
        ]

    def _positions(self, m: Module) -> tuple[data.View, Signal]:
        """Positions of all channels' transfers. Returns the position of `channel`, one cycle later,
        and a strobe to save the position of the transfer in progress."""
        ram = Memory(shape=_position, depth=1 << self._config.channel_bits, init=[])
        m.submodules.positions = ram
        write, read = ram.write_port(), ram.read_port()
        save = Signal()
        m.d.comb += [
            read.addr.eq(self.channel),
            write.addr.eq(self.channel),
            write.data.eq(self._position),
            write.en.eq(save),
        ]
        return read.data, save

    def _begin(self, m: Module, positions: data.View) -> None:
        position, kept = self._position, self._kept
        self._next = Signal()
        """The dwords of the part are still to come."""
        with m.State("IDLE"):
            m.d.sync += [position.eq(positions), self._next.eq(self.begin)]
            with m.If(self.begin):
                m.d.sync += [
                    position.line.eq(
                        Cat(kept[ComputeMethod.OFFSET_OUT], kept[ComputeMethod.OFFSET_OUT_UPPER])
                    ),
                    position.done.eq(0),
                    position.lines.eq(kept[ComputeMethod.LINE_COUNT]),
                ]
            with m.If(self.begin | self.load):
                m.next = "AIM"

    def _aim(self, m: Module) -> None:
        """First byte and size of the part."""
        position = self._position
        left = Signal(32)
        room = Signal(range(_BYTES + 1))
        fits = Signal()
        # If `va` is unaligned, the bytes are shifted up, so the part has one dword less.
        unaligned = self.va[:2].any()
        m.d.comb += [room.eq(_BYTES - ((self.to + unaligned) << 2)), fits.eq(left <= room)]
        with m.State("AIM"):
            m.d.sync += [
                self.va.eq(position.line + position.done),
                left.eq(self._kept[ComputeMethod.LINE_LENGTH_IN] - position.done),
            ]
            m.next = "SIZE"
        with m.State("SIZE"):
            m.d.sync += [self.size.eq(Mux(fits, left, room)), self._final.eq(fits)]
            m.next = "STORE"
            with m.If(self._next):
                m.next = "MOVE"

    def _write(self, m: Module, last: Signal) -> None:
        position = self._position
        failed = self.status != MemoryStatus.OK
        with m.State("STORE"):
            m.d.comb += self.store.eq(1)
            with m.If(self.free):
                m.next = "START"
        with m.State("START"):
            m.d.comb += self.start.eq(1)
            m.next = "WRITE"
        with m.State("WRITE"):
            with m.If(self.done):
                m.d.comb += self.taken.eq(1)
                with m.If(failed | last):
                    m.d.comb += self.over.eq(1)
                    m.next = "IDLE"
                with m.Elif(self._final):
                    m.d.sync += [
                        position.line.eq(position.line + self._kept[ComputeMethod.PITCH_OUT]),
                        position.done.eq(0),
                        position.lines.eq(position.lines - 1),
                    ]
                with m.Else():
                    m.d.sync += position.done.eq(position.done + self.size)
                with m.If(~failed & ~last):
                    m.d.sync += self._next.eq(1)
                    m.next = "AIM"

    def _go_on(self, m: Module, save: Signal) -> None:
        with m.State("MOVE"):
            m.d.comb += [
                self.move.eq(1),
                save.eq(self.free),
                self.over.eq(self.free),
                self.progress.open.eq(self.free),
                self.progress.room.eq((self.size - 1) >> 2),
            ]
            with m.If(self.free):
                m.next = "IDLE"
