"""Records that travel between units on ready/valid streams.

Streams follow the four rules of `amaranth.lib.stream`: a transfer happens when `valid` and
`ready` are both 1; `valid`, once 1, stays with its payload until then; `valid` never waits for
`ready`; `ready` may do anything.
"""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import PA_BITS, VA_BITS, Config
from hw.methods import LaunchSemaphore, SemOp
from hw.pagetables import FaultRecord
from hw.registers import MmuOperation

__all__ = [
    "COMPUTE_CLIENTS",
    "HOST_CLIENTS",
    "CopyError",
    "CopyPort",
    "FaultPort",
    "MemoryStatus",
    "MmuPort",
    "ReadPort",
    "RegisterPort",
    "SemaphoreError",
    "SemaphorePort",
    "WritePort",
    "copy_command",
    "copy_done",
    "fault_status",
    "memory_request",
    "mmu_command",
    "read_beat",
    "semaphore_clients",
    "semaphore_request",
    "semaphore_response",
    "semaphore_update",
    "write_beat",
]


class MemoryStatus(enum.Enum, shape=2):
    """How a memory access ended."""

    OK = 0
    BUS = 1
    """The bus answered SLVERR or DECERR."""
    FAULT = 2
    """The address has no translation; the access never reached the bus."""


def memory_request(config: Config) -> data.StructLayout:
    """One burst of a memory client: `beats` + 1 whole bus beats from `va` rounded down to a beat.

    A burst must not cross a 4 KiB boundary. `physical` skips translation (not the bounds check).
    `atomic`: it is part of an operation that reads and writes, which a page may forbid.
    """
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "beats": 8,
        "physical": 1,
        "atomic": 1,
    })


def read_beat(config: Config) -> data.StructLayout:
    """One beat of a read burst, in order within the client; a faulted burst has one beat only,
    with `last` set and `data` meaningless."""
    return data.StructLayout({"data": config.data_width, "last": 1, "status": MemoryStatus})


def write_beat(config: Config) -> data.StructLayout:
    """One beat of a write burst; `strobe` has one bit per byte."""
    return data.StructLayout({"data": config.data_width, "strobe": config.beat_bytes, "last": 1})


class ReadPort(wiring.Signature):
    """A reading memory client, seen from the client. Any number of bursts may be outstanding;
    they are answered in order."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(memory_request(config))),
            "beat": In(stream.Signature(read_beat(config))),
        })


class WritePort(wiring.Signature):
    """A writing memory client, seen from the client.

    The client offers a request only when all beats of its burst are at hand, since beats of one
    client hold the bus. Every burst, faulted ones too, consumes its beats and is answered with one
    `done`, in order, when its bytes are visible to every later access.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(memory_request(config))),
            "beat": Out(stream.Signature(write_beat(config))),
            "done": In(stream.Signature(data.StructLayout({"status": MemoryStatus}))),
        })


class SemaphoreError(enum.Enum, shape=4):
    """Why a semaphore operation was refused; a refused operation changes nothing."""

    NONE = 0
    UNDERFLOW = 1
    """A counting semaphore would fall below 0 (COPY-12)."""
    OVERFLOW = 2
    """A counting semaphore would pass its width (COPY-12)."""
    UNKNOWN = 3
    """In the on-chip window, but not a slot that was built, or not the start of one."""
    ALIGNMENT = 4
    """64-bit not on 8 bytes, 32-bit not on 4, timestamped release not on 16 (2.2)."""
    UNSUPPORTED = 5
    """Operation, width and sign do not go together (2.2)."""
    BUS = 6
    FAULT = 7


def semaphore_request(config: Config) -> data.StructLayout:
    """One SEM_EXECUTE-like operation on the word at `va` (2.1, 2.2).

    `wide`: 64-bit; `timestamp`: release or reduction also writes PTIMER to `va` + 8, before the
    payload, and a 32-bit release then zeroes bytes 4-7. `reduction` and `unsigned` count only
    when `operation` is REDUCTION.
    """
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "operation": SemOp,
        "reduction": 4,
        "unsigned": 1,
        "wide": 1,
        "timestamp": 1,
        "payload": 64,
    })


def semaphore_response() -> data.StructLayout:
    """Result of one operation: `passed` is an acquire's condition (1 for other operations that
    took effect); `error` says why nothing was done."""
    return data.StructLayout({"passed": 1, "error": SemaphoreError})


def semaphore_update(config: Config) -> data.StructLayout:
    """An operation wrote on-chip semaphore `index`, or was refused."""
    return data.StructLayout({"valid": 1, "index": config.semaphore_bits})


HOST_CLIENTS = 2
"""Clients of the semaphore unit that the host is: 0 for operations on chip, 1 for those in memory,
which take long and must not hold up the former (COPY-3). Copy engines follow."""

COMPUTE_CLIENTS = 2
"""Those of the compute engine, the last ones: for releases of tasks, for reports of channels."""


