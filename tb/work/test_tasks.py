"""The task unit on both simulators."""

import pytest

from hw.work.tasks import Tasks
from tb.runner import simulate
from tb.work.configs import TASKS


@pytest.mark.parametrize("name", TASKS)
def test_tasks(simulator: str, name: str) -> None:
    simulate(
        Tasks(TASKS[name]),
        "tb.work.cocotb_tasks",
        simulator=simulator,
        name=f"work-tasks-{name}",
        env={"WORK_CONFIG": name},
        minimum=12,
    )


def test_queues(simulator: str) -> None:
    simulate(
        Tasks(TASKS["default"]),
        "tb.work.cocotb_queues",
        simulator=simulator,
        name="work-queues",
        env={"WORK_CONFIG": "default"},
        minimum=16,
    )


def test_two_queues(simulator: str) -> None:
    simulate(
        Tasks(TASKS["tiny"]),
        "tb.work.cocotb_queues",
        simulator=simulator,
        name="work-two-queues",
        env={"WORK_CONFIG": "tiny"},
        testcase="closed_in_any_place",
    )
