"""Testbench of the compute engine, with memory, MMU and semaphores in Python."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from signalbox.hw.front_end.contexts import context_setting
from signalbox.hw.front_end.host_port import compute_answer, compute_method, compute_setting
from signalbox.hw.methods import ComputeMethod, PcasAction
from signalbox.hw.qmd import Placement
from signalbox.hw.records.compute_control import list_area
from signalbox.hw.records.launch import task_completed
from signalbox.hw.records.placement import task_pointer
from signalbox.hw.records.semaphore import COMPUTE_CLIENTS, semaphore_request, semaphore_response
from signalbox.hw.records.translation import mmu_command
from signalbox.tb.models.tasks import record_of
from signalbox.tb.testbench.configs import COMPUTE
from signalbox.tb.testbench.memory import Memory, ReadMemory, WriteMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Fields, Sink, Source

__all__ = ["CONFIG", "Engine", "Job", "Launch", "Turn"]

CONFIG = COMPUTE
AREA = 0x4000_0000
SYSTEM = 0
"""Address space of the lists."""
POINTER, ANSWER = Fields(task_pointer), Fields(compute_answer)
SCHEDULE = 1 << 1
PHYSICAL = (0, 1)


class Job(Protocol):
    """Work of a task: memory contents before and after, and its record."""

    @property
    def results(self) -> dict[int, np.ndarray]: ...

    def memory(self) -> dict[int, bytes]: ...

    def launch(self) -> dict[str, Any]: ...


@dataclass(eq=False)
class Launch:
    """A task: a job in an address space, with a priority."""

    number: int
    job: Job
    asid: int
    priority: int = 0
    context: int = 0
    more: int = 0
    """Additional bits of the record."""
    accepted: int | None = None
    """Cycle in which the launch was answered."""
    over: int | None = None
    verdict: int | None = None

    @property
    def page(self) -> int:
        return 0x10_0000 + self.number

    @property
    def record(self) -> int:
        return self.more | record_of(self.job.launch(), group=self.priority)


@dataclass
class Turn:
    """A period in which a context was active.

    Members
    -------
    begun, over : cycles; `over` is None while it is active.
    bound : address spaces bound since the previous turn.
    reached : address spaces of the memory accessed by SMs.
    """

    context: int
    begun: int
    bound: set[int]
    over: int | None = None
    reached: set[int] = field(default_factory=set)


class Engine:
    """Environment of the engine, stepped once per clock cycle."""

    def __init__(self, dut: Any, latency: int = 8, slice_cycles: int = 2000) -> None:
        self.dut, self.cycle, self.rng = dut, 0, Random(cocotb.RANDOM_SEED)
        self.contents = Memory()
        area = {"asid": SYSTEM, "base": AREA >> 12, "log_size": 6}
        dut.control__area.value = Fields(list_area(CONFIG)).pack(area)
        dut.control__slice.value = slice_cycles
        for name in ("control__mend", "mmu__done", "host__setting", "host__clear"):
            getattr(dut, name).value = 0
        dut.host__on.value = (1 << CONFIG.channels) - 1
        semaphores = [f"semaphore__{number}" for number in range(COMPUTE_CLIENTS)]
        for name in ("host__method", *(f"{one}__response" for one in semaphores)):
            getattr(dut, f"{name}__payload").value = 0
        self.ports: list[Any] = []
        beats = 256 // CONFIG.beat_bytes
        for prefix in ("", *(f"sm_{number}" for number in range(CONFIG.sms))):
            read = f"sm_read__{prefix[3:]}" if prefix else "read"
            write = f"sm_write__{prefix[3:]}" if prefix else "write"
            common = (dut, CONFIG, self.contents, self._pace, lambda: latency)
            self.ports += [
                ReadMemory(*common, limit=beats, name=read),
                WriteMemory(*common, name=write, early=True),
            ]
        self.methods = Source(dut, "host__method", compute_method(CONFIG), lambda: True)
        self.over = Sink(dut, "host__over", task_completed, self._pace)
        self.command = Sink(dut, "mmu__command", mmu_command(CONFIG), self._pace)
        self.semaphores = [
            (
                Sink(dut, f"{one}__request", semaphore_request(CONFIG), self._pace),
                Source(dut, f"{one}__response", semaphore_response(), self._pace),
            )
            for one in semaphores
        ]
        self.waiting: list[Launch] = []
        """Launches that have not been answered; the first one's methods are in progress."""
        self.answer: int | None = None
        """Cause of the last answer."""
        self._asked = False
        self.tasks: dict[tuple[int, int], Launch] = {}
        self.bound: set[int] = set()
        self.released: list[tuple[int, int]] = []
        """Address space and address of releases, in order."""
        self.faults: list[int] = []
        """Kernel rows."""
        self.turns: list[Turn] = []
        """Turns of contexts, in order."""
        self._seen = [0] * len(self.ports[2:])
        """Number of accesses of SMs that are recorded in `turns`."""
        self._binds = 0
        self._bound: set[int] = set()
        for number in range(CONFIG.contexts):
            self.context(number, range(CONFIG.asids))

    def _pace(self) -> bool:
        return self.rng.random() < 0.95

    def context(self, number: int, asids: Any, placement: Placement = Placement.CONTEXT) -> None:
        """Write an instance block."""
        instance = 0x7_0000 + number
        setting = {"instance": instance, "placement": placement.value}
        handle = getattr(self.dut, f"settings__{number}")
        handle.value = Fields(context_setting()).pack(setting)
        block = bytearray(4096)
        block[664:672] = sum(1 << asid for asid in asids).to_bytes(8, "little")
        for asid in asids:
            word = (0x100 + asid) << 12 | 1 << 10
            block[672 + 16 * asid : 680 + 16 * asid] = word.to_bytes(8, "little")
        self.contents.write(PHYSICAL, instance << 12, bytes(block))

    async def begin(self) -> None:
        await reset(self.dut)

    def know(self, task: Launch) -> None:
        """Write a task's record and memory."""
        space = (task.asid, 0)
        for va, content in task.job.memory().items():
            self.contents.write(space, va, content)
        self.contents.write(space, task.page << 8, task.record.to_bytes(256, "little"))
        self.tasks[task.asid, task.page] = task

    def launch(self, task: Launch) -> None:
        """Launch a task, after writing its record and memory."""
        self.know(task)
        self.waiting.append(task)

    def setting(self, channel: int, method: int, value: int) -> None:
        """Execute a method that sets state, in this cycle."""
        word = {"valid": 1, "channel": channel, "address": method >> 2, "data": value}
        self.dut.host__setting.value = Fields(compute_setting(CONFIG)).pack(word)

    def act(self, channel: int, method: int, value: int, asid: int = 0, context: int = 0) -> None:
        """Execute a method with an action."""
        word = {"channel": channel, "asid": asid, "context": context, "epoch": 0}
        word |= {"address": method >> 2, "data": value}
        self.answer = None
        self.methods.put(0, lambda: word)

    async def append(self, task: Launch, start: int, count: int) -> int:
        """Append entries to a queue task, by methods of another channel. Returns the answer's
        cause."""
        channel = (task.number + 1) % CONFIG.channels
        for method, value in (
            (ComputeMethod.SEND_PCAS_A, task.page),
            (ComputeMethod.SEND_PCAS_B, start | count << 24),
        ):
            self.setting(channel, method, value)
            await self.step()
        action = PcasAction.INCREMENT_PUT
        self.act(channel, ComputeMethod.SEND_SIGNALING_PCAS2_B, action, task.asid, task.context)
        await self.until(lambda: self.answer is not None, "answer")
        assert self.answer is not None
        return self.answer

    def _launch(self) -> None:
        """Send methods of the next launch."""
        self.dut.host__setting.value = 0
        if self.waiting and not self._asked:
            task = self.waiting[0]
            channel = task.number % CONFIG.channels
            self.setting(channel, ComputeMethod.SEND_PCAS_A, task.page)
            self.act(
                channel, ComputeMethod.SEND_SIGNALING_PCAS_B, SCHEDULE, task.asid, task.context
            )
            self._asked = True

    def _answered(self) -> None:
        word = ANSWER.unpack(int(self.dut.host__answer.value))
        if not word["valid"]:
            return
        self.answer = word["cause"]
        if self._asked:
            task = self.waiting.pop(0)
            task.accepted, task.verdict = self.cycle, word["cause"] or None
            self._asked = False

    def kept(self, task: Launch) -> bool:
        """Whether the task unit has written the resume position to a task's record."""
        place = (task.asid, 0), (task.page << 8) + 24
        return any((burst.space, burst.va) == place for burst in self.ports[1].log)

    def reads(self, va: int) -> bool:
        """Whether the task unit has requested memory from `va` on."""
        return any(burst.va == va for burst in self.ports[0].log)

    def check(self, task: Launch) -> None:
        """Check that the results are in memory."""
        assert task.over is not None and task.verdict == 0, (task.number, task.verdict)
        for va, words in task.job.results.items():
            found = self.contents.read((task.asid, 0), va, words.nbytes)
            got = np.frombuffer(found, np.uint32).reshape(words.shape)
            assert np.array_equal(got, words), (task.number, str(task.job))

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        for one in (*self.ports, self.methods):
            one.step(self.cycle)
        self._translate()
        for request, response in self.semaphores:
            response.step(self.cycle)
            if (got := request.step()) is not None:
                self.released.append((got["asid"], got["va"]))
                response.put(self.cycle + 3, lambda: {"passed": 1, "error": 0})
        self._answered()
        self._launch()
        if (got := self.over.step()) is not None:
            pointer = POINTER.unpack(got["task"])
            task = self.tasks[pointer["asid"], pointer["page"]]
            assert task.over is None, "over twice"
            task.over, task.verdict = self.cycle, got["verdict"]
        fault = int(self.dut.control__fault.value)
        if fault & 1:
            self.faults.append(fault >> 1)
        self._turn()

    def _turn(self) -> None:
        """Record turns of contexts; nothing may run outside its context's turn (ASID-21)."""
        runs = self.turns and self.turns[-1].over is None
        if int(self.dut.control__active.value):
            if not runs:
                context = int(self.dut.control__context.value)
                self.turns.append(Turn(context, self.cycle, self._bound))
                self._bound = set()
        elif runs:
            self.turns[-1].over = self.cycle
        for number, port in enumerate(self.ports[2:]):
            if accesses := port.log[self._seen[number] :]:
                assert self.turns and self.turns[-1].over is None, "an SM runs outside any turn"
                self.turns[-1].reached |= {burst.space[0] for burst in accesses}
                self._seen[number] += len(accesses)

    def _translate(self) -> None:
        """Model binds, which take a few cycles."""
        self.dut.mmu__done.value = 0
        if self._binds and self.cycle == self._binds:
            self.dut.mmu__done.value, self._binds = 1, 0
        if (got := self.command.step()) is not None:
            self.bound.add(got["asid"])
            self._bound.add(got["asid"])
            self._binds = self.cycle + 5

    async def until(self, done, what: str, timeout: int = 30_000) -> None:
        for _ in range(timeout):
            if done():
                return
            await self.step()
        raise AssertionError(f"not in {timeout} cycles: {what}")

    async def finish(self) -> None:
        """Step until the engine is idle; then every task must be over."""
        await self.until(lambda: not self.waiting, "launches answered")
        for _ in range(5):
            await self.step()
        await self.until(lambda: int(self.dut.control__idle.value), "idle")
        left = [task.number for task in self.tasks.values() if task.over is None]
        assert not [n for n in left if n not in self.refused], left

    @property
    def refused(self) -> set[int]:
        """Tasks whose launch was refused."""
        return {t.number for t in self.tasks.values() if t.verdict and t.over is None}
