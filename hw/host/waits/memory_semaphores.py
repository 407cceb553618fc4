"""Queue of the channels' semaphore operations in memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.ports import ChannelStart, Served
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.methods import SemOp
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import (
    SemaphoreError,
    SemaphorePort,
    semaphore_request,
    semaphore_response,
)

__all__ = ["MemorySemaphorePort", "MemorySemaphores", "OutstandingSemaphores"]


class MemorySemaphorePort(wiring.Signature):
    """Semaphore operations in memory, seen from the execution of methods.

    Members
    -------
    begin : out, strobe: `request` of `channel`, which has none outstanding.
    collect : out, strobe: the channel has seen its result.
    ended : in, per channel, its result is available.
    result : in, a `semaphore_response`: result of the served channel, combinational.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "begin": Out(channel_event(config, request=semaphore_request(config))),
            "collect": Out(channel_event(config)),
            "ended": In(config.channels),
            "result": In(semaphore_response()),
        })


class OutstandingSemaphores(wiring.Signature):
    """Outstanding semaphore operations in memory.

    Members
    -------
    busy : out, per channel: its operation is outstanding.
    changing : out, per channel: its operation is outstanding and not an acquire; 0 between two of
        them.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"busy": Out(config.channels), "changing": Out(config.channels)})


class MemorySemaphores(wiring.Component):
    """Queue of semaphore operations in memory, at most one per channel. They are executed one after
    another in the order of `begin`, so polling channels never starve a release. Results are kept
    per channel, so the next operation does not wait until the channel is served again (COPY-3).

    An operation is offered to the semaphore unit 5 cycles after `begin` if none is before it.

    Members
    -------
    port : out, the semaphore unit, see `SemaphorePort`.
    client : in, the execution of methods.
    served : in, the served channel.
    start : in, starts of channels. The channel has no outstanding operation.
    outstanding : out, outstanding operations.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "port": Out(SemaphorePort(config)),
            "client": In(MemorySemaphorePort(config)),
            "served": In(Served(config)),
            "start": In(ChannelStart(config)),
            "outstanding": Out(OutstandingSemaphores(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        channel = Signal(config.channel_bits)
        passed = Signal(config.channels)
        changes = Signal(config.channels)
        errors = Signal(data.ArrayLayout(SemaphoreError, config.channels))
        answer, operation = self.port.response, self.client.begin.request.operation
        answered = self._execute(m, channel)
        busy, served, clear = self.outstanding.busy, self.served.channel, self.start.cleared
        m.d.comb += [
            self.outstanding.changing.eq(busy & changes),
            self.client.result.passed.eq(passed.bit_select(served, 1)),
            self.client.result.error.eq(errors[served]),
        ]
        for number in range(config.channels):
            begun = self.client.begin.valid & (self.client.begin.channel == number)
            collected = self.client.collect.valid & (self.client.collect.channel == number)
            cleared = clear.valid & (clear.channel == number)
            with m.If(begun):
                m.d.sync += [
                    busy[number].eq(1),
                    changes[number].eq(
                        (operation == SemOp.RELEASE) | (operation == SemOp.REDUCTION)
                    ),
                ]
            with m.If(answered & (channel == number)):
                m.d.sync += [
                    busy[number].eq(0),
                    self.client.ended[number].eq(1),
                    passed[number].eq(answer.payload.passed),
                    errors[number].eq(answer.payload.error),
                ]
            with m.Elif(collected | cleared):
                m.d.sync += self.client.ended[number].eq(0)
        return m

    def _execute(self, m: Module, channel: Signal) -> Signal:
        """Take one operation after another from the queue, for `channel`. Returns the strobe of its
        end."""
        config = self._config
        depth = 1 << config.channel_bits
        m.submodules.requests = requests = Memory(
            shape=semaphore_request(config), depth=depth, init=[]
        )
        m.submodules.order = order = Memory(shape=config.channel_bits, depth=depth, init=[])
        store, load = requests.write_port(), requests.read_port()
        enter, leave = order.write_port(), order.read_port(domain="comb")
        waiting = Signal(range(config.channels + 1))
        taken = Signal()
        answered = Signal()
        port = self.port
        # `begin` comes late in its cycle.
        begun = delayed(m, self.client.begin, "begun")
        m.d.comb += [
            store.en.eq(begun.valid),
            store.addr.eq(begun.channel),
            store.data.eq(begun.request),
            enter.en.eq(begun.valid),
            enter.data.eq(begun.channel),
            load.addr.eq(channel),
        ]
        m.d.sync += [
            enter.addr.eq(enter.addr + begun.valid),
            leave.addr.eq(leave.addr + taken),
            waiting.eq(waiting + begun.valid - taken),
        ]
        with m.FSM(name="operation"):
            with m.State("IDLE"):
                m.d.comb += taken.eq(waiting != 0)
                with m.If(taken):
                    m.d.sync += channel.eq(leave.data)
                    m.next = "READ"
            with m.State("READ"):
                m.next = "LATCH"
            with m.State("LATCH"):
                m.d.sync += port.request.payload.eq(load.data)
                m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += port.request.valid.eq(1)
                with m.If(port.request.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += [port.response.ready.eq(1), answered.eq(port.response.valid)]
                with m.If(answered):
                    m.next = "IDLE"
        return answered
