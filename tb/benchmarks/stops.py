"""Cycles from the stop of a block until its resources are free: measurements, bound, table and
plot."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from signalbox.hw.config import REGISTER_UNIT, STATE_LINE, WARP_THREADS
from signalbox.hw.sm.timing.layouts import outstanding_accesses
from signalbox.tb.benchmarks.compute_machine import SAVING
from signalbox.tb.benchmarks.grids import Grid
from signalbox.tb.benchmarks.plots import Panel
from signalbox.tb.models.timing import Timing, stop_bound

__all__ = ["BASE", "LATENCIES", "SIZES", "Size", "key", "keys", "panel", "table"]

LATENCIES = (20, 100, 300)
"""Memory latencies, of reads and of writes."""

BASE = 0x10_0000_0000
"""Address from which the stopped warps load."""


@dataclass(frozen=True)
class Size:
    """A stopped block: its warps, the registers of a thread, and its shared memory in bytes."""

    warps: int
    registers: int
    shared: int

    @property
    def bytes(self) -> int:
        """Bytes of the block's state: a line for the fates of its warps, a line for each warp,
        shared memory, and registers as allocated."""
        unit = REGISTER_UNIT // WARP_THREADS
        registers = -(-self.registers // unit) * unit
        return STATE_LINE * (1 + self.warps * (1 + registers)) + self.shared

    @property
    def grid(self) -> Grid:
        """Grid with one such block per SM; its warps load again and again."""
        width = SAVING.beat_bytes
        timing = Timing(accesses=0xFFFF, base=BASE, cycles=20, spread=31, warp_bytes=width)
        return Grid(
            blocks=SAVING.sms,
            warps=self.warps,
            timing=timing,
            registers=self.registers,
            shared=self.shared,
        )

    def bound(self, latency: int) -> int:
        """Maximum cycles in which a core saves the block, as tested for the core alone."""
        return stop_bound(
            self.bytes // SAVING.beat_bytes,
            self.warps,
            latency,
            sm_warps=SAVING.sm_warps,
            under_way=outstanding_accesses(SAVING) * STATE_LINE // SAVING.beat_bytes,
        )


SIZES = (
    Size(1, 8, 0),
    Size(2, 8, 0),
    Size(6, 8, 0),
    Size(1, 8, 8192),
    Size(12, 8, 0),
    Size(1, 128, 0),
    Size(6, 20, 8192),
)
"""Stopped blocks, in order of their bytes of state."""

_WHAT = {"free": "told → free", "start": "sent → urgent warp"}

_TITLE = f"""\
Request to free: cycles from the one in which the core is told to stop a block until nothing of it
is left on its SM, by the size of its state and the memory latency. Its warps load all the time,
like those of three other SMs. In brackets: the bound of `hw/sm/README.md` for the port of the
core alone, with a memory that accepts each beat at once. In the machine, a burst is {STATE_LINE}
bytes. Last columns: from the cycle in which the urgent block, which needs all registers, is sent
to the SM until its first warp starts there; its kernel is new to the machine, so no translation
of it is known."""


def key(what: str, size: Size, latency: int) -> str:
    """Name of one measurement."""
    block = f"{size.warps} warps, {size.registers} registers, {size.shared} bytes shared"
    return f"stop, {what}, {block}, latency {latency}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(what, *one) for what in _WHAT for one in product(SIZES, LATENCIES)]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    heads = [f"{title}, {latency}" for title in _WHAT.values() for latency in LATENCIES]
    lines = [
        _TITLE,
        "",
        f"| warps | registers | shared | bytes | {' | '.join(heads)} |",
        "|" + "--:|" * (4 + len(heads)),
    ]
    for size in SIZES:
        cells = [size.warps, size.registers, size.shared, size.bytes]
        cells += [f"{values[key('free', size, n)]} ({size.bound(n)})" for n in LATENCIES]
        cells += [values[key("start", size, n)] for n in LATENCIES]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def panel(values: Mapping[str, int]) -> Panel:
    """Panel with one line per latency; blocks without shared memory."""
    sizes = [size for size in SIZES if size.registers == 8 and not size.shared]
    lines = {
        f"memory latency {latency}": [values[key("free", size, latency)] for size in sizes]
        for latency in LATENCIES
    }
    what = "bytes of state (1, 2, 6, 12 warps)"
    return Panel("stop → free", what, [size.bytes for size in sizes], lines)
