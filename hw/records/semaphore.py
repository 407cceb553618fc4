"""Semaphore operations, their results, and clients of the semaphore unit."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.methods import SemOp

__all__ = [
    "COMPUTE_CLIENTS",
    "HOST_CLIENTS",
    "OnChipStatus",
    "SemaphoreError",
    "SemaphorePort",
    "semaphore_clients",
    "semaphore_request",
    "semaphore_response",
    "semaphore_update",
]


class SemaphoreError(enum.Enum, shape=4):
    """Reason for refusing a semaphore operation; a refused operation changes nothing."""

    NONE = 0
    UNDERFLOW = 1
    """A counting semaphore would fall below 0 (COPY-12)."""
    OVERFLOW = 2
    """A counting semaphore would exceed its width (COPY-12)."""
    UNKNOWN = 3
    """In the on-chip window, but not at the start of an implemented slot."""
    ALIGNMENT = 4
    """64-bit not 8-byte aligned, 32-bit not 4-byte, timestamped release not 16-byte (spec 2.2)."""
    UNSUPPORTED = 5
    """Unsupported combination of operation, width and sign (spec 2.2)."""
    BUS = 6
    FAULT = 7


def semaphore_request(config: Config) -> data.StructLayout:
    """One SEM_EXECUTE-like operation on the word at `va` (spec 2.1, 2.2).

    `wide`: 64-bit; `timestamp`: release or reduction also writes PTIMER to `va` + 8, before the
    payload, and a 32-bit release then clears bytes 4-7. `reduction` and `unsigned` apply only when
    `operation` is REDUCTION.
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
    """Result of one operation: `passed` is the condition of an acquire (1 for other successful
    operations); `error` is the reason of a refusal."""
    return data.StructLayout({"passed": 1, "error": SemaphoreError})


def semaphore_update(config: Config) -> data.StructLayout:
    """Strobe: on-chip semaphore `index` was written, or the operation was refused."""
    return data.StructLayout({"valid": 1, "index": config.semaphore_bits})


HOST_CLIENTS = 2
"""Semaphore clients of the host: 0 for on-chip operations, 1 for slow operations in memory, which
must not block the former (COPY-3). Copy engines follow."""


COMPUTE_CLIENTS = 2
"""Semaphore clients of the compute engine, the last ones: task releases and channel reports."""


def semaphore_clients(config: Config) -> int:
    """Number of clients of the semaphore unit."""
    return HOST_CLIENTS + config.copy_engines + (COMPUTE_CLIENTS if config.compute else 0)


class SemaphorePort(wiring.Signature):
    """A client of the semaphore unit, seen from the client: one outstanding operation.

    Members
    -------
    request : out, stream of `semaphore_request`; the next one may be offered in the cycle after the
        response is taken.
    response : in, stream of `semaphore_response`; ready while an operation is outstanding.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(semaphore_request(config))),
            "response": In(stream.Signature(semaphore_response())),
        })


class OnChipStatus(wiring.Signature):
    """State of the on-chip semaphores, seen from their owner.

    Members
    -------
    zero : out, per counting semaphore, its value is 0.
    update : out, strobe: semaphore `index` was operated on, see `semaphore_update`.
    counting : out, 0 … `counters`: number of counting semaphores, the first ones.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "zero": Out(config.counters),
            "update": Out(semaphore_update(config)),
            "counting": Out(range(config.counters + 1)),
        })
