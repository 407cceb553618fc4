"""Contents of the error records."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_block.error_words import written_head
from signalbox.hw.host.channel_block.records import error_contents, error_record

__all__ = ["ErrorStore"]


class ErrorStore(wiring.Component):
    """Owns the contents of two error records per channel, in three RAMs: so METHOD0 and DATA0 can
    be written without reading the rest.

    Members
    -------
    noted : in, strobe: an error is recorded, if its row is valid.
    channel : in, `channel_bits` bits: channel of the access.
    second : in, one cycle after `channel`: number of the row shown, 0 or 1.
    rewrite_method, rewrite_data : in, strobe: METHOD0, DATA0 of the row shown becomes `value`; has
        no effect with `noted`.
    value : in, 32 bits: value to be written.
    shown : out, contents of the row shown, two cycles after `second`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "noted": In(error_record(config)),
            "channel": In(config.channel_bits),
            "second": In(1),
            "rewrite_method": In(1),
            "rewrite_data": In(1),
            "value": In(32),
            "shown": Out(error_contents),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._ram(m, "why")
        self._ram(m, "head", (self.rewrite_method, written_head(m, self.value)))
        self._ram(m, "data", (self.rewrite_data, self.value))
        return m

    def _ram(self, m: Module, name: str, other: tuple[Value, Value] | None = None) -> None:
        """A RAM of one member of the contents, where an access may write `other` instead."""
        noted, contents = self.noted, self.noted.contents
        shape = error_contents[name].shape
        ram = Memory(shape=shape, depth=2 << self._config.channel_bits, init=[])
        m.submodules[name] = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [
            write.addr.eq(Cat(noted.channel, noted.row.second)),
            write.data.eq(contents[name]),
            write.en.eq(noted.row.valid),
            read.addr.eq(Cat(self.channel, self.second)),
        ]
        if other is not None:
            rewrite, value = other
            with m.If(~noted.valid):
                m.d.comb += [
                    write.addr.eq(read.addr),
                    write.data.eq(value),
                    write.en.eq(rewrite),
                ]
        m.d.sync += self.shown[name].eq(read.data)
