"""Queue of semaphore operations in memory alone (HOST-3, HOST-5): every cycle against its model;
order, latency and results individually."""

import os
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.methods import SemOp
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_request, semaphore_response
from signalbox.tb.models.memory_semaphores import (
    OFFERED,
    Begin,
    Inputs,
    Outputs,
    QueueModel,
    Result,
)
from signalbox.tb.testbench.fields import replaced
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

REQUEST: Any = semaphore_request(CONFIG)

RESPONSE: Any = semaphore_response()

EVENTS: dict[str, Any] = {
    "begin": channel_event(CONFIG, request=REQUEST),
    "collect": channel_event(CONFIG),
    "clear": channel_event(CONFIG),
}
"""Input events."""

PORTS = {
    **{name: name for name in ("clear", "busy", "changing")},
    "begin": "client__begin",
    "collect": "client__collect",
    "ended": "client__ended",
    "result": "client__result",
    "peek": "served",
    "request_valid": "port__request__valid",
    "request": "port__request__payload",
    "request_ready": "port__request__ready",
    "response_valid": "port__response__valid",
    "response": "port__response__payload",
    "response_ready": "port__response__ready",
}
"""Name of each port of the design."""

CHANGES = (SemOp.RELEASE, SemOp.REDUCTION)

ACQUIRES = tuple(operation for operation in SemOp if operation not in CHANGES)


class Bench:
    """Testbench that begins operations as the host does, models the semaphore unit, and compares
    every cycle with the model.

    Members
    -------
    ready : the semaphore unit accepts a request; effective from the next `step`.
    peek : channel whose result is looked at; likewise.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.model = QueueModel()
        self.ready, self.peek = True, 0

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut)
        bench._drive(Inputs())
        await reset(dut)
        return bench

    def _set(self, name: str, value: int) -> None:
        getattr(self.dut, PORTS[name]).value = value

    def _get(self, name: str) -> int:
        return int(getattr(self.dut, PORTS[name]).value)

    def _event(self, name: str, **fields: int) -> None:
        """Drive an event that happens if `fields` are given; otherwise they are random."""
        layout = EVENTS[name]
        bits = self.numbers.getrandbits(layout.size)
        self._set(name, replaced(layout, bits, valid=bool(fields), **fields))

    def _drive(self, now: Inputs) -> None:
        begin, response = now.begin, now.response
        begins = {} if begin is None else {"channel": begin.channel, "request": begin.request}
        self._event("begin", **begins)
        self._event("collect", **({} if now.collect is None else {"channel": now.collect}))
        self._event("clear", **({} if now.clear is None else {"channel": now.clear}))
        self._set("peek", now.peek)
        self._set("request_ready", now.ready)
        self._set("response_valid", response is not None)
        fields = {} if response is None else vars(response)
        self._set("response", replaced(RESPONSE, self.numbers.getrandbits(RESPONSE.size), **fields))

    def _shown(self) -> Outputs:
        def channels(name: str) -> frozenset[int]:
            bits = self._get(name)
            return frozenset(channel for channel in range(CHANNELS) if bits >> channel & 1)

        ended = channels("ended")
        result = self._get("result")
        error = result >> RESPONSE["error"].offset & 15
        passed = bool(result >> RESPONSE["passed"].offset & 1)
        return Outputs(
            channels("busy"),
            channels("changing"),
            ended,
            Result(passed, error) if self.peek in ended else None,
            self._get("request") if self._get("request_valid") else None,
            bool(self._get("response_ready")) if self.model.asked else None,
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`."""
        now = Inputs(peek=self.peek, ready=self.ready, **events)
        self._drive(now)
        await ReadOnly()
        shown = self._shown()
        expected = self.model.show(now, offered=shown.request is not None)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        await RisingEdge(self.dut.clk)
        self.model.step(now, shown)
        return shown

    def operation(self, channel: int, *operations: SemOp) -> Begin:
        """One of these operations, by default any, with random parameters."""
        operation = self.numbers.choice(operations or (*SemOp,))
        bits = self.numbers.getrandbits(REQUEST.size)
        request = replaced(REQUEST, bits, operation=operation.value)
        return Begin(channel, request, operation in CHANGES)

    def result(self) -> Result:
        """A random result."""
        return Result(self.numbers.random() < 0.5, self.numbers.choice([*SemaphoreError]).value)

    async def until_asked(self) -> None:
        """Wait until the semaphore unit has accepted the next operation."""
        for _ in range(OFFERED + 1):
            if self.model.asked:
                return
            await self.step()
        raise AssertionError("no operation is offered")


