"""Random environment of the channel registers: operations of channels, their ends and errors."""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CODE_OF, Cause
from signalbox.hw.host.waits.compute_waits import COUNT_BITS
from signalbox.hw.methods import ENGINE_SUBCHANNELS
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.registers import Wait
from signalbox.tb.models.channel_registers import Error, of_copy, of_method, of_task
from signalbox.tb.testbench.masks import mask

__all__ = ["Events", "Inputs"]

_CAUSES = [*CODE_OF]

_SPACING = 3
"""Minimum cycles between refused methods: the pipeline changes channels."""

_LATE = 2
"""Cycles after its halt in which a method of a channel may still be refused."""

_OFTEN = 0.3
"""Probability of events at rare moments."""

_MOST = 8
"""Maximum number of outstanding copies, and of outstanding tasks, of a channel."""


@dataclass
class Inputs:
    """Inputs of one cycle.

    Members
    -------
    strobes : fields of the valid strobes, by port.
    failed, task_failed : fields of the waiting failures, or None.
    levels : values of members of `StatusPort`.
    errors : error records of `halt`, `failed`, `task_failed`, by port.
    """

    strobes: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, Any] | None = None
    task_failed: dict[str, Any] | None = None
    levels: dict[str, int] = field(default_factory=dict)
    errors: dict[str, Error] = field(default_factory=dict)

    def of(self, port: str, channel: int) -> dict[str, Any] | None:
        """Fields of a strobe or a waiting failure, if there is one for this channel."""
        found = getattr(self, port) if "failed" in port else self.strobes.get(port)
        return found if found and found["channel"] == channel else None


