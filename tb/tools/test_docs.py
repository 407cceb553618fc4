"""Pages: length of the README, links, paths, commands, and the example in the user guide."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.tools.command_help import COMMANDS, help_text

FOLDERS = ("docs", "driver", "examples", "hw", "tb")
"""Folders that contain pages, and whose paths are checked. The top folder contains pages too."""

LINES = 200
"""Maximum number of lines of the README."""

YOURS = "tb/mine"
"""Folder that the reader creates."""

_FENCE = re.compile(r"^(```|~~~)")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_OUTSIDE = re.compile(r"[a-z]+:")
_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)}|\.ci)/[\w./*-]+")
_MAKE = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*make ([a-z]+)(?: (.*))?$")
_MODULE = re.compile(r"\bpython -m (signalbox[\w.]*)")
_OF_THE_SYSTEM = re.compile(r"\bpython3? (?:-m pytest )?(?:examples|tb)/")
_AUTOMODULE = re.compile(r"automodule:: (\S+)")


class Page(NamedTuple):
    """A page, split into lines of prose and lines of code, each with its line number."""

    file: Path
    prose: list[tuple[int, str]]
    code: list[tuple[int, str]]

    def place(self, line: int) -> str:
        """Location of a line."""
        return f"{self.file.relative_to(ROOT)}:{line}"

    def spans(self) -> Iterator[tuple[int, str]]:
        """Code spans within prose. A span may continue on the next line."""
        text = "\n".join(line for _, line in self.prose)
        for match in _SPAN.finditer(text):
            yield self.prose[text.count("\n", 0, match.start())][0], " ".join(match[1].split())

    def commands(self) -> Iterator[tuple[int, str]]:
        """Lines of code, and code spans within prose, without comments."""
        for number, text in (*self.code, *self.spans()):
            yield number, text.partition(" #")[0].strip()


def read(file: Path) -> Page:
    """Read and split a page."""
    page, inside = Page(file, [], []), False
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line):
            inside = not inside
        else:
            (page.code if inside else page.prose).append((number, line))
    return page


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    files = [*ROOT.glob("*.md"), *(f for name in FOLDERS for f in (ROOT / name).rglob("*.md"))]
    assert len(files) > 10
    return [read(file) for file in sorted(files)]


def exists(path: str) -> bool:
    """Whether a path of the repository exists; for a pattern, whether it matches a file."""
    return any(True for _ in ROOT.glob(path.rstrip("/"))) if "*" in path else (ROOT / path).exists()


def test_readme_is_short():
    lines = len((ROOT / "README.md").read_text(encoding="utf-8").splitlines())
    assert lines <= LINES, f"README.md has {lines} lines, {LINES} at most"


def test_links_lead_somewhere(pages: list[Page]):
    broken = []
    for page in pages:
        for number, line in page.prose:
            for target in _LINK.findall(_SPAN.sub("", line)):
                path = target.partition("#")[0]
                if path and not _OUTSIDE.match(path) and not (page.file.parent / path).exists():
                    broken.append(f"{page.place(number)}: {target}")
    assert not broken, "\n".join(broken)


def test_paths_exist(pages: list[Page]):
    missing = [
        f"{page.place(number)}: {span}"
        for page in pages
        for number, span in page.spans()
        if (path := span.partition("::")[0])
        and _PATH.fullmatch(path)
        and not path.startswith(YOURS)
        and not exists(path)
    ]
    assert not missing, "\n".join(missing)


def test_modules_exist(pages: list[Page]):
    missing, count = [], 0
    for page in pages:
        named = [
            (number, module)
            for number, text in (*page.code, *page.spans())
            for module in (*_MODULE.findall(text), *_AUTOMODULE.findall(text))
        ]
        count += len(named)
        for number, module in named:
            file = ROOT / module.replace(".", "/")
            if not file.is_dir() and not file.with_suffix(".py").is_file():
                missing.append(f"{page.place(number)}: {module}")
    assert not missing, "\n".join(missing)
    assert count > 10


def test_programs_run_in_the_environment(pages: list[Page]):
    """Programs of the repository are run by the Python of `make venv`, which can import them."""
    wrong = [
        f"{page.place(number)}: {command}"
        for page in pages
        for number, command in page.commands()
        if _OF_THE_SYSTEM.search(command) and not command.startswith(".venv/bin/python ")
    ]
    assert not wrong, wrong


def test_targets_exist(pages: list[Page]):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [
        (page.place(number), match[1])
        for page in pages
        for number, text in page.commands()
        if (match := _MAKE.match(text))
    ]
    assert len(commands) > 20
    unknown = [f"{place}: make {name}" for place, name in commands if name not in targets]
    assert not unknown, "\n".join(unknown)


def test_options_exist(pages: list[Page]):
    unknown = []
    for page in pages:
        for number, text in page.commands():
            match = _MAKE.match(text)
            if match is None or match[1] not in COMMANDS:
                continue
            known = {*re.findall(r"--[a-z0-9-]+", help_text(match[1])), "--help"}
            for option in re.findall(r"--[a-z0-9-]+", match[2] or ""):
                if option not in known:
                    unknown.append(f"{page.place(number)}: {option} of make {match[1]}")
    assert not unknown, "\n".join(unknown)


def test_example_is_the_one_that_is_run():
    guide = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
    example = (ROOT / "tb" / "driver" / "cocotb_example.py").read_text(encoding="utf-8")
    assert f"```python\n{example}```\n" in guide


def test_split(tmp_path: Path):
    """Code is separated from prose, comments are removed, and a span may continue on the next
    line."""
    file = tmp_path / "page.md"
    file.write_text("a `make\nsim` b\n```\nX=1 make test A=2   # why\n```\n`tb/x`\n")
    page = read(file)
    assert [*page.spans()] == [(1, "make sim"), (6, "tb/x")]
    assert [*page.commands()] == [(4, "X=1 make test A=2"), (1, "make sim"), (6, "tb/x")]
    assert [match[1] for _, text in page.commands() if (match := _MAKE.match(text))] == [
        "test",
        "sim",
    ]
