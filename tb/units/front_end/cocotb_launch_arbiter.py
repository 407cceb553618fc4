"""Launches by channels, ending tasks and blocks, one at a time (HOST-9, HOST-10, NEST-10)."""

import os
from collections import Counter, deque
from itertools import pairwise
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.errors import Refusal
from signalbox.hw.front_end.launch_arbiter import LaunchArbiter
from signalbox.hw.qmd import DependentAction, SkedCheck
from signalbox.hw.records.launch import LaunchAction
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.units.front_end.test_launch_arbiter import NESTED

CONFIG: Config = NESTED if os.environ["WORK_CONFIG"] == "nested" else CONFIGS["default"]
CHANNEL, ACT, CHILD = "channel", "act", "child"
SOURCES = (CHANNEL, ACT, CHILD) if CONFIG.nested else (CHANNEL, ACT)


class LaunchTestbench(Testbench):
    """Launches are numbered by the pages of their QMDs. The task unit answers each at random, and
    later ends the accepted ones.

    Members
    -------
    offered : launches of each source that have not been accepted by the task unit.
    order : sources, in the order of acceptance.
    live : tasks of the host's count: begun and not over.
    met : number of events of each kind.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(LaunchArbiter, CONFIG))
        self.offered: dict[str, deque[int]] = {name: deque() for name in SOURCES}
        self.order: list[str] = []
        self.live: set[int] = set()
        self.met: Counter[str] = Counter()
        self._number = 0
        self._launch: tuple[str, int] | None = None
        self._wait = 0
        self._running: list[int] = []
        self.sources = {name: Source(self, name, self.share(0.8)) for name in SOURCES}
        self._over = {name: Source(self, name) for name in ("failed", "completed")}
        Sink(self, "launch", self.share(0.5), self._launched)
        Sink(self, "over", self.share(0.5), self._ends)

    def launch(self, source: str, action: Any = LaunchAction.SCHEDULE) -> None:
        """A launch by this source."""
        number = self._number = self._number + 1
        task = {"page": number, "channel": number % 8, "epoch": number & 1}
        word: dict[str, Any] = {"context": number % CONFIG.contexts, "task": task, "action": action}
        if source == CHILD:
            word = {"page": number, "row": number % CONFIG.rows, "block": self._block(number)}
        self.offered[source].append(number)
        self.sources[source].put(word)

    @staticmethod
    def _block(number: int) -> dict[str, int]:
        return {"related": number & 1, "family": number % CONFIG.nested_kernels}

    def _launched(self, word: dict[str, Any]) -> None:
        number = word["task"]["page"]
        source = next(name for name in SOURCES if number in self.offered[name])
        assert self.offered[source].popleft() == number, "out of order"
        self.order.append(source)
        if source == CHILD:
            assert word["action"] is LaunchAction.CHILD and word["row"] == number % CONFIG.rows
            assert word["block"] == self._block(number)
        else:
            assert word["context"] == number % CONFIG.contexts
        assert self._launch is None, "two at a time"
        self._launch, self._wait = (source, number), self.random.randrange(1, 6)

    async def step(self) -> None:
        """The task unit: answers, and ends of tasks."""
        answers = self._launch is not None and self._wait == 0
        self._wait -= self._wait > 0
        refusal = self.random.choice((Refusal.NONE, Refusal.NONE, Refusal.FULL))
        nothing = not refusal.value and self.random.random() < 0.2
        if answers:
            source, number = self._launch or ("", 0)
            nothing &= source != CHILD
            verdict = {"refusal": refusal, "check": SkedCheck.NONE}
            self.drive(launched={"valid": 1, "verdict": verdict, "nothing": nothing})
            if CONFIG.nested:
                self.drive(block=self._block(number + 1))
                self.drive(task={"page": number, "channel": number % 8, "epoch": number & 1})
                self.drive(parent=number + 7)
        else:
            self.drive(launched={"valid": 0})
        if self._running and self.random.random() < 0.1:
            number = self._running.pop(self.random.randrange(len(self._running)))
            way = self.random.choice(("failed", "completed"))
            self._over[way].put({"task": {"page": number}, "verdict": {"refusal": Refusal.KERNEL}})
        await super().step()
        self._look()
        if answers:
            self._answered(refusal, nothing=nothing)
        else:
            names = ("answer", "child_answer", "refused") if CONFIG.nested else ("answer",)
            assert not any(self.get(name)["valid"] for name in names)

    def _look(self) -> None:
        """A task begins to count."""
        began = self.get("began")
        if began["valid"]:
            number = began["task"]["page"]
            assert number not in self.live and began["task"]["epoch"] == number & 1
            self.live.add(number)

    def _answered(self, refusal: Refusal, *, nothing: bool) -> None:
        assert self._launch is not None
        (source, number), self._launch = self._launch, None
        self.met[f"{source} {'accepted' if refusal is Refusal.NONE else 'refused'}"] += 1
        answer = self.get("answer")
        assert answer["valid"] == (source == CHANNEL)
        if CONFIG.nested:
            child, refused = self.get("child_answer"), self.get("refused")
            child_task = self.ports["task"].get()
            assert child["valid"] == (source == CHILD)
            assert refused["valid"] == (source == CHILD and refusal is not Refusal.NONE)
            if source == CHILD:
                assert child["block"] == self._block(number + 1)
                assert child["verdict"]["refusal"] is refusal
                assert refused["task"] == child_task or not refused["valid"]
                assert refused["parent"] == number + 7 or not refused["valid"]
                assert refused["verdict"]["refusal"] is refusal or not refused["valid"]
                assert (number in self.live) == (refusal is Refusal.NONE)
        if source == CHANNEL:
            assert answer["verdict"]["refusal"] is refusal and answer["nothing"] == nothing
            self.live.add(number)  # counted by the host
        if refusal is Refusal.NONE and not nothing:
            self._running.append(number)
        elif source == CHANNEL:
            self.live.remove(number)

    def _ends(self, word: dict[str, Any]) -> None:
        self.live.remove(word["task"]["page"])
        self.met["over"] += 1

    async def finish(self) -> None:
        """Step until all launches are answered, and all tasks are over."""
        await self.until(lambda: not any(self.offered.values()), "launches", 20_000)
        await self.until(lambda: self.get("idle") and not self.live, "idle", 20_000)
        assert self._launch is None and not self._running


@cocotb.test()
async def random_launches(dut: Any) -> None:
    """Launches of one source stay in order; each accepted launch and each refused dependent task is
    reported as over once, and no other."""
    tb = await LaunchTestbench(dut).start()
    actions = (DependentAction.SCHEDULE, DependentAction.DECREMENT_DEPENDENCE)
    for _ in range(300):
        source = tb.random.choice(SOURCES)
        action = tb.random.choice(actions) if source == ACT else LaunchAction.SCHEDULE
        tb.launch(source, action)
        await tb.steps(tb.random.choice((0, 0, 5, 30)))
    await tb.finish()
    assert all(tb.met[f"{name} {how}"] for name in SOURCES for how in ("accepted", "refused"))


@cocotb.test()
async def in_turn(dut: Any) -> None:
    """If all sources always offer, channels and ending tasks take turns, and both together take
    turns with blocks."""
    tb = await LaunchTestbench(dut).start()
    for source in SOURCES:
        tb.sources[source].pace = lambda: True
        for _ in range(40):
            tb.launch(source, DependentAction.SCHEDULE if source == ACT else LaunchAction.SCHEDULE)
    await tb.finish()
    several = tb.order[2:70]
    if CONFIG.nested:
        assert {*several[::2]} == {CHILD} or {*several[1::2]} == {CHILD}, several
    others = [one for one in several if one != CHILD]
    assert all(one != other for one, other in pairwise(others)), others


@cocotb.test()
async def unknown_action(dut: Any) -> None:
    """A dependent task with an undefined action is reported as failed, without a launch."""
    tb = await LaunchTestbench(dut).start()
    tb.launch(ACT, 2)
    number = tb.offered[ACT].popleft()
    await tb.until(lambda: number in tb.live, "it begins")
    await tb.finish()
    assert tb.met["over"] == 1 and not tb.order
