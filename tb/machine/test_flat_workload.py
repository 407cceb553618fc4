"""The workload with flat algorithms on the RTL: the host launches each level."""

from functools import cache
from itertools import pairwise

import pytest

from signalbox.tb.reports import workload
from signalbox.tb.reports.activity import Activity, activity
from signalbox.tb.simulation.workload import simulate_workload

EXAMPLE = workload.SUPPLIED / "flat.toml"

FLAT = ("sort", "grid", "search")
"""Names of the algorithms."""


@cache
def played(policy: str) -> Activity:
    """Activity of a run of the example. All results equal numpy's, or the run would fail."""
    run = simulate_workload(EXAMPLE, policy, seed=1)
    return activity(run.result, run.events)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["priority", "none"])
def test_levels(policy: str):
    """Each level is a launch of the driver, once the level before is over; of a search, light and
    heavy vertices may overlap."""
    kernels = played(policy).compute.kernels
    assert all(one.parent is None for one in kernels)
    titles = {name: [one for one in kernels if one.record.name == name] for name in FLAT}
    assert [one.title for one in titles["sort"]] == [f"sort.{n}" for n in range(1, 5)]
    assert [one.title for one in titles["grid"]] == [f"grid.{n}" for n in range(1, 4)]
    assert len(titles["search"]) % 2 == 0 and len(titles["search"]) >= 4
    for steps in (titles["sort"], titles["grid"], titles["search"][::2]):
        for one, other in pairwise(steps):
            assert other.first_block > one.over
    assert {one.record.kernel for one in titles["search"]} == {
        "search light vertices",
        "search heavy vertices",
    }


@pytest.mark.nightly
def test_urgent_kernels():
    """The urgent kernels do not wait for levels of the others: with priorities they take less
    time."""
    took = {
        policy: sum(
            one.over - one.launched
            for one in played(policy).compute.kernels
            if one.record.name == "urgent"
        )
        for policy in ("priority", "none")
    }
    assert took["priority"] < took["none"]
