"""ASID table: rows are bound individually, and look-ups return the latest (ASID-2)."""

import os
from random import Random

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_table import AsidTable
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

ASIDS = int(os.environ["ASIDS"])
CONFIG = Config(asids=ASIDS)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_row_for_itself(dut):
    """With random look-ups and binds, a row is unbound during clearing and until a bind; a look-up
    returns the row of its cycle, which is held until the next one."""
    numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    members = AsidTable(CONFIG).signature.members
    dut.look.value = dut.asid.value = dut.bind.value = 0
    await reset(dut)
    rows: dict[int, tuple[int, int]] = {}
    expected, seen = None, 0
    cycles = Rounds(2 * ASIDS + 600)
    while cycles.more(seen > 50, seen):
        look, asid = numbers.random() < 0.7, numbers.randrange(1 << len(dut.asid))
        binds = cycles.number > 2 * ASIDS and numbers.random() < 0.3
        whose, row = numbers.randrange(ASIDS), (numbers.getrandbits(20), numbers.getrandbits(37))
        values = {
            "valid": binds,
            "asid": whose,
            "row": {"bound": 1, "base": row[0], "last": row[1]},
        }
        dut.look.value, dut.asid.value = int(look), asid
        dut.bind.value = members["bind"].shape.const(values).as_bits()
        await ReadOnly()
        if expected is not None:
            assert dut.row.value[0] == int(expected != ())
        if expected:
            given = members["row"].shape.from_bits(dut.row.value.to_unsigned())
            assert (given.base, given.last) == expected
            seen += 1
        if look:
            expected = rows.get(asid, ()) if dut.busy.value == 0 else ()
        if binds:
            assert dut.busy.value == 0
            rows[whose] = row
        await RisingEdge(dut.clk)
