"""Reference model of the registers of a channel (HOST-6), from the register map; without timing."""

from dataclasses import dataclass, field, replace

from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.methods import CeMethod, ComputeMethod
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.registers import CHANNEL

__all__ = ["OBJECTS", "TALLIES", "Channel", "Error", "of_copy", "of_method", "of_task"]

TALLIES = ("METHODS", "COPIES", "TASKS", "REFERENCE")

OBJECTS = tuple(f"OBJECT{number}" for number in range(5))

_METHOD0 = CHANNEL["METHOD0"]


@dataclass(frozen=True)
class Error:
    """An error record.

    Members
    -------
    late : true if a copy or a task failed; false if a method was refused.
    method, data : values of METHOD0 and DATA0.
    more : another copy or task has failed since; register CAUSE shows it as MORE.
    """

    cause: Cause
    check: SkedCheck
    va: int
    late: bool
    method: int
    data: int
    more: bool = False

    def word(self, name: str) -> int:
        """Value of the error register `name`."""
        code = 1 << CODE_OF[self.cause]
        return {
            "INTR_0": code & 0xFFFF_FFFF,
            "INTR_1": code >> 32,
            "CAUSE": CHANNEL["CAUSE"].pack(
                CAUSE=self.cause.value, MORE=self.more, SKEDCHECK=self.check.value
            ),
            "ERROR_VA": self.va & 0xFFFF_FFFF,
            "ERROR_VA_HI": self.va >> 32,
            "METHOD0": self.method,
            "DATA0": self.data,
        }[name]


def of_method(
    cause: Cause, check: SkedCheck, va: int, address: int, subchannel: int, data: int, held: bool
) -> Error:
    """Error of a refused method; `address` in bytes. `held` is false for a bad header or ring
    entry, which leaves no method to execute again."""
    method = _METHOD0.pack(ADDRESS=address >> 2, SUBCHANNEL=subchannel, VALID=held)
    return Error(cause, check, va, False, method, data)


def of_copy(cause: Cause, va: int, subchannel: int, data: int) -> Error:
    """Error of a copy launched with `data`."""
    method = _METHOD0.pack(ADDRESS=CeMethod.LAUNCH_DMA >> 2, SUBCHANNEL=subchannel)
    return Error(cause, SkedCheck.NONE, va, True, method, data)


def of_task(cause: Cause, check: SkedCheck, page: int) -> Error:
    """Error of the task whose record is at `page` << 8."""
    method = _METHOD0.pack(ADDRESS=ComputeMethod.SEND_PCAS_A >> 2)
    return Error(cause, check, page << 8, True, method, page)


@dataclass(frozen=True)
class Channel:
    """State of a channel. Each of its methods but `word` returns the state after an event.

    Members
    -------
    errors : at most two; the registers show the first.
    tallies, objects : values of the registers TALLIES and OBJECTS, by name.
    """

    enabled: bool = False
    errors: tuple[Error, ...] = ()
    tallies: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TALLIES, 0))
    objects: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OBJECTS, 0))
    acquire_failed: bool = False

    def noted(self, error: Error) -> "Channel":
        """After `error`. The refusal of a method is not recorded while another error is shown: the
        method is held, and executed again after that error is cleared."""
        match self.errors:
            case ():
                return replace(self, errors=(error,))
            case (first,) if error.late:
                return replace(self, errors=(replace(first, more=True), error))
            case (first, second) if error.late:
                return replace(self, errors=(first, replace(second, more=True)))
        return self

    def cleared(self) -> "Channel":
        """After the error shown was cleared; the next one, if any, is shown."""
        return replace(self, errors=self.errors[1:])

    def rewritten(self, name: str, value: int) -> "Channel":
        """After a write of METHOD0 or DATA0, which changes the error shown."""
        first, *rest = self.errors
        value &= CHANNEL[name].mask
        first = replace(first, **{{"METHOD0": "method", "DATA0": "data"}[name]: value})
        return replace(self, errors=(first, *rest))

    def started(self) -> "Channel":
        """After a start of the channel. If the error shown is that of a method, it is dropped; the
        tallies and objects are 0."""
        method = bool(self.errors) and not self.errors[0].late
        return Channel(enabled=True, errors=self.errors[method:])

    def counted(self, name: str, value: int | None = None) -> "Channel":
        """After an increment of a tally, or after it was set to `value`."""
        now = (self.tallies[name] + 1) % (1 << 32) if value is None else value
        return replace(self, tallies={**self.tallies, name: now})

    def bound(self, subchannel: int, word: int) -> "Channel":
        """After SET_OBJECT with data `word`."""
        return replace(self, objects={**self.objects, OBJECTS[subchannel]: word})

    def word(self, name: str) -> int:
        """Value of register `name`: CONTROL, a tally, an object, or an error register."""
        if name == "CONTROL":
            return int(self.enabled)
        if name in TALLIES:
            return self.tallies[name]
        if name in OBJECTS:
            return self.objects[name]
        return self.errors[0].word(name) if self.errors else 0
