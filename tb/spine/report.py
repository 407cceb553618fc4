"""What became of tasks, SMs and translation, from the trace of a run."""

from collections import Counter
from dataclasses import dataclass, field

from driver.report import number, table
from hw.config import Config
from hw.work.placement import Step
from tb.sim.trace import (
    BlockPlaced,
    Event,
    Lookup,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpEnded,
    WarpStarted,
)
from tb.spine.run import Run, Told

__all__ = ["SmLife", "TaskLife", "sm_lives", "sms_table", "task_lives", "tasks_table"]

_STEPS = {Step.WHOLE: "A", Step.WARP: "B", Step.LOWER: "C"}


@dataclass
class TaskLife:
    """Cycles of a task, counts of its blocks and warps; `steps`: how its blocks were placed."""

    told: Told
    launched: int = 0
    opened: int = 0
    first: int = 0
    over: int = 0
    warps: int = 0
    steps: Counter = field(default_factory=Counter)

    @property
    def blocks(self) -> int:
        return sum(self.steps.values())


@dataclass
class SmLife:
    """Blocks and warps of an SM; `busy`: cycles with a warp; `resident`: warp cycles."""

    blocks: int = 0
    warps: int = 0
    busy: int = 0
    resident: int = 0
    look_ups: int = 0
    hits: int = 0


def task_lives(run: Run) -> list[TaskLife]:
    """Every task, in the order of their launches; each program's come in its own order."""
    coming = {told.asid: [one for one in run.tasks if one.asid == told.asid] for told in run.tasks}
    lives: list[TaskLife] = []
    channels: dict[tuple[int, int], TaskLife] = {}
    spaces: dict[tuple[int, int], TaskLife] = {}
    rows: dict[int, TaskLife] = {}
    for event in run.events:
        match event:
            case TaskLaunched(cycle, channel, asid, page):
                life = TaskLife(coming[asid].pop(0), cycle)
                assert life.told.page == page, life
                channels[channel, page] = spaces[asid, page] = life
                lives.append(life)
            case TaskOpened(cycle, row, asid, page):
                rows[row] = life = spaces[asid, page]
                life.opened = life.opened or cycle
            case BlockPlaced(row=row, step=step):
                rows[row].steps[_STEPS[step]] += 1
            case WarpStarted(cycle, row=row):
                life = rows[row]
                life.first = life.first or cycle
                life.warps += 1
            case TaskOver(cycle, channel, page):
                channels[channel, page].over = cycle
    return lives


def sm_lives(events: list[Event], config: Config) -> list[SmLife]:
    """Every SM."""
    lives = [SmLife() for _ in range(config.sms)]
    running: list[dict[int, int]] = [{} for _ in lives]
    since = [0] * config.sms
    first_client = config.memory_clients - config.sms
    for event in events:
        match event:
            case BlockPlaced(sm=sm):
                lives[sm].blocks += 1
            case WarpStarted(cycle, sm, warp):
                since[sm] = since[sm] if running[sm] else cycle
                running[sm][warp] = cycle
                lives[sm].warps += 1
            case WarpEnded(cycle, sm, warp):
                lives[sm].resident += cycle - running[sm].pop(warp)
                if not running[sm]:
                    lives[sm].busy += cycle - since[sm]
            case Lookup(client=client, hit=hit) if client >= first_client:
                lives[client - first_client].look_ups += 1
                lives[client - first_client].hits += hit
    return lives


def tasks_table(lives: list[TaskLife]) -> str:
    """One row per task."""
    start = min(life.launched for life in lives)
    rows = [
        (
            life.told.kernel,
            f"{life.told.application} (ASID {life.told.asid})",
            life.told.priority,
            life.blocks,
            " ".join(f"{step}:{count}" for step, count in sorted(life.steps.items())),
            life.warps,
            number(life.launched - start),
            number(life.opened - life.launched),
            number(life.first - life.launched),
            number(life.over - life.launched),
        )
        for life in lives
    ]
    head = ("kernel", "application", "priority", "blocks", "steps", "warps", "launched")
    return table(rows, (*head, "slot", "first warp", "end"))


def sms_table(lives: list[SmLife], cycles: int, config: Config) -> str:
    """One row per SM; `cycles`: of the whole run, from the first warp to the last."""
    rows = [
        (
            f"SM {sm}",
            life.blocks,
            life.warps,
            f"{100 * life.busy / cycles:.0f} %",
            f"{life.resident / cycles:.1f} of {config.sm_warps}",
            number(life.look_ups),
            f"{100 * life.hits / max(1, life.look_ups):.0f} %",
        )
        for sm, life in enumerate(lives)
    ]
    return table(rows, ("", "blocks", "warps", "busy", "warps resident", "look-ups", "L1 hits"))
