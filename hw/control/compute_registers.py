"""Global registers for state and errors of the compute engine."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.control.register_fields import field_of, register_of
from signalbox.hw.records.compute_control import ComputeControl, kill_request, warp_fault
from signalbox.hw.records.launch import task_refused
from signalbox.hw.registers import GLOBAL

__all__ = ["ComputeRegisters"]

_WATCHED = ("broken", "starting", "active", "context", "idle", "lost", "fault", "refused")
_STATUS = data.StructLayout({"warp_fault": 1, "lost": 1, "child": 1})
"""Fields of TASK_STATUS."""

_REGISTERS = (
    "CONTEXT_BROKEN",
    "TASK_STATUS",
    "TASK_STATE",
    "WARP_FAULT",
    "WARP_FAULT_AT_LO",
    "WARP_FAULT_AT_HI",
    "WARP_FAULT_VA_LO",
    "WARP_FAULT_VA_HI",
    "WARP_FAULT_BLOCK_X",
    "WARP_FAULT_BLOCK_YZ",
    "CHILD_REFUSED",
    "CHILD_REFUSED_RECORD",
    "CHILD_REFUSED_PARENT",
    "CHILD_REFUSALS",
)


class ComputeRegisters(wiring.Component):
    """Registers of the compute engine: sticky status bits, and records of the first fault and the
    first refused child. An event appears 1 cycle later and stays until it is cleared. An event in
    the cycle of a clear is kept.

    Members
    -------
    broken : in, per context: cannot run.
    starting : in, a context is being bound.
    active : in, a context runs.
    context : in, `context_bits` bits: the running context, or the last one.
    idle : in, the engine holds no task.
    lost : in, strobe: a task was lost.
    fault : in, strobe: a `warp_fault`.
    refused : in, strobe: a kernel's launch of a task was refused, see `task_refused`.
    clear : in, TASK_STATUS bits to clear.
    kills : in, strobe: TASK_KILL is written.
    command : in, 32 bits: data of that write.
    record : in, 32 bits: TASK_KILL_RECORD.
    kill : out, stream of `kill_request`; accepted when the tasks have ended.
    values : out, the registers, 32 bits each.
    attention : out, registered: a context cannot run, or a task was lost; raises INTR.TASK.
    """

    def __init__(self, config: Config) -> None:
        engine = ComputeControl(config).members
        super().__init__({
            **{name: In(engine[name].shape) for name in _WATCHED},
            "clear": In(_STATUS),
            "kills": In(1),
            "command": In(32),
            "record": In(32),
            "kill": Out(stream.Signature(kill_request(config))),
            "values": Out(data.StructLayout(dict.fromkeys(_REGISTERS, 32))),
            "attention": Out(1),
        })
        self._fault = Signal(warp_fault(config))
        self._refused = Signal(task_refused, name="first_refused")
        self._refusals = Signal(GLOBAL["CHILD_REFUSALS"].field("COUNT").width, name="refusals")

    def watched(self) -> dict[str, Value]:
        """Members driven by the compute engine."""
        return {name: getattr(self, name) for name in _WATCHED}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        status = Signal(_STATUS)
        clear = self.clear
        fault = self._fault
        m.d.sync += [
            status.warp_fault.eq((status.warp_fault & ~clear.warp_fault) | self.fault.valid),
            status.lost.eq((status.lost & ~clear.lost) | self.lost),
            status.child.eq((status.child & ~clear.child) | self.refused.valid),
            self.attention.eq(self.broken.any() | status.lost),
        ]
        with m.If(self.fault.valid & (~status.warp_fault | clear.warp_fault)):
            m.d.sync += fault.eq(self.fault)
        self._count_refusals(m, ~status.child | clear.child)
        self._request_kill(m)
        state = {
            "IDLE": self.idle,
            "ACTIVE": self.active,
            "STARTING": self.starting,
            "CONTEXT": self.context,
            "KILLING": self.kill.valid,
        }
        where = {
            "CAUSE": fault.cause,
            "SM": fault.sm,
            "ASID": fault.asid,
            "WARP": fault.index,
        }
        yz = {"Y": fault.block.y, "Z": fault.block.z}
        shown = {
            "CONTEXT_BROKEN": self.broken,
            "TASK_STATUS": status.as_value(),
            "TASK_STATE": register_of(GLOBAL["TASK_STATE"], state),
            # The record is undefined before the first fault.
            "WARP_FAULT": Mux(fault.valid, register_of(GLOBAL["WARP_FAULT"], where), 0),
            "WARP_FAULT_AT_LO": fault.at[:32],
            "WARP_FAULT_AT_HI": fault.at[32:],
            "WARP_FAULT_VA_LO": fault.va[:32],
            "WARP_FAULT_VA_HI": fault.va[32:],
            "WARP_FAULT_BLOCK_X": fault.block.x,
            "WARP_FAULT_BLOCK_YZ": register_of(GLOBAL["WARP_FAULT_BLOCK_YZ"], yz),
            **self._refused_child(),
        }
        m.d.comb += [self.values[name].eq(value) for name, value in shown.items()]
        return m

    def _count_refusals(self, m: Module, first: Value) -> None:
        """Count refused children; keep the first one."""
        count, refused = self._refusals, self.refused
        with m.If(refused.valid & first):
            m.d.sync += self._refused.eq(refused)
        with m.If(self.clear.child):
            m.d.sync += count.eq(refused.valid)
        with m.Elif(refused.valid):
            m.d.sync += count.eq(count + ~count.all())

    def _refused_child(self) -> dict[str, Value]:
        """Registers of refused children; 0 before the first one."""
        task, verdict = self._refused.task, self._refused.verdict
        what = {
            "REASON": verdict.refusal,
            "CHECK": verdict.check,
            "ASID": task.asid,
            "DEPTH": task.depth,
        }
        count = {"COUNT": self._refusals, "CHANNEL": task.channel}
        return {
            "CHILD_REFUSED": register_of(GLOBAL["CHILD_REFUSED"], what),
            "CHILD_REFUSED_RECORD": task.page,
            "CHILD_REFUSED_PARENT": self._refused.parent,
            "CHILD_REFUSALS": register_of(GLOBAL["CHILD_REFUSALS"], count),
        }

    def _request_kill(self, m: Module) -> None:
        """Keep a request until it is accepted."""
        kill, register = self.kill, GLOBAL["TASK_KILL"]
        values = {"TASK_KILL": self.command}
        with m.If(kill.ready):
            m.d.sync += kill.valid.eq(0)
        with m.If(self.kills & ~kill.valid):
            m.d.sync += [
                kill.valid.eq(1),
                kill.p.page.eq(self.record),
                *(
                    kill.p[name].eq(field_of(values, register, name.upper()))
                    for name in ("scope", "context", "asid")
                ),
            ]
