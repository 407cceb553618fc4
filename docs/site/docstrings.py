"""Extension of Sphinx: the project's docstrings as reStructuredText.

Code is in single backticks. What is indented by four is code as well. Items of a list begin with
an asterisk. A section is a title underlined with dashes; its entries are `name : text`, with
further lines indented.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from sphinx.application import Sphinx

__all__ = ["restructured", "setup"]

_ENTRY = re.compile(r"([\w`, …\\]+?) : (.*)")
_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"(?!^\* )([\\*|_])", re.MULTILINE)
"""Marks of reStructuredText, but for that of a list."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect what Sphinx calls."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(_: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]):
    lines[:] = restructured(lines)


def restructured(lines: Sequence[str]) -> list[str]:
    """Lines of a docstring, as Sphinx reads them."""
    result = []
    for empty, part in groupby(lines, key=lambda line: not line.strip()):
        if not empty:
            result += [*_paragraph([*part]), ""]
    return result


def _paragraph(lines: list[str]) -> Iterator[str]:
    if all(line.startswith("    ") for line in lines):
        yield from ("::", "", *lines)
    elif len(lines) > 1 and _is_line(lines[1]):
        yield from (f"**{lines[0]}**", "")
        yield from _entries(lines[2:])
    elif any(_ENTRY.fullmatch(line) for line in lines):
        yield from _entries(lines)
    else:
        yield from _text(lines)


def _is_line(text: str) -> bool:
    return bool(text) and not text.strip("-")


def _entries(lines: list[str]) -> Iterator[str]:
    """Entries as a list, text between them as it is."""
    for line in _text(lines):
        if entry := _ENTRY.fullmatch(line):
            names = entry[1].replace("`", "").replace("\\", "")
            yield from ("", f"* ``{names}`` : {entry[2]}")
        else:
            yield f"  {line.strip()}" if line.startswith(" ") else line


def _text(lines: list[str]) -> Iterator[str]:
    """Lines with code in double backticks and without other marks."""
    parts = _CODE.split("\n".join(lines))
    for number, part in enumerate(parts):
        code = number % 2
        parts[number] = f"`{' '.join(part.split())}`" if code else _SPECIAL.sub(r"\\\1", part)
    yield from "".join(parts).split("\n")
