"""Port between host and compute engine."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.qmd import QMD_BYTES, SkedCheck
from signalbox.hw.records.launch import task_completed

__all__ = [
    "INLINE_DWORDS",
    "ComputePort",
    "cause_of",
    "compute_answer",
    "compute_method",
    "compute_setting",
    "inline_progress",
]

INLINE_DWORDS = QMD_BYTES // 4
"""Dwords of the buffer of a channel: a task record, or a part of an inline transfer."""

_CAUSES = {
    Refusal.BUS: Cause.TASK_BUS,
    Refusal.FAULT: Cause.TASK_FAULT,
    Refusal.MODEL: Cause.TASK_MODEL,
    Refusal.CHECK: Cause.TASK_CHECK,
    Refusal.FULL: Cause.TASK_FULL,
    Refusal.LISTS: Cause.TASK_LISTS,
    Refusal.KERNEL: Cause.TASK_KERNEL,
    Refusal.RELEASE: Cause.TASK_RELEASE,
    Refusal.QUEUE: Cause.TASK_QUEUE,
    Refusal.KILLED: Cause.TASK_KILLED,
    Refusal.TIMEOUT: Cause.TASK_TIMEOUT,
}


def cause_of(m: Module, refusal: Value) -> Signal:
    """Cause reported for a channel whose task was refused or has failed."""
    cause = Signal(Cause)
    with m.Switch(refusal):
        for one, name in _CAUSES.items():
            with m.Case(one):
                m.d.comb += cause.eq(name)
    return cause


def compute_setting(config: Config) -> data.StructLayout:
    """Strobe: a method that sets state and is complete at once. `address` is in dwords."""
    return data.StructLayout({
        "valid": 1,
        "channel": config.channel_bits,
        "address": 12,
        "data": 32,
    })


def compute_method(config: Config) -> data.StructLayout:
    """An action method, with the channel's address space and context. `epoch` is a tag for the
    barrier, copied into the pointer of a launched task."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "asid": config.asid_bits,
        "context": 4,
        "epoch": 1,
        "address": 12,
        "data": 32,
    })


inline_progress = data.StructLayout({"open": 1, "room": range(INLINE_DWORDS)})
"""Inline transfer of a channel (HOST-14). `open`: dwords are still missing. `room`: number of
LOAD_INLINE_DATA that only set state; the one after them is an action method."""


compute_answer = data.StructLayout({
    "valid": 1,
    "cause": Cause,
    "check": SkedCheck,
    "va": VA_BITS,
    "trap": 1,
    "unlaunched": 1,
    "inline": inline_progress,
})
"""Strobe: a method is complete, or refused for `cause` at `va`; `check`: the failed check of its
task's record. `trap`: it requests an interrupt. `unlaunched`: no task exists, although `began` was
signalled. `inline`: progress of the transfer, after a complete LAUNCH_DMA or LOAD_INLINE_DATA."""


class ComputePort(wiring.Signature):
    """Methods of class C6C0 and task completions, seen from the host.

    Members
    -------
    on : out, per channel: enabled; tasks of a disabled channel are killed.
    setting : out, strobe, a `compute_setting`: a method that sets state.
    clear : out, strobe: `channel` starts with all settings cleared.
    skip : out, strobe: the refused method of `channel` is not repeated.
    method : out, stream of `compute_method`: action methods; the next one is offered after
        `answer`.
    answer : in, strobe, a `compute_answer`: result of the method.
    began : in, strobe: a task of `channel` is launched, by a method or by another task; never
        together with `answer`.
    over : in, stream of `task_completed`: end of each launched task, unless `answer` has refused
        its launch.
    """

    def __init__(self, config: Config) -> None:
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "on": Out(config.channels),
            "setting": Out(compute_setting(config)),
            "clear": Out(data.StructLayout(channel)),
            "skip": Out(data.StructLayout(channel)),
            "method": Out(stream.Signature(compute_method(config))),
            "answer": In(compute_answer),
            "began": In(data.StructLayout({**channel, "epoch": 1})),
            "over": In(stream.Signature(task_completed)),
        })
