"""Blocks that stop and continue in the supplied core compute every byte as if they had not
(PREEMPT-2, PREEMPT-3)."""

import os

import cocotb

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_core import against_model, fits
from signalbox.tb.units.sm.core_testbench import CONFIG
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench
from signalbox.tb.units.sm.programs import random_launch

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

MOST = 3

MANY = 40
"""Rounds in which some block is stopped."""

ROUNDS = int(os.environ.get("ROUNDS", "1"))


class Stopping(PreemptingTestbench):
    """Stops a random block in a fraction of the cycles, each one at most `MOST` times."""

    rate = 0.0

    async def rest(self, timeout: int = 500_000) -> None:
        await super().rest(timeout)

    async def step(self) -> None:
        if self.rate and self.random.random() < self.rate:
            blocks = [slot for slot in self.stoppable if self.stops[self.key(slot)] < MOST]
            if blocks:
                self.stop(self.random.choice(blocks))
        await super().step()


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def random_programs(dut, eager):
    """Two random kernels whose blocks are stopped again and again compute as undisturbed ones."""
    tb = await Stopping(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    rounds = Rounds(ROUNDS, MANY)
    while rounds.more(tb.saved > 0, tb.saved):
        tb.stops.clear()
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.rate = numbers.choice((0.001, 0.003, 0.01))
        launches = {}
        while len(launches) < 2:
            threads = numbers.choice(((3, 5, 2), (40, 1, 1), (7, 2, 5), (32, 2, 1)))
            blocks, length = numbers.randint(1, 2), numbers.randrange(5, 8 * ROUNDS)
            launch = random_launch(numbers, threads, blocks, length)
            if fits(launch) and launch.warps <= CONFIG.sm_warps:
                launches[len(launches)] = launch
        await against_model(tb, launches)
