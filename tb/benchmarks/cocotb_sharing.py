"""Applications of `tb.benchmarks.sharing`: clients of a server in the same process."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import Combine

from signalbox.driver.device import Device
from signalbox.driver.kernels.timing import TIMING
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.server.in_process import LocalInbox, LocalLink
from signalbox.driver.server.journal import Journal, Kind
from signalbox.driver.server.server import Server, Stop
from signalbox.hw.errors import Refusal
from signalbox.tb.benchmarks.grids import lives
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.sharing import (
    CASES,
    EXAMPLE,
    IDLE,
    SMALL,
    TIMELINE,
    WAYS,
    Application,
    example_key,
    idle_key,
    key,
    settings,
    timeline,
    use,
)
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.residents import Residence, residences
from signalbox.tb.simulation.trace import BlockStopped, Event
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}


@dataclass(eq=False)
class Running:
    """An application that is connected.

    Members
    -------
    asid : ASID of its only space.
    channel : its only channel.
    pushed : cycles in which its pointers arrived.
    """

    does: Application
    device: Device
    stream: Stream
    asid: int
    channel: int
    pushed: list[int] = field(default_factory=list)


@dataclass
class Session:
    """A server and its applications. Created by `start`."""

    machine: SimMachine
    server: Server
    running: Task[None]
    inbox: LocalInbox
    trace: TraceFile
    journal: Journal

    @classmethod
    async def start(cls, dut: Any, way: str) -> "Session":
        machine = await SimMachine.start(dut)
        trace, inbox = await TraceFile.open(machine), LocalInbox(machine)
        journal = Journal(machine.now)
        server = await Server.open(machine, settings(way), inbox, cocotb.start_soon, journal)
        return cls(machine, server, cocotb.start_soon(server.run()), inbox, trace, journal)

    async def connect(self, does: Application) -> Running:
        """Connect an application."""
        device = await LocalLink(self.machine, self.inbox).device("app")
        stream = await device.stream()
        served = self.server.applications[max(self.server.applications)]
        ((channel, _),), (space,) = served.channels.items(), served.spaces.values()
        assert space.asid is not None
        return Running(does, device, stream, space.asid, channel)

    async def run(self, several: list[Running]) -> None:
        """Run applications at the same time."""
        await Combine(*(cocotb.start_soon(self._work(one)) for one in several))

    async def _work(self, one: Running) -> None:
        """Push each kernel when the previous one has ended."""
        does = one.does
        fields = {name.upper(): value for name, value in vars(does.timing).items()}
        args = {name: fields[name] for name in TIMING.parameters}
        for _ in range(does.kernels):
            task = await one.stream.launch(TIMING, does.blocks, 32 * does.warps, args)
            await task.synchronize()

    async def end(self, several: list[Running]) -> list[Event]:
        """End everything. Returns the events so far."""
        events = await self.trace.events()
        for one in several:
            pushes = (entry for entry in self.journal.entries if entry.kind is Kind.PUSHED)
            one.pushed = [entry.cycle for entry in pushes if entry.channel == one.channel]
        for one in several:
            await one.device.close()
        self.inbox.put(Stop())
        await self.running
        return events


@dataclass(frozen=True)
class Outcome:
    """Times of the applications, in cycles.

    Members
    -------
    begun : the first push.
    ends : last end of a kernel, for each application.
    first : mean time from a push to the first warp of its kernel.
    """

    begun: int
    ends: list[int]
    first: int
    events: list[Event]
    warps: list[Residence]

    @property
    def span(self) -> int:
        """From the first push to the end of the last kernel."""
        return max(self.ends) - self.begun


def outcome(events: list[Event], several: list[Running]) -> Outcome:
    """Check that each kernel has run once, with all its blocks and warps, and measure."""
    found = lives(events)
    waits, ends = [], []
    for one in several:
        own = [life for life in found if life.channel == one.channel]
        assert len(own) == one.does.kernels
        for life in own:
            assert life.over and life.refusal is Refusal.NONE, life
            placed = Counter(block.block for block in life.placed)
            assert placed == Counter([*range(one.does.blocks), *life.stopped])
            assert len(life.started) >= one.does.blocks * one.does.warps
            waits.append(life.first - max(cycle for cycle in one.pushed if cycle < life.launched))
        ends.append(own[-1].over)
    begun = min(one.pushed[0] for one in several)
    warps = [one for one in residences(events) if one.began >= begun]
    return Outcome(begun, ends, round(sum(waits) / len(waits)), events, warps)


@cocotb.test(**LIMIT)
@cocotb.parametrize((("way", "count"), CASES))
async def many(dut, way: str, count: int):
    """Small applications that begin at the same time."""
    session = await Session.start(dut, way)
    several = [await session.connect(SMALL) for _ in range(count)]
    contexts = session.server.device.compute.contexts
    before = await contexts.switches()
    await session.run(several)
    after = await contexts.switches()
    changes = after.starts - before.starts
    found = outcome(await session.end(several), several)
    saved = sum(isinstance(one, BlockStopped) and one.saved for one in found.events)
    assert bool(saved) == (way == "in turn" and count > 1)
    report(**{
        key("makespan", way, count): found.span,
        key("use", way, count): use(found.warps, found.span),
        key("first", way, count): found.first,
        key("fair", way, count): round(
            1000 * (min(found.ends) - found.begun) / (max(found.ends) - found.begun)
        ),
        key("changes", way, count): changes,
        key("change", way, count): round((after.cycles - before.cycles) / max(1, changes)),
    })


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=IDLE)
async def beside(dut, count: int):
    """An application with work beside others without."""
    session = await Session.start(dut, "shared")
    several = [await session.connect(SMALL) for _ in range(1 + count)]
    await session.run(several[-1:])
    found = outcome(await session.end(several), several[-1:])
    report(**{idle_key(count): found.first})


@cocotb.test(**LIMIT)
async def example(dut):
    """The worked example: all ways on one scale."""
    found: dict[str, Outcome] = {}
    names: dict[str, dict[int, str]] = {}
    for way in WAYS:
        session = await Session.start(dut, way)
        several = [await session.connect(does) for does in EXAMPLE]
        await session.run(several)
        names[way] = {one.asid: "ABC"[n] for n, one in enumerate(several)}
        found[way] = outcome(await session.end(several), several)
    longest = max(one.span for one in found.values())
    for way, one in found.items():
        report(**{
            example_key("makespan", way): one.span,
            example_key("use", way): use(one.warps, one.span),
        })
    drawn = {
        way: timeline(one.warps, one.begun, one.begun + longest, names[way])
        for way, one in found.items()
    }
    Path(TIMELINE).write_text(json.dumps(drawn))
