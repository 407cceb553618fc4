"""Messages between client and server, in MessagePack.

A client sends a `Call` and gets one `Answer` with its number; the server also sends `News`
unasked. Data and commands are in memory that both share; messages hold their addresses. The client
chooses the numbers of its spaces; channels have the machine's numbers.
"""

from operator import index
from typing import Annotated

import msgspec

from signalbox.driver.platform.info import DeviceInfo

__all__ = [
    "CALL_NUMBERS",
    "IDS",
    "LARGEST_MESSAGE",
    "MOST_CALLS",
    "PROTOCOL",
    "Answer",
    "Call",
    "CloseChannel",
    "CloseSpace",
    "Done",
    "ErrorReport",
    "Failed",
    "Halted",
    "Hello",
    "Kill",
    "Leave",
    "Look",
    "Map",
    "MessageError",
    "News",
    "Notified",
    "Number",
    "OpenChannel",
    "OpenSpace",
    "Opened",
    "Protect",
    "RaisePriority",
    "ReadTime",
    "Refused",
    "Report",
    "Request",
    "Resume",
    "Seen",
    "Settle",
    "Status",
    "Submit",
    "Taken",
    "Unmap",
    "Wait",
    "Welcome",
    "decode_call",
    "decode_reply",
    "encode",
    "encode_call",
]

PROTOCOL = 6
"""Version of the messages, which must be the same on both sides."""

LARGEST_MESSAGE = 1 << 16
"""Maximum size of a message, in bytes."""

MOST_CALLS = 128
"""Maximum number of calls that a client has in progress; further ones wait for answers. A server
ends the connection of a client that makes many more."""

IDS = 1 << 16
"""Number of different numbers of a client's address spaces, or channels."""

CALL_NUMBERS = 1 << 32
"""Number of different numbers of calls."""

Id = Annotated[int, msgspec.Meta(ge=0, lt=IDS)]
Address = Annotated[int, msgspec.Meta(ge=0, lt=1 << 49)]
Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 49)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Name = Annotated[str, msgspec.Meta(max_length=64)]


class MessageError(Exception):
    """Bytes are not a valid message; the text says why."""


class _Message(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Base of all messages."""


# -- calls of clients ------------------------------------------------------------------------------


class Hello(_Message):
    """First call of an application. Answered with `Welcome`.

    Members
    -------
    name : name of the application, for messages and the server's status.
    process : number of its process.
    memory : bytes of memory; 0: the server's default.
    """

    version: Count
    name: Name
    process: Count
    memory: Annotated[int, msgspec.Meta(ge=0, lt=1 << 49)] = 0


class Status(_Message):
    """Ask for the server's status, `Report`. Needs no `Hello`."""


class OpenSpace(_Message):
    """Create an address space of `size` bytes, with a number of the client's choice."""

    space: Id
    size: Size


class Map(_Message):
    """Map `size` bytes at physical address `pa`, in the client's memory, at `va` of a space."""

    space: Id
    va: Address
    pa: Address
    size: Size
    page: Size
    read_only: bool
    atomics: bool


class Unmap(_Message):
    """Remove the mapping at `va`."""

    space: Id
    va: Address


class Protect(_Message):
    """Allow or forbid writes to the mapping at `va`."""

    space: Id
    va: Address
    read_only: bool


class Settle(_Message):
    """Complete changes of a space that were refused because the machine did not answer."""

    space: Id


class CloseSpace(_Message):
    """Close an address space, whose channels are closed."""

    space: Id


class OpenChannel(_Message):
    """Open a channel for a stream of `priority`. Answered with `Opened`."""

    space: Id
    priority: Annotated[int, msgspec.Meta(ge=-64, le=0)]


class CloseChannel(_Message):
    """Close a channel; its tasks are killed."""

    channel: Id


class Submit(_Message):
    """Put a pointer to commands on the client's queue: `dwords` at physical address `pa`. The
    commands must stay unchanged until `Taken`.

    Members
    -------
    sync : as in `CommandChannel.enqueue`.
    """

    channel: Id
    pa: Address
    dwords: Annotated[int, msgspec.Meta(ge=1, lt=1 << 21)]
    sync: bool = False


class RaisePriority(_Message):
    """See `CommandChannel.raise_priority`."""

    channel: Id
    priority: Annotated[int, msgspec.Meta(ge=0, lt=64)]


class Look(_Message):
    """Ask for the state of a channel, `Seen`."""

    channel: Id


class Resume(_Message):
    """Continue a halted channel; `skip` : after the failed operation, instead of retrying it."""

    channel: Id
    skip: bool


class Kill(_Message):
    """Kill the task with its record at `record`, if it is in progress. Answered once the task has
    ended."""

    space: Id
    record: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]


class ReadTime(_Message):
    """Ask for PTIMER in ns, a `Number`."""


