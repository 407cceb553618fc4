"""Refused launches of kernels by kernels, as recorded in the machine's registers (NEST-11)."""

from dataclasses import dataclass

from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck

__all__ = ["RefusedChild", "refused_child"]

_MEANING = {
    Refusal.BUS: "the bus refused an access to its record",
    Refusal.FAULT: "its record is not mapped",
    Refusal.MODEL: "its record has another version, or uses a feature that is not modelled",
    Refusal.FULL: "the list of its priority is full",
    Refusal.LISTS: "the task lists cannot be accessed",
    Refusal.KILLED: "its parent was being killed",
    Refusal.DEPTH: "its parent is as deep as the limit allows",
    Refusal.ROOM: "too many kernels are pending, or there is no save place for its parent's block",
}


@dataclass(frozen=True)
class RefusedChild:
    """The first of the refused launches since the last report.

    Members
    -------
    reason : reason, as the launching warp has read it; a plain number if unknown.
    check : failed check, if the reason is CHECK, otherwise NONE; a plain number if unknown.
    asid : address space of the kernels.
    channel : channel of the launching kernel.
    depth : depth that the child would have had.
    record : virtual address of its record; see `Child.record`.
    count : number of refused launches, at most 65,535.
    """

    reason: Refusal | int
    check: SkedCheck | int
    asid: int
    channel: int
    depth: int
    record: int
    count: int

    def __str__(self) -> str:
        name = self.reason.name if isinstance(self.reason, Refusal) else f"reason {self.reason}"
        why = _MEANING.get(self.reason, "") if isinstance(self.reason, Refusal) else ""
        if self.reason is Refusal.CHECK:
            known = isinstance(self.check, SkedCheck)
            why = f"check {int(self.check)}" + (f", {self.check.name}" if known else "")
        text = (
            f"record {self.record:#x} of ASID {self.asid}, launched by a kernel of channel "
            f"{self.channel} at depth {self.depth}: {name}" + (f", {why}" if why else "")
        )
        return text if self.count == 1 else f"{text}; the first of {self.count} refused launches"


async def refused_child(control: ControlPort) -> RefusedChild | None:
    """Read the recorded refusal, if there is one, so that the machine can record the next."""
    if not (await control.read_fields("TASK_STATUS"))["CHILD"]:
        return None
    what = await control.read_fields("CHILD_REFUSED")
    record = await control.read("CHILD_REFUSED_RECORD")
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
    )