class Events:
    """Chooses the inputs of each cycle.

    Members
    -------
    busy : channels with most of the events.
    pace : probability of events.
    quiet : whether operations only end.
    moment : channel that is being resumed or started: its operations often fail now; or None.
    copies, tasks : number outstanding per channel.
    starts : channel whose start waits for its operations, or None.
    flood : channel whose copies fail one after another, so that failures of tasks wait; or None.
        Meanwhile only tasks of the starting channel end, the last of them with a failure.

    One channel at a time has a method that waits for its operation. The method keeps waiting when
    the channel is halted or switched off, and may then be refused.
    """

    def __init__(self, config: Config, numbers: Random) -> None:
        channels = config.channels
        self._config, self._numbers = config, numbers
        self.busy = [0]
        self.pace, self.quiet = 0.1, False
        self.moment: int | None = None
        self.starts: int | None = None
        self.flood: int | None = None
        self.copies, self.tasks = [0] * channels, [0] * channels
        self._alive: deque[int] = deque([0] * _LATE, maxlen=_LATE)
        self._asking: int | None = None
        self._active: list[int] = [0, 0]
        self._failing: dict[str, dict[str, Any] | None] = {"failed": None, "task_failed": None}
        self._errors: dict[str, Error] = {}
        self._copy_fails: tuple[dict[str, Any], Error] | None = None
        self._levels: dict[str, int] = {}
        self._rested = _SPACING

    def saw(self, enabled: int, halted: int, *taken: str) -> None:
        """Note outputs of the cycle: enabled and halted channels, and the ports of failures that
        were taken."""
        self._alive.append(enabled & ~halted)
        for port in taken:
            self._failing[port] = None

    def choose_flood(self) -> None:
        """Sometimes, let the copies of a channel fail one after another."""
        numbers, channels = self._numbers, range(self._config.channels)
        alive = [number for number in channels if self._alive[-1] >> number & 1]
        self.flood = numbers.choice(alive) if alive and numbers.random() < 0.2 else None

    def cycle(self) -> Inputs:
        """Inputs of the next cycle."""
        numbers, found = self._numbers, Inputs()
        busy = _outstanding(self.copies) | _outstanding(self.tasks)
        for channel in (self._asking, self.flood):
            busy |= 0 if channel is None else 1 << channel
        if self._copy_fails:
            self._failing["failed"], self._errors["failed"] = self._copy_fails
            self._copy_fails = None
        self._end(found)
        if self._asking is not None:
            self._answer(found)
        elif not self.quiet:
            self._work(found)
        found.failed, found.task_failed = self._failing["failed"], self._failing["task_failed"]
        found.errors |= self._errors
        self._active = [busy, self._active[0]]
        if not self._levels or numbers.random() < self.pace:
            self._levels |= self._state()
        found.levels = {**self._levels, "active": self._active[1]}
        return found

    def _channel(self) -> int:
        rare = self._numbers.random() < 0.05
        channels = range(self._config.channels) if rare else self.busy
        return self._numbers.choice(channels)

    def _happens(self, often: float = 1.0) -> bool:
        return self._numbers.random() < often * self.pace

    def _state(self) -> dict[str, int]:
        """Other state shown in STATUS, GP_PUT and GP_GET."""
        numbers, channels = self._numbers, self._config.channels
        waits = (numbers.choice([*Wait]).value for _ in range(channels))
        return {
            "floor_valid": numbers.getrandbits(1),
            "floor": numbers.randrange(channels),
            "serving": numbers.getrandbits(1),
            "served": numbers.randrange(channels),
            "busy": numbers.getrandbits(channels),
            "waits": sum(wait << 4 * number for number, wait in enumerate(waits)),
            "copies": numbers.getrandbits(4 * channels),
            "tasks": numbers.getrandbits(COUNT_BITS * channels),
        }

    def _va(self) -> int:
        return self._numbers.getrandbits(VA_BITS)

    def _end(self, found: Inputs) -> None:
        """Copies and tasks end, some of them with failures."""
        if not self._failing["failed"]:
            channel, fails = self._ends(self.copies)
            if channel is None and self.flood is not None:
                channel, fails = self.flood, 1
            if channel is not None:
                fields = {"channel": channel, "interrupt": self._numbers.getrandbits(1)}
                found.strobes["ended"] = {**fields, "failed": fails}
                if fails:
                    self._copy_fails = self._failed_copy(channel)
        lasting, starts = self.flood is not None, self.starts
        may_end = not lasting or (starts is not None and self.tasks[starts] > 0)
        if may_end and not self._failing["task_failed"]:
            channel, fails = self._ends(self.tasks)
            if channel is not None:
                fails = int(not self.tasks[channel]) if lasting else fails
                found.strobes["task_ended"] = {"channel": channel, "failed": fails}
                if fails:
                    fields, error = self._failed_task(channel)
                    self._failing["task_failed"], self._errors["task_failed"] = fields, error

    def _ends(self, counts: list[int]) -> tuple[int | None, int]:
        """The channel of an operation that ends now, if any, and whether it fails."""
        numbers, moment = self._numbers, self.moment
        channels = [number for number, count in enumerate(counts) if count]
        often = self.pace
        if moment in channels and not self.quiet:
            channels, often = [moment], max(_OFTEN, often)
        elif self._failing["failed"] and not self.quiet:
            often = max(_OFTEN, often)
        if not channels or numbers.random() >= often:
            return None, 0
        channel = numbers.choice(channels)
        counts[channel] -= 1
        return channel, int(numbers.random() < (0.8 if channel == moment else 0.4))

    def _failed_copy(self, channel: int) -> tuple[dict[str, Any], Error]:
        numbers, cause, va = self._numbers, self._numbers.choice(_CAUSES), self._va()
        rest = {"subchannel": numbers.randrange(8), "data": numbers.getrandbits(32)}
        return {"channel": channel, "cause": cause, "va": va, **rest}, of_copy(cause, va, **rest)

    def _failed_task(self, channel: int) -> tuple[dict[str, Any], Error]:
        numbers, cause = self._numbers, self._numbers.choice(_CAUSES)
        rest = {"check": numbers.choice([*SkedCheck]), "page": numbers.getrandbits(32)}
        return {"channel": channel, "cause": cause, **rest}, of_task(cause, **rest)

    def _work(self, found: Inputs) -> None:
        """Events of the method pipeline, for channels that are neither switched off nor halted."""
        numbers = self._numbers
        channel = self._channel()
        if self._alive[-1] >> channel & 1:
            outstanding = numbers.choice((self.copies, self.tasks))
            if outstanding[channel] < _MOST and numbers.random() < max(0.1, self.pace):
                outstanding[channel] += 1
            if numbers.random() < 0.3:
                found.strobes["executed"] = {"channel": channel}
            if self._happens(0.5):
                fields = {"channel": channel, "value": numbers.getrandbits(32)}
                found.strobes["referenced"] = fields
            if self._happens(0.5):
                subchannel, word = numbers.randrange(ENGINE_SUBCHANNELS), numbers.getrandbits(21)
                fields = {"channel": channel, "subchannel": subchannel, "data": word}
                found.strobes["bound"] = fields
            if self._happens():
                found.strobes["acquire"] = {"channel": channel, "passed": numbers.getrandbits(1)}
            if self._happens(0.2):
                self._asking = channel
        self._resume(found, channel)
        self._rested += 1
        # Often the channel of a failure that is taken in this cycle: otherwise a method would
        # rarely be refused together with it.
        late = [fields["channel"] for fields in self._failing.values() if fields]
        if late and self._refuses(late[0]) and numbers.random() < _OFTEN:
            self._refuse(found, late[0])
        elif self._refuses(channel) and self._happens(0.5):
            self._refuse(found, channel)

    def _answer(self, found: Inputs) -> None:
        """The waiting method is executed or refused."""
        numbers, channel = self._numbers, self._asking
        assert channel is not None
        self._resume(found, channel)
        self._rested += 1
        often = _OFTEN if channel == self.moment else 0.1
        if self._rested < _SPACING or numbers.random() >= often:
            return
        self._asking = None
        if numbers.random() < 0.5:
            self._refuse(found, channel)
        else:
            found.strobes["executed"] = {"channel": channel}

    def _resume(self, found: Inputs, channel: int) -> None:
        numbers = self._numbers
        if self._happens(0.1):
            target = channel if numbers.random() < 0.9 else numbers.getrandbits(12)
            found.strobes["resume"] = {"channel": self._channel(), "target": target}

    def _refuses(self, channel: int) -> bool:
        """Whether a method of the channel may be refused."""
        return self._rested >= _SPACING and self._alive[0] >> channel & 1 == 1

    def _refuse(self, found: Inputs, channel: int) -> None:
        numbers = self._numbers
        self._rested = 0
        cause, check, va = numbers.choice(_CAUSES), numbers.choice([*SkedCheck]), self._va()
        held = numbers.random() < 0.7
        address, rest = (
            numbers.getrandbits(12),
            {"subchannel": numbers.randrange(8), "data": numbers.getrandbits(32)},
        )
        reason = Cause.NONE if held else cause
        found.strobes["halt"] = {
            "channel": channel,
            "cause": cause,
            "check": check,
            "va": va,
            "method": {"valid": 1, "cause": reason, "address": address, **rest},
        }
        found.errors["halt"] = of_method(cause, check, va, address << 2, held=held, **rest)


def _outstanding(counts: list[int]) -> int:
    """Channels with outstanding operations."""
    return mask(number for number, count in enumerate(counts) if count)
