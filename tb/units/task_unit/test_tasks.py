"""The task unit on both simulators."""

from typing import Any

import pytest

from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.testbench.configs import TASKS


def run(simulator: str, tests: str, name: str, **options: Any) -> None:
    """Run `tb.units.task_unit.cocotb_{tests}` on the configuration of this name."""
    simulate(
        TaskUnit(TASKS[name]),
        f"signalbox.tb.units.task_unit.cocotb_{tests}",
        simulator=simulator,
        name=f"work-{tests}-{name}",
        env={"WORK_CONFIG": name},
        **options,
    )


SMOKE = ["highest_list_first", "eviction_and_resume", "random_tasks"]


SIZES = [name for name in TASKS if name not in ("saving", "nested", "masks")]


@pytest.mark.parametrize("name", tiers(SIZES, smoke={"tiny": SMOKE}, nightly=["tiny", "large"]))
def test_tasks(simulator: str, name: str) -> None:
    run(simulator, "tasks", name, minimum=11 if name == "tiny" else 12)


@pytest.mark.parametrize(
    "name",
    tiers(
        ["default", "saving", "nested", "masks"],
        smoke={"masks": ["saved_blocks_return"]},
        nightly=["saving", "nested"],
    ),
)
def test_levels(simulator: str, name: str) -> None:
    """Levels, with and without nested launches, and with SM masks."""
    run(simulator, "levels", name, minimum=2 if name == "default" else 9)


@pytest.mark.parametrize("name", tiers(["default", "nested"], nightly=["default"]))
def test_queues(simulator: str, name: str) -> None:
    """Queues and dependences, with and without nested launches."""
    run(simulator, "queues", name, minimum=33)


@pytest.mark.parametrize(
    "name",
    tiers(
        ["default", "large", "nested"],
        smoke={"default": ["rows_of_others", "launches"]},
        nightly=["large"],
    ),
)
def test_kills(simulator: str, name: str) -> None:
    """Kills, with and without nested launches."""
    run(simulator, "kills", name, minimum=28 if name == "nested" else 27)


@pytest.mark.smoke("child_of_a_kernel", "depth_limit")
def test_nested(simulator: str) -> None:
    run(simulator, "nested", "nested", minimum=16)


def test_two_queues(simulator: str) -> None:
    run(simulator, "queues", "tiny", testcase="closed_in_any_place")
