"""The picture of the rooms."""

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


def test_picture_is_up_to_date():
    """The picture shows every room; run `make rooms` after a change of the layers."""
    text = rooms.OUT.read_text()
    drawn = [room for name in ("hw", "driver") for row in rooms.layers(name) for room in row]
    assert [room for room in drawn if f"<!-- {room} -->" not in text] == []
