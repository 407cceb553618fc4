"""What the task unit is asked for, and what it tells (HOST-9, HOST-10)."""

from amaranth.lib import data, enum

from hw.config import Config
from hw.work.metadata import task_verdict
from hw.work.records import queue_span, task_pointer

__all__ = ["LaunchAction", "slot_limit", "task_failure", "task_launch", "task_launched"]


class LaunchAction(enum.Enum, shape=2):
    """What is to be done with a task."""

    SCHEDULE = 0
    INCREMENT_PUT = 1
    """It is an open queue: `span` was appended."""
    DECREMENT_DEPENDENCE = 2
    """Its dependence counter goes down by 1; when it comes to 0 the task is scheduled."""


def task_launch(config: Config) -> data.StructLayout:
    """Something is to be done with a task of a context."""
    return data.StructLayout({
        "context": config.context_bits,
        "task": task_pointer,
        "action": LaunchAction,
        "span": queue_span,
    })


task_launched = data.StructLayout({"valid": 1, "verdict": task_verdict, "nothing": 1})
"""What became of it, a strobe; `nothing`: no task was launched, nor was one refused."""


task_failure = data.StructLayout({"task": task_pointer, "verdict": task_verdict})
"""A task that had been accepted has ended, and this is why."""


def slot_limit(config: Config) -> data.StructLayout:
    """A context's tasks may hold `count` slots; 0, or more than there are: all. A strobe."""
    return data.StructLayout({"valid": 1, "context": config.context_bits, "count": 8})