def semaphore_clients(config: Config) -> int:
    """Clients of the semaphore unit."""
    return HOST_CLIENTS + config.copy_engines + (COMPUTE_CLIENTS if config.compute else 0)


class SemaphorePort(wiring.Signature):
    """A client of the semaphore unit, seen from the client: one operation at a time; the next
    request may be offered in the cycle after the response was taken. `response.ready` must be 1
    whenever an operation is outstanding."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(semaphore_request(config))),
            "response": In(stream.Signature(semaphore_response())),
        })


class CopyError(enum.Enum, shape=3):
    """How a copy failed. Bytes of bursts before the failure may have been written."""

    NONE = 0
    READ_BUS = 1
    READ_FAULT = 2
    WRITE_BUS = 3
    WRITE_FAULT = 4
    SEMAPHORE = 5
    """The copy is complete, its semaphore release was refused."""


def copy_command(config: Config) -> data.StructLayout:
    """One checked LAUNCH_DMA (section 4).

    `line_length` bytes per line; `line_count` lines, `pitch_in`/`pitch_out` bytes apart (unsigned,
    addresses wrap at 49 bits); `transfer` 0 copies nothing. After the last byte is visible the
    semaphore, if any, is released: ONE_WORD payload only, FOUR_WORDS with timestamp;
    `reduction_enable` makes it a reduction. `subchannel` and `data` are the method's, and come back
    with `copy_done`.
    """
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "asid": config.asid_bits,
        "transfer": 1,
        "src": VA_BITS,
        "dst": VA_BITS,
        "src_physical": 1,
        "dst_physical": 1,
        "pitch_in": 32,
        "pitch_out": 32,
        "line_length": 32,
        "line_count": 32,
        "semaphore": LaunchSemaphore,
        "semaphore_va": VA_BITS,
        "payload": 64,
        "wide": 1,
        "reduction_enable": 1,
        "reduction": 4,
        "reduction_unsigned": 1,
    })


def copy_done(config: Config) -> data.StructLayout:
    """End of one copy, in the order in which an engine accepted them; `va` is the first byte of
    the burst that failed, when one did; `subchannel` and `data` are those of its command."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "error": CopyError,
        "va": VA_BITS,
    })


class CopyPort(wiring.Signature):
    """A copy engine, seen from the host. `command` is ready while the engine can begin reading at
    once; `idle` is 1 while nothing that it accepted is unfinished. While `stop` is 1 copies end as
    soon as what was begun of them allows, with a part of their bytes and without release."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": Out(stream.Signature(copy_command(config))),
            "done": In(stream.Signature(copy_done(config))),
            "idle": In(1),
            "stop": Out(1),
        })


def mmu_command(config: Config) -> data.StructLayout:
    """A bind or an invalidation. `page` is a virtual address, `base` a page directory base,
    `limit` a last virtual address, all >> 12; `asid` and `base` are as wide as the registers.

    `by_base`: of an invalidation, not `asid` but all that have `base` (MEM_OP knows no ASIDs).
    """
    return data.StructLayout({
        "operation": MmuOperation,
        "asid": 10,
        "by_base": 1,
        "page": VA_BITS - 12,
        "base": PA_BITS - 12,
        "limit": VA_BITS - 12,
    })


fault_status = data.StructLayout({"fault": 1, "overflow": 1, "bus": 1})
"""Fields of FAULT_STATUS."""


class MmuPort(wiring.Signature):
    """Binds and invalidations, seen from who wants them: one at a time. `done` is a strobe: it is
    acknowledged, nothing older than it is used any more; or it was `refused`, and nothing done."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": Out(stream.Signature(mmu_command(config))),
            "done": In(data.StructLayout({"valid": 1, "refused": 1})),
        })


class FaultPort(wiring.Signature):
    """The fault buffer, seen from its registers, whose members these are: `base` >> 12; `clear`
    strobes bits of `status`. `fault` is a strobe: one more was reported. While `busy` a record may
    be written to the buffer that was on, even if it is off by now."""

    def __init__(self, config: Config) -> None:
        super().__init__({
            "base": Out(PA_BITS - 12),
            "records": Out(20),
            "enable": Out(1),
            "get": Out(20),
            "put": In(20),
            "status": In(fault_status),
            "clear": Out(fault_status),
            "dropped": In(32),
            "record": In(FaultRecord),
            "fault": In(1),
            "busy": In(1),
        })


class RegisterPort(wiring.Signature):
    """A small register bus, seen from the control port: one request at a time, `address` counts
    32-bit words inside the block; every request, write or read, is answered with one response."""

    def __init__(self, address_bits: int) -> None:
        request = data.StructLayout({"address": address_bits, "write": 1, "data": 32})
        super().__init__({
            "request": Out(stream.Signature(request)),
            "response": In(stream.Signature(data.StructLayout({"data": 32}))),
        })
