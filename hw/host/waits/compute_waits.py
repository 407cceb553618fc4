"""Methods of compute objects, and outstanding tasks of channels (HOST-9)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.front_end.host_port import (
    ComputePort,
    cause_of,
    compute_method,
    inline_progress,
)
from signalbox.hw.host.channel_settings import setting_event
from signalbox.hw.host.oldest_first import STAMP_BITS, OldestFirst
from signalbox.hw.host.tickets import TicketArbiter
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import CHANNEL, channel_word

__all__ = [
    "COUNT_BITS",
    "FAIR_TURN",
    "ComputeMethodPort",
    "ComputeWaits",
    "method_result",
    "task_failed",
]

COUNT_BITS = 12
"""Width of a channel's task count."""

_PRIORITY = CHANNEL["CONFIG"].field("PRIORITY")

_REST = 64
"""Outstanding tasks for which a channel's methods leave room: tasks launched at the end of tasks,
each of which takes the place of one about to end. With nested launches, also for all children."""

FAIR_TURN = 16
"""Every 16th turn goes to the oldest method, whatever the priorities."""

method_result = data.StructLayout({
    "cause": Cause,
    "check": SkedCheck,
    "va": VA_BITS,
    "inline": inline_progress,
})
"""Cause and address of the refusal of a compute method; inline transfer after a complete one."""


def task_failed(config: Config) -> data.StructLayout:
    """Strobe: a task of `channel` has failed; its record is at `page` << 8."""
    return channel_event(config, cause=Cause, check=SkedCheck, page=32)


class ComputeMethodPort(wiring.Signature):
    """Methods of compute objects, seen from the execution of methods.

    Members
    -------
    setting : out, strobe: a method that only sets state was executed.
    ask : out, strobe: a method of the channel waits.
    drop : out, strobe: ends the channel's wait, completed or not. After an incomplete wait, the
        channel's next `ask` comes two cycles later or more.
    over : in, per channel, its wait is complete, until `drop`.
    refused : in, per channel, with `over`: its method was refused.
    why : in, result of the method of the channel selected in the previous cycle; valid with
        `over`.
    """

    def __init__(self, config: Config) -> None:
        method = {"context": 4, "address": 12, "data": 32}
        super().__init__({
            "setting": Out(channel_event(config, address=12, data=32)),
            "ask": Out(channel_event(config, asid=config.asid_bits, **method)),
            "drop": Out(channel_event(config)),
            "over": In(config.channels),
            "refused": In(config.channels),
            "why": In(method_result),
        })


