"""Waits for everything in flight (HOST-3): none ends too early or lasts longer than two epochs."""

import os
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.copy_launcher import MOST_COPIES
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import members
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

SETTLED = 3
"""Cycles from the start of a wait to its epoch, and from the last end to its visible effect."""


class BarrierTestbench(Testbench):
    """Drives the unit and records everything that was ever in flight.

    Members
    -------
    running : first cycle of each copy in flight, per engine, oldest first.
    changing : first cycle of the semaphore operation in flight, or None.
    past : (first, last) cycle of everything that has ended.
    asked : start of the wait, per waiting channel.
    waited : (start, end) of all waits that have ended.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Barrier, CONFIG))
        self._ask, self._drop = Strobe(self, "client__ask"), Strobe(self, "client__drop")
        self.running: list[list[int]] = [[] for _ in range(CONFIG.copy_engines)]
        self.changing: int | None = None
        self.past: list[tuple[int, int]] = []
        self.asked: dict[int, int] = {}
        self.waited: list[tuple[int, int]] = []

    async def step(
        self,
        ask: int | None = None,
        drop: int | None = None,
        start: int | None = None,
        finish: int | None = None,
        changing: bool = False,
    ) -> int:
        """One cycle, with a channel that begins and one that drops a wait, engines that start and
        finish copies, and a semaphore operation in flight or not. Returns the waits that are
        over."""
        now = self.cycle
        if ask is not None:
            self._ask.send(channel=ask)
            self.asked.setdefault(ask, now)
        if drop is not None:
            self._drop.send(channel=drop)
        if changing and self.changing is None:
            self.changing = now
        if not changing and self.changing is not None:
            self.past.append((self.changing, now))
            self.changing = None
        if start is not None:
            self.running[start].append(now)
        if finish is not None:
            self.past.append((self.running[finish].pop(0), now))
        self.drive(
            copies__started=0 if start is None else 1 << start,
            copies__finished=0 if finish is None else 1 << finish,
            semaphores__changing=int(changing) << (self.changing or 0) % CONFIG.channels,
        )
        await super().step()
        over = self.get("client__over")
        for channel in members(over) & {*self.asked}:
            self.waited.append((self.asked.pop(channel), now))
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
    """Waits are correct with random copies on all engines, operations and waits, with few idle
    periods."""
    tb = await BarrierTestbench(dut).start()
    numbers = tb.random
    left, over = 0, 0
    turns = Rounds(6000)
    while turns.more(len(tb.waited) > 40, len(tb.waited)):
        busy = turns.number % 1000 < 950
        engines = [e for e, copies in enumerate(tb.running) if copies]
        room = [e for e, copies in enumerate(tb.running) if len(copies) < MOST_COPIES]
        often = numbers.choice((0.03, 0.3))
        finish = numbers.choice(engines) if engines and numbers.random() < often else None
        start = numbers.choice(room) if busy and room and numbers.random() < 0.2 else None
        # There is at least one cycle between operations.
        left = left - 1 if left else numbers.choice((0, 0, 0, numbers.randrange(2, 60)))
        ended = [c for c in range(CONFIG.channels) if over >> c & 1]
        drop = numbers.choice(ended) if ended and numbers.random() < 0.5 else None
        idle = [c for c in range(CONFIG.channels) if not over >> c & 1]
        ask = numbers.choice(idle) if idle and numbers.random() < 0.1 else None
        over = await tb.step(ask, drop, start, finish, left > 1)
        if drop is not None:
            over &= ~(1 << drop)
    for _ in range(4 * MOST_COPIES * CONFIG.copy_engines):
        engines = [e for e, copies in enumerate(tb.running) if copies]
        await tb.step(finish=engines[0] if engines else None)
    assert not tb.asked, "some waits never end"
    tb.check()


@cocotb.test(**LIMIT)
async def later_copies_do_not_count(dut):
    """Copies that start on any engine after a wait may continue when it ends; each earlier one has
    ended, whichever is the last."""
    tb = await BarrierTestbench(dut).start()
    engines = range(CONFIG.copy_engines)
    for last in engines:
        for engine in engines:
            await tb.step(start=engine)
        await tb.step(ask=0)
        await tb.steps(SETTLED)
        for engine in engines:
            for _ in range(5):
                assert not await tb.step(start=engine)
        for engine in {*engines} - {last}:
            for _ in range(3):
                assert not await tb.step(finish=engine)
        for _ in range(3 * SETTLED):
            assert not await tb.step()
        await tb.step(finish=last)
        over = [await tb.step() for _ in range(SETTLED)]
        assert over[-1] == 1 and all(len(tb.running[engine]) >= 3 for engine in engines)
        await tb.step(drop=0)
        for engine in engines:
            while tb.running[engine]:
                await tb.step(finish=engine)


@cocotb.test(**LIMIT)
async def dropped(dut):
    """A wait dropped at any time does not end, and the next one starts from the beginning."""
    tb = await BarrierTestbench(dut).start()
    for delay in range(6):
        await tb.step(ask=0)
        await tb.steps(delay)
        await tb.step(start=0, drop=0)
        for _ in range(10):
            assert not await tb.step()
        await tb.step(ask=0)
        for _ in range(10):
            assert not await tb.step()
        await tb.step(finish=0)
        # The epoch of the dropped wait, if any, and that of this one.
        over = [await tb.step() for _ in range(2 * SETTLED)]
        assert over[-1] == 1
        await tb.step(drop=0)
