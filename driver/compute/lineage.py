"""Ancestors of a kernel that was launched by a kernel, from task records in memory (NEST-10)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from signalbox.driver.compute.program import Program
from signalbox.driver.faults.task_error import Ancestor, TaskError
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.machine import Machine
from signalbox.hw.config import NESTING
from signalbox.hw.qmd import QMD, QMD_BYTES

__all__ = ["Lineage", "lineage"]


@dataclass(frozen=True)
class Lineage:
    """A kernel, the kernel that launched it, and so on, up to that of the host.

    Members
    -------
    records : virtual addresses of their records.
    programs : their programs; None for one that the driver has not loaded.
    """

    records: tuple[int, ...]
    programs: tuple[Program | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels; empty for unknown ones."""
        return tuple(one.kernel.name if one else "" for one in self.programs)

    @property
    def parents(self) -> tuple[Ancestor, ...]:
        """All but the first, nearest first."""
        return tuple(map(Ancestor, self.names[1:], self.records[1:]))

    def complete(self, error: TaskError, program: Program | None) -> TaskError:
        """`error` of the first kernel, whose program is `program`, completed with the names of the
        kernels and the source line."""
        name, place = program.kernel.name if program else "", ""
        if program is not None and error.warp is not None and program.holds(error.warp.at):
            place = program.line(error.warp.at)
        return replace(error, kernel=name, place=place, parents=self.parents)


def lineage(
    machine: Machine,
    space: AddressSpace,
    record: int,
    program_at: Callable[[AddressSpace, int], Program | None],
) -> Lineage:
    """The kernel of a record and its ancestors, as of their last launches. It ends early at a
    record that is not mapped. `program_at` : the program at a virtual address."""
    records, programs = [record], []
    while True:
        content = _content(machine, space, records[-1])
        upper, lower = (_field(content, f"PROGRAM_ADDRESS_{half}") for half in ("UPPER", "LOWER"))
        programs.append(program_at(space, upper << 32 | lower))
        parent = _field(content, "MODEL_PARENT") << 8
        if not parent or len(records) == NESTING:
            return Lineage(tuple(records), tuple(programs))
        records.append(parent)


def _content(machine: Machine, space: AddressSpace, record: int) -> int:
    """The bits of a record; 0 if it is not mapped."""
    try:
        content = machine.memory_read(space.translate(record), QMD_BYTES)
    except TranslationFault:
        return 0
    return int.from_bytes(content, "little")


def _field(content: int, name: str) -> int:
    field = QMD[name]
    return content >> field.offset & (1 << field.width) - 1
