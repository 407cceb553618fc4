"""Requests to the task unit and its responses (HOST-9, HOST-10)."""

from amaranth.lib import data, enum

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import DependentAction, SkedCheck
from signalbox.hw.records.nested import block_family, kernel_kin
from signalbox.hw.records.placement import queue_span, task_pointer

__all__ = [
    "KILLED",
    "LaunchAction",
    "child_answer",
    "child_launch",
    "slot_limit",
    "task_action",
    "task_completed",
    "task_ended",
    "task_failure",
    "task_launch",
    "task_launched",
    "task_refused",
    "task_verdict",
]


task_verdict = data.StructLayout({"refusal": Refusal, "check": SkedCheck})
"""`check` is valid with Refusal.CHECK only, otherwise NONE."""

KILLED = task_verdict.const({"refusal": Refusal.KILLED, "check": SkedCheck.NONE})
"""Verdict of a killed task."""


class LaunchAction(enum.Enum, shape=2):
    """Action on a task."""

    SCHEDULE = 0
    INCREMENT_PUT = 1
    """The task is an open queue: append the entries of `span`."""
    DECREMENT_DEPENDENCE = 2
    """Decrement its dependence counter; at 0, schedule the task."""
    CHILD = 3
    """Schedule the task as a child of the kernel in row `row`. A block of that kernel, of family
    `block`, has requested it."""


def task_launch(config: Config) -> data.StructLayout:
    """An action on `task`, a task of `context`. `span` is for INCREMENT_PUT. For a CHILD, only
    `task.page`, `row`, `block` and `has_place` are valid: the rest is taken from its parent."""
    of_block = ("row", "block", "has_place")
    child = {name: child_launch(config).members[name] for name in of_block} if config.nested else {}
    return data.StructLayout({
        **child,
        "context": config.context_bits,
        "task": task_pointer,
        "action": LaunchAction,
        "span": queue_span,
    })


def child_launch(config: Config) -> data.StructLayout:
    """A block of kernel row `row` launches the QMD at virtual address `page` << 8 of its address
    space. `has_place`: the block has a save place, or one is reserved for it. A further launch by
    the same block comes only after the answer."""
    return data.StructLayout({
        "row": config.row_bits,
        "page": 32,
        "block": block_family(config),
        "has_place": 1,
    })


def child_answer(config: Config) -> data.StructLayout:
    """Strobe, response to `child_launch`: the child was accepted, or refused as `verdict` says.
    `block`: the family of the block from now on."""
    return data.StructLayout({
        "valid": 1,
        "verdict": task_verdict,
        "block": block_family(config),
    })


task_launched = data.StructLayout({"valid": 1, "verdict": task_verdict, "nothing": 1})
"""Strobe, response to `task_launch`. `nothing`: the action was not a launch, but an append, or a
decrement that did not bring the counter to 0; the action itself may have been refused."""


def task_failure(config: Config) -> data.StructLayout:
    """An accepted task of `context` has ended early; `verdict` gives the reason."""
    return data.StructLayout({**task_ended(config).members, "verdict": task_verdict})


task_refused = data.StructLayout({
    "valid": 1,
    "task": task_pointer,
    "verdict": task_verdict,
    "parent": 32,
})
"""Strobe: a child was refused. `parent`: page of the QMD of the kernel that launched it."""


def slot_limit(config: Config) -> data.StructLayout:
    """Strobe: the tasks of a context may hold `count` slots; 0, or more than exist, means all."""
    return data.StructLayout({"valid": 1, "context": config.context_bits, "count": 8})


def task_ended(config: Config) -> data.StructLayout:
    """All blocks of a task of `context` have ended."""
    kin = {"kin": kernel_kin(config)} if config.nested else {}
    return data.StructLayout({**kin, "task": task_pointer, "context": config.context_bits})


def task_action(config: Config) -> data.StructLayout:
    """Action on a dependent task."""
    return data.StructLayout({
        "task": task_pointer,
        "context": config.context_bits,
        "action": DependentAction,
    })


task_completed = data.StructLayout({"task": task_pointer, "verdict": task_verdict, "trap": 1})
"""A task is complete, or failed at its end; `trap`: it requests an interrupt."""
