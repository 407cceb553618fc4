"""Queue of semaphore operations in memory alone (HOST-3, HOST-5): every cycle against its model;
order, latency and results individually."""

import os
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphores
from signalbox.hw.methods import SemOp
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_request
from signalbox.tb.models.memory_semaphores import (
    OFFERED,
    Begin,
    Inputs,
    Outputs,
    QueueModel,
    Result,
)
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import members
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

REQUEST = Record(semaphore_request(CONFIG))

CHANGES = (SemOp.RELEASE, SemOp.REDUCTION)

ACQUIRES = tuple(operation for operation in SemOp if operation not in CHANGES)


class MemorySemaphoresTestbench(Testbench):
    """Begins operations as the host does, models the semaphore unit, and compares every cycle with
    the model.

    Members
    -------
    ready : the semaphore unit accepts a request; effective from the next `step`.
    peek : channel whose result is shown; likewise.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(MemorySemaphores, CONFIG))
        self.model = QueueModel()
        self.ready, self.peek = True, 0
        self._begin, self._collect = Strobe(self, "client__begin"), Strobe(self, "client__collect")
        self._clear = Strobe(self, "start__cleared")

    def _drive(self, now: Inputs) -> None:
        begin, response = now.begin, now.response
        if begin is not None:
            self._begin.send(channel=begin.channel, request=begin.request)
        if now.collect is not None:
            self._collect.send(channel=now.collect)
        if now.clear is not None:
            self._clear.send(channel=now.clear)
        if response is not None:
            self.drive(port__response__payload=vars(response))
        self.drive(
            port__request__ready=now.ready,
            port__response__valid=response is not None,
            served__channel=now.peek,
        )

    def _shown(self) -> Outputs:
        ended, result = members(self.get("client__ended")), self.get("client__result")
        offers = self.get("port__request__valid")
        return Outputs(
            members(self.get("outstanding__busy")),
            members(self.get("outstanding__changing")),
            ended,
            Result(bool(result["passed"]), result["error"].value) if self.peek in ended else None,
            self.ports["port__request__payload"].bits() if offers else None,
            bool(self.get("port__response__ready")) if self.model.asked else None,
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`."""
        now = Inputs(peek=self.peek, ready=self.ready, **events)
        self._drive(now)
        await super().step()
        shown = self._shown()
        expected = self.model.show(now, offered=shown.request is not None)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        self.model.step(now, shown)
        return shown

    def operation(self, channel: int, *operations: SemOp) -> Begin:
        """A random one of these operations (default: of all), with random parameters."""
        operation = self.random.choice(operations or (*SemOp,))
        request = REQUEST.replaced(self.random.getrandbits(REQUEST.width), operation=operation)
        return Begin(channel, request, operation in CHANGES)

    def result(self) -> Result:
        """A random result."""
        return Result(self.random.random() < 0.5, self.random.choice([*SemaphoreError]).value)

    async def until_asked(self) -> None:
        """Wait until the semaphore unit has accepted the next operation."""
        await self.until(lambda: self.model.asked, "an operation is accepted", OFFERED)


@cocotb.test(**LIMIT)
async def latency(dut):
    """If no other operation is before it, an operation is offered 5 cycles after `begin`, and stays
    until it is accepted; its channel is busy until its response."""
    tb = await MemorySemaphoresTestbench(dut).start()
    for channel in range(CHANNELS):
        for patience in (0, 1, 7):
            begin = tb.operation(channel)
            tb.ready, tb.peek = False, channel
            await tb.step(begin=begin)
            for _ in range(OFFERED - 1):
                assert (await tb.step()).request is None
            for _ in range(patience):
                assert (await tb.step()).request == begin.request
            tb.ready = True
            assert (await tb.step()).request == begin.request
            result = tb.result()
            for _ in range(patience):
                assert (await tb.step()).busy == {channel}
            shown = await tb.step(response=result)
            assert shown.busy == {channel} and not shown.ended
            shown = await tb.step(collect=channel)
            assert not shown.busy and shown.ended == {channel} and shown.result == result
            assert not (await tb.step()).ended


@cocotb.test(**LIMIT)
async def in_order(dut):
    """Rule 8: the operations of all channels are executed in the order in which they began. Results
    are kept per channel until the channel has seen them."""
    tb = await MemorySemaphoresTestbench(dut).start()
    order = [*range(CHANNELS)]
    for _ in range(10):
        tb.random.shuffle(order)
        begins, results = [tb.operation(channel) for channel in order], {}
        tb.ready = False
        for begin in begins:
            await tb.step(begin=begin)
        tb.ready = True
        for begin in begins:
            await tb.until_asked()
            assert tb.model.queue[0] == begin
            results[begin.channel] = tb.result()
            await tb.step(response=results[begin.channel])
        for channel in range(CHANNELS):
            tb.peek = channel
            assert (await tb.step()).result == results[channel]
        for channel in range(CHANNELS):
            assert channel in (await tb.step(collect=channel)).ended


@cocotb.test(**LIMIT)
async def changes(dut):
    """Operations other than acquires are reported as changing while they are outstanding."""
    tb = await MemorySemaphoresTestbench(dut).start()
    for operation in SemOp:
        await tb.step(begin=tb.operation(0, operation))
        assert (await tb.step()).changing == ({0} if operation in CHANGES else set())
        await tb.until_asked()
        assert (await tb.step()).changing == ({0} if operation in CHANGES else set())
        await tb.step(response=tb.result())
        assert not (await tb.step(clear=0)).changing
        assert not (await tb.step()).ended


SITUATIONS = [
    "begins alone",
    "begins as the last ends",
    "begins behind others",
    "begins as another is asked",
    "changes",
    "acquires",
    "passed",
    "failed",
    *(f"error {error.value}" for error in SemaphoreError),
    "collected",
    "collected as another ends",
    "cleared",
    "peeked",
]

ALONE = [one for one in SITUATIONS if "another" not in one and not one.startswith("begins")]
"""Situations that one channel can meet."""


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random operations of all channels behave like the model in every cycle, until each situation
    was met many times."""
    tb = await MemorySemaphoresTestbench(dut).start()
    met, goals = tb.model.met, SITUATIONS if CHANNELS > 2 else [*ALONE, "begins alone"]
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 10 for one in goals), met):
        await some_time(tb)
    cocotb.log.info("met: %s", dict(met))


async def some_time(tb: MemorySemaphoresTestbench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers, model = tb.random, tb.model
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    begins, collects = numbers.choice((0.05, 0.3, 1.0)), numbers.choice((0.1, 0.5, 1.0))
    accepts, answers = numbers.choice((0.1, 0.5, 1.0)), numbers.choice((0.05, 0.3, 1.0))
    for _ in range(300):
        busy = {one.channel for one in model.queue}
        idle = [channel for channel in channels if channel not in {*busy, *model.results}]
        events: dict[str, Any] = {}
        if idle and numbers.random() < begins:
            events["begin"] = tb.operation(numbers.choice(idle))
        if model.results and numbers.random() < collects:
            end = "collect" if numbers.random() < 0.8 else "clear"
            events[end] = numbers.choice([*model.results])
        if model.asked and numbers.random() < answers:
            events["response"] = tb.result()
        tb.ready = numbers.random() < accepts
        tb.peek = numbers.choice([*model.results, numbers.randrange(CHANNELS)])
        await tb.step(**events)
