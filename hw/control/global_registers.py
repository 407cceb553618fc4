"""Global registers: constants, settings and status."""

from collections.abc import Mapping
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.control.axi_lite_target import Access
from signalbox.hw.control.compute_registers import ComputeRegisters
from signalbox.hw.control.interrupts import Interrupts
from signalbox.hw.control.performance_counters import EventPort, PerformanceCounters
from signalbox.hw.control.register_fields import field_of, page_of, register_of
from signalbox.hw.control.runlist_registers import RunlistRegisters
from signalbox.hw.control.translation_registers import TranslationRegisters
from signalbox.hw.records.compute_control import ComputeControl
from signalbox.hw.records.runlist import RunlistControl
from signalbox.hw.records.translation import FaultPort, MmuPort
from signalbox.hw.registers import GLOBAL, PERFORMANCE, Register
from signalbox.hw.registers import Access as Rule

__all__ = ["GlobalRegisters"]

_GROUP = 3
"""Word-address bits decoded in the first stage of the read multiplexer."""


class GlobalRegisters(wiring.Component):
    """Global registers of a Signalbox.

    Members
    -------
    access : in, current `Access`.
    write : in, strobe: executes the write; `access` has been stable for at least 1 cycle. The
        register changes in the next cycle, `irq` in the one after.
    value : out, 32 bits: data of a read, 3 cycles after `access`; 0 for registers that cannot be
        read.
    doorbell : in, strobe: a valid doorbell was accepted.
    time : out, 64 bits: PTIMER, in nanoseconds from reset on.
    counting : out, 0 … `counters`, registered: semaphores below this index are counting semaphores.
    writeback : out, 32 bits: cycles between lazy write-backs of GP_GET.
    error : in, per channel, level: halted by an error.
    notify : in, strobe per channel: NON_STALL_INTERRUPT, or the interrupt of a task or a report.
    copied : in, strobe per channel: a copy with an interrupt is complete.
    irq : out, interrupt line; registered.
    events : in, events for the performance counters, see `EventPort`.
    maintain : out, binds and invalidations, see `MmuPort`.
    faults : out, the fault buffer, see `FaultPort`.
    compute : out, the compute engine, see `ComputeControl`.
    runlist : out, the runlist, see `RunlistControl`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "access": In(Access),
            "write": In(1),
            "value": Out(32),
            "doorbell": In(1),
            "time": Out(64),
            "counting": Out(range(config.counters + 1)),
            "writeback": Out(32),
            "error": In(config.channels),
            "notify": In(config.channels),
            "copied": In(config.channels),
            "irq": Out(1),
            "events": In(EventPort(config)),
            "maintain": Out(MmuPort(config)),
            "faults": Out(FaultPort(config)),
            "compute": Out(ComputeControl(config)),
            "runlist": Out(RunlistControl()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._tasks_wrong = Signal()
        self._runlist_wrong = Signal()
        # Registered, for timing: written bits that are 1.
        self._ones = Signal(32)
        m.d.sync += self._ones.eq(self._merged(Const(0, 32)))
        values: dict[str, Value] = {
            register.name: Const(register.constant(self._config), 32)
            for register in GLOBAL
            if register.constant is not None
        }
        values.update(self._settings(m))
        values |= self._commands(m, values)
        values |= self._faults(m, values)
        values |= self._tasks(m, values)
        values |= self._runlist(m, values)
        values |= self._interrupts(m, values["INTR_ENABLE"])
        values |= self._counters(m)
        m.d.sync += self.time.eq(self.time + self._config.cycle_ns)
        values |= {"TIME_0": self.time[:32], "TIME_1": self.time[32:]}
        self._limit(m, values["SEM_COUNTING"])
        m.d.comb += self.writeback.eq(values["WRITEBACK"])
        self._read(m, values)
        return m

    def _settings(self, m: Module) -> dict[str, Signal]:
        """Read-write registers; bits outside fields and of missing ASIDs are not stored."""
        found = {}
        for register in GLOBAL:
            if register.access is not Rule.RW:
                continue
            value = found[register.name] = Signal(32, name=register.name, init=register.reset)
            with m.If(self._written(m, register)):
                m.d.sync += value.eq(self._merged(value) & register.stored(self._config))
        return found

    def _interrupts(self, m: Module, enable: Value) -> dict[str, Value]:
        m.submodules.interrupts = unit = Interrupts(self._config.channels)
        cleared = []
        for name in ("INTR_NOTIFY", "INTR_COPY"):
            halves = (self._cleared(m, GLOBAL[f"{name}_{half}"]) for half in ("LO", "HI"))
            cleared.append(Cat(*halves))
        m.d.comb += [
            unit.error.eq(self.error),
            unit.notify.eq(self.notify),
            unit.copied.eq(self.copied),
            unit.enable.eq(enable),
            unit.clear_notified.eq(cleared[0]),
            unit.clear_finished.eq(cleared[1]),
            unit.fault.eq(self.faults.status.as_value().any()),
            unit.task.eq(self._tasks_wrong),
            unit.runlist.eq(self._runlist_wrong),
            self.irq.eq(unit.irq),
        ]
        found: dict[str, Value] = {"INTR": unit.summary}
        masks = {"INTR_ERROR": self.error, "INTR_NOTIFY": unit.notified, "INTR_COPY": unit.finished}
        for name, mask in masks.items():
            found |= {f"{name}_LO": mask[:32], f"{name}_HI": mask[32:]}
        return found

    def _commands(self, m: Module, values: Mapping[str, Value]) -> dict[str, Value]:
        """Binds and invalidations."""
        m.submodules.commands = unit = TranslationRegisters(self._config)
        wiring.connect(m, unit.port, wiring.flipped(self.maintain))
        m.d.comb += [
            unit.write.eq(self._written(m, GLOBAL["MMU_COMMAND"])),
            unit.value.eq(self.access.data),
            unit.page.eq(page_of(values, "MMU_VA")),
            unit.base.eq(page_of(values, "MMU_PDB")),
            unit.limit.eq(page_of(values, "MMU_LIMIT")),
        ]
        status = GLOBAL["MMU_STATUS"]
        shown = register_of(status, {"BUSY": unit.busy, "REFUSED": unit.refused})
        return {"MMU_STATUS": shown}

    def _faults(self, m: Module, values: Mapping[str, Value]) -> dict[str, Value]:
        """The fault buffer and the first fault record."""
        port, size, status = self.faults, GLOBAL["FAULT_SIZE"], GLOBAL["FAULT_STATUS"]
        cleared = self._cleared(m, status)
        m.d.comb += [
            port.base.eq(page_of(values, "FAULT_BUFFER")),
            port.records.eq(field_of(values, size, "RECORDS")),
            port.enable.eq(field_of(values, size, "ENABLE")),
            port.get.eq(values["FAULT_GET"]),
        ]
        shown = {}
        for name in port.status.shape().members:
            field = status.field(name.upper())
            m.d.comb += port.clear[name].eq(cleared[field.lo])
            shown[field.name] = port.status[name]
        record = port.record.as_value()
        words = {f"FAULT_RECORD_{n}": record.word_select(n, 32) for n in range(len(record) // 32)}
        used = Signal()
        m.d.sync += used.eq(port.enable | port.busy)
        high = size.field("ENABLE").lo
        return {
            "FAULT_SIZE": Cat(values[size.name][:high], used),
            "FAULT_PUT": port.put,
            "FAULT_STATUS": register_of(status, shown),
            "FAULT_DROPPED": port.dropped,
            **words,
        }

    def _tasks(self, m: Module, values: Mapping[str, Value]) -> dict[str, Value]:
        """The compute engine."""
        m.submodules.tasks = unit = ComputeRegisters(self._config)
        engine, size = self.compute, GLOBAL["TASK_LISTS_SIZE"]
        m.d.comb += [
            [member.eq(getattr(engine, name)) for name, member in unit.watched().items()],
            unit.clear.eq(self._cleared(m, GLOBAL["TASK_STATUS"])),
            unit.kills.eq(self._written(m, GLOBAL["TASK_KILL"])),
            unit.command.eq(self.access.data),
            unit.record.eq(values["TASK_KILL_RECORD"]),
            self._tasks_wrong.eq(unit.attention),
            engine.mend.eq(self._cleared(m, GLOBAL["CONTEXT_BROKEN"])),
            engine.slice.eq(values["CONTEXT_SLICE"]),
            engine.timeout.eq(values["CONTEXT_TIMEOUT"]),
            engine.child_limit.eq(values["CHILD_LIMIT"]),
            engine.area.base.eq(page_of(values, "TASK_LISTS")),
            engine.area.log_size.eq(field_of(values, size, "LOG_SIZE")),
            engine.area.asid.eq(field_of(values, size, "ASID")),
        ]
        wiring.connect(m, unit.kill, wiring.flipped(engine.kill))
        return {name: unit.values[name] for name in unit.values.shape().members}

    def _runlist(self, m: Module, values: Mapping[str, Value]) -> dict[str, Value]:
        """The runlist. A list is submitted in the cycle after the write of RUNLIST_SUBMIT, when the
        register has its new value."""
        m.submodules.runlist = unit = RunlistRegisters()
        port, submit = self.runlist, GLOBAL["RUNLIST_SUBMIT"]
        pretest = GLOBAL["RUNLIST_ACQ_PRETEST"]
        m.d.sync += [
            port.submit.valid.eq(self._written(m, submit)),
            port.pretest.eq(
                field_of(values, pretest, "TIMEOUT") << field_of(values, pretest, "TIMESCALE")
            ),
        ]
        m.d.comb += [
            port.submit.page.eq(page_of(values, "RUNLIST_BASE")),
            port.submit.length.eq(field_of(values, submit, "LENGTH")),
            port.submit.offset.eq(field_of(values, submit, "OFFSET")),
            port.enable.eq(field_of(values, GLOBAL["RUNLIST_CONTROL"], "ENABLE")),
            port.unit.eq(field_of(values, GLOBAL["RUNLIST_UNIT"], "CYCLES")),
            unit.clear.eq(self._cleared(m, GLOBAL["RUNLIST_STATUS"])),
            unit.state.eq(port.state),
            unit.refused.eq(port.refused),
            unit.acquire.eq(port.acquire),
            self._runlist_wrong.eq(unit.attention),
        ]
        return {name: unit.values[name] for name in unit.values.shape().members}

    def _counters(self, m: Module) -> dict[str, Value]:
        m.submodules.counters = unit = PerformanceCounters(self._config)
        wiring.connect(m, wiring.flipped(self.events), unit.events)
        m.d.comb += [unit.doorbell.eq(self.doorbell), unit.fault.eq(self.faults.fault)]
        return {name: unit.values[name] for name in PERFORMANCE}

    def _limit(self, m: Module, value: Value) -> None:
        most = self._config.counters
        m.d.sync += self.counting.eq(Mux(value > most, most, value))

    def _read(self, m: Module, values: Mapping[str, Value]) -> None:
        """Read multiplexer in two stages after the address decoder, as one stage would be too slow
        for some 40 registers."""
        word = self.access.word[:10]
        groups: dict[int, list[tuple[int, Value]]] = {}
        for register in GLOBAL:
            if register.access is not Rule.WO:
                group, at = divmod(register.offset // 4, 1 << _GROUP)
                groups.setdefault(group, []).append((at, values[register.name]))
        place = Signal(1 << _GROUP)
        m.d.sync += place.eq(1 << word[:_GROUP])
        shown = []
        for group, members in groups.items():
            first, here = Signal(32, name=f"group_{group}"), Signal(name=f"in_group_{group}")
            m.d.sync += [
                first.eq(reduce(or_, (Mux(place[at], value, 0) for at, value in members))),
                here.eq(word[_GROUP:] == group),
            ]
            shown.append(Mux(here, first, 0))
        m.d.sync += self.value.eq(reduce(or_, shown))

    def _written(self, m: Module, register: Register) -> Value:
        chosen = Signal(name=f"chosen_{register.name}")
        m.d.sync += chosen.eq(self.access.word[:10] == register.offset // 4)
        return self.write & chosen

    def _cleared(self, m: Module, register: Register) -> Value:
        """Bits that a write of 1 clears."""
        return Mux(self._written(m, register), self._ones, 0)

    def _merged(self, old: Value) -> Value:
        """`old` with the written bytes replaced."""
        access = self.access
        return Cat(
            Mux(access.lanes[lane], access.data.word_select(lane, 8), old.word_select(lane, 8))
            for lane in range(4)
        )
