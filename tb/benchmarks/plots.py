"""Plots of measurements for `docs/`: panels side by side, with both axes logarithmic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Panel", "save_plot"]


@dataclass(frozen=True)
class Panel:
    """A panel. `across` : label of the x axis. `lines` : by label, values at all `places` or at the
    first ones."""

    title: str
    across: str
    places: Sequence[int]
    lines: Mapping[str, Sequence[float]]


def save_plot(
    file: Path, title: str, upward: str, panels: Sequence[Panel], legend: str | None = None
) -> None:
    """Plot panels, which share the y axis with the label `upward`. `legend` : title of the legend,
    which is shown in the first panel, and in panels with other lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator, ScalarFormatter

    width = 4 * len(panels) if len(panels) > 1 else 6.5
    figure, axes = pyplot.subplots(1, len(panels), figsize=(width, 4.2), sharey=True, squeeze=False)
    for one, panel in zip(axes[0], panels, strict=True):
        for name, values in panel.lines.items():
            one.plot(panel.places[: len(values)], values, marker="o", label=name)
        one.set(title=panel.title, xscale="log", yscale="log")
        one.set_xlabel(panel.across)
        one.set_xticks(panel.places)
        one.xaxis.set_major_formatter(ScalarFormatter())
        one.xaxis.set_minor_locator(NullLocator())
        one.grid(True, which="major", alpha=0.4)
        if one is axes[0][0] or panel.lines.keys() != panels[0].lines.keys():
            one.legend(title=legend)
    axes[0][0].set_ylabel(upward)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
