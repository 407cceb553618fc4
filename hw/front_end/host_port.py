"""The compute engine, seen from the host."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.launch import Refusal, task_completed

__all__ = ["ComputePort", "cause_of", "compute_answer", "compute_method", "compute_setting"]

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
}


def cause_of(m: Module, refusal: Value) -> Signal:
    """Why a channel halts whose task was refused, or has failed."""
    cause = Signal(Cause)
    with m.Switch(refusal):
        for one, name in _CAUSES.items():
            with m.Case(one):
                m.d.comb += cause.eq(name)
    return cause


def compute_setting(config: Config) -> data.StructLayout:
    """A method that sets state and is complete at once; a strobe. `address` in dwords."""
    return data.StructLayout({
        "valid": 1,
        "channel": config.channel_bits,
        "address": 12,
        "data": 32,
    })


def compute_method(config: Config) -> data.StructLayout:
    """A method that does something, for a channel's address space and context. `epoch` goes into
    the pointer of a task that it launches."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "asid": config.asid_bits,
        "context": 4,
        "epoch": 1,
        "address": 12,
        "data": 32,
    })


compute_answer = data.StructLayout({
    "valid": 1,
    "cause": Cause,
    "check": SkedCheck,
    "va": VA_BITS,
    "trap": 1,
    "unlaunched": 1,
})
"""A method is done, or refused for `cause`, at `va`; `trap`: it asks for an interrupt.
`unlaunched`: its task, of which `began` has told, is none."""


class ComputePort(wiring.Signature):
    """Methods of class C6C0, and what becomes of tasks.

    Members
    -------
    on : per channel, it is switched on; when it is no more, queues that it has launched are closed.
    setting : a method that sets state. clear : strobe: `channel` starts anew, and has set nothing.
    method, answer : one at a time: the next is offered after the answer to the one before.
    began : strobe: a task of `channel` is launched, also by another task; in no cycle with
        `answer`.
    over : each task that has begun, once, unless its launch was refused.
    """

    def __init__(self, config: Config) -> None:
        channel = {"valid": 1, "channel": config.channel_bits}
        super().__init__({
            "on": Out(config.channels),
            "setting": Out(compute_setting(config)),
            "clear": Out(data.StructLayout(channel)),
            "method": Out(stream.Signature(compute_method(config))),
            "answer": In(compute_answer),
            "began": In(data.StructLayout({**channel, "epoch": 1})),
            "over": In(stream.Signature(task_completed)),
        })
