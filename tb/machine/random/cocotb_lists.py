"""Random programs while the runlist changes: final state and every step against independent models
(HOST-7).

Environment: as for `cocotb_random`.
"""

import os
from pathlib import Path
from random import Random

import cocotb

from signalbox.tb.machine.random.lists import Lists
from signalbox.tb.machine.random.rounds import Round
from signalbox.tb.models.rules import Rules
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.spaces import RawSpaces
from signalbox.tb.simulation.top import TRACE

CONFIG = SIZES[os.environ["SIGNALBOX_SIZE"]]


@cocotb.test(timeout_time=80, timeout_unit="ms")
async def programs_with_lists(dut):
    """Whatever lists are submitted meanwhile, the final state of each round and its trace are those
    that the programs imply: no method is lost, repeated or moved, nor is any copy."""
    seeds = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    for number in range(int(os.environ["SIGNALBOX_ROUNDS"])):
        seed = seeds.getrandbits(32)
        machine = await SimMachine.start(dut)
        await machine.wait_cycles(2 * CONFIG.semaphores)
        numbers = Random(seed)
        await RawSpaces.same_addresses(machine)
        first = machine.now()
        levels = numbers.randint(1, 4)
        commands = int(os.environ["SIGNALBOX_COMMANDS"])
        channels = range(CONFIG.channels)
        this = Round(machine, CONFIG, numbers, commands, channels=channels, levels=levels)
        lists = Lists(machine, CONFIG, Random(numbers.getrandbits(32)))
        await this.begin()
        await this.end()
        await lists.end()
        dut.monitor.flush.value = 1
        await machine.wait_cycles(2)
        dut.monitor.flush.value = 0
        own = range(levels - 1 + CONFIG.channels, levels - 1 + 2 * CONFIG.channels)
        rules = Rules(CONFIG.semaphores, levels - 1, frozenset(own))
        rules.check(event for event in trace.read(Path(TRACE)) if event.cycle >= first)
        assert lists.accepted and rules.operations
        cocotb.log.info(
            "round %d, seed %d: %d lists accepted, %d refused, %d times flat, %d copies, %d cycles",
            number,
            seed,
            lists.accepted,
            lists.refused,
            lists.flat,
            rules.copies,
            machine.now() - first,
        )
