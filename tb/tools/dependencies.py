"""Everything that determines the results of a test file, except the seed.

Comments and docstrings do not count: after a change of them, results are still valid.
"""

import ast
import hashlib
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from signalbox.tb.folders import ROOT
from signalbox.tb.simulation.runner import SIMULATORS
from signalbox.tb.simulation.verilator import version

__all__ = ["code", "digest", "files"]

_NAME = re.compile(r"signalbox(?:\.\w+)+\.?")
_FOLDERS = ("hw", "driver", "tb")
_NO_DATA = {".py", ".pyc", ".md"}
_EVERYWHERE = {("tb", "simulation"), *((top,) for top in _FOLDERS[:2])}
"""Folders whose data files all tests may read."""


def code(text: bytes) -> str:
    """A Python file without comments, docstrings and formatting."""
    return ast.dump(_tree(text))


def _tree(text: bytes) -> ast.Module:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, name, None), list):
                setattr(node, name, [one for one in statements if not _is_text(one)])
    return tree


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or the text below a constant or a member."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


@cache
def digest(test: Path) -> str:
    """Hash of the code in `files`, of data files that the test may read, and of the versions of
    Python, the simulators and the packages in the project's list of dependencies."""
    content = hashlib.sha256(repr(_tools()).encode())
    used = sorted(files(test))
    for file in used:
        content.update(f"{file.relative_to(ROOT)}\n{_code(file)}\n".encode())
    rooms = {file.relative_to(ROOT).parts[:2] for file in used}
    for file, data in _data():
        parts = file.parts
        if parts[:1] in _EVERYWHERE or parts[:2] in _EVERYWHERE | rooms:
            content.update(f"{file}\n{data}\n".encode())
    return content.hexdigest()[:16]


@cache
def files(test: Path) -> frozenset[Path]:
    """Python files of the project on which a test file depends.

    These are the modules that the test file and `tb/conftest.py` import or name in strings, and,
    recursively, the modules that these import or name. The start of a name stands for all modules
    that it may name: f"signalbox.tb.units.copy.{name}" for all modules of the folder.
    """
    found: set[Path] = set()
    waiting = [test, ROOT / "tb" / "conftest.py"]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _named(file)
    return frozenset(found)


@cache
def _named(file: Path) -> frozenset[Path]:
    """Files of the modules that a file imports or names."""
    names = {name for node in ast.walk(_tree(file.read_bytes())) for name in _names(node)}
    return frozenset(one for name in names for one in _module(name))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{one.name}" for one in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _NAME.findall(node.value)


def _module(name: str) -> Iterator[Path]:
    """Files that run when `name`, a module of the project or a member of a module, is imported. For
    the start of a name, the files of all modules that it may name."""
    package, *parts = name.split(".")
    folder = ROOT
    for part in parts if package == "signalbox" else ():
        if (file := folder / f"{part}.py").exists():
            yield file
            return
        if not part or not (folder / part).is_dir():
            yield from folder.glob(f"{part}*.py")
            return
        folder /= part
        yield from folder.glob("__init__.py")


@cache
def _code(file: Path) -> str:
    return hashlib.sha256(code(file.read_bytes()).encode()).hexdigest()


@cache
def _data() -> tuple[tuple[Path, str], ...]:
    """Other files of the project, relative to the top folder, with their hashes."""
    every = (file for top in _FOLDERS for file in sorted((ROOT / top).rglob("*")))
    return tuple(
        (file.relative_to(ROOT), hashlib.sha256(file.read_bytes()).hexdigest())
        for file in every
        if file.is_file() and file.suffix not in _NO_DATA
    )


@cache
def _tools() -> tuple[object, ...]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = [re.split(r"[^\w-]", text)[0] for text in project["dependencies"]]
    found = [one for one in SIMULATORS if one != "icarus" or shutil.which("iverilog")]
    versions = [(name, metadata.version(name)) for name in packages]
    return sys.version_info[:2], versions, [version(simulator) for simulator in found]
