"""Channel registers: settings, state, errors, start and resumption of a channel (HOST-6).

CONTROL.ENABLE going from 0 to 1 starts a channel: once its outstanding operations have ended, its
ring, prefetch buffer and method state are cleared, and METHODS, COPIES and REFERENCE begin at 0. An
error halts it; the error's record is read here. Writing 1 to its bit of INTR_0 or INTR_1 resumes
it: the held method, now as in METHOD0 and DATA0, is executed again. If another copy or task has
failed meanwhile, the channel stays halted and shows the record of that failure.
"""

import itertools
from collections.abc import Mapping
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.host.methods.pipeline import channel_edit
from signalbox.hw.host.records import INDEX_BITS, Method
from signalbox.hw.host.waits.compute_waits import COUNT_BITS, task_failed
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.lib.onehot import encode, lowest
from signalbox.hw.methods import CeMethod, ComputeMethod
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.registers import CHANNEL, Access, Wait, channel_word

__all__ = ["ChannelRegisters"]

_DISTRIBUTED_ROWS = 128
"""Up to this number, rows of settings are in distributed RAM; more, for over 8 channels, in block
RAM."""

_HELD = ("METHOD0", "DATA0")
"""The held method, writable by software."""

_ROW = data.StructLayout({"valid": 1, "second": 1, "later": 1, "full": 1})
"""Place of an error record, if it gets one (`valid`): the first or the `second` row of its channel.
The channel already has one record (`later`) or two (`full`)."""

_OF_ERRORS = ("INTR_0", "INTR_1", "CAUSE", "ERROR_VA", "ERROR_VA_HI", *_HELD)
"""Registers that read as 0 unless the channel is halted."""


