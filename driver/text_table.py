"""Formatting of numbers and aligned tables as plain text, for reports."""

from collections.abc import Iterable, Sequence

__all__ = ["counted", "number", "ranges", "table", "times"]


def number(value: float) -> str:
    """A number rounded to an integer, with thousands separators."""
    return f"{value:,.0f}"


def counted(count: int, one: str, several: str = "") -> str:
    """A count with its noun: "1 copy", "2,000 copies". `several` is the plural if it is not `one`
    plus "s"."""
    return f"{number(count)} {one if count == 1 else several or one + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers in ascending order, with ranges: "0-3,6"."""
    found: list[tuple[int, int]] = []
    for one in numbers:
        if found and found[-1][1] == one - 1:
            found[-1] = found[-1][0], one
        else:
            found.append((one, one))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def times(baseline: float, value: float) -> str:
    """Ratio of `baseline` to `value`, "-" if `value` is 0."""
    return f"{baseline / value:.2f}x" if value else "-"


def table(rows: Sequence[Sequence[object]], *heads: Sequence[object]) -> str:
    """Rows as aligned text, below the heading rows `heads`: the first column left-aligned, the
    others right-aligned. In all heading rows but the last, a heading may span several columns; it
    is followed by None for each further column."""
    cells = [[str(cell) for cell in row] for row in rows]
    lowest = [str(cell) for cell in heads[-1]]
    columns = range(len(lowest))
    widths = [max(len(row[column]) for row in [lowest, *cells]) for column in columns]
    for head in heads[:-1]:
        for column, title, span in _spans(head):
            room = sum(widths[column : column + span]) + 2 * (span - 1)
            widths[column] += max(0, len(title) - room)

    def line(row: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()

    def spanning(head: Sequence[object]) -> str:
        parts = []
        for column, title, span in _spans(head):
            room = sum(widths[column : column + span]) + 2 * (span - 1)
            parts.append(
                f" {title} ".center(room, "-") if title and span > 1 else title.ljust(room)
            )
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([*map(spanning, heads[:-1]), line(lowest), rule, *map(line, cells)])


def _spans(head: Sequence[object]) -> list[tuple[int, str, int]]:
    """(first column, title, number of columns) of each part of a heading."""
    starts = [column for column, cell in enumerate(head) if cell is not None]
    ends = [*starts[1:], len(head)]
    return [(start, str(head[start]), end - start) for start, end in zip(starts, ends, strict=True)]
