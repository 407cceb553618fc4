"""Two applications on both simulators: results, and that the urgent kernel does not wait."""

from tb.sim.sizes import COMPUTE
from tb.spine.applications import URGENT
from tb.spine.report import sm_lives, sms_table, task_lives, tasks_table
from tb.spine.run import simulate


def test_spine(simulator: str) -> None:
    run = simulate(1, simulator)
    lives = task_lives(run)
    expected = {
        "spin": 40,
        "matrix multiply": 9,
        "reduction": 5,
        "saxpy": 8,
        "prefix sum": 4,
        "vector add": 4,
    }
    assert {life.told.kernel: life.blocks for life in lives} == expected
    (urgent,) = (life for life in lives if life.told.priority == URGENT)
    spin = next(life for life in lives if life.told.kernel == "spin")
    assert spin.launched < urgent.launched < urgent.over < spin.over
    assert all(life.launched < life.opened < life.first < life.over for life in lives)
    sms = sm_lives(run.events, COMPUTE)
    assert sum(sm.blocks for sm in sms) == sum(expected.values())
    assert sum(sm.warps for sm in sms) == sum(life.warps for life in lives)
    assert all(sm.look_ups > sm.hits > 0 for sm in sms)
    assert "vector add" in tasks_table(lives) and "SM 1" in sms_table(sms, 1000, COMPUTE)
