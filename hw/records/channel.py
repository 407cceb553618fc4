"""Channel events."""

from amaranth.lib import data

from signalbox.hw.config import Config

__all__ = ["channel_event"]


def channel_event(config: Config, **fields: int) -> data.StructLayout:
    """Strobe for one channel: `valid`, `channel` and the given fields."""
    return data.StructLayout({"valid": 1, "channel": config.channel_bits, **fields})
