"""`make rooms`: draws docs/rooms.svg, the rooms of `hw` and `driver` and the imports between them.

Rows are the layers of `[tool.importlinter]` in pyproject.toml, which `make lint` checks: imports
run downwards. An arrow that other arrows imply is left out.
"""

import argparse
import tomllib
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from signalbox.hw.options import program
from signalbox.tb.folders import ROOT, shown

__all__ = ["arrows", "layers", "main"]

OUT = ROOT / "docs" / "rooms.svg"

_WIDTH, _HEIGHT = 0.78, 0.5
"""Size of a box. Boxes of a row, and rows, are 1 apart."""

Edge = tuple[str, str]


def layers(package: str) -> list[list[str]]:
    """Layers of a package from the top down, each a list of rooms, as in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (mine,) = (one for one in contracts if one.get("containers") == [f"signalbox.{package}"])
    return [[room.strip() for room in layer.split("|")] for layer in mine["layers"]]


def arrows(package: str, rooms: Sequence[str]) -> set[Edge]:
    """Imports between rooms, without those implied by others: if a imports b, and b imports c, then
    a to c is left out."""
    import grimp  # an extra

    graph = grimp.build_graph("signalbox", cache_dir=None)
    for room in rooms:
        graph.squash_module(f"signalbox.{package}.{room}")
    direct = {
        (one, other)
        for one in rooms
        for other in rooms
        if graph.direct_import_exists(
            importer=f"signalbox.{package}.{one}", imported=f"signalbox.{package}.{other}"
        )
    }
    return {edge for edge in direct if not _leads(direct - {edge}, *edge)}


def _leads(edges: set[Edge], start: str, end: str) -> bool:
    """Whether a path leads from `start` to `end`."""
    return any(other == end or _leads(edges, other, end) for one, other in edges if one == start)


def _draw(axes: Axes, package: str) -> None:
    rows = layers(package)
    places = {
        room: (number - (len(row) - 1) / 2, -depth)
        for depth, row in enumerate(rows)
        for number, room in enumerate(row)
    }
    for one, other in sorted(arrows(package, list(places))):
        (x, y), (to_x, to_y) = places[one], places[other]
        arrow = {"arrowstyle": "-|>", "color": "tab:gray", "shrinkA": 0, "shrinkB": 0}
        axes.annotate(
            "",
            (to_x, to_y + _HEIGHT / 2),
            (x, y - _HEIGHT / 2),
            arrowprops={**arrow, "gid": f"{package}.{one}-{package}.{other}"},
        )
    for room, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.35", "facecolor": "aliceblue", "edgecolor": "tab:blue"}
        axes.text(x, y, room, ha="center", va="center", fontsize=8, bbox=box)
    wide = max(map(len, rows)) / 2
    axes.set(xlim=(-wide, wide), ylim=(0.5 - len(rows), 0.5), title=f"{package}/")
    axes.axis("off")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw both packages side by side."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.tools.rooms"), description=(__doc__ or "").partition("\n")[0]
    )
    parser.parse_args(arguments)
    matplotlib.rcParams["svg.hashsalt"] = "signalbox"  # makes the file reproducible
    figure = Figure(figsize=(12, 8.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(6, 3))
    _draw(left, "hw")
    _draw(right, "driver")
    figure.savefig(OUT, metadata={"Date": None})
    print(shown(OUT))


if __name__ == "__main__":
    main()
