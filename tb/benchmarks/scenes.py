"""Shared parts of benchmarks: copies as the driver's policies submit them, and results of a run."""

import json
from pathlib import Path

from signalbox.driver.channel.priority_policy import Policy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.tb.machine.testbench import semaphore

__all__ = ["HIGH", "LOW", "bound", "collect", "report", "request"]

LOW, HIGH = 0, 1
"""Channels of the two priorities."""

_RESULT = Path("bench.json")


def bound(policy: Policy) -> Policy:
    """The policy, bound to two channels with one priority each, and to the first semaphores."""
    policy.bind(2, [semaphore(slot) for slot in range(policy.semaphores)])
    return policy


def request(policy: Policy, channel: int, dst: int, src: int, size: int) -> Pushbuffer:
    """One copy as the driver submits it (COPY-23)."""
    commands = Pushbuffer()
    policy.before_copy(channel, commands)
    commands.copy(dst, src, size)
    policy.after_copy(channel, commands)
    return commands


def report(**values: int) -> None:
    """Add measured values to the result of this run."""
    _RESULT.write_text(json.dumps(collect(Path()) | values))


def collect(run: Path) -> dict[str, int]:
    """Measured values so far in a run folder."""
    file = run / _RESULT
    return json.loads(file.read_text()) if file.exists() else {}
