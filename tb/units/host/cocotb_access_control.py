"""Accesses to channel registers beside CLEAR_FAULTED methods (HOST-6)."""

import itertools
import os
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.channel_block.access_control import AccessControl
from signalbox.tb.testbench.clocked import Testbench, component

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

PACE = 3
"""Cycles from one CLEAR_FAULTED of a channel to the next."""

ACCESS, CLEAR = 7, 8
"""Maximum cycles of an access and of a CLEAR_FAULTED."""


@cocotb.test()
@cocotb.parametrize(halted=[False, True])
async def in_turn(dut: Any, halted: bool) -> None:
    """While accesses follow each other at once, and a channel executes nothing but CLEAR_FAULTED,
    they take turns, whether the target is halted or not: none waits for more than one other."""
    tb = Testbench(dut, component(AccessControl, CONFIG))
    tb.drive(is_enabled=1, is_idle=1, is_halted=halted, edit__ready=1)
    tb.drive(port__request__valid=1, port__response__ready=1)
    await tb.start()
    accesses: list[int] = []
    clears: list[int] = []
    for cycle in range(1000):
        strobes = cycle % PACE == 0
        tb.drive(resume={"valid": strobes, "channel": 0, "target": CONFIG.channels - 1})
        await tb.step()
        if tb.get("port__request__ready"):
            accesses.append(cycle)
        if tb.get("cleared"):
            clears.append(cycle)
            assert tb.get("channel") == CONFIG.channels - 1
    turns = [*itertools.pairwise(accesses)]
    assert max(late - early for early, late in turns) <= ACCESS + CLEAR
    between = [sum(early < one <= late for one in clears) for early, late in turns]
    assert {*between[2:]} == {int(halted)}, between


@cocotb.test(skip=CONFIG.channels < 3)
async def each_target_in_turn(dut: Any) -> None:
    """While there is always a CLEAR_FAULTED for two channels, one for a third comes third."""
    tb = Testbench(dut, component(AccessControl, CONFIG))
    tb.drive(is_enabled=1, is_idle=1, is_halted=1, edit__ready=1, port__response__ready=1)
    await tb.start()
    last = CONFIG.channels - 1
    cleared: list[int] = []
    for cycle in range(300):
        target = last if cycle == 100 else cycle % 2
        tb.drive(resume={"valid": 1, "channel": 0, "target": target})
        await tb.step()
        if tb.get("cleared"):
            cleared.append(tb.get("channel"))
            if cycle < 100:
                cleared.clear()
    assert last in cleared[:4], cleared
