"""The picture of the rooms."""

import ast
import re

import pytest

from signalbox.tb.folders import PACKAGE
from signalbox.tb.tools import rooms


@pytest.mark.parametrize("package", ["hw", "driver"])
def test_every_room_has_a_layer(package: str):
    found = [room for row in rooms.layers(package) for room in row]
    files = (file for file in (PACKAGE / package).iterdir() if file.name[0] not in "_.")
    assert sorted(found) == sorted(
        file.stem for file in files if file.suffix == ".py" or (file / "__init__.py").exists()
    )


@pytest.mark.parametrize("package", ["hw", "driver"])
def test_arrows_run_downwards(package: str):
    pytest.importorskip("grimp")
    rows = rooms.layers(package)
    depth = {room: number for number, row in enumerate(rows) for room in row}
    found = rooms.arrows(package, list(depth))
    assert found and all(depth[one] < depth[other] for one, other in found)


def test_what_follows_is_no_arrow():
    edges = {("a", "b"), ("b", "c"), ("a", "c")}
    assert rooms._leads(edges - {("a", "c")}, "a", "c")
    assert not rooms._leads(edges - {("a", "b")}, "a", "b")


def imports(package: str) -> set[tuple[str, str]]:
    """Imports between rooms, as written in the files."""
    found = set()
    for file in (PACKAGE / package).rglob("*.py"):
        room = file.relative_to(PACKAGE / package).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = (f"{node.module}.{alias.name}.".split(".") for alias in node.names)
                found |= {(room, name[2]) for name in names if name[:2] == ["signalbox", package]}
    return {(one, other) for one, other in found if one != other}


def paths(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Pairs of rooms with a path from the first to the second."""
    found = set(edges)
    for _ in edges:
        found |= {(one, end) for one, by in found for start, end in edges if by == start}
    return found


@pytest.mark.parametrize("package", ["hw", "driver"])
def test_arrows_are_the_imports(package: str):
    """Every arrow of the picture is an import, every import follows from arrows, and no arrow
    follows from others; run `make rooms` after a change of the imports."""
    name = rf"{package}\.(\w+)"
    drawn = {*re.findall(f'id="{name}-{name}"', rooms.OUT.read_text())}
    written, reached = imports(package), paths(drawn)
    assert drawn - written == set()
    assert written - reached == set()
    implied = {(one, end) for one, by in drawn for start, end in reached if by == start}
    assert drawn & implied == set()


def test_picture_is_up_to_date():
    """The picture shows every room; run `make rooms` after a change of the layers."""
    text = rooms.OUT.read_text()
    drawn = [room for name in ("hw", "driver") for row in rooms.layers(name) for room in row]
    assert [room for room in drawn if f"<!-- {room} -->" not in text] == []


def test_help_draws_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(rooms, "_draw", lambda *_: pytest.fail("it draws"))
    with pytest.raises(SystemExit) as ended:
        rooms.main(["--help"])
    assert not ended.value.code and "usage:" in capsys.readouterr().out
