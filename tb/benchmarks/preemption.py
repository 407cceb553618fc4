"""Gain and cost of the preemption of blocks: measurements, tables and plot."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.benchmarks import stops
from signalbox.tb.benchmarks.compute_machine import SAVING
from signalbox.tb.benchmarks.grids import Grid
from signalbox.tb.benchmarks.plots import Panel, save_plot
from signalbox.tb.benchmarks.urgency import URGENT, low_timing
from signalbox.tb.models.timing import Timing

__all__ = [
    "ARRIVALS",
    "ENDLESS",
    "LOSS",
    "LOSS_STEP",
    "LOSS_URGENT",
    "LOWS",
    "PACE",
    "PATIENCE",
    "RESPONSE",
    "RUNS",
    "SLICE",
    "SWITCHES",
    "SWITCH_LENGTHS",
    "SWITCH_WAYS",
    "WARPS",
    "WAVE",
    "WAYS",
    "key",
    "keys",
    "loss_grid",
    "loss_key",
    "loss_urgent",
    "low_grid",
    "plot",
    "switch_grid",
    "switch_key",
    "table",
    "urgent_grid",
]

WARPS = 4
"""Warps of every block; four such blocks fill an SM."""

WAVE = SAVING.sms * SAVING.sm_warps // WARPS
"""Blocks that fill the machine."""

WAYS = {"drain": False, "save": True}
"""Whether blocks are stopped for urgent ones."""

# Response of an urgent kernel

LENGTHS = (10_000, 40_000)
"""Mean duration of the low kernel's warps in cycles."""

ENDLESS = "forever"

LOWS = {
    **{f"{length}, spread": low_timing(length) for length in LENGTHS},
    **{f"{length}, all alike": Timing(cycles=length) for length in LENGTHS},
    ENDLESS: Timing(cycles=1 << 31),
}
"""Low kernels. "spread": the durations of warps cover a range about as large as their mean."""

ARRIVALS = (0.6, 0.93, 1.27, 1.61)
"""Arrivals of urgent kernels, in multiples of the length, after the start of the first low warp."""

PATIENCE = 50_000
"""Maximum cycles to wait for an urgent kernel among warps that never end."""

PACE = 10_000
"""Unit of `ARRIVALS` if warps never end."""

RESPONSE = {"first": "first warp", "last": "last warp", "worst": "first warp, worst"}

# Change of context

SLICE = 10_000
"""Cycles that a context runs while the other one waits."""

SWITCH_LENGTHS = (1000, 30_000)
"""Duration of a warp in cycles."""

RUNS = 30_000
"""Cycles of each context's work, alone on the machine and without any loss."""

SWITCH_WAYS: dict[str, PreemptionLevel | None] = {
    "one": None,
    "cta": PreemptionLevel.CTA,
    "cilp": PreemptionLevel.CILP,
}
"""Both tasks in one context; or each in its own, with this level."""

SWITCHES = {
    "starts": "CONTEXT_STARTS",
    "switch": "CONTEXT_SWITCH",
    "saved": "BLOCKS_SAVED",
    "restored": "BLOCKS_RESTORED",
}
"""Counters of the machine, by measurement."""

# Loss of throughput

LOSS = ("alone", *WAYS)
"""Without urgent kernels, and with them in each way."""

LOSS_CYCLES, LOSS_WAVES = 5000, 10
"""Mean duration of a low warp in cycles; number of low blocks per block that fits the machine."""

LOSS_URGENT, LOSS_STEP = 9, 4600
"""Number of urgent blocks, and cycles from one to the next. The last one comes while low blocks
still wait. The block with the smallest state is stopped first; if it has few warps left, another
block must be stopped, too. In all, about one low block in ten is stopped."""


def low_grid(low: str) -> Grid:
    """Kernel that fills the machine until after the last urgent arrival."""
    return Grid(blocks=4 * WAVE, warps=WARPS, timing=LOWS[low])


def urgent_grid() -> Grid:
    """Short kernel with one block per SM."""
    return Grid(blocks=SAVING.sms, warps=WARPS, timing=URGENT)


