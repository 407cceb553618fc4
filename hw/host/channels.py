"""Channel registers: settings, state, errors and how a channel is started and resumed (HOST-6).

A channel is started by CONTROL.ENABLE going from 0 to 1: its ring, prefetch and method state are
empty again once what it had under way has ended. It is halted by an error, whose record is read
here, and resumed by writing 1 to its bit of INTR_0 or INTR_1: the held method, as METHOD0 and DATA0
now say, is executed again.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import VA_BITS, Config
from hw.errors import CODE_OF, Cause
from hw.host.context import INDEX_BITS, Method
from hw.host.pipeline import channel_edit
from hw.host.prefetch import channel_event
from hw.host.settings import setting_event
from hw.methods import CeMethod
from hw.records import RegisterPort
from hw.registers import CHANNEL, Access, Wait, channel_word

__all__ = ["Channels"]


class Channels(wiring.Component):
    """Serves the channel block of the register map.

    Members
    -------
    port : the control port; an access takes about four cycles, a start also what it waits for.
    setting : strobe of every register that was written.
    enabled, halted : per channel.
    restart : the ring of `channel` is to be emptied.
    edit : its context is to be changed.
    copying, fencing : per channel: copies, or a semaphore operation in memory, are under way.
    halt : the method pipeline halts `channel`. failed : a copy does; taken when no other does.
    ended : a copy has ended; `failed` halts its channel in this very cycle.
    resume : CLEAR_FAULTED for channel `target`. acquire : an acquire was decided.
    executed : a method of `channel` was executed. referenced : SET_REFERENCE.
    floor, floor_valid, served, serving, busy, waits, counts : for STATUS.
    peek : channel whose `peek_put` and `peek_get` come one cycle later.
    error : strobe, a channel halts for `cause`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        channel = data.StructLayout({"channel": config.channel_bits})
        failure = channel_event(config, cause=Cause, va=VA_BITS, data=32, subchannel=3)
        super().__init__({
            "port": In(RegisterPort(12)),
            "setting": Out(setting_event(config)),
            "enabled": Out(channels),
            "halted": Out(channels),
            "restart": Out(stream.Signature(channel)),
            "edit": Out(stream.Signature(channel_edit(config))),
            "copying": In(channels),
            "fencing": In(channels),
            "halt": In(channel_event(config, cause=Cause, va=VA_BITS, method=Method)),
            "failed": In(failure),
            "failed_taken": Out(1),
            "ended": In(channel_event(config, interrupt=1, failed=1)),
            "resume": In(channel_event(config, target=12)),
            "acquire": In(channel_event(config, passed=1)),
            "executed": In(channel_event(config)),
            "referenced": In(channel_event(config, value=32)),
            "floor_valid": In(1),
            "floor": In(config.channel_bits),
            "serving": In(1),
            "served": In(config.channel_bits),
            "busy": In(channels),
            "waits": In(data.ArrayLayout(Wait, channels)),
            "counts": In(data.ArrayLayout(unsigned(4), channels)),
            "peek": Out(config.channel_bits),
            "peek_put": In(INDEX_BITS),
            "peek_get": In(INDEX_BITS),
            "error": Out(channel_event(config, cause=Cause)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._channel = Signal(self._config.channel_bits)
        self._word, self._data, self._write = Signal(6), Signal(32), Signal()
        self._errors(m)
        self._counters(m)
        self._shadow(m)
        self._serve(m)
        return m

    # -- storage -----------------------------------------------------------------------------------

    def _errors(self, m: Module) -> None:
        """The error record of every channel; of a channel that is not halted it means nothing."""
        config, channel = self._config, self._channel
        record = data.StructLayout({"cause": Cause, "va": VA_BITS, "method": Method, "copy": 1})
        m.submodules.records = ram = Memory(shape=record, depth=1 << config.channel_bits, init=[])
        write, read = ram.write_port(), ram.read_port()
        self._record, self._rewrite, self._rewritten = read.data, Signal(), Signal()
        halting = self.halt.valid
        failing = ~halting & self.failed.valid
        changed = Signal(record)
        m.d.comb += [
            read.addr.eq(channel),
            self.failed_taken.eq(failing),
            changed.eq(read.data),
            self._rewritten.eq(self._rewrite & ~halting & ~failing),
            write.en.eq(halting | failing | self._rewrite),
            self.error.valid.eq(halting | failing),
            self.error.channel.eq(write.addr),
            self.error.cause.eq(write.data.cause),
        ]
        with m.If(self._word == channel_word("METHOD0")):
            m.d.comb += [
                changed.method.address.eq(self._data[2:14]),
                changed.method.subchannel.eq(self._data[16:19]),
                changed.method.valid.eq(self._data[31]),
            ]
        with m.Else():
            m.d.comb += changed.method.data.eq(self._data)
        with m.If(halting):
            m.d.comb += [
                write.addr.eq(self.halt.channel),
                write.data.cause.eq(self.halt.cause),
                write.data.va.eq(self.halt.va),
                write.data.method.eq(self.halt.method),
                write.data.method.cause.eq(Cause.NONE),
                # There is no method behind a bad header or entry: resuming goes on after it.
                write.data.method.valid.eq(self.halt.method.cause == Cause.NONE),
            ]
        with m.Elif(failing):
            m.d.comb += [
                write.addr.eq(self.failed.channel),
                write.data.cause.eq(self.failed.cause),
                write.data.va.eq(self.failed.va),
                write.data.method.data.eq(self.failed.data),
                write.data.method.subchannel.eq(self.failed.subchannel),
                write.data.method.address.eq(CeMethod.LAUNCH_DMA >> 2),
                write.data.copy.eq(1),
            ]
        with m.Else():
            m.d.comb += [write.addr.eq(channel), write.data.eq(changed)]

        self._codes = Signal(64)
        with m.Switch(read.data.cause):
            for cause, code in CODE_OF.items():
                with m.Case(cause):
                    m.d.comb += self._codes[code].eq(1)
        self._failed = Signal(config.channels)
        with m.If(self.acquire.valid):
            m.d.sync += self._failed.bit_select(self.acquire.channel, 1).eq(~self.acquire.passed)
        for number in range(config.channels):
            by_method = halting & (self.halt.channel == number)
            by_copy = self.ended.valid & self.ended.failed & (self.ended.channel == number)
            with m.If(by_method | by_copy):
                m.d.sync += self.halted[number].eq(1)

    def _counters(self, m: Module) -> None:
        """METHODS, COPIES and REFERENCE. Counted in one cycle, so read combinationally
        (distributed RAM)."""
        self._tallies = {}
        rows = 1 << self._config.channel_bits
        for name, event in (("METHODS", self.executed), ("COPIES", self.ended)):
            ram = Memory(shape=32, depth=rows, init=[])
            m.submodules[name.lower()] = ram
            write, count = ram.write_port(), ram.read_port(domain="comb")
            m.d.comb += [
                count.addr.eq(event.channel),
                write.addr.eq(event.channel),
                write.data.eq(count.data + 1),
                write.en.eq(event.valid),
            ]
            self._tallies[name] = ram.read_port()
        m.submodules.references = ram = Memory(shape=32, depth=rows, init=[])
        write = ram.write_port()
        m.d.comb += [
            write.addr.eq(self.referenced.channel),
            write.data.eq(self.referenced.value),
            write.en.eq(self.referenced.valid),
        ]
        self._tallies["REFERENCE"] = ram.read_port()
        m.d.comb += [port.addr.eq(self._channel) for port in self._tallies.values()]

    def _shadow(self, m: Module) -> None:
        """What was written last to every setting, to be read back."""
        m.submodules.shadow = ram = Memory(shape=32, depth=16 << self._config.channel_bits, init=[])
        write, self._settings = ram.write_port(), ram.read_port()
        masks = {
            channel_word(register.name): register.mask
            for register in CHANNEL
            if register.access is Access.RW
        }
        mask = Signal(32)
        with m.Switch(self._word):
            for word, bits in masks.items():
                with m.Case(word):
                    m.d.comb += mask.eq(bits)
        m.d.comb += [
            write.addr.eq(Cat(self._word[:4], self._channel)),
            write.data.eq(self.setting.value),
            write.en.eq(self.setting.valid),
            self._settings.addr.eq(Cat(self._word[:4], self._channel)),
            self.setting.channel.eq(self._channel),
            self.setting.word.eq(self._word),
            self.setting.value.eq(self._data & mask),
        ]

    # -- accesses ----------------------------------------------------------------------------------

    def _serve(self, m: Module) -> None:
        request, channel = self.port.request, self._channel
        clearing, target = Signal(), Signal(self._config.channel_bits)
        self._enabled, self._halted = Signal(), Signal()
        m.d.comb += [
            self.peek.eq(channel),
            self._enabled.eq(self.enabled.bit_select(channel, 1)),
            self._halted.eq(self.halted.bit_select(channel, 1)),
            self.restart.payload.channel.eq(channel),
            self.edit.payload.channel.eq(channel),
            self.edit.payload.method.eq(self._record.method),
            self.edit.payload.replace.eq(~self._record.copy),
        ]
        with m.If(self.resume.valid & (self.resume.target < self._config.channels)):
            m.d.sync += [clearing.eq(1), target.eq(self.resume.target)]
        with m.FSM(name="access"):
            with m.State("IDLE"):
                with m.If(clearing):
                    m.d.sync += [clearing.eq(0), channel.eq(target), self._write.eq(0)]
                    m.next = "CLEAR"
                with m.Else():
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += [
                        self._word.eq(request.payload.address),
                        channel.eq(request.payload.address[6:]),
                        self._data.eq(request.payload.data),
                        self._write.eq(request.payload.write),
                    ]
                    with m.If(request.valid):
                        m.next = "READ"
            with m.State("CLEAR"):
                m.next = "CLEARING"
            with m.State("CLEARING"):
                m.next = "IDLE"
                with m.If(self._halted):
                    m.next = "RESUME"
            with m.State("READ"):
                m.next = "RESPOND"
                with m.If(self._write):
                    m.next = "WRITE"
            with m.State("WRITE"):
                self._perform(m)
            with m.State("RESTART"):
                gone = ~self.copying.bit_select(channel, 1) & ~self.fencing.bit_select(channel, 1)
                m.d.comb += self.restart.valid.eq(gone)
                with m.If(gone & self.restart.ready):
                    m.next = "RESET"
            with m.State("RESET"):
                m.d.comb += [self.edit.valid.eq(1), self.edit.payload.reset.eq(1)]
                with m.If(self.edit.ready):
                    m.d.sync += self.enabled.bit_select(channel, 1).eq(1)
                    m.d.sync += self.halted.bit_select(channel, 1).eq(0)
                    m.next = "RESPOND"
            with m.State("RESUME"):
                m.d.comb += self.edit.valid.eq(1)
                with m.If(self.edit.ready):
                    m.d.sync += self.halted.bit_select(channel, 1).eq(0)
                    m.next = "IDLE"
                    with m.If(self._write):
                        m.next = "RESPOND"
            with m.State("RESPOND"):
                self._respond(m)

    def _perform(self, m: Module) -> None:
        """Carry out a write; one that has no effect is answered all the same."""
        codes = self._codes
        m.next = "RESPOND"
        with m.Switch(self._word):
            with m.Case(channel_word("CONTROL")):
                m.d.comb += self.setting.valid.eq(1)
                with m.If(~self._data[0]):
                    m.d.sync += self.enabled.bit_select(self._channel, 1).eq(0)
                with m.Elif(~self._enabled):
                    m.next = "RESTART"
            with m.Case(channel_word("INTR_0")):
                with m.If(self._halted & (codes[:32] & self._data).any()):
                    m.next = "RESUME"
            with m.Case(channel_word("INTR_1")):
                with m.If(self._halted & (codes[32:] & self._data).any()):
                    m.next = "RESUME"
            with m.Case(channel_word("METHOD0"), channel_word("DATA0")):
                m.d.comb += self._rewrite.eq(self._halted)
                with m.If(self._halted & ~self._rewritten):
                    m.next = "WRITE"
            with m.Default():
                m.d.comb += self.setting.valid.eq(1)

    def _respond(self, m: Module) -> None:
        response, value = self.port.response, Signal(32)
        m.d.comb += [response.valid.eq(1), response.payload.data.eq(value)]
        with m.If(response.ready):
            m.next = "IDLE"
        record, codes = self._record, self._codes
        errors = {
            "INTR_0": codes[:32],
            "INTR_1": codes[32:],
            "CAUSE": record.cause,
            "ERROR_VA": record.va[:32],
            "ERROR_VA_HI": record.va[32:],
            "METHOD0": Cat(
                Const(0, 2),
                record.method.address,
                Const(0, 2),
                record.method.subchannel,
                Const(0, 12),
                record.method.valid,
            ),
            "DATA0": record.method.data,
        }
        reads = {
            "CONTROL": self._enabled,
            "STATUS": self._status(),
            "GP_PUT": self.peek_put,
            "GP_GET": self.peek_get,
            **{name: port.data for name, port in self._tallies.items()},
            **{name: Mux(self._halted, bits, 0) for name, bits in errors.items()},
        }
        with m.If(~self._write):
            with m.Switch(self._word):
                for name, bits in reads.items():
                    with m.Case(channel_word(name)):
                        m.d.comb += value.eq(bits)
                with m.Default():
                    m.d.comb += value.eq(self._settings.data)

    def _status(self):
        channel, status = self._channel, CHANNEL["STATUS"]
        waits, counts = self.waits[channel], self.counts[channel]
        bits = {
            "ENABLED": self._enabled,
            "HALTED": self._halted,
            "FLOOR": self.floor_valid & (self.floor == channel),
            "SERVED": self.serving & (self.served == channel),
            "PENDING": self.busy.bit_select(channel, 1),
            "WAIT": waits.as_value(),
            "ACQUIRE_FAIL": self._failed.bit_select(channel, 1),
            "COPIES": counts,
        }
        word = Const(0, 32)
        for name, value in bits.items():
            word |= value << status.field(name).lo
        return word
