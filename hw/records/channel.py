"""Channel events, and time."""

from amaranth.lib import data

from signalbox.hw.config import Config

__all__ = ["channel_event", "present_time"]

present_time = data.StructLayout({"cycles": 32, "units": 32})
"""Present time in cycles, and in units of 1,024 ns (spec 2.4). Both wrap."""


def channel_event(config: Config, **fields: int) -> data.StructLayout:
    """Strobe for one channel: `valid`, `channel` and the given fields."""
    return data.StructLayout({"valid": 1, "channel": config.channel_bits, **fields})
