"""Victims for a kernel that finds no SM, if some SMs do not take its blocks (PREEMPT-5)."""

import ast
import os
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.placement.preemption import Preemption
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.goals import Rounds

CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
SMS = range(CONFIG.sms)
DECIDED = 2
"""Cycles from the choice of an SM until its order to stop."""

CHOSEN = 12
"""Maximum cycles from a change of the victims until the first stop."""


class VictimsTestbench(Testbench):
    """The unit, and SMs that answer at once.

    Members
    -------
    levels : level of each SM's victim, 0 without one.
    waits : level of the waiting kernel, 0 without one.
    barred : SMs to which none of its blocks goes, one bit each.
    stopped : SMs that were told to stop a block since the last change, in order.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Preemption, CONFIG))
        self._places = Source(self, "place")
        self.levels = [0 for _ in SMS]
        self.waits = self.barred = 0
        self.stopped: list[int] = []
        self._past: list[int] = []
        self._answers: set[int] = set()
        self.drive(spare=1)

    def change(self, levels: list[int], waits: int, barred: int) -> None:
        """Show other victims, and another kernel, from this cycle on."""
        self.levels, self.waits, self.barred = levels, waits, barred
        self.stopped = []
        for sm, level in enumerate(levels):
            self.drive(**{f"victims__{sm}": {"valid": level > 0, "level": level, "state": 5}})
        self.drive(waits={"valid": waits > 0, "level": waits}, barred=barred)

    async def step(self) -> None:
        self._past.append(self.barred)
        self.drive(answered=sum(1 << sm for sm in self._answers))
        self._answers = set()
        if not self._places.pending:
            self._places.put(self.random.randrange(CONFIG.save_places))
        await super().step()
        for sm in SMS:
            if self.get(f"stop__{sm}")["valid"]:
                mask = self._past[-1 - DECIDED] if len(self._past) > DECIDED else 0
                assert not mask >> sm & 1, (
                    f"SM {sm} stops a block for a kernel that it does not take"
                )
                self.stopped.append(sm)
                self._answers.add(sm)


@cocotb.test()
async def least_urgent_of_its_own(dut: Any) -> None:
    """The least urgent victim on the SMs that take the kernel's blocks is stopped, whatever other
    SMs have; none is stopped if these SMs have no block less urgent than the kernel."""
    tb = await VictimsTestbench(dut).start()
    numbers, rounds, met = tb.random, Rounds(150), 0
    while rounds.more(met > 40, met):
        levels = [numbers.choice((0, 1, 3, 7, 9)) for _ in SMS]
        waits, barred = numbers.choice((0, 3, 8, 60)), numbers.randrange(1, 1 << CONFIG.sms)
        tb.change([0 for _ in SMS], 0, barred)
        await tb.steps(CHOSEN)
        tb.change(levels, waits, barred)
        lower = {
            level: sm
            for sm, level in [*enumerate(levels)][::-1]
            if 0 < level < waits and not barred >> sm & 1
        }
        await tb.steps(CHOSEN)
        assert bool(tb.stopped) == bool(lower), (levels, waits, barred)
        if lower:
            assert levels[tb.stopped[0]] == min(lower)
            met += any(0 < level < min(lower) for level in levels)


@cocotb.test()
async def changing_masks(dut: Any) -> None:
    """When another kernel is served, no block is stopped on an SM that does not take its blocks,
    even if the victim there was the best for the previous kernel."""
    tb = await VictimsTestbench(dut).start()
    numbers, stops, cycles = tb.random, 0, Rounds(1500)
    while cycles.more(stops > 50, stops):
        if numbers.random() < 0.4:
            levels = [numbers.choice((1, 3, 7)) for _ in SMS]
            stops += len(tb.stopped)
            tb.change(levels, numbers.choice((0, 8, 60)), numbers.randrange((1 << CONFIG.sms) - 1))
        await tb.step()


@cocotb.test()
@cocotb.parametrize(lacks=[False, True])
async def level_of_a_lack(dut: Any, lacks: bool) -> None:
    """A block that must leave is stopped; another one would be only if the most urgent block of the
    SM lacks resources."""
    tb = await VictimsTestbench(dut).start()
    await tb.steps(CHOSEN)
    tb.drive(lacks__0={"valid": lacks, "level": 9})
    tb.drive(victims__0={"valid": 1, "leaves": 1, "level": 3, "state": 5})
    await tb.until(lambda: tb.get("stop__0")["valid"], "the block is stopped", CHOSEN)
    assert tb.get("stop__0")["level"] == 9 * lacks
