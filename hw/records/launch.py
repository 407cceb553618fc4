"""What the task unit is asked for, and what it tells (HOST-9, HOST-10)."""

from amaranth.lib import data, enum

from signalbox.hw.config import Config
from signalbox.hw.qmd import DependentAction, SkedCheck
from signalbox.hw.records.placement import queue_span, task_pointer

__all__ = [
    "LaunchAction",
    "Refusal",
    "slot_limit",
    "task_action",
    "task_completed",
    "task_ended",
    "task_failure",
    "task_launch",
    "task_launched",
    "task_verdict",
]


class Refusal(enum.Enum, shape=4):
    """Why a task cannot be."""

    NONE = 0
    BUS = 1
    FAULT = 2
    """Its record cannot be read."""
    MODEL = 3
    """Of another version, or it uses what is not modelled."""
    CHECK = 4
    """A public check fails."""
    FULL = 5
    """Its list has no room."""
    LISTS = 6
    """The memory of the lists cannot be accessed."""
    KERNEL = 7
    """A warp of it cannot go on."""
    RELEASE = 8
    """It is complete, but a release at its end was refused."""
    QUEUE = 9
    """It is no open queue, or no further one may be open."""


task_verdict = data.StructLayout({"refusal": Refusal, "check": SkedCheck})
"""`check` counts with Refusal.CHECK only, and is NONE else."""


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


def task_ended(config: Config) -> data.StructLayout:
    """All blocks of a task of `context` have ended."""
    return data.StructLayout({"task": task_pointer, "context": config.context_bits})


def task_action(config: Config) -> data.StructLayout:
    """What is to be done to a task."""
    return data.StructLayout({**task_ended(config).members, "action": DependentAction})


task_completed = data.StructLayout({"task": task_pointer, "verdict": task_verdict, "trap": 1})
"""A task is complete, or what went wrong at its end; `trap`: it asks for an interrupt."""
