"""Methods of compute objects, and outstanding tasks of channels (HOST-9)."""

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
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.oldest_first import OldestFirst
from signalbox.hw.host.ports import ArrivalOrder, MethodEvents, Served
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
    "EpochPort",
    "OutstandingTasks",
    "TaskReports",
    "method_result",
    "task_failed",
]

COUNT_BITS = 12
"""Width of a channel's task count, as shown."""

_NESTED_BITS = 28
"""Width of the count with nested launches. A task that depends on a child does not count as a
child; only the task lists limit the number of such tasks, to 2^20 per level."""

_PRIORITY = CHANNEL["CONFIG"].field("PRIORITY")

_REST = 64
"""Part of the shown count that a channel's methods leave free. It is for dependent tasks, each of
which takes the place of a task about to end. With nested launches, one more per kernel of the tree
is left free, so that the shown count seldom saturates."""

FAIR_TURN = 16
"""Every 16th turn goes to the oldest method, whatever the priorities."""

method_result = data.StructLayout({
    "cause": Cause,
    "check": SkedCheck,
    "va": VA_BITS,
    "inline": inline_progress,
})
"""Result of a compute method: cause and address of its refusal, or the inline transfer after it."""


def task_failed(config: Config) -> data.StructLayout:
    """Strobe: a task of `channel` has failed; its record is at `page` << 8."""
    return channel_event(config, cause=Cause, check=SkedCheck, page=32)


class ComputeMethodPort(wiring.Signature):
    """Methods of compute objects, seen from the execution of methods.

    Members
    -------
    setting : out, strobe: a method that only sets state was executed, `address` with `data`.
    ask : out, strobe: a method of `channel` waits.
    drop : out, strobe: ends `channel`'s wait, completed or not. After an incomplete wait, the
        channel's next `ask` comes two cycles later or more.
    skip : out, strobe, with `drop`: the refused method of `channel` is not repeated.
    over : in, per channel, its wait is complete, until `drop`.
    refused : in, per channel, with `over`: its method was refused.
    why : in, a `method_result`, of the channel selected in the previous cycle; valid with `over`.
    """

    def __init__(self, config: Config) -> None:
        method = {"context": 4, "address": 12, "data": 32}
        super().__init__({
            "setting": Out(channel_event(config, address=12, data=32)),
            "ask": Out(channel_event(config, asid=config.asid_bits, **method)),
            "drop": Out(channel_event(config)),
            "skip": Out(channel_event(config)),
            "over": In(config.channels),
            "refused": In(config.channels),
            "why": In(method_result),
        })


class OutstandingTasks(wiring.Signature):
    """Outstanding tasks and compute methods.

    Members
    -------
    some : out, per channel: has outstanding tasks.
    counts : out, per channel, `COUNT_BITS` bits: number of outstanding tasks; saturates.
    busy : out, per channel: its method waits or is being executed.
    """

    def __init__(self, config: Config) -> None:
        channels = config.channels
        super().__init__({
            "some": Out(channels),
            "counts": Out(data.ArrayLayout(unsigned(COUNT_BITS), channels)),
            "busy": Out(channels),
        })


