"""Errors as messages: those of channels with all details, others by class and text."""

from dataclasses import dataclass, fields
from typing import Any, Self

from signalbox.driver.channel.copy_replay import RepeatError
from signalbox.driver.compute.contexts import ContextError, OutOfContexts
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.faults.warp_fault import WarpFault
from signalbox.driver.memory.address_space import OutOfAddresses, SpaceError
from signalbox.driver.memory.asids import OutOfAsids
from signalbox.driver.memory.page_tables import MapError
from signalbox.driver.memory.physical import MemoryUseError, OutOfMemory
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.messages import ErrorReport, MessageError, Refused
from signalbox.hw.errors import Cause, CoreCause
from signalbox.hw.page_tables import AccessType, FaultType
from signalbox.hw.qmd import SkedCheck

__all__ = [
    "KINDS",
    "CommandsRefused",
    "ServerError",
    "error_of",
    "exception_of",
    "refusal",
    "report",
]


class ServerError(Exception):
    """The server ended the connection, or could not carry out a call; the message says why."""


@dataclass
class CommandsRefused(ChannelError):
    """The server has refused commands that would affect other applications, or did not fit its
    limits, and continued after them. Created by `of`; `cause` is NONE, as the machine has not seen
    the commands.

    Members
    -------
    why : reason, as text.
    """

    why: str = ""

    @classmethod
    def of(cls, channel: int, why: str) -> Self:
        """The refusal of a channel's commands."""
        return cls(channel, Cause.NONE, None, 0, 0, 0, held=False, why=why)

    @property
    def reason(self) -> str:
        """See `ChannelError.reason`."""
        return f"channel {self.channel}: the server refused commands: {self.why}"

    def __str__(self) -> str:
        return self.reason


KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ContextError,
        DeviceError,
        MapError,
        MemoryUseError,
        MessageError,
        OutOfAddresses,
        OutOfAsids,
        OutOfContexts,
        OutOfMemory,
        RepeatError,
        ServerError,
        SpaceError,
        ValueError,
    )
}
"""Exceptions that keep their class across the connection, by name."""


def refusal(error: Exception) -> Refused:
    """Answer to a call that raised `error`."""
    kind = type(error).__name__
    if kind in KINDS:
        return Refused(kind, str(error))
    return Refused(ServerError.__name__, f"{kind}: {error}")


def exception_of(answer: Refused) -> Exception:
    """The exception encoded in an answer."""
    return KINDS.get(answer.kind, ServerError)(answer.message)


def _plain(error: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of a dataclass, with members of enumerations as numbers and tuples as lists."""
    values = {field.name: getattr(error, field.name) for field in fields(error)}
    return {name: _value(value) for name, value in values.items() if name not in without}


def _value(value: Any) -> Any:
    """See `_plain`."""
    if isinstance(value, tuple):
        return [*value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def report(error: ChannelError) -> ErrorReport:
    """An error as a message; the client finds the parents of a kernel by itself."""
    warp = error.warp if isinstance(error, TaskError) else None
    return ErrorReport(
        fields=_plain(error, without=("fault", "warp", "parents")),
        fault=None if error.fault is None else _plain(error.fault),
        warp=None if warp is None else _plain(warp),
        task=isinstance(error, TaskError),
    )


def _named(kind: Any, value: Any) -> Any:
    """Member of an enumeration, or the plain number if there is none."""
    try:
        return kind(value)
    except ValueError:
        return value


def error_of(message: ErrorReport) -> ChannelError:
    """The error encoded in a message."""
    values: dict[str, Any] = {**message.fields, "cause": Cause(message.fields["cause"])}
    if (fault := message.fault) is not None:
        kinds = {
            "access": _named(AccessType, fault["access"]),
            "cause": _named(FaultType, fault["cause"]),
        }
        values["fault"] = TranslationFault(**{**fault, **kinds})
    if not message.task:
        return (CommandsRefused if "why" in values else ChannelError)(**values)
    values["check"] = SkedCheck(values["check"])
    if (warp := message.warp) is not None:
        told: dict[str, Any] = {**warp, "cause": _named(CoreCause, warp["cause"])}
        values["warp"] = WarpFault(**{**told, "block": tuple(told["block"])})
    return TaskError(**values)
