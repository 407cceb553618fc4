"""Values that a channel register may show, from the past of the model."""

from dataclasses import dataclass

from signalbox.hw.host.waits.compute_waits import COUNT_BITS
from signalbox.tb.models.channel_registers import Channel

__all__ = ["Past"]


@dataclass(frozen=True)
class Past:
    """State at the beginning of a cycle, and inputs in it."""

    channels: tuple[Channel, ...]
    levels: dict[str, int]
    halted: int
    indices: tuple[tuple[int, int], ...]

    def word(self, channel: int, name: str) -> int:
        """A register of state other than STATUS."""
        if name in {"GP_PUT", "GP_GET"}:
            return self.indices[channel][name == "GP_GET"]
        return self.channels[channel].word(name)

    def status(self, channel: int, name: str) -> int:
        """A field of STATUS."""
        levels, model = self.levels, self.channels[channel]

        def one(level: str, width: int = 1) -> int:
            return levels[level] >> width * channel & (1 << width) - 1

        return int(
            {
                "ENABLED": model.enabled,
                "HALTED": bool(model.errors) and self.halted >> channel & 1,
                "FLOOR": levels["floor_valid"] and levels["floor"] == channel,
                "SERVED": levels["serving"] and levels["served"] == channel,
                "PENDING": one("busy"),
                "ACTIVE": one("active"),
                "WAIT": one("waits", 4),
                "ACQUIRE_FAIL": model.acquire_failed,
                "COPIES": one("copies", 4),
                "TASKS": one("tasks", COUNT_BITS),
            }[name]
        )
