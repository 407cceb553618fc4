"""How long a launch takes on an idle machine: what is measured, its table and its plot."""

from collections.abc import Mapping

__all__ = ["LATENCIES", "STEPS", "TRANSLATED", "key", "keys", "table"]

LATENCIES = (16, 64, 200)
"""Memory latencies, of reads and of writes."""

TRANSLATED = {
    False: "first launch: no translation is known",
    True: "the same again: translations are known",
}

STEPS = {
    "doorbell": "doorbell → launch method executed",
    "accepted": "→ task unit takes the launch",
    "slot": "→ record read and checked, task has its slot",
    "block": "→ first block valid at an SM",
    "warp": "→ its first warp starts",
    "over": "→ task over (4 blocks of 4 warps that do nothing, record of the core read)",
}
"""Of each the cycles since the one before."""


def key(step: str, latency: int, known: bool) -> str:
    """Name of one measurement."""
    return f"launch, {step}, latency {latency}, {'warm' if known else 'cold'}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [
        key(step, latency, known) for known in TRANSLATED for latency in LATENCIES for step in STEPS
    ]


def table(values: Mapping[str, int]) -> str:
    """All measurements in Markdown."""
    heads = [f"{'warm' if known else 'cold'}, {n}" for known in TRANSLATED for n in LATENCIES]
    lines = [
        "Cycles of a launch on an idle machine, by memory latency; cold: the first launch, no",
        "translation is known; warm: the same again.",
        "",
        f"| what | {' | '.join(heads)} |",
        "|---|" + "--:|" * len(heads),
    ]
    for step, what in STEPS.items():
        cells = [str(values[key(step, n, known)]) for known in TRANSLATED for n in LATENCIES]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    sums = [
        str(sum(values[key(step, n, known)] for step in ("accepted", "slot", "block", "warp")))
        for known in TRANSLATED
        for n in LATENCIES
    ]
    lines.append(f"| launch method → first warp | {' | '.join(sums)} |")
    return "\n".join(lines)