class ChannelRegisters(wiring.Component):
    """Serves the channel block of the register map.

    Members
    -------
    port : in, the control port; an access takes 6 cycles, a start also waits for the channel's
        outstanding operations.
    setting : out, strobe: a register was written, one cycle after the write took effect.
    enabled : out, per channel.
    halted : out, per channel.
    restart : out, stream: empty the ring of `channel`.
    edit : out, stream: change the context of `channel`.
    active : in, per channel, a copy, task, read, write-back or semaphore operation is outstanding.
    halt : in, strobe: the method pipeline halts `channel`, from the next cycle on.
    failed : in, a copy of `channel` has failed; taken when no method error is being recorded.
    failed_taken : out, accepts `failed`.
    task_failed : in, a task of `channel` has failed; taken when no other error is being recorded.
    task_failed_taken : out, accepts `task_failed`.
    ended : in, strobe: a copy has ended; with `failed`, its channel is halted from the next cycle
        on.
    task_ended : in, likewise for a task.
    resume : in, strobe: CLEAR_FAULTED for channel `target`.
    acquire : in, strobe: an acquire was decided.
    executed : in, strobe: a method of `channel` was executed.
    referenced : in, strobe: `value` of SET_REFERENCE is in memory.
    floor_valid, floor, serving, served, busy, waits, counts, tasks : in, for STATUS.
    peek : out, a channel.
    peek_put, peek_get : in, its GP_PUT and GP_GET, one cycle later.
    error : out, strobe: an error of `channel` with `cause`, one or two cycles ago.
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
            "active": In(channels),
            "halt": In(
                channel_event(config, cause=Cause, check=SkedCheck, va=VA_BITS, method=Method)
            ),
            "failed": In(failure),
            "failed_taken": Out(1),
            "ended": In(channel_event(config, interrupt=1, failed=1)),
            "task_failed": In(task_failed(config)),
            "task_failed_taken": Out(1),
            "task_ended": In(channel_event(config, failed=1)),
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
            "tasks": In(data.ArrayLayout(unsigned(COUNT_BITS), channels)),
            "peek": Out(config.channel_bits),
            "peek_put": In(INDEX_BITS),
            "peek_get": In(INDEX_BITS),
            "error": Out(channel_event(config, cause=Cause)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._channel = Signal(self._config.channel_bits)
        self._word = Signal(6)
        self._data = Signal(32)
        self._write = Signal()
        self._started = Signal()
        """Strobe: the channel of this access starts."""
        self._halts = Signal(self._config.channels)
        self._refused = delayed(m, self.halt, "refused")
        """Per channel, halted before; the method error of the previous cycle."""
        self._clearing = Signal()
        self._cleared = Signal()
        self._starts = Signal()
        """No error is recorded in this cycle; strobe: the error of the access's channel is cleared;
        or, as it starts, all its errors."""
        self._errors(m)
        self._view(m)
        self._choose(m, self._words(m) | self._tallies(m), self._shadow(m))
        self._serve(m)
        self._halt(m)
        return m

    # -- storage: addressed by the channel of the access, with an output register per RAM ----------

    def _errors(self, m: Module) -> None:
        """Two error records per channel: the one shown until it is cleared, and behind it that of
        the next failed copy or task. Of failures beyond these, the second record only shows `more`.

        Three RAMs, so METHOD0 and DATA0 can be written without reading the rest.
        """
        config = self._config
        why = data.StructLayout({"cause": Cause, "check": SkedCheck, "va": VA_BITS, "later": 1})
        head = data.StructLayout({"address": 12, "subchannel": 3, "valid": 1})
        noted = Signal(channel_event(config, row=_ROW, why=why, head=head, data=32))
        """Error on its way into the RAMs."""
        halting, self._busy = self._refused.valid, noted.valid
        free = Signal()
        task = self.task_failed
        rows = self._rows(m, noted)
        m.d.comb += [
            # The row of an error depends on the previous one.
            free.eq(~halting & ~noted.valid & ~self._clearing),
            self.failed_taken.eq(free & self.failed.valid),
            self.task_failed_taken.eq(free & ~self.failed.valid & self.task_failed.valid),
            self.error.valid.eq(noted.valid),
            self.error.channel.eq(noted.channel),
            self.error.cause.eq(noted.why.cause),
        ]
        m.d.sync += noted.valid.eq(halting | self.failed_taken | self.task_failed_taken)
        with m.If(halting):
            method = self._refused.method
            m.d.sync += [
                noted.channel.eq(self._refused.channel),
                noted.row.eq(rows[0]),
                noted.why.cause.eq(self._refused.cause),
                noted.why.check.eq(self._refused.check),
                noted.why.va.eq(self._refused.va),
                noted.why.later.eq(0),
                noted.head.address.eq(method.address),
                noted.head.subchannel.eq(method.subchannel),
                # A bad header or entry has no method: resumption continues after it.
                noted.head.valid.eq(method.cause == Cause.NONE),
                noted.data.eq(method.data),
            ]
        with m.Elif(self.failed.valid):
            m.d.sync += [
                noted.channel.eq(self.failed.channel),
                noted.row.eq(rows[1]),
                noted.why.cause.eq(self.failed.cause),
                noted.why.check.eq(SkedCheck.NONE),
                noted.why.va.eq(self.failed.va),
                noted.why.later.eq(1),
                noted.head.address.eq(CeMethod.LAUNCH_DMA >> 2),
                noted.head.subchannel.eq(self.failed.subchannel),
                noted.head.valid.eq(0),
                noted.data.eq(self.failed.data),
            ]
        with m.Else():
            m.d.sync += [
                noted.channel.eq(task.channel),
                noted.row.eq(rows[2]),
                noted.why.cause.eq(task.cause),
                noted.why.check.eq(task.check),
                noted.why.va.eq(task.page << 8),
                noted.why.later.eq(1),
                noted.head.address.eq(ComputeMethod.SEND_PCAS_A >> 2),
                noted.head.subchannel.eq(0),
                noted.head.valid.eq(0),
                noted.data.eq(task.page),
            ]

        written = Signal(head)
        m.d.comb += [
            written.address.eq(self._data[2:14]),
            written.subchannel.eq(self._data[16:19]),
            written.valid.eq(self._data[31]),
        ]
        self._rewrite = {name: Signal(name=f"rewrite_{name.lower()}") for name in _HELD}
        self._why = self._ram(m, "causes", noted, noted.why)
        self._head = self._ram(m, "heads", noted, noted.head, self._rewrite["METHOD0"], written)
        self._held = self._ram(m, "held", noted, noted.data, self._rewrite["DATA0"], self._data)

    def _rows(self, m: Module, noted: data.View) -> list[data.View]:
        """RAM rows for the errors of a method, a copy and a task. A method refused after an error
        needs none: it is held and executed again."""
        names = ("shown", "more", "queued", "beyond", "second")
        self._records = {name: Signal(self._config.channels, name=name) for name in names}
        """Per channel: it has a record; another copy or task has failed since; that failure has a
        record; more have failed since that one. `second`: number of the row shown."""
        shown, more, queued, beyond, second = self._records.values()
        rows = []
        refused = self._refused
        events = (
            (refused, refused.valid, 0),
            (self.failed, self.failed_taken, 1),
            (self.task_failed, self.task_failed_taken, 1),
        )
        for event, taken, after in events:
            row = Signal(_ROW, name=f"row_{len(rows)}")
            m.d.comb += [
                row.later.eq(shown.bit_select(event.channel, 1)),
                row.full.eq(queued.bit_select(event.channel, 1)),
                row.second.eq(second.bit_select(event.channel, 1) ^ row.later),
                row.valid.eq(taken & (~row.later | (after & ~row.full))),
            ]
            rows.append(row)
        at = noted.channel
        with m.If(noted.valid):
            m.d.sync += shown.bit_select(at, 1).eq(1)
            with m.If(noted.row.later & noted.why.later):
                m.d.sync += [
                    more.bit_select(at, 1).eq(1),
                    queued.bit_select(at, 1).eq(1),
                    beyond.bit_select(at, 1).eq(noted.row.full),
                ]
        self._clear(m)
        return rows

    def _clear(self, m: Module) -> None:
        """State after the error is cleared: the next record, if any, is shown."""
        mine = {name: bits.bit_select(self._channel, 1) for name, bits in self._records.items()}
        self._more = Signal()
        self._second = Signal()
        m.d.sync += [self._more.eq(mine["more"]), self._second.eq(mine["second"])]
        follows = Signal()
        failing = Signal()
        m.d.comb += [
            follows.eq(mine["queued"] & ~self._starts),
            # A failure that is not recorded yet keeps the channel halted.
            failing.eq(
                reduce(
                    or_,
                    [
                        one.valid & (one.channel == self._channel)
                        for one in (self.failed, self.task_failed)
                    ],
                )
            ),
        ]
        with m.If(self._cleared):
            m.d.sync += [
                mine["shown"].eq(follows),
                mine["second"].eq(self._second ^ follows),
                mine["more"].eq(mine["beyond"] & follows),
                mine["queued"].eq(0),
                mine["beyond"].eq(0),
                self._halts.bit_select(self._channel, 1).eq(follows | failing),
            ]

    def _ram(self, m: Module, name: str, noted, value, rewrite=None, other=None) -> Signal:
        """A RAM of `value`, where an access may write `other` instead; returns the access's
        word."""
        shape = value.shape()
        ram = Memory(shape=shape, depth=2 << self._config.channel_bits, init=[])
        m.submodules[name] = ram
        write, read, word = ram.write_port(), ram.read_port(), Signal(shape, name=f"{name}_word")
        m.d.comb += [
            write.addr.eq(Cat(noted.channel, noted.row.second)),
            write.data.eq(value),
            write.en.eq(noted.row.valid),
            read.addr.eq(Cat(self._channel, self._second)),
        ]
        if other is not None:
            with m.If(~noted.valid):
                m.d.comb += [
                    write.addr.eq(read.addr),
                    write.data.eq(other),
                    write.en.eq(rewrite),
                ]
        m.d.sync += word.eq(read.data)
        return word

    def _tallies(self, m: Module) -> dict[str, Value]:
        """METHODS, COPIES, TASKS and REFERENCE; 0 until the first event after a start."""
        referenced = delayed(m, self.referenced, "referenced_before")
        references = Memory(shape=32, depth=1 << self._config.channel_bits, init=[])
        m.submodules.references = references
        return {
            "METHODS": self._count(m, "methods", delayed(m, self.executed, "executed_before")),
            "COPIES": self._count(m, "copies", delayed(m, self.ended, "ended_before")),
            "TASKS": self._count(m, "tasks", delayed(m, self.task_ended, "task_before")),
            "REFERENCE": self._tally(
                m, references, referenced, referenced.value, self._blank(m, self.referenced)
            ),
        }

    def _count(self, m: Module, name: str, event) -> Value:
        """Number of events in the channel, up to one per cycle: first the count is read
        (distributed RAM) or forwarded from the previous event, in the next cycle it is
        incremented."""
        counts = Memory(shape=32, depth=1 << self._config.channel_bits, init=[])
        m.submodules[name] = counts
        blank, read = self._blank(m, event), counts.read_port(domain="comb")
        looking = Signal(channel_event(self._config))
        adding = Signal(channel_event(self._config))
        first = Signal()
        again = Signal()
        count = Signal(32)
        more = Signal(32)
        m.d.comb += [read.addr.eq(looking.channel), more.eq(count + 1)]
        m.d.sync += [
            looking.valid.eq(event.valid),
            looking.channel.eq(event.channel),
            first.eq(blank.bit_select(event.channel, 1)),
            again.eq(looking.valid & (looking.channel == event.channel)),
            adding.eq(looking),
            count.eq(Mux(again, more, Mux(first, 0, read.data))),
        ]
        return self._tally(m, counts, adding, more, blank)

    def _blank(self, m: Module, event) -> Signal:
        """Per channel, no event since the start."""
        channels = self._config.channels
        blank = Signal(channels, init=(1 << channels) - 1, name="blank")
        with m.If(event.valid):
            m.d.sync += blank.bit_select(event.channel, 1).eq(0)
        with m.If(self._started):
            m.d.sync += blank.bit_select(self._channel, 1).eq(1)
        return blank

    def _tally(self, m: Module, ram: Memory, event, value: Value, blank: Signal) -> Value:
        """Write `value` into `ram` on `event`; returns the word seen by an access."""
        write, read = ram.write_port(), ram.read_port()
        nothing, word = Signal(name="nothing"), Signal(32, name="tally")
        m.d.comb += [
            write.addr.eq(event.channel),
            write.data.eq(value),
            write.en.eq(event.valid),
            read.addr.eq(self._channel),
        ]
        m.d.sync += [
            nothing.eq(blank.bit_select(self._channel, 1)),
            word.eq(Mux(nothing, 0, read.data)),
        ]
        return word

    def _shadow(self, m: Module) -> Value:
        """Last value written to every setting, for reads."""
        # A row is read long after it was written, so no logic is needed for simultaneous accesses.
        # Few rows are faster outside block RAM.
        rows = 16 << self._config.channel_bits
        style = "distributed" if rows <= _DISTRIBUTED_ROWS else "block"
        m.submodules.shadow = ram = Memory(
            shape=32, depth=rows, init=[], attrs={"no_rw_check": 1, "ram_style": style}
        )
        write, read = ram.write_port(), ram.read_port()
        masks = {
            channel_word(register.name): register.mask
            for register in CHANNEL
            if register.access is Access.RW
        }
        mask = Signal(32)
        word = Signal(32)
        with m.Switch(self._word):
            for number, bits in masks.items():
                with m.Case(number):
                    m.d.comb += mask.eq(bits)
        m.d.comb += [
            write.addr.eq(Cat(self._word[:4], self._channel)),
            write.data.eq(self.setting.value),
            write.en.eq(self.setting.valid),
            read.addr.eq(write.addr),
            self.setting.channel.eq(self._channel),
            self.setting.word.eq(self._word),
        ]
        # Two registers: the first is placed next to the block RAM, as its output is slow.
        near = Signal(32)
        m.d.sync += [
            self.setting.value.eq(self._data & mask),
            near.eq(read.data),
            word.eq(near),
        ]
        return word

    # -- view of an access, from the second cycle after its channel is known -----------------------

    def _view(self, m: Module) -> None:
        """The channel's state, through two registers; an error is visible together with its
        record."""
        channel = self._channel
        self._enabled = Signal()
        self._halted = Signal()
        self._gone = Signal()
        for name, bits, seen in (
            ("enabled", self.enabled, self._enabled),
            ("halted", self.halted & self._records["shown"], self._halted),
            ("gone", ~self.active, self._gone),
        ):
            chosen = Signal(name=f"{name}_chosen")
            m.d.sync += [chosen.eq(bits.bit_select(channel, 1)), seen.eq(chosen)]
        self._acquire_failed = Signal(self._config.channels)
        decided = delayed(m, self.acquire, "decided")
        with m.If(decided.valid):
            m.d.sync += self._acquire_failed.bit_select(decided.channel, 1).eq(~decided.passed)
        with m.If(self._started):
            m.d.sync += self._acquire_failed.bit_select(channel, 1).eq(0)
        self._codes = Signal(64)
        with m.Switch(self._why.cause):
            for cause, code in CODE_OF.items():
                with m.Case(cause):
                    m.d.comb += self._codes.eq(1 << code)

    def _words(self, m: Module) -> dict[str, Value]:
        """Registers that show the channel's state."""
        head, va = self._head, self._why.va
        put = Signal.like(self.peek_put)
        get = Signal.like(self.peek_get)
        m.d.comb += self.peek.eq(self._channel)
        m.d.sync += [put.eq(self.peek_put), get.eq(self.peek_get)]
        return {
            "CONTROL": self._enabled,
            "STATUS": self._status(m),
            "GP_PUT": put,
            "GP_GET": get,
            "INTR_0": self._codes[:32],
            "INTR_1": self._codes[32:],
            "CAUSE": Cat(self._why.cause, Const(0, 2), self._more, Const(0, 7), self._why.check),
            "ERROR_VA": va[:32],
            "ERROR_VA_HI": va[32:],
            "METHOD0": Cat(
                Const(0, 2), head.address, Const(0, 2), head.subchannel, Const(0, 12), head.valid
            ),
            "DATA0": self._held,
        }

    def _status(self, m: Module) -> Value:
        channel, status = self._channel, CHANNEL["STATUS"]
        bits = {
            "FLOOR": self.floor_valid & (self.floor == channel),
            "SERVED": self.serving & (self.served == channel),
            "PENDING": self.busy.bit_select(channel, 1),
            "ACTIVE": self.active.bit_select(channel, 1),
            "WAIT": self.waits[channel].as_value(),
            "ACQUIRE_FAIL": self._acquire_failed.bit_select(channel, 1),
            "COPIES": self.counts[channel],
            "TASKS": self.tasks[channel],
        }
        found: dict[str, Value] = {"ENABLED": self._enabled, "HALTED": self._halted}
        for name, value in bits.items():
            found[name] = Signal(len(value), name=f"status_{name.lower()}")
            m.d.sync += found[name].eq(value)
        return reduce(or_, (value << status.field(name).lo for name, value in found.items()))

    def _choose(self, m: Module, sources: Mapping[str, Value], setting: Value) -> None:
        """Read data, and whether a write clears the error: in the third cycle, for the fourth. The
        selects are registered."""
        halted = self._halted
        self._value = Signal(32)
        self._clears = Signal()
        stored = Signal(init=1)
        chosen = []
        m.d.sync += stored.eq(~self._word.matches(*map(channel_word, sources)))
        for name, source in sources.items():
            here = Signal(name=f"reads_{name.lower()}")
            m.d.sync += here.eq(self._word == channel_word(name))
            gate = here & halted if name in _OF_ERRORS else here
            chosen.append(Mux(gate, source, 0))
        cleared = [
            (self._word == channel_word(name)) & (sources[name] & self._data).any()
            for name in ("INTR_0", "INTR_1")
        ]
        m.d.sync += [
            self._value.eq(reduce(or_, chosen) | Mux(stored, setting, 0)),
            self._clears.eq(halted & (cleared[0] | cleared[1])),
        ]

    # -- accesses ----------------------------------------------------------------------------------

    def _serve(self, m: Module) -> None:
        request, response, channel = self.port.request, self.port.response, self._channel
        clear = Signal(self._config.channels)
        first = Signal(self._config.channels)
        """Per channel, CLEAR_FAULTED is pending; the next one, one-hot."""
        due = Signal()
        target = Signal(self._config.channel_bits)
        clearing = Signal()
        aims = {name: Signal(name=f"aims_at_{name.lower()}") for name in _HELD}
        for name, aim in aims.items():
            m.d.sync += aim.eq((self._word == channel_word(name)) & self._halted)
        m.d.comb += first.eq(lowest(clear))
        m.d.sync += [due.eq(clear.any()), target.eq(encode(first))]
        m.d.sync += self.setting.valid.eq(0)
        m.d.comb += [
            self.restart.payload.channel.eq(channel),
            self.edit.payload.channel.eq(channel),
            self.edit.payload.method.valid.eq(self._head.valid),
            self.edit.payload.method.subchannel.eq(self._head.subchannel),
            self.edit.payload.method.address.eq(self._head.address),
            self.edit.payload.method.data.eq(self._held),
            self.edit.payload.replace.eq(~self._why.later),
            response.payload.data.eq(self._value),
        ]
        with m.FSM(name="access"):
            with m.State("IDLE"):
                m.d.sync += clearing.eq(due)
                with m.If(due):
                    m.d.sync += [clear.bit_select(target, 1).eq(0), channel.eq(target)]
                    m.next = "LOOK"
                with m.Else():
                    m.d.comb += request.ready.eq(1)
                    m.d.sync += [
                        self._word.eq(request.payload.address),
                        channel.eq(request.payload.address[6:]),
                        self._data.eq(request.payload.data),
                        self._write.eq(request.payload.write),
                    ]
                    with m.If(request.valid):
                        m.next = "LOOK"
            for state, following in itertools.pairwise(("LOOK", "READ", "HOLD", "CHOOSE")):
                with m.State(state):
                    m.next = following
            with m.State("CHOOSE"):
                m.next = "RESPOND"
                with m.If(clearing):
                    m.next = "IDLE"
                    with m.If(self._halted):
                        m.next = "RESUME"
                with m.Elif(self._write):
                    m.next = "WRITE"
            with m.State("WRITE"):
                for name, rewrite in self._rewrite.items():
                    m.d.comb += rewrite.eq(aims[name])
                self._perform(m)
            with m.State("RESTART"):
                m.d.comb += self.restart.valid.eq(self._gone)
                with m.If(self._gone & self.restart.ready):
                    m.next = "RESET"
            with m.State("RESET"):
                m.d.comb += [self.edit.valid.eq(1), self.edit.payload.reset.eq(1)]
                with m.If(self.edit.ready):
                    # An earlier refused method is dropped; a late failure is not: its record is
                    # shown in this cycle at the latest, so RESTART must not get shorter.
                    m.d.comb += [self._started.eq(1), self._cleared.eq(~self._why.later)]
                    m.d.sync += self.enabled.bit_select(channel, 1).eq(1)
                    m.next = "RESPOND"
            with m.State("RESUME"):
                m.d.comb += self.edit.valid.eq(1)
                with m.If(self.edit.ready):
                    m.next = "CLEAR"
            with m.State("CLEAR"):
                m.d.comb += self._clearing.eq(1)
                with m.If(~self._busy):
                    m.d.comb += self._cleared.eq(1)
                    m.d.sync += self._starts.eq(0)
                    m.next = "RESPOND"
                    with m.If(clearing):
                        m.next = "IDLE"
                    with m.If(self._starts):
                        m.next = "RESTART"
            with m.State("RESPOND"):
                m.d.comb += response.valid.eq(1)
                with m.If(response.ready):
                    m.next = "IDLE"
        with m.If(self.resume.valid & (self.resume.target < self._config.channels)):
            m.d.sync += clear.bit_select(self.resume.target, 1).eq(1)

    def _perform(self, m: Module) -> None:
        """Perform a write; one without effect is answered, too."""
        m.next = "RESPOND"
        with m.Switch(self._word):
            with m.Case(channel_word("CONTROL")):
                m.d.sync += self.setting.valid.eq(1)
                with m.If(~self._data[0]):
                    m.d.sync += self.enabled.bit_select(self._channel, 1).eq(0)
                with m.Elif(~self._enabled):
                    m.d.sync += self._starts.eq(1)
                    m.next = "CLEAR"
            with m.Case(channel_word("INTR_0"), channel_word("INTR_1")):
                with m.If(self._clears):
                    m.next = "RESUME"
            with m.Case(*map(channel_word, _HELD)):
                with m.If(self._busy):
                    m.next = "WRITE"
            with m.Default():
                m.d.sync += self.setting.valid.eq(1)

    def _halt(self, m: Module) -> None:
        """A channel halts at once, even while it is being resumed."""
        for number in range(self._config.channels):
            by_method = self._refused.valid & (self._refused.channel == number)
            by_copy, by_task = (
                one.valid & one.failed & (one.channel == number)
                for one in (self.ended, self.task_ended)
            )
            m.d.comb += self.halted[number].eq(self._halts[number] | by_method)
            with m.If(by_method | by_copy | by_task):
                m.d.sync += self._halts[number].eq(1)