def switch_grid(length: int) -> Grid:
    """Work of one context."""
    return Grid(blocks=RUNS // length * WAVE, warps=WARPS, timing=Timing(cycles=length))


def loss_grid() -> Grid:
    """Kernel of which some blocks are preempted."""
    return Grid(blocks=LOSS_WAVES * WAVE, warps=WARPS, timing=low_timing(LOSS_CYCLES))


def loss_urgent() -> Grid:
    """Short kernel of one block."""
    return Grid(blocks=1, warps=WARPS, timing=URGENT)


def key(what: str, way: str, low: str) -> str:
    """Name of a measurement of an urgent kernel's response."""
    return f"preemption, {what}, {way}, low warps last {low}"


def switch_key(what: str, way: str, length: int) -> str:
    """Name of a measurement of changes of context."""
    return f"change of context, {what}, {way}, warps of {length}"


def loss_key(what: str, way: str) -> str:
    """Name of a measurement of throughput."""
    return f"throughput, {what}, {way}"


def _response_keys() -> list[str]:
    found = [key(what, way, n) for way, n in product(WAYS, LOWS) for what in RESPONSE]
    vain = [key(what, "drain", ENDLESS) for what in RESPONSE]
    return [name for name in found if name not in vain] + [key("vain", "drain", ENDLESS)]


def _switch_keys() -> list[str]:
    return [
        switch_key(what, way, length)
        for way, length in product(SWITCH_WAYS, SWITCH_LENGTHS)
        for what in ("makespan", *(SWITCHES if SWITCH_WAYS[way] is not None else ()))
    ]


def _loss_keys() -> list[str]:
    return [loss_key("makespan", way) for way in LOSS] + [
        loss_key(what, "save") for what in ("blocks", "away")
    ]


def keys() -> list[str]:
    """Names of all measurements, without those of `stops`."""
    return [*_response_keys(), *_switch_keys(), *_loss_keys()]


def table(values: Mapping[str, int]) -> str:
    """Tables of all measurements in Markdown, without those of `stops`."""
    return "\n\n".join([_response_table(values), _switch_table(values), _loss_table(values)])


_RESPONSE_TITLE = f"""\
Response: cycles from the launch of an urgent kernel of {SAVING.sms} blocks of {WARPS} warps, on
{SAVING.sms} SMs without a free warp, by how many cycles the warps of the low kernel there last:
mean of {len(ARRIVALS)} launches, and the worst of them; in brackets: divided by those of `save`.
Drain: it waits for warps that end; save: low blocks are stopped. Spread: evenly over a range of
about the size of the mean, so that some warp soon ends. All alike: they end together."""


def _response_table(values: Mapping[str, int]) -> str:
    heads = [f"{what}: {way}" for what in RESPONSE.values() for way in WAYS]
    lines = [_RESPONSE_TITLE, "", f"| low warps last | {' | '.join(heads)} |"]
    lines.append("|---|" + "--:|" * len(heads))
    for low in LOWS:
        cells = []
        for what in RESPONSE:
            least = values[key(what, "save", low)]
            value = values.get(key(what, "drain", low))
            if value is None:
                cells.append(f"never: not in {values[key('vain', 'drain', low)]}")
            else:
                cells.append(f"{value} ({value / least:.1f})")
            cells.append(str(least))
        lines.append(f"| {low} | {' | '.join(cells)} |")
    return "\n".join(lines)


_SWITCH_TITLE = f"""\
Change of context: two kernels that fill the machine for {RUNS} cycles each; both in one context, or
each in its own, in turn after {SLICE} cycles. Counters of the machine: changes (CONTEXT_STARTS),
cycles of each (CONTEXT_SWITCH: leave and bind), blocks saved and restored. Loss: makespan beyond
that of one context, for each change; it includes the return of blocks and warps that idle."""

_SWITCH_HEADS = (
    "| warps last | level | makespan | changes | cycles each | saved | restored | loss |"
)


def _switch_table(values: Mapping[str, int]) -> str:
    lines = [_SWITCH_TITLE, "", _SWITCH_HEADS, "|--:|---|" + "--:|" * 6]
    for length, (way, level) in product(SWITCH_LENGTHS, SWITCH_WAYS.items()):
        spent = values[switch_key("makespan", way, length)]
        if level is None:
            cells = ["one context", spent, *["–"] * 5]
        else:
            counts = [values[switch_key(what, way, length)] for what in SWITCHES]
            starts, cycles, saved, restored = counts
            loss = (spent - values[switch_key("makespan", "one", length)]) / starts
            each = f"{cycles / starts:.0f}"
            cells = [level.name, spent, starts, each, saved, restored, f"{loss:.0f}"]
        lines.append(f"| {length} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


_LOSS_TITLE = f"""\
Throughput: cycles of a kernel of {LOSS_WAVES * WAVE} blocks of {WARPS} warps that last
{LOSS_CYCLES} cycles on average, alone, and while {LOSS_URGENT} urgent blocks of {WARPS} warps run,
one after the other. For each: cycles more than with drain, divided by the blocks saved. Away: mean
cycles from the stop of a block until it is sent to an SM again."""


def _loss_table(values: Mapping[str, int]) -> str:
    alone, drain, save = (values[loss_key("makespan", way)] for way in LOSS)
    blocks, away = (values[loss_key(what, "save")] for what in ("blocks", "away"))
    loss = save - drain
    cells = [alone, drain, save, f"{loss} ({loss / drain:.1%})", blocks, f"{loss / blocks:.0f}"]
    return "\n".join([
        _LOSS_TITLE,
        "",
        "| alone | drain | save | save beyond drain | blocks saved | for each | away |",
        "|" + "--:|" * 7,
        f"| {' | '.join(map(str, [*cells, away]))} |",
    ])


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the stops of `stops`, and the response of urgent kernels."""
    lines = {
        f"{way}, {kind}": [values[key("first", way, f"{n}, {kind}")] for n in LENGTHS]
        for way, kind in product(WAYS, ("all alike", "spread"))
    }
    response = Panel("launch → first urgent warp", "cycles that a low warp lasts", LENGTHS, lines)
    save_plot(file, "Preemption", "cycles", [stops.panel(values), response])