class TaskReports(wiring.Signature):
    """Ends of tasks, seen from `ComputeWaits`.

    Members
    -------
    ended : out, strobe: a task of `channel` has ended; if it has failed, `failed` begins in the
        same cycle.
    failed : out, a `task_failed`, until `taken`. A task killed because its channel was disabled has
        not failed.
    taken : in, accepts `failed`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "ended": Out(channel_event(config, failed=1)),
            "failed": Out(task_failed(config)),
            "taken": In(1),
        })


class EpochPort(wiring.Signature):
    """Epochs of tasks, seen from the barrier.

    Members
    -------
    begins : out, strobe: an epoch begins.
    before : in, a task or method with the tag of the epoch before the present one is outstanding.
    """

    def __init__(self) -> None:
        super().__init__({"begins": Out(1), "before": In(1)})


class ComputeWaits(wiring.Component):
    """Queue of action methods for the compute engine, at most one per channel. The next turn goes
    to the highest CONFIG.PRIORITY, and among equals to the command received first. Every
    `FAIR_TURN`-th turn goes to the command received first, whatever its priority. `hw/README.md`
    derives the bounds.

    A method is offered 7 cycles after `ask` if none is before it; the channel's wait is over two
    cycles after the engine's answer. A method already offered is completed even if its channel
    drops it.

    Members
    -------
    port : out, the compute engine, see `ComputePort`.
    control : in, enabled channels; writes of channel registers (CONFIG.PRIORITY).
    arrivals : in, arrival of each channel's head command.
    client : in, the execution of methods.
    served : in, the served channel; `client.why` is for `select`.
    methods : in, channels that start with nothing set.
    outstanding : out, outstanding tasks and methods.
    reports : out, ends of tasks.
    notify : out, per channel, strobe: interrupt of a task or a report.
    epochs : in, the barrier.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "port": Out(ComputePort(config)),
            "control": In(ChannelControl(config)),
            "arrivals": In(ArrivalOrder(config)),
            "client": In(ComputeMethodPort(config)),
            "served": In(Served(config)),
            "methods": In(MethodEvents(config)),
            "outstanding": Out(OutstandingTasks(config)),
            "reports": Out(TaskReports(config)),
            "notify": Out(config.channels),
            "epochs": In(EpochPort()),
        })
        self._oldest = OldestFirst(config, level_bits=_PRIORITY.width)
        self._turns = TicketArbiter(config, self._oldest.steps)
        self._epoch = Signal()
        self._pending = Signal(name="pending")
        """A method with an epoch is offered or being executed."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.turns, m.submodules.oldest = self._turns, self._oldest
        port = self.port
        m.d.sync += [
            port.setting.eq(self.client.setting),
            port.clear.eq(self.methods.cleared),
            port.skip.eq(self.client.skip),
            port.on.eq(self.control.enabled),
        ]
        answered = delayed(m, port.answer, "answered")
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
        """Offers the waiting methods to the engine, one after another."""
        port, turns = self.port, self._turns
        # `ask` comes late in its cycle.
        asked = delayed(m, self.client.ask, "asked")
        m.d.comb += [
            turns.ask.valid.eq(asked.valid),
            turns.ask.channel.eq(asked.channel),
            turns.drop.eq(self.client.drop),
            turns.ends.eq(answered.valid),
            turns.denied.eq(answered.cause != Cause.NONE),
            self.client.over.eq(turns.over),
            self.client.refused.eq(turns.refused),
            self.outstanding.busy.eq(turns.busy | Mux(asked.valid, 1 << asked.channel, 0)),
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
        with m.If(turns.form):
            m.d.sync += self._pending.eq(1)
        with m.Elif(turns.ends):
            m.d.sync += self._pending.eq(0)

    def _order(self, m: Module) -> None:
        """Choose the channel of the next turn."""
        turns, oldest, setting = self._turns, self._oldest, self.control.setting
        held, fair = Signal(self._config.channels, name="held"), Signal(name="fair")
        turn = Signal(range(FAIR_TURN))
        written = setting.valid & (setting.word == channel_word("CONFIG"))
        m.d.comb += [
            fair.eq(turn == FAIR_TURN - 1),
            oldest.candidates.eq(turns.waiting & ~held),
            oldest.stamps.eq(self.arrivals.stamps),
            turns.choice.eq(oldest.choice),
        ]
        m.d.sync += turn.eq(turn + turns.begins)
        most = (1 << COUNT_BITS) - _REST - self._config.nested_kernels
        for number in range(self._config.channels):
            priority = Signal(_PRIORITY.width, name=f"priority_{number}")
            m.d.comb += oldest.levels[number].eq(Mux(fair, 0, priority))
            m.d.sync += held[number].eq(self.outstanding.counts[number] >= most)
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
        """Accepts ended tasks, one every other cycle; not together with an answer."""
        over, task, verdict = self.port.over, self.port.over.p.task, self.port.over.p.verdict
        fails, reports = Signal(name="fails"), self.reports
        on = self.control.enabled.bit_select(task.channel, 1)
        shape = channel_event(self._config, trap=1, epoch=1, failed=1)
        heard = Signal(shape)
        m.d.comb += [
            fails.eq(
                (verdict.refusal != Refusal.NONE) & (on | (verdict.refusal != Refusal.KILLED))
            ),
            over.ready.eq(~heard.valid & ~reports.failed.valid & ~self.port.answer.valid),
            reports.ended.valid.eq(heard.valid),
            reports.ended.channel.eq(heard.channel),
            reports.ended.failed.eq(heard.failed),
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
                reports.failed.valid.eq(fails),
                reports.failed.channel.eq(task.channel),
                reports.failed.cause.eq(cause_of(m, verdict.refusal)),
                reports.failed.check.eq(verdict.check),
                reports.failed.page.eq(task.page),
            ]
        with m.Elif(reports.taken):
            m.d.sync += reports.failed.valid.eq(0)
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
        bits = _NESTED_BITS if self._config.nested else COUNT_BITS
        for number in range(self._config.channels):
            count = Signal(bits, name=f"count_{number}")
            more = began.valid & (began.channel == number)
            m.d.comb += [
                self.outstanding.some[number].eq(count != 0),
                self.outstanding.counts[number].eq(Mux(count >> COUNT_BITS, ~0, count)),
            ]
            m.d.sync += count.eq(count + more - (less & (where == number)))
        epochs = Signal(data.ArrayLayout(bits + self._config.channel_bits, 2))
        for epoch in range(2):
            more = began.valid & (began.epoch == epoch)
            m.d.sync += epochs[epoch].eq(epochs[epoch] + more - (less & (when == epoch)))
        m.d.sync += self._epoch.eq(self._epoch ^ self.epochs.begins)
        # A method gets its epoch before its task is counted. There are only two tags of epochs, so
        # an epoch must not end while a method with the other tag can still launch.
        pending = self._pending & (self.port.method.p.epoch != self._epoch)
        m.d.comb += self.epochs.before.eq(
            pending | Mux(self._epoch, epochs[0] != 0, epochs[1] != 0)
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
            read.addr.eq(self.served.select),
            self.client.why.eq(read.data),
        ]
