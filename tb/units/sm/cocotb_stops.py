"""An SM whose blocks are stopped, and continue later, computes every byte as if they had not
(PREEMPT-2, PREEMPT-3, PREEMPT-7)."""

import os
from copy import deepcopy

import cocotb

from signalbox.tb.models.isa import Launch, run_block
from signalbox.tb.units.sm.cocotb_core import difference
from signalbox.tb.units.sm.core_testbench import CONFIG, Task
from signalbox.tb.units.sm.programs import random_launch
from signalbox.tb.units.sm.sm_testbench import SmTestbench

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

MOST = 5
"""Stops of a block."""

ROUNDS = int(os.environ.get("ROUNDS", "1"))


class Stopping(SmTestbench):
    """Stops the victim in a fraction of the cycles; now and then, all blocks of some rows are to
    leave."""

    rate = 0.0

    async def step(self) -> None:
        few = all(work.stops < MOST for work in self.there.values())
        if self.random.random() < self.rate and self.can_stop and few:
            self.stop(0 if self.get("link__victim")["leaves"] else 127)
        if self.random.random() < self.rate / 2:
            self.drive(link__leave=self.random.choice((0, 0, 1, 2, 3)))
        await super().step()


def fits(launch: Launch) -> bool:
    """Whether a whole block fits into the SM."""
    units = -(-launch.registers // 4)
    return (
        launch.warps <= CONFIG.sm_warps
        and launch.warps * units <= CONFIG.register_units
        and launch.shared <= CONFIG.sm_shared
    )


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def random_programs(dut, eager):
    """Random kernels of several priorities, with more blocks than fit."""
    tb = await Stopping(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    for _ in range(ROUNDS):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.rate = numbers.choice((0.001, 0.003, 0.01))
        launches: dict[int, Launch] = {}
        while len(launches) < 2:
            threads = numbers.choice(((3, 5, 2), (40, 1, 1), (7, 2, 5), (32, 2, 1)))
            launch = random_launch(numbers, threads, 3, numbers.randrange(5, 8 * ROUNDS))
            if fits(launch):
                launches[len(launches)] = launch
        before = {row: deepcopy(launch.memory) for row, launch in launches.items()}
        for row, launch in launches.items():
            tb.launch(Task(row, launch), numbers.randrange(64))
        await tb.until(lambda: not tb.busy, "all blocks end", 500_000)
        tb.rate = 0
        await tb.until(lambda: not tb.busy, "the last stop is answered")
        await tb.steps(5)
        assert not any(tb.charged.values()), tb.charged
        assert len(tb.places) == CONFIG.save_places
        assert not tb.faults
        for row, launch in launches.items():
            model = deepcopy(launch)
            model.memory = before[row]
            for x in range(launch.grid[0]):
                assert not any(warp.failure for warp in run_block(model, (x, 0, 0)).warps)
            assert launch.memory.pages == model.memory.pages, difference(launch, model.memory)
    assert tb.stopped["state"]
    dut._log.info("stopped: %s", tb.stopped)
