"""Numbers and aligned tables as plain text, for reports."""

from collections.abc import Sequence

__all__ = ["counted", "number", "table", "times"]


def number(value: float) -> str:
    """A whole number with separators."""
    return f"{value:,.0f}"


def counted(count: int, one: str, several: str = "") -> str:
    """A number of things: "1 copy", "2,000 copies"; `several` where it is not `one` with an s."""
    return f"{number(count)} {one if count == 1 else several or one + 's'}"


def times(baseline: float, value: float) -> str:
    """How many times smaller `value` is."""
    return f"{baseline / value:.2f}x" if value else "-"


def table(rows: Sequence[Sequence[object]], *heads: Sequence[object]) -> str:
    """Rows as aligned text: the first column to the left, numbers to the right. A head that spans
    several columns is followed by None for each further one."""
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
    """Column, title and number of columns of the parts of a head."""
    starts = [column for column, cell in enumerate(head) if cell is not None]
    ends = [*starts[1:], len(head)]
    return [(start, str(head[start]), end - start) for start, end in zip(starts, ends, strict=True)]