class Wait(_Message):
    """Ask for an answer after `cycles` clock cycles."""

    cycles: Count


class Leave(_Message):
    """Last call: queued commands are executed (`drain`) or dropped. Answered once nothing of the
    client is left."""

    drain: bool


Request = (
    Hello
    | Status
    | OpenSpace
    | Map
    | Unmap
    | Protect
    | Settle
    | CloseSpace
    | OpenChannel
    | CloseChannel
    | Submit
    | RaisePriority
    | Look
    | Resume
    | Kill
    | ReadTime
    | Wait
    | Leave
)


class Call(_Message):
    """A call of a client, with a number of the client's choice, which no call without an answer
    has."""

    number: Annotated[int, msgspec.Meta(ge=0, lt=CALL_NUMBERS)]
    request: Request


# -- answers and news of the server ----------------------------------------------------------------


class ErrorReport(_Message):
    """An error of a channel (`driver.protocol.errors`)."""

    fields: dict[str, bool | int | str | None]
    fault: dict[str, bool | int | str | None] | None = None
    warp: dict[str, int | list[int] | None] | None = None
    task: bool = False


class Welcome(_Message):
    """The application is a client of the server.

    Members
    -------
    client : its number.
    info : build parameters of the machine.
    base, size : physical address and size of its memory.
    channels : maximum number of open channels.
    queue : maximum number of pointers on its queue.
    dwords : maximum number of dwords of one pointer.
    levels : number of stream priorities.
    depth : nesting depth of kernels.
    streams : maximum number of its streams; 0: any number.
    priority : highest device priority of its launches.
    sms : SMs that take blocks of its launches; empty: all.
    shared : whether its kernels share a context with those of others; otherwise it has its own.
    epoch : machine cycle at which PTIMER was 0.
    """

    client: int
    info: DeviceInfo
    base: Address
    size: Size
    channels: Count
    queue: Count
    dwords: Count
    levels: Count
    depth: Count
    streams: Count
    priority: Count
    sms: list[Count]
    shared: bool
    epoch: int


class Done(_Message):
    """The call has been carried out."""


class Number(_Message):
    """A number that was asked for."""

    value: int


class Opened(_Message):
    """An open channel: a new one, or one that the client has already."""

    channel: Id


class Seen(_Message):
    """State of a channel, as returned by the members of `CommandChannel`.

    Members
    -------
    resumes : number of `Resume` calls of the channel carried out before.
    """

    resumes: int
    executed: int
    progress: int
    waits_for: int
    failure: ErrorReport | None = None


class Refused(_Message):
    """The call was not carried out.

    Members
    -------
    kind : name of the exception (`driver.protocol.errors.KINDS`).
    """

    kind: str
    message: str


class Report(_Message):
    """State of the server, as text."""

    text: str


class Taken(_Message):
    """The server has read the first `count` of the submissions to a channel that it accepted."""

    channel: Id
    count: int


class Notified(_Message):
    """The machine has released fences; the client checks its own."""


class Halted(_Message):
    """A channel has halted, after `resumes` calls of `Resume`."""

    channel: Id
    resumes: int
    error: ErrorReport


class Failed(_Message):
    """A task has failed; its channel continues unless `Halted` says otherwise."""

    channel: Id
    error: ErrorReport


Result = Done | Number | Opened | Refused | Report | Seen | Welcome
Event = Failed | Halted | Notified | Taken


class Answer(_Message):
    """Answer to the call with number `number`, sent in machine cycle `cycle`."""

    number: int
    cycle: int
    result: Result


class News(_Message):
    """An event, sent in machine cycle `cycle`."""

    cycle: int
    event: Event


_encoder = msgspec.msgpack.Encoder(enc_hook=index)  # for numbers of numpy
_calls = msgspec.msgpack.Decoder(Call)
_replies = msgspec.msgpack.Decoder(Answer | News)


def encode(message: Call | Answer | News) -> bytes:
    """Bytes of a message."""
    return _encoder.encode(message)


def encode_call(call: Call) -> bytes:
    """Bytes of a call. Raises `ValueError` for values that do not fit the message, at which the
    server would end the connection."""
    try:
        data = encode(call)
        _calls.decode(data)
    except (OverflowError, msgspec.ValidationError) as error:
        raise ValueError(f"{type(call.request).__name__}: {error}") from None
    return data


def decode_call(data: bytes) -> Call:
    """The call of a client. Raises `MessageError`."""
    try:
        return _calls.decode(data)
    except Exception as error:  # UnicodeDecodeError, RecursionError: a client can send anything
        raise MessageError(f"{len(data)} bytes are no call: {error}") from None


def decode_reply(data: bytes) -> Answer | News:
    """A message of the server. Raises `MessageError`."""
    try:
        return _replies.decode(data)
    except msgspec.DecodeError as error:
        raise MessageError(f"{len(data)} bytes are no message of a server: {error}") from None
