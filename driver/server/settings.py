"""Settings of a server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, get_args

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.compute.preemption import level
from signalbox.driver.compute.sm_set import MaskedSms, SmSetError, disabled_sms, sm_numbers
from signalbox.driver.platform.whole import make_whole, whole
from signalbox.driver.runtime.own_machine import STREAM_PRIORITIES, Scheduling
from signalbox.driver.server.issue_policy import Policy
from signalbox.hw.config import NESTING, PRIORITIES

__all__ = ["OwnLimits", "ServerSettings"]

_PAGE = 4096

_OTHERS = "*"
"""Stands for all applications without an entry of their own."""


_Value = TypeVar("_Value")


def _entry(table: Mapping[str, _Value], name: str) -> _Value | None:
    """Entry of an application, or None."""
    return table.get(name, table.get(_OTHERS))


@dataclass(frozen=True)
class OwnLimits:
    """Limits of the launches of one application.

    Members
    -------
    greatest : most urgent stream priority, 0 or below.
    priority : highest device priority of its launches.
    sms : SMs that take its blocks, in order; empty: all.
    """

    greatest: int = 1 - STREAM_PRIORITIES
    priority: int = PRIORITIES - 1
    sms: tuple[int, ...] = ()


@dataclass(frozen=True)
class ServerSettings:
    """Limits of each application, and how they share the machine. Raises `ValueError` for values
    out of range, `TypeError` for numbers that are not whole.

    Members
    -------
    applications : maximum number of applications at a time, given enough channels and ASIDs.
    memory_each : bytes of an application's memory, unless it asks for less; a multiple of 4096.
    system_each : bytes for its page tables, rings and checked commands, which it cannot access; a
        multiple of 4096.
    channels_each : maximum number of channels of an application.
    launches_each : maximum number of tasks that an application has on the machine, without those
        that kernels have launched; further launches are held back.
    queue_each : maximum number of pointers on the queue of an application, at least
        `channels_each`.
    policy : order in which the queues are served.
    weights : pointers per turn of applications, by name, for the policy "weighted"; default 1.
    priorities : priorities of applications, by name, for the policy "priority"; the highest goes
        first; default 0.
    scheduling : scheduling of the channels: "flat", or, for machines with runlists, "runlist":
        address spaces take turns (HOST-7).
    turns : length of an address space's turns in ns, by the application's name, for "runlist";
        default: that of `GroupSettings`.
    interleave : interleave levels by the application's name, for "runlist": "low", the default,
        "medium" or "high".
    depth : nesting depth of kernels.
    streams_each : maximum number of streams of an application, which share its channels; 0: any
        number.
    greatest : most urgent stream priority of applications, 0 … -5 (the default), by name. With a
        priority of -N, the device priority of launches is at most N × `depth`, even if a launch
        names one.
    sm_sets : SMs that take the blocks of applications, by name; default: all. For machines with
        `Config.sm_masks`. In both, "*" names all applications without an entry.
    context_each : whether each application has its own context, and contexts run in turn
        (SHARE-11); otherwise all are in one, and their kernels run at the same time.
    level : with `context_each`, how the tasks of a context leave the SMs: "wfi", "cta" or "cilp".
        "cilp" needs a machine that can save blocks.
    slice_cycles : with `context_each`, time slice of a context in cycles.
    patience_cycles : cycles for which an application's tasks may run without any of them ending,
        while others have work; then they are killed. With `context_each`, times the number of
        applications with work. 0: no limit.
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
    streams_each: int = 0
    greatest: Mapping[str, int] = field(default_factory=dict)
    sm_sets: Mapping[str, Sequence[int]] = field(default_factory=dict)
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
        if self.streams_each < 0:
            raise ValueError(f"streams_each = {self.streams_each} is negative")
        for name in {*self.greatest, *self.sm_sets}:
            self.limits(name)
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

    def limits(self, name: str) -> OwnLimits:
        """Limits of the launches of an application. Raises `ValueError`, `TypeError` for numbers
        that are not whole."""
        found, given = OwnLimits(sms=self._sm_set(name)), _entry(self.greatest, name)
        if given is None:
            return found
        what = f"greatest stream priority of {name!r}"
        greatest = whole(given, what)
        if not found.greatest <= greatest <= 0:
            raise ValueError(f"{what} = {greatest} is outside {found.greatest} … 0")
        return replace(found, greatest=greatest, priority=-greatest * self.depth)

    def check(self, machine: MaskedSms) -> None:
        """Raise `ValueError` if the machine cannot keep the blocks of an application on its SMs."""
        for name in self.sm_sets:
            try:
                disabled_sms(machine, self._sm_set(name))
            except SmSetError as error:
                raise ValueError(f"SMs of {name!r}: {error}") from None

    def _sm_set(self, name: str) -> tuple[int, ...]:
        """SMs that take the blocks of an application."""
        given = _entry(self.sm_sets, name)
        if given is None:
            return ()
        try:
            sms = tuple(sorted(sm_numbers(given)))
        except SmSetError as error:
            raise ValueError(f"SMs of {name!r}: {error}") from None
        if not sms or sms[0] < 0:
            raise ValueError(f"SMs of {name!r} = {list(sms)}: at least one, from 0 on")
        return sms

    def group(self, name: str) -> GroupSettings:
        """Settings of the time-slice groups of an application. Raises `ValueError`."""
        text = self.interleave.get(name, Interleave.LOW.name.lower())
        levels = {one.name.lower(): one for one in Interleave}
        if text not in levels:
            raise ValueError(f"interleave of {name!r} = {text!r} is none of {[*levels]}")
        given = {"slice_ns": self.turns[name]} if name in self.turns else {}
        return GroupSettings(level=levels[text], **given)
