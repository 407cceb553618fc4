"""The access in progress: reads and writes of registers, starts and resumptions."""

import itertools

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_block.error_words import HELD
from signalbox.hw.host.channel_block.pending_clears import PendingClears
from signalbox.hw.host.channel_block.records import error_contents
from signalbox.hw.host.methods.pipeline import channel_edit
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.registers import channel_word

__all__ = ["AccessControl"]


class AccessControl(wiring.Component):
    """Performs one access, or one CLEAR_FAULTED, at a time. Owns the access and, per channel,
    CONTROL.ENABLE.

    Inputs that depend on `channel` are valid from a fixed cycle of `channel` on: `is_enabled`,
    `is_halted` and `is_idle` from the third, `error` from the fourth, `value` and `clears` in the
    fifth.

    Members
    -------
    port : in, the control port, which writes only writable registers. Latency from acceptance to
        response: 5 cycles for a read, 6 for a write. A start also waits for `is_idle` and `edit`, a
        clear for `edit` and `recording`.
    resume : in, strobe: CLEAR_FAULTED for channel `target`. Pending CLEAR_FAULTED and accesses
        alternate, so neither starves the other.
    channel : out, `channel_bits` bits: channel of the access.
    word : out, 6 bits: its register.
    data : out, 32 bits: value to be written.
    value : in, 32 bits: data of the read.
    clears : in, the write in progress clears the error.
    is_enabled, is_halted : in, state of the channel.
    is_idle : in, the channel has neither an outstanding operation nor a failure without a record.
    error : in, its error record.
    recording : in, an error is being recorded, of any channel.
    enabled : out, per channel: CONTROL.ENABLE.
    store : out, strobe: a setting is written.
    rewrite_method, rewrite_data : out, METHOD0 or DATA0 is written; held to the first cycle without
        `recording`.
    restart : out, stream: empty the ring of `channel`.
    edit : out, stream: change the context of `channel`.
    hold : out, no failure may be taken in this cycle.
    cleared : out, strobe: the error of the channel is cleared.
    all : out, with `cleared`: all errors of the channel are cleared, as it starts.
    started : out, strobe: the channel starts.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "port": In(RegisterPort(12)),
            "resume": In(channel_event(config, target=12)),
            "channel": Out(config.channel_bits),
            "word": Out(6),
            "data": Out(32),
            "value": In(32),
            "clears": In(1),
            "is_enabled": In(1),
            "is_halted": In(1),
            "is_idle": In(1),
            "error": In(error_contents),
            "recording": In(1),
            "enabled": Out(config.channels),
            "store": Out(1),
            "rewrite_method": Out(1),
            "rewrite_data": Out(1),
            "restart": Out(stream.Signature(channel)),
            "edit": Out(stream.Signature(channel_edit(config))),
            "hold": Out(1),
            "cleared": Out(1),
            "all": Out(1),
            "started": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.clears = self._clears = PendingClears(self._config)
        self._write = Signal()
        self._clearing = Signal()
        """The access is a write (`_write`); it is a CLEAR_FAULTED (`_clearing`)."""
        error, edit = self.error, self.edit.payload
        m.d.comb += [
            self._clears.resume.eq(self.resume),
            self.restart.payload.channel.eq(self.channel),
            edit.channel.eq(self.channel),
            edit.method.valid.eq(error.head.valid),
            edit.method.subchannel.eq(error.head.subchannel),
            edit.method.address.eq(error.head.address),
            edit.method.data.eq(error.data),
            edit.replace.eq(~error.why.asynchronous),
            self.port.response.payload.data.eq(self.value),
        ]
        with m.FSM(name="access"):
            self._begin(m)
            self._write_register(m)
            self._start(m)
            self._clear(m)
            with m.State("RESPOND"):
                m.d.comb += self.port.response.valid.eq(1)
                with m.If(self.port.response.ready):
                    m.next = "IDLE"
        return m

    def _begin(self, m: Module) -> None:
        """Accept an access or a CLEAR_FAULTED, and wait for the view of its channel."""
        request, clears = self.port.request, Signal(name="clears")
        m.d.comb += clears.eq(self._clears.due & ~self._clearing)
        with m.State("IDLE"):
            m.d.sync += self._clearing.eq(clears)
            with m.If(clears):
                m.d.comb += self._clears.taken.eq(1)
                m.d.sync += self.channel.eq(self._clears.target)
                m.next = "LOOK"
            with m.Else():
                m.d.comb += request.ready.eq(1)
                m.d.sync += [
                    self.word.eq(request.payload.address),
                    self.channel.eq(request.payload.address[6:]),
                    self.data.eq(request.payload.data),
                    self._write.eq(request.payload.write),
                ]
                with m.If(request.valid):
                    m.next = "LOOK"
        for state, following in itertools.pairwise(("LOOK", "READ", "HOLD", "CHOOSE")):
            with m.State(state):
                m.next = following
        with m.State("CHOOSE"):
            m.next = "RESPOND"
            with m.If(self._clearing):
                m.next = "IDLE"
                with m.If(self.is_halted):
                    m.next = "RESUME"
            with m.Elif(self._write):
                m.next = "WRITE"

    def _write_register(self, m: Module) -> None:
        """Perform a write; a write without effect is answered, too."""
        rewrites = dict(zip(HELD, (self.rewrite_method, self.rewrite_data), strict=True))
        aims = {name: Signal(name=f"aims_at_{name.lower()}") for name in HELD}
        for name, aim in aims.items():
            m.d.sync += aim.eq((self.word == channel_word(name)) & self.is_halted)
        with m.State("WRITE"):
            for name, rewrite in rewrites.items():
                m.d.comb += rewrite.eq(aims[name])
            m.next = "RESPOND"
            with m.Switch(self.word):
                with m.Case(channel_word("CONTROL")):
                    m.d.comb += self.store.eq(1)
                    with m.If(~self.data[0]):
                        m.d.sync += self.enabled.bit_select(self.channel, 1).eq(0)
                    with m.Elif(~self.is_enabled):
                        m.d.sync += self.all.eq(1)
                        m.next = "CLEAR"
                with m.Case(channel_word("INTR_0"), channel_word("INTR_1")):
                    with m.If(self.clears):
                        m.next = "RESUME"
                with m.Case(*map(channel_word, HELD)):
                    with m.If(self.recording):
                        m.next = "WRITE"
                with m.Default():
                    m.d.comb += self.store.eq(1)

    def _start(self, m: Module) -> None:
        """Start the channel once its outstanding operations have ended."""
        with m.State("RESTART"):
            m.d.comb += self.restart.valid.eq(self.is_idle)
            with m.If(self.is_idle & self.restart.ready):
                m.next = "RESET"
        with m.State("RESET"):
            m.d.comb += [self.edit.valid.eq(1), self.edit.payload.reset.eq(1)]
            with m.If(self.edit.ready):
                # Drops the record of a refused method, but not of a copy or task that failed while
                # the start waited. Such a record is shown in this cycle at the latest; a shorter
                # RESTART would break this.
                m.d.comb += [self.started.eq(1), self.cleared.eq(~self.error.why.asynchronous)]
                m.d.sync += self.enabled.bit_select(self.channel, 1).eq(1)
                m.next = "RESPOND"

    def _clear(self, m: Module) -> None:
        """Resume the channel, then clear its error. A start first clears all errors."""
        with m.State("RESUME"):
            m.d.comb += self.edit.valid.eq(1)
            with m.If(self.edit.ready):
                m.next = "CLEAR"
        with m.State("CLEAR"):
            m.d.comb += self.hold.eq(1)
            with m.If(~self.recording):
                m.d.comb += self.cleared.eq(1)
                m.d.sync += self.all.eq(0)
                m.next = "RESPOND"
                with m.If(self._clearing):
                    m.next = "IDLE"
                with m.If(self.all):
                    m.next = "RESTART"
