"""AXI4 channels as streams, as used inside the memory fabric."""

from typing import Any

from amaranth import Cat, Module, Value
from amaranth.lib import data

from signalbox.hw.bus.axi4 import Response
from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamRegister

__all__ = [
    "address",
    "by_client",
    "connect_in",
    "connect_out",
    "read_data",
    "write_data",
    "write_response",
]


def address(config: Config, id_width: int) -> data.StructLayout:
    """Payload of AR and AW; the other signals of these channels are constant."""
    return data.StructLayout({"id": id_width, "addr": config.address_width, "len": 8})


def read_data(config: Config, id_width: int) -> data.StructLayout:
    """Payload of R."""
    return data.StructLayout({
        "id": id_width,
        "data": config.data_width,
        "resp": Response,
        "last": 1,
    })


def write_data(config: Config) -> data.StructLayout:
    """Payload of W."""
    return data.StructLayout({"data": config.data_width, "strb": config.beat_bytes, "last": 1})


def write_response(id_width: int) -> data.StructLayout:
    """Payload of B."""
    return data.StructLayout({"id": id_width, "resp": Response})


def connect_out(m: Module, stream: Any, axi: Any, channel: str) -> None:
    """Drives channel "ar", "aw" or "w" of `axi` from `stream`."""
    m.d.comb += [
        getattr(axi, f"{channel}valid").eq(stream.valid),
        stream.ready.eq(getattr(axi, f"{channel}ready")),
    ]
    for name, _ in stream.p.shape():
        m.d.comb += getattr(axi, f"{channel}{name}").eq(stream.p[name])


def connect_in(m: Module, axi: Any, channel: str, stream: Any) -> None:
    """Drives `stream` from channel "r" or "b" of `axi`."""
    m.d.comb += [
        stream.valid.eq(getattr(axi, f"{channel}valid")),
        getattr(axi, f"{channel}ready").eq(stream.ready),
    ]
    for name, _ in stream.p.shape():
        m.d.comb += Value.cast(stream.p[name]).eq(getattr(axi, f"{channel}{name}"))


def by_client(m: Module, answers: Any, clients: int) -> StreamRegister:
    """Register slice for R or B that decodes the id into one-hot `whose`, one bit per client."""
    fields = {name: field.shape for name, field in answers.p.shape() if name != "id"}
    register = StreamRegister(data.StructLayout({"whose": clients, **fields}))
    m.d.comb += [
        register.i.valid.eq(answers.valid),
        answers.ready.eq(register.i.ready),
        register.i.p.whose.eq(Cat(answers.p.id == number for number in range(clients))),
        [register.i.p[name].eq(answers.p[name]) for name in fields],
    ]
    return register
