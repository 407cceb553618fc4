"""Memory clients: bursts, beats and responses."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config

__all__ = ["MemoryStatus", "ReadPort", "WritePort", "memory_request", "read_beat", "write_beat"]


class MemoryStatus(enum.Enum, shape=2):
    """Status of a memory access."""

    OK = 0
    BUS = 1
    """The bus answered SLVERR or DECERR."""
    FAULT = 2
    """No translation; the access never reached the bus."""


def memory_request(config: Config) -> data.StructLayout:
    """One burst of a memory client: `beats` + 1 whole bus beats from `va`, rounded down to a beat.

    A burst must not cross a 4 KiB boundary. `physical` skips translation, but not the bounds check.
    `atomic`: part of a read-modify-write, which a page may forbid.
    """
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "beats": 8,
        "physical": 1,
        "atomic": 1,
    })


def read_beat(config: Config) -> data.StructLayout:
    """One beat of a read burst, in order within the client. A faulted burst has a single beat, with
    `last` set and `data` undefined."""
    return data.StructLayout({"data": config.data_width, "last": 1, "status": MemoryStatus})


def write_beat(config: Config) -> data.StructLayout:
    """One beat of a write burst; `strobe` has one bit per byte."""
    return data.StructLayout({"data": config.data_width, "strobe": config.beat_bytes, "last": 1})


class ReadPort(wiring.Signature):
    """A read client, seen from the client. Any number of bursts may be outstanding; responses come
    in order.

    Members
    -------
    request : out, stream of `memory_request`.
    beat : in, stream of `read_beat`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(memory_request(config))),
            "beat": In(stream.Signature(read_beat(config))),
        })


class WritePort(wiring.Signature):
    """A write client, seen from the client.

    The client offers a request only when it has all beats of the burst, since a burst holds the bus
    until its last beat. Every burst, including faulted ones, consumes its beats and gets one
    `done`, in order, once its bytes are visible to every later access.

    Members
    -------
    request : out, stream of `memory_request`.
    beat : out, stream of `write_beat`.
    done : in, stream of responses, each a `MemoryStatus`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "request": Out(stream.Signature(memory_request(config))),
            "beat": Out(stream.Signature(write_beat(config))),
            "done": In(stream.Signature(data.StructLayout({"status": MemoryStatus}))),
        })
