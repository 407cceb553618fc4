"""Semaphore operations, their results, and clients of the semaphore unit."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.methods import SemOp

__all__ = [
    "COMPUTE_CLIENTS",
    "HOST_CLIENTS",
    "SemaphoreError",
    "SemaphorePort",
    "semaphore_clients",
    "semaphore_request",
    "semaphore_response",
    "semaphore_update",
]


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
