"""Testbench of the compute engine, with memory, MMU and semaphores in Python."""

import os
from collections.abc import Collection
from typing import Any

import numpy as np

from signalbox.hw.compute.engine import ComputeEngine
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.methods import ComputeMethod, PcasAction
from signalbox.hw.qmd import Placement, SkedCheck
from signalbox.hw.records.semaphore import COMPUTE_CLIENTS
from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import ENGINES
from signalbox.tb.testbench.contents import Contents
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import ReadServer, WriteServer
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.turns import TurnWatch

__all__ = ["CONFIG", "ComputeTestbench"]

CONFIG = ENGINES[os.environ.get("WORK_CONFIG", "COMPUTE")]
AREA = 0x4000_0000
SAVE_AREA = 0x5000_0000
SYSTEM = 0
"""Address space of the lists."""
SCHEDULE = 1 << 1
PHYSICAL = (0, 1)
BIND_CYCLES = 5


class ComputeTestbench(Testbench):
    """Environment of the engine.

    Members
    -------
    contents : memory of all clients.
    read, write : servers of the task unit.
    sm_reads, sm_writes : servers of the SMs.
    waiting : launches that have not been answered; the methods of the first one are in progress.
    answer : cause of the last answer.
    tasks : by address space and page.
    bound : address spaces bound so far.
    released : address space and address of releases, in order.
    faults : faults of warps, in order.
    turns : turns of contexts, in order.
    """

    timeout = 30_000

    def __init__(
        self, dut: Any, latency: int = 8, slice_cycles: int = 2000, pace: float = 0.95
    ) -> None:
        """`latency`, `pace` : latency of all memory, and fraction of the cycles in which it accepts
        or offers beats."""
        super().__init__(dut, component(ComputeEngine, CONFIG))
        self.drive(
            control__area={"asid": SYSTEM, "base": AREA >> 12, "log_size": 6},
            control__slice=slice_cycles,
            host__on=(1 << CONFIG.channels) - 1,
        )
        self.contents = Contents()
        accepts, beats = self.share(pace), 256 // CONFIG.beat_bytes
        common = (self, self.contents, accepts, lambda: latency)
        sms = range(CONFIG.sms)
        self.read = ReadServer(*common, limit=beats)
        self.write = WriteServer(*common, early=True)
        self.sm_reads = [ReadServer(*common, port=f"sm_read__{n}", limit=beats) for n in sms]
        self.sm_writes = [WriteServer(*common, port=f"sm_write__{n}", early=True) for n in sms]
        self._setting = Strobe(self, "host__setting")
        Strobe(self, "host__clear")
        Strobe(self, "host__skip")
        self._methods = Source(self, "host__method")
        Sink(self, "host__over", accepts, self._over)
        Sink(self, "mmu__command", accepts, self._bind)
        self._bind_done = Strobe(self, "mmu__done")
        for number in range(COMPUTE_CLIENTS):
            self._release_port(f"semaphore__{number}", accepts)
        self._watch = TurnWatch(self, [*self.sm_reads, *self.sm_writes])
        self.turns = self._watch.turns
        self.waiting: list[Launch] = []
        self.answer: Cause | None = None
        self.tasks: dict[tuple[int, int], Launch] = {}
        self.bound: set[int] = set()
        self.released: list[tuple[int, int]] = []
        self.faults: list[dict[str, Any]] = []
        self._asked = False
        self._binds: int | None = None  # cycle in which a bind is done
        for number in range(CONFIG.contexts):
            self.context(number, range(CONFIG.asids))

    def _release_port(self, port: str, pace: Pace) -> None:
        """Answer releases; they always pass."""
        response = Source(self, f"{port}__response", pace)

        def release(request: dict[str, Any]) -> None:
            self.released.append((request["asid"], request["va"]))
            response.put({"passed": 1}, delay=3)

        Sink(self, f"{port}__request", pace, release)

    def context(
        self,
        number: int,
        asids: Collection[int],
        placement: Placement = Placement.CONTEXT,
        *,
        saves: bool = False,
        level: PreemptionLevel = PreemptionLevel.CTA,
        nesting: int = 1,
    ) -> None:
        """Write an instance block. `saves` : its tasks may have blocks of lower priority stopped.
        `level` : preemption level at which its tasks leave. `nesting` : depth of its deepest
        kernels."""
        instance = 0x7_0000 + number
        setting = {"instance": instance, "placement": placement}
        setting |= {"saves": saves, "level": level, "nesting": nesting}
        self.drive(**{f"settings__{number}": {**setting, "save_area": SAVE_AREA >> 12}})
        for asid in asids:
            size = CONFIG.save_places * CONFIG.place_bytes
            self.contents.write((asid, 1), SAVE_AREA, self.random.randbytes(size))
        block = bytearray(4096)
        block[664:672] = mask(asids).to_bytes(8, "little")
        for asid in asids:
            word = (0x100 + asid) << 12 | 1 << 10
            block[672 + 16 * asid : 680 + 16 * asid] = word.to_bytes(8, "little")
        self.contents.write(PHYSICAL, instance << 12, bytes(block))

    # -- launches ---------------------------------------------------------------------------------

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

    async def append(self, task: Launch, start: int, count: int) -> Cause:
        """Append entries to a queue task, by methods of another channel. Returns the answer's
        cause."""
        channel = (task.number + 1) % CONFIG.channels
        for method, value in (
            (ComputeMethod.SEND_PCAS_A, task.page),
            (ComputeMethod.SEND_PCAS_B, start | count << 24),
        ):
            self._set(channel, method, value)
            await self.step()
        method = ComputeMethod.SEND_SIGNALING_PCAS2_B
        self._act(channel, method, PcasAction.INCREMENT_PUT, task)
        await self.until(lambda: self.answer is not None, "answer")
        assert self.answer is not None
        return self.answer

    def _set(self, channel: int, method: int, value: int) -> None:
        """Execute a method that sets state, in this cycle."""
        self._setting.send(channel=channel, address=method >> 2, data=value)

    def _act(self, channel: int, method: int, value: int, task: Launch) -> None:
        """Execute a method with an action on a task."""
        word = {"channel": channel, "asid": task.asid, "context": task.context}
        self.answer = None
        self._methods.put({**word, "address": method >> 2, "data": value})

    def _send_launch(self) -> None:
        """Send methods of the next launch."""
        if self.waiting and not self._asked:
            task = self.waiting[0]
            channel = task.number % CONFIG.channels
            self._set(channel, ComputeMethod.SEND_PCAS_A, task.page)
            self._act(channel, ComputeMethod.SEND_SIGNALING_PCAS_B, SCHEDULE, task)
            self._asked = True

    # -- results ----------------------------------------------------------------------------------

    def kept(self, task: Launch) -> bool:
        """Whether the task unit has written the resume position to a task's record."""
        place = (task.asid, 0), (task.page << 8) + 24
        return any((burst.space, burst.va) == place for burst in self.write.bursts)

    def reads(self, va: int) -> bool:
        """Whether the task unit has requested memory from `va` on."""
        return any(burst.va == va for burst in self.read.bursts)

    def check(self, task: Launch) -> None:
        """Check that the results are in memory."""
        assert task.over is not None and task.verdict is Refusal.NONE, (task.number, task.verdict)
        for va, words in task.job.results.items():
            found = self.contents.read((task.asid, 0), va, words.nbytes)
            got = np.frombuffer(found, np.uint32).reshape(words.shape)
            assert np.array_equal(got, words), (task.number, str(task.job))

    async def finish(self) -> None:
        """Step until the engine is idle, and check that every task is over."""
        await self.until(lambda: not self.waiting, "launches answered")
        await self.steps(5)
        await self.until(lambda: self.get("control__idle"), "idle")
        left = [task.number for task in self.tasks.values() if task.over is None]
        refused = {task.number for task in self.tasks.values() if task.refused}
        assert refused.issuperset(left), left

    # -- cycles -----------------------------------------------------------------------------------

    async def step(self) -> None:
        self._send_launch()
        if self._binds == self.cycle:
            self._bind_done.send()
        await super().step()
        answer, fault = self.get("host__answer"), self.get("control__fault")
        if answer["valid"]:
            self._answered(answer["cause"])
        if fault["valid"]:
            self.faults.append(fault)

    def _answered(self, cause: Cause) -> None:
        self.answer = cause
        if self._asked:
            task = self.waiting.pop(0)
            task.refused = cause is not Cause.NONE
            task.accepted = None if task.refused else self.cycle - 1
            self._asked = False

    def _over(self, word: dict[str, Any]) -> None:
        pointer, verdict = word["task"], word["verdict"]
        task = self.tasks[pointer["asid"], pointer["page"]]
        assert task.over is None, "over twice"
        assert verdict["check"] is SkedCheck.NONE
        task.over, task.verdict = self.cycle, verdict["refusal"]

    def _bind(self, command: dict[str, Any]) -> None:
        """Binds take a few cycles."""
        self.bound.add(command["asid"])
        self._watch.bind(command["asid"])
        self._binds = self.cycle + BIND_CYCLES
