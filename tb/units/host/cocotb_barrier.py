"""Waits for everything in flight (HOST-3): none ends too early or lasts longer than two epochs."""

import os
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.copy_launcher import MOST_COPIES
from signalbox.hw.host.waits.barrier import BarrierPort
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

SETTLED = 3
"""Cycles from the start of a wait to its epoch, and from the last end to its visible effect."""


class Bench:
    """Testbench that drives the unit and records everything that was ever in flight.

    Members
    -------
    now : number of cycles so far.
    running : first cycle of each copy in flight, per engine, oldest first.
    changing : first cycle of the semaphore operation in flight, or None.
    past : (first, last) cycle of everything that has ended.
    asked : start of the wait, per waiting channel.
    waited : (start, end) of all waits that have ended.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        members = BarrierPort(CONFIG).members
        self._layouts = {name: members[name].shape for name in ("ask", "drop")}
        self.now = 0
        self.running: list[list[int]] = [[] for _ in range(CONFIG.copy_engines)]
        self.changing: int | None = None
        self.past: list[tuple[int, int]] = []
        self.asked: dict[int, int] = {}
        self.waited: list[tuple[int, int]] = []

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut)
        for name in ("client__ask", "client__drop", "started", "finished", "changing", "tasks"):
            getattr(dut, name).value = 0
        await reset(dut)
        return bench

    async def step(
        self,
        ask: int | None = None,
        drop: int | None = None,
        start: int | None = None,
        finish: int | None = None,
        changing: bool = False,
    ) -> int:
        """One cycle, with channels that begin and drop waits, engines that start and finish copies,
        and whether a semaphore operation is in flight. Returns the waits that are over."""
        for name, channel in (("ask", ask), ("drop", drop)):
            fields = {} if channel is None else {"valid": 1, "channel": channel}
            value = self._layouts[name].const(fields)
            getattr(self.dut, f"client__{name}").value = value.as_bits()
        self.dut.started.value = 0 if start is None else 1 << start
        self.dut.finished.value = 0 if finish is None else 1 << finish
        if changing and self.changing is None:
            self.changing = self.now
        if not changing and self.changing is not None:
            self.past.append((self.changing, self.now))
            self.changing = None
        channel = (self.changing or 0) % CONFIG.channels
        self.dut.changing.value = int(changing) << channel
        if start is not None:
            self.running[start].append(self.now)
        if finish is not None:
            self.past.append((self.running[finish].pop(0), self.now))
        if ask is not None:
            self.asked.setdefault(ask, self.now)
        await ReadOnly()
        over = int(self.dut.client__over.value)
        for channel in [c for c in self.asked if over >> c & 1]:
            self.waited.append((self.asked.pop(channel), self.now))
        await RisingEdge(self.dut.clk)
        self.now += 1
        return over

    def end_of(self, moment: int) -> int:
        """End of the last operation that was in flight at `moment`."""
        return max((b for a, b in self.past if a < moment <= b), default=moment)

    def check(self) -> None:
        """Each wait covers everything that was in flight at its start, and ends within two
        epochs."""
        for asked, over in self.waited:
            first = self.end_of(asked)
            assert first < over, (asked, first, over)
            # An epoch may begin up to a few cycles later.
            running = max(self.end_of(asked + t) for t in range(SETTLED + 1))
            latest = max(self.end_of(t) for t in range(asked, running + SETTLED + 1))
            assert over <= latest + SETTLED, (asked, latest, over)


@cocotb.test(**LIMIT)
async def two_epochs(dut):
    """Waits are correct with random copies on all engines, operations and waits, without idle
    periods."""
    bench, numbers = await Bench.start(dut), Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    left, over = 0, 0
    turns = Rounds(6000)
    while turns.more(len(bench.waited) > 40, len(bench.waited)):
        busy = turns.number % 1000 < 950
        engines = [e for e, copies in enumerate(bench.running) if copies]
        room = [e for e, copies in enumerate(bench.running) if len(copies) < MOST_COPIES]
        often = numbers.choice((0.03, 0.3))
        finish = numbers.choice(engines) if engines and numbers.random() < often else None
        start = numbers.choice(room) if busy and room and numbers.random() < 0.2 else None
        # There is at least one cycle between operations.
        left = left - 1 if left else numbers.choice((0, 0, 0, numbers.randrange(2, 60)))
        ended = [c for c in range(CONFIG.channels) if over >> c & 1]
        drop = numbers.choice(ended) if ended and numbers.random() < 0.5 else None
        idle = [c for c in range(CONFIG.channels) if not over >> c & 1]
        ask = numbers.choice(idle) if idle and numbers.random() < 0.1 else None
        over = await bench.step(ask, drop, start, finish, left > 1)
        if drop is not None:
            over &= ~(1 << drop)
    for _ in range(4 * MOST_COPIES * CONFIG.copy_engines):
        engines = [e for e, copies in enumerate(bench.running) if copies]
        await bench.step(finish=engines[0] if engines else None)
    assert not bench.asked, "some waits never end"
    bench.check()


@cocotb.test(**LIMIT)
async def later_copies_do_not_count(dut):
    """Later copies, on this engine and others, may continue after the wait; earlier ones may
    not."""
    bench = await Bench.start(dut)
    last = CONFIG.copy_engines - 1
    await bench.step(start=0)
    await bench.step(ask=0)
    for _ in range(SETTLED):
        await bench.step()
    for _ in range(5):
        await bench.step(start=last)
    for _ in range(5 if last else 0):
        assert not await bench.step(finish=last)
        await bench.step(start=last)
    await bench.step(finish=0)
    over = [await bench.step() for _ in range(SETTLED)]
    assert over[-1] == 1 and len(bench.running[last]) == 5


@cocotb.test(**LIMIT)
async def dropped(dut):
    """A wait dropped at any time does not end, and the next one starts from the beginning."""
    bench = await Bench.start(dut)
    for delay in range(6):
        await bench.step(ask=0)
        for _ in range(delay):
            await bench.step()
        await bench.step(start=0, drop=0)
        for _ in range(10):
            assert not await bench.step()
        await bench.step(ask=0)
        for _ in range(10):
            assert not await bench.step()
        await bench.step(finish=0)
        # The epoch of the dropped wait, if any, and that of this one.
        over = [await bench.step() for _ in range(2 * SETTLED)]
        assert over[-1] == 1
        await bench.step(drop=0)
