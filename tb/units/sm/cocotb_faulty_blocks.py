"""Faults get the positions of their blocks (ASID-5)."""

import os
from typing import Any

import cocotb

from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.faulty_blocks import FaultyBlocks
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.test_faulty_blocks import SIZES

CONFIG = SIZES[os.environ["SM_CONFIG"]]

CAUSES = [cause for cause in CoreCause if cause is not CoreCause.NONE]


@cocotb.test()
async def random_faults(dut: Any) -> None:
    """Blocks enter slots while others fault: each fault arrives once, in order and unchanged, with
    its block, 1 cycle after it is offered if it is accepted at once."""
    tb = Testbench(dut, component(FaultyBlocks, CONFIG))
    rng, blocks = tb.random, dict[int, dict[str, int]]()
    begin, faults = Strobe(tb, "begin"), Source(tb, "i", tb.share(0.5))
    sink, expected = Sink(tb, "o", tb.share(0.5)), list[dict[str, Any]]()
    await tb.start()
    for _ in range(300):
        if not faults.pending:
            tb.random.shuffle(CAUSES)
            slot = rng.randrange(CONFIG.sm_blocks)
            if slot not in blocks or rng.random() < 0.5:
                at = {"x": rng.getrandbits(32), "y": rng.getrandbits(16), "z": rng.getrandbits(16)}
                begin.send(what={"slot": slot, "at": at})
                blocks[slot] = at
                await tb.steps(1)
        slot = rng.choice([*blocks])
        fault = {
            "row": rng.randrange(CONFIG.rows),
            "index": rng.getrandbits(6),
            "cause": CAUSES[0],
            "at": rng.getrandbits(49),
            "va": rng.getrandbits(49),
        }
        faults.put({**fault, "slot": slot})
        expected.append({**fault, "block": blocks[slot]})
        sink.pace = faults.pace = tb.share(rng.choice((0.3, 1.0)))
        await tb.steps(rng.choice((0, 1, 4)))
    await tb.until(lambda: len(sink.taken) == len(expected), "all faults arrive", 20_000)
    assert [word for _, word in sink.taken] == expected


@cocotb.test()
async def one_cycle(dut: Any) -> None:
    """A fault arrives in the cycle after its offer; the next one may be offered then."""
    tb = Testbench(dut, component(FaultyBlocks, CONFIG))
    begin, faults, sink = Strobe(tb, "begin"), Source(tb, "i"), Sink(tb, "o")
    await tb.start()
    begin.send(what={"slot": CONFIG.sm_blocks - 1, "at": {"x": 1, "y": 2, "z": 3}})
    await tb.steps(2)
    first = tb.cycle
    for number in range(4):
        faults.put({"slot": CONFIG.sm_blocks - 1, "index": number, "cause": CAUSES[0]})
    await tb.until(lambda: len(sink.taken) == 4, "they arrive")
    assert [cycle for cycle, _ in sink.taken] == [first + 1 + 2 * n for n in range(4)]
    assert {(*word["block"].values(),) for _, word in sink.taken} == {(1, 2, 3)}