class ComputeWaits(wiring.Component):
    """One method per channel may wait for the engine. The next turn is that of the highest
    CONFIG.PRIORITY, and among equals of the least recently received command; in every
    `FAIR_TURN`-th turn, that of the least recently received command of all. `hw/README.md` derives
    the bounds.

    A method is offered 7 cycles after `ask` if none is before it; the channel's wait is over two
    cycles after the engine's answer. A method already offered is completed even if its channel
    drops it.

    Members
    -------
    port : out, the compute engine.
    on : in, per channel, enabled.
    setting : in, writes of channel registers (CONFIG.PRIORITY).
    stamps : in, per channel, arrival of its head command.
    client : in, the execution of methods.
    select : in, channel served in the next cycle, or still served.
    clear : in, strobe: the channel starts.
    busy : out, per channel, its method waits or is being executed.
    tasks : out, per channel, has outstanding tasks.
    counts : out, per channel, number of outstanding tasks.
    ended : out, strobe: a task of `channel` has ended; if it has failed, `failed` begins in the
        same cycle.
    failed : out, a task of `channel` has failed; until `failed_taken`. A task killed because its
        channel was disabled has not.
    failed_taken : in, accepts `failed`.
    notify : out, per channel, strobe: interrupt of a task or a report.
    begins : in, strobe: an epoch begins.
    before : out, tasks launched before the present epoch are outstanding.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        event = channel_event(config)
        super().__init__({
            "port": Out(ComputePort(config)),
            "on": In(config.channels),
            "setting": In(setting_event(config)),
            "stamps": In(data.ArrayLayout(STAMP_BITS, config.channels)),
            "client": In(ComputeMethodPort(config)),
            "select": In(config.channel_bits),
            "clear": In(event),
            "busy": Out(channels),
            "tasks": Out(channels),
            "counts": Out(data.ArrayLayout(unsigned(COUNT_BITS), channels)),
            "ended": Out(channel_event(config, failed=1)),
            "failed": Out(task_failed(config)),
            "failed_taken": In(1),
            "notify": Out(channels),
            "begins": In(1),
            "before": Out(1),
        })
        self._oldest = OldestFirst(config, level_bits=_PRIORITY.width)
        self._turns = TicketArbiter(config, self._oldest.steps)
        self._epoch = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.turns, m.submodules.oldest = self._turns, self._oldest
        port = self.port
        for outer, inner in ((port.setting, self.client.setting), (port.clear, self.clear)):
            m.d.sync += outer.eq(inner)
        answered = delayed(m, port.answer, "answered")
        m.d.sync += port.on.eq(self.on)
        over = self._hear(m)
        self._take_turns(m, answered)
        self._order(m)
        self._count(m, answered, over)
        self._explain(m)
        notified = Signal(self._config.channels)
        m.d.comb += notified.eq(
            Mux(answered.valid & answered.trap, self._turns.owner, 0)
            | Mux(over.valid & over.trap, 1 << over.channel, 0)
        )
        m.d.sync += self.notify.eq(notified)
        return m

    def _take_turns(self, m: Module, answered: data.View) -> None:
        """One method after another."""
        port, turns = self.port, self._turns
        # `ask` is late.
        asked = delayed(m, self.client.ask, "asked")
        m.d.comb += [
            turns.ask.valid.eq(asked.valid),
            turns.ask.channel.eq(asked.channel),
            turns.drop.eq(self.client.drop),
            turns.ends.eq(answered.valid),
            turns.denied.eq(answered.cause != Cause.NONE),
            self.client.over.eq(turns.over),
            self.client.refused.eq(turns.refused),
            self.busy.eq(turns.busy | Mux(asked.valid, 1 << asked.channel, 0)),
        ]
        kept, method = self._keep(m, asked), port.method.p
        with m.If(turns.form):
            m.d.sync += [
                port.method.valid.eq(1),
                method.channel.eq(turns.channel),
                method.epoch.eq(self._epoch),
                [method[name].eq(kept[name]) for name in kept.shape().members],
            ]
        with m.Elif(port.method.ready):
            m.d.sync += port.method.valid.eq(0)

    def _order(self, m: Module) -> None:
        """Choose the channel of the next turn."""
        turns, oldest, setting = self._turns, self._oldest, self.setting
        held, fair = Signal(self._config.channels, name="held"), Signal(name="fair")
        turn = Signal(range(FAIR_TURN))
        written = setting.valid & (setting.word == channel_word("CONFIG"))
        m.d.comb += [
            fair.eq(turn == FAIR_TURN - 1),
            oldest.candidates.eq(turns.waiting & ~held),
            oldest.stamps.eq(self.stamps),
            turns.choice.eq(oldest.choice),
        ]
        m.d.sync += turn.eq(turn + turns.begins)
        most = (1 << COUNT_BITS) - _REST - self._config.nested_kernels
        for number in range(self._config.channels):
            priority = Signal(_PRIORITY.width, name=f"priority_{number}")
            m.d.comb += oldest.levels[number].eq(Mux(fair, 0, priority))
            m.d.sync += held[number].eq(self.counts[number] >= most)
            with m.If(written & (setting.channel == number)):
                m.d.sync += priority.eq(setting.value[_PRIORITY.lo :])

    def _keep(self, m: Module, asked: data.View) -> data.View:
        """Stored request of the channel with the turn, one cycle later."""
        names = ("asid", "context", "address", "data")
        members = compute_method(self._config).members
        shape = data.StructLayout({name: members[name] for name in names})
        ram = Memory(shape=shape, depth=1 << self._config.channel_bits, init=[])
        m.submodules.methods = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            write.addr.eq(asked.channel),
            write.en.eq(asked.valid),
            [write.data[name].eq(asked[name]) for name in names],
            read.addr.eq(self._turns.channel),
        ]
        return read.data

    def _hear(self, m: Module) -> data.View:
        """Ended tasks, one every other cycle; not together with an answer."""
        over, task, verdict = self.port.over, self.port.over.p.task, self.port.over.p.verdict
        fails, on = Signal(name="fails"), self.on.bit_select(task.channel, 1)
        shape = channel_event(self._config, trap=1, epoch=1, failed=1)
        heard = Signal(shape)
        m.d.comb += [
            fails.eq(
                (verdict.refusal != Refusal.NONE) & (on | (verdict.refusal != Refusal.KILLED))
            ),
            over.ready.eq(~heard.valid & ~self.failed.valid & ~self.port.answer.valid),
            self.ended.valid.eq(heard.valid),
            self.ended.channel.eq(heard.channel),
            self.ended.failed.eq(heard.failed),
        ]
        m.d.sync += [
            heard.valid.eq(over.valid & over.ready),
            heard.channel.eq(task.channel),
            heard.epoch.eq(task.epoch),
            heard.trap.eq(over.p.trap),
            heard.failed.eq(fails),
        ]
        with m.If(over.valid & over.ready):
            m.d.sync += [
                self.failed.valid.eq(fails),
                self.failed.channel.eq(task.channel),
                self.failed.cause.eq(cause_of(m, verdict.refusal)),
                self.failed.check.eq(verdict.check),
                self.failed.page.eq(task.page),
            ]
        with m.Elif(self.failed_taken):
            m.d.sync += self.failed.valid.eq(0)
        return heard

    def _count(self, m: Module, answered: data.View, over: data.View) -> None:
        """Outstanding tasks, of channels and of epochs."""
        began = delayed(m, self.port.began, "began")
        unlaunched = answered.valid & answered.unlaunched
        less = Signal()
        where = Signal.like(over.channel)
        when = Signal()
        m.d.comb += [
            less.eq(over.valid | unlaunched),
            where.eq(Mux(over.valid, over.channel, self._turns.channel)),
            when.eq(Mux(over.valid, over.epoch, self.port.method.p.epoch)),
        ]
        for number in range(self._config.channels):
            count = self.counts[number]
            more = began.valid & (began.channel == number)
            m.d.comb += self.tasks[number].eq(count != 0)
            m.d.sync += count.eq(count + more - (less & (where == number)))
        epochs = Signal(data.ArrayLayout(COUNT_BITS + self._config.channel_bits, 2))
        for epoch in range(2):
            more = began.valid & (began.epoch == epoch)
            m.d.sync += epochs[epoch].eq(epochs[epoch] + more - (less & (when == epoch)))
        m.d.sync += self._epoch.eq(self._epoch ^ self.begins)
        m.d.comb += self.before.eq(
            reduce(or_, [(epochs[epoch] != 0) & (self._epoch != epoch) for epoch in range(2)])
        )

    def _explain(self, m: Module) -> None:
        """Result of the last method of each channel; written as the engine answers, so that it can
        be read one cycle before `over`."""
        answer = self.port.answer
        ram = Memory(shape=method_result, depth=1 << self._config.channel_bits, init=[])
        m.submodules.results = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            write.addr.eq(self._turns.channel),
            write.en.eq(answer.valid),
            [write.data[name].eq(answer[name]) for name in method_result.members],
            read.addr.eq(self.select),
            self.client.why.eq(read.data),
        ]
