"""Realigner: moves bytes from source to destination alignment."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy.realign_steps import realign_step

__all__ = ["Realign", "destination_beat"]

_STAGE_BITS = 2
"""Rotation bits per stage: a 4-way multiplexer per data bit."""


def destination_beat(config: Config) -> data.StructLayout:
    """Destination beat; `close` and `failed` as in `realign_step`."""
    return data.StructLayout({
        "data": config.data_width,
        "strobe": config.beat_bytes,
        "close": 1,
        "failed": 1,
    })


class Realign(wiring.Component):
    """Byte rotator and merger (HOST-8). One step per cycle, no back-pressure.

    All source beats of a line, with their masks, are rotated by the same amount. A destination beat
    takes its low bytes from the previous source beat and its high bytes from the current one. A
    stage rotates by two bits of the amount. Latency: 3 cycles at 64 and 128 bits, 4 at 256 and 512.

    Members
    -------
    i : in, a `realign_step`.
    o : out, a `destination_beat`.
    valid : out, strobe for `o`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "i": In(realign_step(config)),
            "o": Out(destination_beat(config)),
            "valid": Out(1),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        now = self.i
        old = Signal(self.config.beat_bytes)
        strobe = Signal(self.config.beat_bytes)
        for low in range(0, self.config.offset_bits, _STAGE_BITS):
            if low + _STAGE_BITS >= self.config.offset_bits:
                self._mask(m, now, old, strobe)
            now = self._rotate(m, now, low)
        self._merge(m, now, old, strobe)
        return m

    def _rotate(self, m: Module, now, low: int):
        """Rotates right by the `_STAGE_BITS` bits of `rotate` from bit `low` on."""
        after = Signal(realign_step(self.config), name=f"rotated_{low}")
        choice = now.rotate[low : low + _STAGE_BITS]
        word = Value.cast(now.data)
        mask = Value.cast(now.mask)
        rotated = Signal(len(word), name=f"word_{low}")
        masks = Signal(len(mask), name=f"mask_{low}")
        with m.Switch(choice):
            for way in range(1 << len(choice)):
                with m.Case(way):
                    m.d.comb += [
                        rotated.eq(word.rotate_right(8 * (way << low))),
                        masks.eq(mask.rotate_right(way << low)),
                    ]
        m.d.sync += [after.eq(now), after.data.eq(rotated), after.mask.eq(masks)]
        return after

    def _mask(self, m: Module, now, old: Signal, strobe: Signal) -> None:
        """Byte masks: `old`, bytes taken from the previous beat; `strobe`, bytes to write. Computed
        in parallel with the last rotation.

        Shifted constants replace comparisons, which would become one carry chain per byte.
        """
        ones = Const((1 << self.config.beat_bytes) - 1)
        after_head = (ones << now.head) | ~now.first.replicate(len(ones))
        until_final = (ones >> ~now.final) | ~now.last.replicate(len(ones))
        m.d.sync += [
            old.eq((ones >> now.rotate) & now.rotate.any().replicate(len(ones))),
            strobe.eq(after_head & until_final & ~now.poison.replicate(len(ones))),
        ]

    def _merge(self, m: Module, now, old: Signal, strobe: Signal) -> None:
        before = Signal(self.config.data_width)
        mask_before = Signal(self.config.beat_bytes)
        with m.If(now.take):
            m.d.sync += [before.eq(now.data), mask_before.eq(now.mask)]
        word = Value.cast(now.data)
        joined = [
            Mux(old[byte], before.word_select(byte, 8), word.word_select(byte, 8))
            for byte in range(self.config.beat_bytes)
        ]
        m.d.sync += [
            self.o.data.eq(Cat(joined)),
            self.o.strobe.eq(strobe & ((old & mask_before) | (~old & now.mask))),
            self.o.close.eq(now.close),
            self.o.failed.eq(now.failed),
            self.valid.eq(now.put),
        ]
