"""Testbench of WFI of scope ALL with compute methods: the barrier and the waits for these methods,
connected as in the host, with a model of the engine and of rule 9 of `hw/README.md`."""

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.front_end.host_port import ComputePort
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.copy_launcher import CopyEvents
from signalbox.hw.host.ports import ArrivalOrder, MethodEvents, Served
from signalbox.hw.host.waits.barrier import Barrier, BarrierPort
from signalbox.hw.host.waits.compute_waits import (
    ComputeMethodPort,
    ComputeWaits,
    OutstandingTasks,
    TaskReports,
)
from signalbox.hw.host.waits.memory_semaphores import OutstandingSemaphores
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.masks import mask, members
from signalbox.tb.testbench.strobe import Strobe

__all__ = [
    "CHANNELS",
    "CONFIG",
    "LIMIT",
    "Epochs",
    "EpochsTestbench",
    "Method",
    "Operation",
    "Task",
]

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

BEGINS = 2
"""Cycles from the start of a wait to its epoch, if none is in progress."""

HEARD = 2
"""Cycles from the end of a task, or the answer to a method, to the first cycle in which it does not
count."""


class Epochs(wiring.Component):
    """`Barrier` and `ComputeWaits`, connected as in the host. `barrier`: `Barrier.client`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "barrier": In(BarrierPort(config)),
            "copies": In(CopyEvents(config)),
            "semaphores": In(OutstandingSemaphores(config)),
            "port": Out(ComputePort(config)),
            "control": In(ChannelControl(config)),
            "arrivals": In(ArrivalOrder(config)),
            "client": In(ComputeMethodPort(config)),
            "served": In(Served(config)),
            "methods": In(MethodEvents(config)),
            "outstanding": Out(OutstandingTasks(config)),
            "reports": Out(TaskReports(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.barrier = barrier = Barrier(self._config)
        m.submodules.computes = computes = ComputeWaits(self._config)
        connect(m, flipped(self.barrier), barrier.client)
        connect(m, flipped(self.copies), barrier.copies)
        connect(m, flipped(self.semaphores), barrier.semaphores)
        for name in ("port", "control", "arrivals", "client", "served", "methods"):
            connect(m, flipped(getattr(self, name)), getattr(computes, name))
        connect(m, computes.outstanding, flipped(self.outstanding))
        connect(m, computes.reports, flipped(self.reports))
        connect(m, barrier.epochs, computes.epochs)
        return m


@dataclass(eq=False)
class Operation:
    """A copy, a semaphore operation, a method or a task.

    Members
    -------
    since : the operation counts in epochs that begin in this cycle or later.
    until : first cycle in which it is not outstanding.
    ended : cycle of the end, as seen from outside.
    """

    since: int
    until: int | None = None
    ended: int | None = None

    def end(self, cycle: int, delay: int) -> None:
        """End the operation in `cycle`; it counts for `delay` more cycles."""
        self.ended, self.until = cycle, cycle + delay


@dataclass(eq=False)
class Method(Operation):
    """A compute method of `channel`, with the tag of its epoch. `task`: task that it has
    launched."""

    channel: int = 0
    epoch: int = 0
    taken: int | None = None
    task: "Task | None" = None


@dataclass(eq=False)
class Task(Operation):
    """A task of `channel`, with the tag of its method, or of its parent: the tag determines the
    epochs in which it counts. `began`: cycle of the launch."""

    channel: int = 0
    epoch: int = 0
    began: int = 0


@dataclass(eq=False)
class _Wait:
    """A channel's wait. `asked`: cycle of the request. `inside`: its epoch runs. `over`: first
    cycle after the wait."""

    asked: int
    inside: bool = False
    over: int | None = None


@dataclass
class EpochModel:
    """Rule 9: an epoch begins when channels wait and none runs, and ends when everything
    outstanding at its beginning has ended.

    Members
    -------
    operations : operations that may still count, or have not ended.
    waits : waits by channel.
    running : first cycle of the present epoch, or None.
    last : first cycle of the last epoch.
    ends : last cycles of epochs.
    met : number of times each situation was met.
    """

    operations: list[Operation] = field(default_factory=list)
    waits: dict[int, _Wait] = field(default_factory=dict)
    running: int | None = None
    last: int = -1
    ends: list[int] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    _dropped: list[_Wait] = field(default_factory=list)

    def over(self, now: int) -> frozenset[int]:
        """Channels whose wait is over."""
        waits = self.waits.items()
        return frozenset(one for one, wait in waits if wait.over is not None and wait.over <= now)

    def step(self, now: int, ask: int | None, drop: int | None) -> None:
        """Advance past cycle `now`, in which a channel may begin (`ask`) or drop its wait."""
        waiting = [one for one in (*self.waits.values(), *self._dropped) if not one.inside]
        if self.running is None:
            if any(wait.asked <= now - BEGINS for wait in waiting):
                self.running = self.last = now
                for wait in self.waits.values():
                    wait.inside |= wait.asked < now
        elif not any(self._counts(one, now) for one in self.operations):
            self._end(now)
        self._client(now, ask, drop)
        kept = now - HEARD - 2
        self.operations = [one for one in self.operations if one.until is None or one.until > kept]

    def _counts(self, one: Operation, now: int) -> bool:
        """Whether an operation has been outstanding since the present epoch began."""
        assert self.running is not None
        return one.since <= self.running and (one.until is None or one.until > now)

    def _end(self, now: int) -> None:
        assert self.running is not None
        self.ends.append(now)
        later = [one for one in self.operations if one.until is None]
        self.met["epoch ends before a later method"] += any(isinstance(o, Method) for o in later)
        self.met["epoch ends before a later task"] += any(isinstance(o, Task) for o in later)
        self.met["epoch ends at once"] += now == self.running + 1
        for wait in self.waits.values():
            if wait.inside and wait.over is None:
                wait.over = now + 1
                assert sum(wait.asked < end <= now for end in self.ends) <= 2, "three epochs"
                self.met["over"] += 1
                self.met["over after two epochs"] += any(
                    wait.asked <= end < now for end in self.ends
                )
        self.running = None

    def _client(self, now: int, ask: int | None, drop: int | None) -> None:
        met, self._dropped = self.met, []
        begins, ends = self.running == now, self.ends[-1:] == [now]
        if drop is not None and drop in self.waits:
            wait = self.waits.pop(drop)
            met["wait dropped before its epoch"] += not wait.inside
            met["wait dropped in its epoch"] += wait.inside and wait.over is None
            met["wait dropped as it ends"] += wait.over == now + 1
            if not wait.inside:
                self._dropped = [wait]
        if ask is not None and ask not in self.waits:
            self.waits[ask] = _Wait(now)
            met["asked as an epoch begins"] += begins
            met["asked as an epoch ends"] += ends
            met["asked in an epoch"] += self.running is not None and not begins


class EpochsTestbench(Testbench):
    """Models copies, semaphores, the clients of both units and the compute engine.

    Members
    -------
    model : the model; `over` is compared with it in every cycle.
    ready : the engine takes a method, from the next `step` on.
    method : method on offer or in execution.
    tasks : tasks that run, oldest first.
    copies : outstanding copies of each engine, oldest first.
    changing : operation in memory of each channel.
    asking : channels that wait for a compute method, with the cycle of the request.
    quiet : first cycle in which a channel may ask again.
    on : enabled channels.
    done : channels whose compute method was answered in the last cycle.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Epochs, CONFIG))
        self.model = EpochModel()
        self.ready = True
        self.method: Method | None = None
        self.tasks: list[Task] = []
        self.copies: list[list[Operation]] = [[] for _ in range(CONFIG.copy_engines)]
        self.changing: dict[int, Operation] = {}
        self.asking: dict[int, int] = {}
        self.quiet = [0] * CHANNELS
        self.on = (1 << CHANNELS) - 1
        self.done: frozenset[int] = frozenset()
        names = {
            "wfi": "barrier__ask",
            "undo": "barrier__drop",
            "ask": "client__ask",
            "drop": "client__drop",
            "answer": "port__answer",
            "began": "port__began",
            "setting": "control__setting",
        }
        self._strobes = {name: Strobe(self, port) for name, port in names.items()}
        self._sink = Sink(self, "port__method", lambda: self.ready)
        self._source = Source(self, "port__over")
        self._ending: list[Task] = []

    async def start(self) -> Self:
        await super().start()
        await self.step()
        return self

    # -- one cycle ---------------------------------------------------------------------------------

    async def step(
        self,
        *,
        wfi: int | None = None,
        undo: int | None = None,
        start: int | None = None,
        finish: int | None = None,
        changing: frozenset[int] | None = None,
        ask: int | None = None,
        drop: int | None = None,
        launch: bool = False,
        child: Task | None = None,
        answer: bool = False,
        refused: bool = False,
        unlaunched: bool = False,
    ) -> frozenset[int]:
        """One cycle; returns the channels whose WFI is over.

        Parameters
        ----------
        wfi : channel that begins a WFI.
        undo : channel that drops its WFI.
        start : engine that starts a copy.
        finish : engine that finishes its oldest copy.
        changing : channels with an operation in memory; None: as before.
        ask : channel whose compute method begins to wait.
        drop : channel whose compute method no longer waits.
        launch : the method in execution launches a task.
        child : task that launches another one.
        answer : the engine answers; `refused`, `unlaunched`: see `compute_answer`.
        """
        now = self.cycle
        self._host(now, start, finish, changing)
        self._ask(now, wfi, undo, ask, drop)
        self._engine(now, launch, child)
        if answer:
            self._answer(now, refused=refused, unlaunched=unlaunched)
        numbers = self.random
        self.drive(
            control__enabled=self.on,
            reports__taken=numbers.random() < 0.7,
            served__select=numbers.randrange(CHANNELS),
            arrivals__stamps=[0] * CHANNELS,
        )
        await super().step()
        self._see(now)
        over = members(self.get("barrier__over"))
        expected = self.model.over(now)
        assert over == expected, f"cycle {now}: over: {over}, not {expected}"
        self.model.step(now, wfi, undo)
        return over

    def _host(
        self, now: int, start: int | None, finish: int | None, changing: frozenset[int] | None
    ) -> None:
        """Copies, and semaphores in memory."""
        if finish is not None:
            self.copies[finish].pop(0).end(now, 1)
        if start is not None:
            self._count(copy := Operation(now + 1))
            self.copies[start].append(copy)
        changing = frozenset(self.changing) if changing is None else changing
        for channel in self.changing.keys() - changing:
            self.changing.pop(channel).end(now, 1)
        for channel in changing - self.changing.keys():
            self._count(operation := Operation(now))
            self.changing[channel] = operation
        self.drive(
            copies__started=0 if start is None else 1 << start,
            copies__finished=0 if finish is None else 1 << finish,
            semaphores__changing=mask(self.changing),
        )

    def _ask(
        self, now: int, wfi: int | None, undo: int | None, ask: int | None, drop: int | None
    ) -> None:
        send = {name: strobe.send for name, strobe in self._strobes.items()}
        for name, channel in (("wfi", wfi), ("undo", undo), ("ask", ask), ("drop", drop)):
            if channel is not None:
                send[name](channel=channel)
        if drop is not None and self.asking.pop(drop, None) is not None:
            self.quiet[drop] = now + 2
        if ask is not None:
            assert ask not in self.asking and now >= self.quiet[ask]
            self.asking[ask] = now

    def _engine(self, now: int, launch: bool, child: Task | None) -> None:
        """Begin a task, launched by the method or by another task."""
        parent: Method | Task | None = child
        if launch:
            assert child is None and self.method is not None and self.method.taken is not None
            parent = self.method
        if parent is None:
            return
        task = Task(parent.since, channel=parent.channel, epoch=parent.epoch, began=now)
        self._count(task)
        self.tasks.append(task)
        if isinstance(parent, Method):
            assert parent.task is None
            parent.task = task
        self._strobes["began"].send(channel=task.channel, epoch=task.epoch)

    def _answer(self, now: int, *, refused: bool, unlaunched: bool) -> None:
        method, numbers = self.method, self.random
        assert method is not None and method.taken is not None and method.taken < now
        causes = [cause for cause in Cause if cause != Cause.NONE]
        self._strobes["answer"].send(
            cause=numbers.choice(causes) if refused else Cause.NONE,
            trap=numbers.getrandbits(1),
            unlaunched=unlaunched,
            va=numbers.getrandbits(40),
        )
        method.end(now, HEARD)
        if unlaunched:
            assert method.task is not None and method.task.until is None
            self.tasks.remove(method.task)
            method.task.end(now, HEARD)
        self.method = None

    def _see(self, now: int) -> None:
        """Note offers of methods, and completions of tasks that were accepted."""
        if self.method is None and self.get("port__method__valid"):
            offer = self.get("port__method__payload")
            # It was formed in the previous cycle.
            self._count(method := Method(now - 1))
            method.channel, method.epoch = offer["channel"], offer["epoch"]
            self.method = method
            self.model.met["offered in the cycle after an epoch begins"] += (
                self.model.running == now - 1
            )
        if self._sink.taken and self._sink.taken[-1][0] == now and self.method is not None:
            self.method.taken = now
        if self._source.sent and self._source.sent[-1] == now:
            self._ending.pop(0).end(now, HEARD)
        self.done = members(self.get("client__over"))

    def _count(self, operation: Operation) -> None:
        self.model.operations.append(operation)

    # -- actions -----------------------------------------------------------------------------------

    def end(self, task: Task, refusal: Refusal = Refusal.NONE) -> None:
        """Report the end of a task, which ends when the design accepts the report, in the next
        cycle at the earliest."""
        self.tasks.remove(task)
        self._ending.append(task)
        pointer = {"channel": task.channel, "epoch": task.epoch}
        noise = {"page": self.random.getrandbits(32)}
        self._source.put({"task": {**pointer, **noise}, "verdict": {"refusal": refusal}})

    @property
    def ending(self) -> int:
        """Number of ended tasks whose report was not accepted yet."""
        return len(self._ending)
