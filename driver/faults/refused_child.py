"""Refused launches of kernels by kernels, as recorded in the machine's registers (NEST-11)."""

from dataclasses import dataclass

from signalbox.driver.faults.task_error import Ancestor
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck

__all__ = ["RefusedChild", "refused_child"]

_MEANING = {
    Refusal.BUS: "the bus refused an access to its record",
    Refusal.FAULT: "its record is not mapped",
    Refusal.MODEL: (
        "its record has another version, uses a feature that is not modelled, or disables all SMs"
    ),
    Refusal.FULL: "the list of its priority is full",
    Refusal.LISTS: "the task lists cannot be accessed",
    Refusal.KILLED: "its parent was being killed",
    Refusal.DEPTH: "its parent is as deep as the limit allows",
    Refusal.ROOM: "too many kernels are pending, or there is no save place for its parent's block",
}


@dataclass(frozen=True)
class RefusedChild:
    """The first refused launch since the last report.

    Members
    -------
    reason : reason, as answered to the launching warp; a plain number if unknown.
    check : failed check, if the reason is CHECK, otherwise NONE; a plain number if unknown.
    asid : ASID of parent and child.
    channel : channel of the launching kernel.
    depth : depth that the child would have had.
    record : virtual address of the child's task record; see `Child.record`.
    count : lower bound of the number of refused launches since the last report, at most 65,535.
    launcher : virtual address of the launching kernel's task record.
    kernel : name of the kernel that was not launched; empty if unknown.
    parents : the launching kernel and its ancestors, nearest first, up to the kernel launched by
        the host; empty if their records have not been read.
    """

    reason: Refusal | int
    check: SkedCheck | int
    asid: int
    channel: int
    depth: int
    record: int
    count: int
    launcher: int = 0
    kernel: str = ""
    parents: tuple[Ancestor, ...] = ()

    def __str__(self) -> str:
        named = f"{self.kernel!r}, " if self.kernel else ""
        above = ", launched by ".join(map(str, self.parents)) or "a kernel"
        text = (
            f"{named}record {self.record:#x} of ASID {self.asid}, launched by {above} of channel "
            f"{self.channel} at depth {self.depth}: {self._why}"
        )
        return text if self.count == 1 else f"{text}; the first of {self.count} refused launches"

    @property
    def _why(self) -> str:
        if not isinstance(self.reason, Refusal):
            return f"reason {self.reason}"
        if self.reason is Refusal.CHECK:
            name = f", {self.check.name}" if isinstance(self.check, SkedCheck) else ""
            return f"CHECK, check {int(self.check)}{name}"
        why = _MEANING.get(self.reason)
        return f"{self.reason.name}, {why}" if why else self.reason.name


async def refused_child(control: ControlPort) -> RefusedChild | None:
    """Read the recorded refusal and clear it, so that the machine can record the next; None if
    there is none."""
    if not (await control.read_fields("TASK_STATUS"))["CHILD"]:
        return None
    what = await control.read_fields("CHILD_REFUSED")
    record = await control.read("CHILD_REFUSED_RECORD")
    parent = await control.read("CHILD_REFUSED_PARENT")
    how = await control.read_fields("CHILD_REFUSALS")
    await control.write("TASK_STATUS", CHILD=1)
    reason, check = what["REASON"], what["CHECK"]
    return RefusedChild(
        Refusal(reason) if reason in {one.value for one in Refusal} else reason,
        SkedCheck(check) if check in {one.value for one in SkedCheck} else check,
        what["ASID"],
        how["CHANNEL"],
        what["DEPTH"],
        record << 8,
        how["COUNT"],
        parent << 8,
    )
