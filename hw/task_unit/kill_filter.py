"""Decides whether a task must be killed (PREEMPT-7)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.compute_control import kill_request
from signalbox.hw.records.placement import task_pointer
from signalbox.hw.registers import KillScope

__all__ = ["KillFilter"]


class KillFilter(wiring.Component):
    """Decides whether a task must be killed: its channel is disabled, or the kill request in
    progress names the task, its address space or its context.

    Members
    -------
    on : in, per channel: enabled.
    request : in, a `kill_request`.
    requested : in, the request is in progress.
    task : in, a `task_pointer`: the task.
    context : in, `context_bits` bits: its context.
    kills : out, 1 cycle later: the task must be killed.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "on": In(config.channels),
            "request": In(kill_request(config)),
            "requested": In(1),
            "task": In(task_pointer),
            "context": In(config.context_bits),
            "kills": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, request = self.task, self.request
        space = Signal()
        named = Signal()
        m.d.comb += space.eq(task.asid == request.asid)
        with m.Switch(request.scope):
            with m.Case(KillScope.TASK):
                m.d.comb += named.eq(space & (task.page == request.page))
            with m.Case(KillScope.SPACE):
                m.d.comb += named.eq(space)
            with m.Case(KillScope.CONTEXT):
                m.d.comb += named.eq(self.context == request.context)
        off = ~self.on.bit_select(task.channel[: self._config.channel_bits], 1)
        m.d.sync += self.kills.eq(off | (self.requested & named))
        return m
