"""What `cocotb_rates` measures, and its table."""

from collections.abc import Mapping

__all__ = ["CHURN", "KERNELS", "SIZES", "key", "keys", "table"]

SIZES = (4, 16, 64, 132)
KERNELS = (4, 16, 64)
CHURN = 400
"""Cycles in which blocks are counted while others end."""


def key(what: str, sms: int, kernels: int = 0) -> str:
    """Name of one measurement."""
    return f"placement, {what}, {sms} SMs" + (f", {kernels} kernels" if kernels else "")


def keys(sms: int) -> list[str]:
    """Names of all measurements of a machine of so many SMs."""
    rates = [key(what, sms, count) for what in ("burst", "churn") for count in KERNELS]
    return [key("open", sms), key("freed", sms), *rates]


def table(values: Mapping[str, int]) -> str:
    """All measurements in Markdown."""
    lines = [
        "Blocks per 1000 cycles: all block slots fall free at once (burst), or blocks end all the "
        "time, up to 1.5 per cycle (churn). Latencies in cycles until the block is valid at its SM.",
        "",
        "| SMs | open | freed |" + "".join(f" burst, {n} kernels |" for n in KERNELS)
        + "".join(f" churn, {n} kernels |" for n in KERNELS),
        "|--:|" * 3 + "--:|" * (2 * len(KERNELS)),
    ]
    for sms in SIZES:
        cells = [str(values.get(name, "–")) for name in keys(sms)]
        lines.append(f"| {sms} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
