"""ASID table: rows are bound individually, and look-ups return the latest (ASID-2)."""

import os
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_table import AsidTable
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe

ASIDS = int(os.environ["ASIDS"])
CONFIG = Config(asids=ASIDS)
UNBOUND: dict[str, int] = {}


class SpacesTestbench(Testbench):
    """Drives the unit, and compares the row with that of the last look-up.

    Members
    -------
    seen : number of cycles with a bound row.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(AsidTable, CONFIG))
        self._bind = Strobe(self, "bind")
        self._rows: dict[int, dict[str, int]] = {}
        self._expected: dict[str, int] | None = None
        self.seen = 0

    async def step(self, look: bool = False, bind: bool = False) -> None:
        """One cycle, with random addresses and contents."""
        numbers = self.random
        asid = numbers.randrange(1 << CONFIG.asid_bits)
        whose = numbers.randrange(ASIDS)
        row = {"bound": 1, "base": numbers.getrandbits(20), "last": numbers.getrandbits(37)}
        self.drive(look=look, asid=asid)
        if bind:
            self._bind.send(asid=whose, row=row)
        await super().step()
        expected = self._expected
        if expected is not None:
            given = self.get("row")
            assert given["bound"] == (expected is not UNBOUND)
            if expected is not UNBOUND:
                assert given == expected
                self.seen += 1
        if look:
            self._expected = UNBOUND if self.get("busy") else self._rows.get(asid, UNBOUND)
        if bind:
            assert not self.get("busy")
            self._rows[whose] = row


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_row_for_itself(dut: Any) -> None:
    """With random look-ups and binds, a row is unbound during clearing and until a bind; a look-up
    returns the row of its cycle, which is held until the next one."""
    tb = await SpacesTestbench(dut).start()
    cycles = Rounds(2 * ASIDS + 600)
    while cycles.more(tb.seen > 50, tb.seen):
        binds = cycles.number > 2 * ASIDS and tb.random.random() < 0.3
        await tb.step(look=tb.random.random() < 0.7, bind=binds)