@cocotb.test(**LIMIT)
async def latency(dut):
    """An operation with none before it is offered 5 cycles after `begin`, and stays until it is
    accepted; its channel is busy until its response."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        for patience in (0, 1, 7):
            begin = bench.operation(channel)
            bench.ready, bench.peek = False, channel
            await bench.step(begin=begin)
            for _ in range(OFFERED - 1):
                assert (await bench.step()).request is None
            for _ in range(patience):
                assert (await bench.step()).request == begin.request
            bench.ready = True
            assert (await bench.step()).request == begin.request
            result = bench.result()
            for _ in range(patience):
                assert (await bench.step()).busy == {channel}
            shown = await bench.step(response=result)
            assert shown.busy == {channel} and not shown.ended
            shown = await bench.step(collect=channel)
            assert not shown.busy and shown.ended == {channel} and shown.result == result
            assert not (await bench.step()).ended


@cocotb.test(**LIMIT)
async def in_order(dut):
    """Rule 8: the operations of all channels are executed in the order in which they began. Results
    are kept per channel until the channel has seen them."""
    bench = await Bench.start(dut)
    order = [*range(CHANNELS)]
    for _ in range(10):
        bench.numbers.shuffle(order)
        begins, results = [bench.operation(channel) for channel in order], {}
        bench.ready = False
        for begin in begins:
            await bench.step(begin=begin)
        bench.ready = True
        for begin in begins:
            await bench.until_asked()
            assert bench.model.queue[0] == begin
            results[begin.channel] = bench.result()
            await bench.step(response=results[begin.channel])
        for channel in range(CHANNELS):
            bench.peek = channel
            assert (await bench.step()).result == results[channel]
        for channel in range(CHANNELS):
            assert channel in (await bench.step(collect=channel)).ended


@cocotb.test(**LIMIT)
async def changes(dut):
    """Operations other than acquires are reported as changing while they are outstanding."""
    bench = await Bench.start(dut)
    for operation in SemOp:
        await bench.step(begin=bench.operation(0, operation))
        assert (await bench.step()).changing == ({0} if operation in CHANGES else set())
        await bench.until_asked()
        assert (await bench.step()).changing == ({0} if operation in CHANGES else set())
        await bench.step(response=bench.result())
        assert not (await bench.step(clear=0)).changing
        assert not (await bench.step()).ended


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
    """Random operations of all channels behave as the model in every cycle, until each situation
    was met many times."""
    bench = await Bench.start(dut)
    met, goals = bench.model.met, SITUATIONS if CHANNELS > 2 else [*ALONE, "begins alone"]
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 10 for one in goals), met):
        await some_time(bench)
    cocotb.log.info("met: %s", dict(met))


async def some_time(bench: Bench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers, model = bench.numbers, bench.model
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    begins, collects = numbers.choice((0.05, 0.3, 1.0)), numbers.choice((0.1, 0.5, 1.0))
    accepts, answers = numbers.choice((0.1, 0.5, 1.0)), numbers.choice((0.05, 0.3, 1.0))
    for _ in range(300):
        busy = {one.channel for one in model.queue}
        idle = [channel for channel in channels if channel not in {*busy, *model.results}]
        events: dict[str, Any] = {}
        if idle and numbers.random() < begins:
            events["begin"] = bench.operation(numbers.choice(idle))
        if model.results and numbers.random() < collects:
            end = "collect" if numbers.random() < 0.8 else "clear"
            events[end] = numbers.choice([*model.results])
        if model.asked and numbers.random() < answers:
            events["response"] = bench.result()
        bench.ready = numbers.random() < accepts
        bench.peek = numbers.choice([*model.results, numbers.randrange(CHANNELS)])
        await bench.step(**events)
