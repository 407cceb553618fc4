"""Fixtures of the driver's tests."""

from collections.abc import Generator

import pytest

from signalbox.tb.driver.server.processes import Running, server
from signalbox.tb.driver.ways import BlockingWay, OwnWay, ServedWay, Way


@pytest.fixture(scope="session")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """A server's process for one application at a time."""
    with server(tmp_path_factory.mktemp("ways"), memory_each=5 << 20, launches_each=8) as running:
        yield running


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    """See `Way`."""
    if request.param == "blocking":
        return BlockingWay(request.getfixturevalue("lone_server").path)
    return OwnWay() if request.param == "own" else ServedWay()
