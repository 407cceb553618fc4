"""Settings of a server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.compute.preemption import level
from signalbox.driver.platform.whole import make_whole, whole
from signalbox.driver.runtime.own_machine import Scheduling
from signalbox.driver.server.work_queue import Policy
from signalbox.hw.config import NESTING

__all__ = ["ServerSettings"]

_PAGE = 4096


@dataclass(frozen=True)
class ServerSettings:
    """Limits of each application, and how they share the machine. Raises `ValueError` for values
    out of range, `TypeError` for fractions.

    Members
    -------
    applications : maximum number of applications at a time, given enough channels and ASIDs.
    memory_each : bytes of an application's memory, unless it asks for less; a multiple of 4096.
    system_each : bytes for its page tables, rings and checked commands, which it cannot access; a
        multiple of 4096.
    channels_each : maximum number of channels of an application.
    launches_each : maximum number of tasks of an application on the machine that the host has
        launched; further launches are held back.
    queue_each : maximum number of pointers on the queue of an application.
    policy : order in which the queues are served.
    weights : pointers per turn of applications, by name, for the policy "weighted"; default 1.
    priorities : priorities of applications, by name, for the policy "priority"; the highest goes
        first; default 0.
    scheduling : scheduling of the channels: "flat", or "runlist", where each address space has
        turns of the host (HOST-7); for machines with runlists.
    turns : length of an address space's turns in ns, by the application's name, for "runlist";
        default: that of `GroupSettings`.
    interleave : interleave levels by the application's name, for "runlist": "low", the default,
        "medium" or "high".
    depth : maximum nesting depth of kernels.
    context_each : whether each application has a context of its own, and they run in turn
        (SHARE-11); otherwise all are in one, and their kernels run at the same time.
    level : with `context_each`, how the tasks of a context leave the SMs, by name. "cilp" needs a
        machine that can save blocks.
    slice_cycles : with `context_each`, time slice of a context.
    patience_cycles : cycles for which an application's tasks may run without any of them ending,
        while others have work, too; then they are killed. 0: for ever.
    """

    applications: int = 48
    memory_each: int = 1 << 20
    system_each: int = 1 << 18
    channels_each: int = 4
    launches_each: int = 8
    queue_each: int = 256
    policy: Policy | str = Policy.ROUND_ROBIN
    weights: Mapping[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    scheduling: Scheduling = "flat"
    turns: Mapping[str, int] = field(default_factory=dict)
    interleave: Mapping[str, str] = field(default_factory=dict)
    depth: int = 1
    context_each: bool = False
    level: str = "cilp"
    slice_cycles: int = 20_000
    patience_cycles: int = 5_000_000

    def __post_init__(self) -> None:
        make_whole(self)
        for what, numbers in (("weight", self.weights), ("priority", self.priorities)):
            for name, number in numbers.items():
                whole(number, f"{what} of {name!r}")
        for name in ("memory_each", "system_each"):
            if (value := getattr(self, name)) < _PAGE or value % _PAGE:
                raise ValueError(
                    f"{name} = {value} is not a multiple of {_PAGE} bytes, at least one"
                )
        for name in ("applications", "channels_each", "launches_each", "queue_each"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} is not at least 1")
        if self.queue_each < self.channels_each:
            raise ValueError("queue_each is less than channels_each: each channel needs a place")
        if not 1 <= self.depth <= NESTING:
            raise ValueError(f"depth = {self.depth} is outside 1 … {NESTING}")
        if self.patience_cycles < 0:
            raise ValueError(f"patience_cycles = {self.patience_cycles} is negative")
        if any(weight < 1 for weight in self.weights.values()):
            raise ValueError(f"weights = {dict(self.weights)}: each is at least 1")
        for name in {*self.turns, *self.interleave}:
            self.group(name)
        if self.scheduling not in get_args(Scheduling):
            raise ValueError(f"scheduling = {self.scheduling!r} is none of {get_args(Scheduling)}")
        Policy(self.policy)
        level(self.level)
        if not 1 <= self.slice_cycles < 1 << 32:
            raise ValueError(f"slice_cycles = {self.slice_cycles} is outside 1 … 2^32 - 1")

    def group(self, name: str) -> GroupSettings:
        """Settings of the time-slice groups of an application. Raises `ValueError`."""
        text = self.interleave.get(name, Interleave.LOW.name.lower())
        levels = {one.name.lower(): one for one in Interleave}
        if text not in levels:
            raise ValueError(f"interleave of {name!r} = {text!r} is none of {[*levels]}")
        given = {"slice_ns": self.turns[name]} if name in self.turns else {}
        return GroupSettings(level=levels[text], **given)
