"""Random programs on the whole machine: final state and every step against independent models.

Environment: SIGNALBOX_ROUNDS, SIGNALBOX_COMMANDS (per round). Prints the seed of each round.
SIGNALBOX_SEED, set to the seed of the run, repeats all rounds.
"""

import os
from pathlib import Path
from random import Random

import cocotb

from signalbox.tb.machine.random.rounds import Round
from signalbox.tb.models.rules import Rules
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.spaces import RawSpaces
from signalbox.tb.simulation.top import TRACE

CONFIG = SIZES[os.environ["SIGNALBOX_SIZE"]]


@cocotb.test(timeout_time=80, timeout_unit="ms")
async def programs(dut):
    """The final state and the trace of each round of random programs are correct."""
    seeds = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    commands = int(os.environ["SIGNALBOX_COMMANDS"])
    total = operations = copies = redecided = 0
    for number in range(int(os.environ["SIGNALBOX_ROUNDS"])):
        seed = seeds.getrandbits(32)
        machine = await SimMachine.start(dut)
        await machine.wait_cycles(2 * CONFIG.semaphores)
        numbers = Random(seed)
        await RawSpaces.same_addresses(machine, whole=numbers.random() < 0.3)
        first = machine.now()
        this = Round(
            machine,
            CONFIG,
            numbers,
            commands,
            channels=range(CONFIG.channels),
            levels=numbers.randint(1, min(CONFIG.counters + 1, CONFIG.channels + 1, 4)),
        )
        done = sum(program.commands for program in this.programs)
        await this.begin()
        await this.end()
        dut.monitor.flush.value = 1
        await machine.wait_cycles(2)
        dut.monitor.flush.value = 0
        own = 2 * len(this.programs)
        rules = Rules(
            CONFIG.semaphores,
            this.levels - 1,
            frozenset(range(this.levels - 1 + own // 2, this.levels - 1 + own)),
        )
        rules.check(event for event in trace.read(Path(TRACE)) if event.cycle >= first)
        total, copies = total + done, copies + rules.copies
        operations += rules.operations
        redecided += rules.redecided
        cocotb.log.info(
            "round %d, seed %d: %d commands, %d priorities, %d cycles",
            number,
            seed,
            done,
            this.levels,
            machine.now() - first,
        )
    cocotb.log.info(
        "%d commands; %d copies (%d decided again at their start) and %d on-chip operations "
        "checked step by step",
        total,
        copies,
        redecided,
        operations,
    )
    assert copies and operations
