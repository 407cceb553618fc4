"""Runs one workload on the RTL. `tb.simulation.workload` starts it and reads its result.

A failed run also has a result, so the test itself passes.
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from signalbox.driver.compute.contexts import OutOfContexts
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.physical import OutOfMemory
from signalbox.driver.workload.reader import load
from signalbox.driver.workload.replay import Replay, VerifyError
from signalbox.driver.workload.specs import Workload, requests
from signalbox.hw.registers import WAITS, Wait
from signalbox.tb.simulation.machine import CLOCK_NS, SimMachine
from signalbox.tb.simulation.workload import JOB, RESULT

_LOOK_CYCLES = 2000
"""Cycles between two checks of the progress."""

_REPORT_SECONDS = 1.0

_PATIENCE_CYCLES = 100_000
"""Cycles without progress after which a run is stuck, before `_Watch` adds times that the workload
needs by itself. Progress: a copy or kernel has ended, or a block was placed."""

_ROUNDS = 4
"""Rounds of the runlist in which each stream must make progress."""

_KINDS: dict[type[Exception], str] = {
    VerifyError: "failed",
    ChannelError: "failed",
    OutOfMemory: "refused",
    OutOfContexts: "refused",
    DeviceError: "refused",
}


@cocotb.test()
async def workload(dut):
    job = json.loads(os.environ[JOB])
    spec = load(job["file"])
    outcome: dict[str, Any] = {}
    device = await _open(await SimMachine.start(dut), spec, job, outcome)
    if device is not None:
        replay = Replay(device, spec, seed=job["seed"])
        running = cocotb.start_soon(_run(replay, outcome))
        watch = _Watch(spec, device, replay, Path(job["progress"]))
        if not await watch.until(outcome):
            running.cancel()
            outcome["error"] = {"kind": "failed", "message": await _stuck(device, replay)}
        outcome["policy"] = job["policy"]
        outcome["rate"] = watch.rate
    Path(RESULT).write_text(json.dumps(outcome))


async def _open(
    machine: SimMachine, spec: Workload, job: dict[str, Any], outcome: dict[str, Any]
) -> Device | None:
    policy, compute = spec.policy, ComputeSettings(urgency=job["urgency"])
    try:
        return await Device.open(
            machine,
            policy.make(job["policy"]),
            policy.settings(),
            compute=compute,
            scheduling=policy.scheduling,
        )
    except tuple(_KINDS) as error:
        outcome["error"] = _described(error)
        return None


async def _run(replay: Replay, outcome: dict[str, Any]) -> None:
    """Store the records, or an error, in `outcome`."""
    try:
        result = await replay.run()
        outcome["start"] = result.start
        for name in ("records", "spaces", "faults", "kernels", "children"):
            outcome[name] = [asdict(record) for record in getattr(result, name)]
    except tuple(_KINDS) as error:
        outcome["error"] = _described(error)


def _described(error: Exception) -> dict[str, str]:
    kind = next(kind for known, kind in _KINDS.items() if isinstance(error, known))
    message = error.reason if isinstance(error, ChannelError) else str(error)
    return {"kind": kind, "message": message}


class _Watch:
    """Polls a run, reports its progress, and detects when it is stuck.

    `rate`: simulated cycles per second from the first end of a copy or kernel on, so without the
    preparation of their data.
    """

    def __init__(self, spec: Workload, device: Device, replay: Replay, progress: Path) -> None:
        self._machine = device.machine
        self._replay = replay
        self._progress = progress
        copies = spec.copies
        self._quiet = _PATIENCE_CYCLES + 4 * max((copy.size for copy in copies), default=0)
        self._quiet += max(request.at for request in requests(spec.work))
        self._quiet += max((kernel.cancel_at or 0 for kernel in spec.kernels), default=0)
        self._quiet += max((kernel.delay or 0 for kernel in spec.kernels), default=0)
        self._quiet += max((copy.repair_after for copy in copies), default=0)
        self._quiet += _ROUNDS * spec.round_cycles
        self._blocks = device.control if spec.launches else None
        self.rate = 0.0

    async def until(self, outcome: dict[str, Any]) -> bool:
        """Wait until `outcome` is filled. Returns False if the run is stuck."""
        done, changed = (0, 0), self._machine.now()
        first, reported = None, self._moment()
        while True:
            await Timer(_LOOK_CYCLES * CLOCK_NS, unit="ns")
            if outcome:
                return True
            now, moment = self._machine.now(), self._moment()
            if (found := await self._ended()) != done:
                done, changed = found, now
            if now - changed > self._quiet:
                return False
            if first is not None:
                self.rate = _rate(first, moment)
            elif done[0]:
                first = moment
            if moment[1] - reported[1] >= _REPORT_SECONDS:
                with self._progress.open("a") as file:
                    file.write(f"{done[0]} {now} {_rate(reported, moment):.0f}\n")
                reported = moment

    async def _ended(self) -> tuple[int, int]:
        """Number of finished copies and kernels, and number of placed blocks, as a kernel may run
        for a long time."""
        blocks = await self._blocks.read("BLOCKS") if self._blocks else 0
        return self._replay.finished(), blocks

    def _moment(self) -> tuple[int, float]:
        return self._machine.now(), time.monotonic()


def _rate(earlier: tuple[int, float], later: tuple[int, float]) -> float:
    """Cycles per second between two points in time."""
    return (later[0] - earlier[0]) / (later[1] - earlier[1])


async def _stuck(device: Device, replay: Replay) -> str:
    """Message for a stuck run, with the wait of each channel."""
    lines = [
        f"stuck at cycle {device.machine.now()}, {replay.finished()} copies and kernels have ended"
    ]
    for index in device.channels:
        status = await device.control.read_channel_fields(index, "STATUS")
        wait = Wait(status["WAIT"])
        lines.append(f"channel {index} waits for {WAITS[wait.value]} ({wait.name})")
    return "; ".join(lines)
