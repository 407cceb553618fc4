"""Generations of address spaces, compared with their rules in every cycle: advances in any cycles,
even back to back, of the same space and of others, while spaces are swept (ASID-8, ASID-9)."""

import os
from collections import defaultdict
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_generations import AsidGenerations
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe

ASIDS, BITS = int(os.environ.get("ASIDS", "4")), int(os.environ.get("BITS", "2"))
LAST = (1 << BITS) - 1

Row = tuple[int, bool]
"""Number of a generation, and whether its space is closed."""


def following(row: Row) -> Row:
    """The row of a space after the end of its generation."""
    number, closed = row
    return (number + 1) % (LAST + 1), closed or number == LAST


class GenerationsTestbench(Testbench):
    """Drives the unit, compares the rows, and checks the order of sweeps.

    Members
    -------
    rows : row of each space.
    ends : the space whose generation ends, and its next row.
    sweeps : the space being swept.
    cleaned : the space that will be opened.
    opened : number of times that a space was opened.
    since, idle : for each closed space, the spaces swept since, and the number of cycles without a
        sweep.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(AsidGenerations, Config(asids=ASIDS), 2, bits=BITS))
        self._advance = Strobe(self, "advance")
        self.rows: list[Row] = [(0, False)] * ASIDS
        self.ends: tuple[int, Row] | None = None
        self.sweeps: int | None = None
        self.cleaned: int | None = None
        self.opened = 0
        self.since: dict[int, list[int]] = defaultdict(list)
        self.idle: dict[int, int] = defaultdict(int)

    async def step(self, advance: int | None = None, clean: bool = False) -> None:
        """One cycle. `advance` : space whose generation ends. `clean` : no entry of the space being
        swept is left."""
        asids = [self.random.randrange(ASIDS) for _ in range(2)]
        clean = clean and self.sweeps is not None
        if advance is not None:
            self._advance.send(asid=advance)
        self.drive(asid__0=asids[0], asid__1=asids[1], clean=clean)
        await super().step()
        for reader, asid in enumerate(asids):
            row = self.get(f"row__{reader}")
            assert (row["number"], bool(row["closed"])) == self.rows[asid], f"row of space {asid}"
        self._turn()
        self._follow(advance, clean)

    def _turn(self) -> None:
        """Check that a space being swept is closed, and that no space waits too long."""
        sweeps = self.get("swept") if self.get("sweeps") else None
        closed = [asid for asid, (_, is_closed) in enumerate(self.rows) if is_closed]
        if self.sweeps is not None:
            assert sweeps == self.sweeps, "the sweep leaves a space before it is clean"
        elif sweeps is not None:
            assert sweeps in closed, "an open space is swept"
            for asid in closed:
                if asid != sweeps:
                    assert sweeps not in self.since[asid], "swept again while another waits"
                    self.since[asid].append(sweeps)
        if sweeps is None and self.cleaned is None:
            for asid in closed:
                self.idle[asid] += 1
                assert self.idle[asid] <= ASIDS + len(self.since[asid]) + 1, "no space is swept"
        self.sweeps = sweeps

    def _follow(self, advance: int | None, clean: bool) -> None:
        """Compute the rows of the next cycle. A clean space is opened in the first cycle in which
        no generation ends."""
        ends = None
        if advance is not None:
            behind = self.ends is not None and self.ends[0] == advance
            ends = advance, following(self.ends[1] if behind and self.ends else self.rows[advance])
        if self.ends is not None:
            asid, row = self.ends
            self.rows[asid] = row
        elif self.cleaned is not None:
            self.rows[self.cleaned] = 0, False
            self.since.pop(self.cleaned, None)
            self.idle.pop(self.cleaned, None)
            self.cleaned, self.opened = None, self.opened + 1
        self.ends = ends
        if clean:
            self.cleaned, self.sweeps = self.sweeps, None


@cocotb.test()
async def random_generations(dut: Any) -> None:
    """Rows are correct with random advances, even in successive cycles, of the same space and of
    others."""
    tb = await GenerationsTestbench(dut).start()
    numbers = tb.random
    rounds, last, behind = Rounds(400), None, {True: 0, False: 0}
    while rounds.more(tb.opened >= 20 and min(behind.values()) >= 20, (tb.opened, behind)):
        often, few = numbers.choice((0.02, 0.3, 0.9)), numbers.randint(1, min(3, ASIDS))
        spaces = numbers.sample(range(ASIDS), few)
        for _ in range(20):
            advance = numbers.choice(spaces) if numbers.random() < often else None
            if last is not None and advance is not None:
                behind[last == advance] += 1
            last = advance
            await tb.step(advance, numbers.random() < 0.3)
