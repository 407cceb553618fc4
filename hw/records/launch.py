"""Requests to the task unit and its responses (HOST-9, HOST-10)."""

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
    """Reason for refusing or failing a task."""

    NONE = 0
    BUS = 1
    FAULT = 2
    """BUS, FAULT: its QMD cannot be accessed."""
    MODEL = 3
    """Wrong QMD version, or use of a feature that is not modelled."""
    CHECK = 4
    """A public check fails."""
    FULL = 5
    """Its list is full."""
    LISTS = 6
    """The memory of the lists cannot be accessed."""
    KERNEL = 7
    """One of its warps faulted."""
    RELEASE = 8
    """It is complete, but a release at its end was refused."""
    QUEUE = 9
    """It is not an open queue, or no further queue may be opened."""
    KILLED = 10
    """Its channel was disabled, or a kill request named it."""
    TIMEOUT = 11
    """It had blocks on SMs when the time of its leaving context was over."""


task_verdict = data.StructLayout({"refusal": Refusal, "check": SkedCheck})
"""`check` is valid with Refusal.CHECK only, otherwise NONE."""


class LaunchAction(enum.Enum, shape=2):
    """Action on a task."""

    SCHEDULE = 0
    INCREMENT_PUT = 1
    """It is an open queue: append `span`."""
    DECREMENT_DEPENDENCE = 2
    """Decrement its dependence counter; at 0, schedule the task."""


def task_launch(config: Config) -> data.StructLayout:
    """An action on a task of a context."""
    return data.StructLayout({
        "context": config.context_bits,
        "task": task_pointer,
        "action": LaunchAction,
        "span": queue_span,
    })


task_launched = data.StructLayout({"valid": 1, "verdict": task_verdict, "nothing": 1})
"""Strobe, response to `task_launch`. `nothing`: no task was launched or refused."""


task_failure = data.StructLayout({"task": task_pointer, "verdict": task_verdict})
"""An accepted task has ended early; `verdict` gives the reason."""


def slot_limit(config: Config) -> data.StructLayout:
    """Strobe: the tasks of a context may hold `count` slots; 0, or more than exist, means all."""
    return data.StructLayout({"valid": 1, "context": config.context_bits, "count": 8})


def task_ended(config: Config) -> data.StructLayout:
    """All blocks of a task of `context` have ended."""
    return data.StructLayout({"task": task_pointer, "context": config.context_bits})


def task_action(config: Config) -> data.StructLayout:
    """Action on a dependent task."""
    return data.StructLayout({**task_ended(config).members, "action": DependentAction})


task_completed = data.StructLayout({"task": task_pointer, "verdict": task_verdict, "trap": 1})
"""A task is complete, or failed at its end; `trap`: it requests an interrupt."""
