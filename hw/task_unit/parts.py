"""Parts of the task unit, and the states that use them."""

from amaranth.lib import wiring

from signalbox.hw.config import Config
from signalbox.hw.task_unit.highest_level import HighestLevel
from signalbox.hw.task_unit.job_choice import JobChoice
from signalbox.hw.task_unit.job_state import JobState
from signalbox.hw.task_unit.kernel_words import KernelWords
from signalbox.hw.task_unit.kill_filter import KillFilter
from signalbox.hw.task_unit.kill_sweep import KillSweep
from signalbox.hw.task_unit.oldest_blocks import OldestBlocks
from signalbox.hw.task_unit.qmd_reader import QmdReader
from signalbox.hw.task_unit.qmd_writes import QmdWrites
from signalbox.hw.task_unit.queue_table import QueueTable
from signalbox.hw.task_unit.slot_limits import SlotLimits
from signalbox.hw.task_unit.slot_table import SlotTable
from signalbox.hw.task_unit.task_lists import TaskLists

__all__ = ["JobStates", "TaskParts"]


class TaskParts:
    """The task unit's submodules, by name."""

    def __init__(self, config: Config) -> None:
        self.slots, self.lists = SlotTable(config), TaskLists(config)
        self.metadata, self.words = QmdReader(config), KernelWords(config)
        self.stores, self.queues = QmdWrites(config), QueueTable(config)
        self.levels, self.limits = HighestLevel(config), SlotLimits(config)
        self.sweep, self.filter = KillSweep(config), KillFilter(config)
        self.choice, self.oldest = JobChoice(config), OldestBlocks(config)


class JobStates:
    """Base class of a group of states of the task unit's state machine; it also connects the parts
    that these states use.

    Parameters
    ----------
    unit : ports of the task unit.
    parts : its parts.
    job : the job in progress.
    """

    def __init__(
        self, config: Config, unit: wiring.Component, parts: TaskParts, job: JobState
    ) -> None:
        self._config, self._unit, self._parts, self._job = config, unit, parts, job
