"""Drives components that are often idle (`tb.units.lib.sleepers`) and writes their outputs to a
file, cycle by cycle. The file must not depend on how they are simulated."""

import random
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.lib.sleepers import WIDE

ANSWERS = "answers.txt"


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def quiet_stretches(dut: Any) -> None:
    """With few changes of inputs, one at a time, the sums equal those of a model."""
    rng = random.Random(cocotb.RANDOM_SEED)
    dut.asks__valid.value = dut.asks__payload.value = dut.gives__ready.value = 0
    dut.open.value = dut.mute.value = dut.level.value = 0
    await reset(dut)
    await FallingEdge(dut.clk)
    lines, given, taken, rounds = [], 0, True, Rounds(600)
    sums = [[0] * 16 for _ in range(3)]
    expected: list[int] = []
    while rounds.more(given > 30, given):
        _change(dut, rng, taken)
        for _ in range(rng.choice((1, 1, 2, 5, 40))):
            await ReadOnly()
            lines.append(_answer(dut))
            taken = bool(dut.asks__valid.value and dut.asks__ready.value)
            if taken:
                expected.append(_through(int(dut.asks__payload.value), sums))
            if dut.gives__valid.value and dut.gives__ready.value:
                assert int(dut.gives__payload.value) == expected.pop(0)
                given += 1
            await FallingEdge(dut.clk)
    Path(ANSWERS).write_text("\n".join(lines))


def _change(dut: Any, rng: random.Random, taken: bool) -> None:
    """Change one input, or none. A word is held until it is taken."""
    match rng.randrange(6):
        case 0 if taken or not dut.asks__valid.value:
            dut.asks__valid.value = rng.randrange(2)
            dut.asks__payload.value = rng.getrandbits(WIDE)
        case 1:
            dut.gives__ready.value = rng.random() < 0.7
        case 2:
            dut.open.value = rng.random() < 0.7
        case 3:
            dut.mute.value = rng.random() < 0.3
        case 4:
            dut.level.value = rng.getrandbits(9)


def _answer(dut: Any) -> str:
    """Text of all outputs that are valid in this cycle."""
    found = [int(dut.asks__ready.value), int(dut.gives__valid.value), int(dut.mixed.value)]
    if dut.gives__valid.value:
        found.append(int(dut.gives__payload.value))
    if dut.asks__valid.value:
        found.append(int(dut.place.value))
    return " ".join(f"{value:x}" for value in found)


def _through(word: int, sums: list[list[int]]) -> int:
    """Expected output for a word."""
    for one in sums:
        place = word >> 6 & 15
        word = one[place] = (one[place] + word) % (1 << WIDE)
    return word
