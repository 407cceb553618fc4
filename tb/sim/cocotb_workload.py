"""Runs one workload on the RTL; `tb.sim.workload` starts it and reads what it leaves.

A run that fails has a result too, so the test itself passes.
"""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from driver.device import Device, DeviceError
from driver.fault import ChannelError
from driver.memory import OutOfMemory
from driver.replay import Replay, VerifyError
from driver.workload import Workload, load, requests
from hw.registers import WAITS, Wait
from tb.sim.machine import CLOCK_NS, SimMachine
from tb.sim.workload import JOB, RESULT

_LOOK_CYCLES = 2000
"""Cycles between looks at how far the run is."""

_REPORT_SECONDS = 1.0

_PATIENCE_CYCLES = 100_000
"""So long nothing may end, besides the time of the largest copy and until the last request."""

_KINDS: dict[type[Exception], str] = {
    VerifyError: "failed",
    ChannelError: "failed",
    OutOfMemory: "refused",
    DeviceError: "refused",
}


@cocotb.test()
async def workload(dut):
    job = json.loads(os.environ[JOB])
    spec = load(job["file"])
    outcome: dict[str, Any] = {}
    began = time.monotonic()
    device = await _open(await SimMachine.start(dut), spec, job["policy"], outcome)
    if device is not None:
        replay = Replay(device, spec, seed=job["seed"])
        running = cocotb.start_soon(_run(replay, outcome))
        if not await _watch(spec, device, replay, outcome, Path(job["progress"])):
            running.cancel()
            outcome["error"] = {"kind": "failed", "message": await _stuck(device, replay)}
        outcome["policy"] = job["policy"]
        outcome["cycles"] = device.machine.now()
        outcome["seconds"] = time.monotonic() - began
    Path(RESULT).write_text(json.dumps(outcome))


async def _open(
    machine: SimMachine, spec: Workload, kind: str, outcome: dict[str, Any]
) -> Device | None:
    policy = spec.policy
    try:
        return await Device.open(machine, policy.make(kind), policy.settings())
    except tuple(_KINDS) as error:
        outcome["error"] = _described(error)
        return None


async def _run(replay: Replay, outcome: dict[str, Any]) -> None:
    """Fill `outcome` with the records or with an error."""
    try:
        result = await replay.run()
        outcome["start"] = result.start
        outcome["records"] = [asdict(record) for record in result.records]
    except tuple(_KINDS) as error:
        outcome["error"] = _described(error)


def _described(error: Exception) -> dict[str, str]:
    kind = next(kind for known, kind in _KINDS.items() if isinstance(error, known))
    return {"kind": kind, "message": str(error)}


async def _watch(
    spec: Workload, device: Device, replay: Replay, outcome: dict[str, Any], progress: Path
) -> bool:
    """Report progress until there is an outcome; False when nothing ends any more."""
    machine = device.machine
    quiet = _PATIENCE_CYCLES + 4 * max(copy.size for copy in spec.copies)
    quiet += max(request.at for request in requests(spec.copies))
    done, changed = 0, machine.now()
    reported, reported_at = time.monotonic(), machine.now()
    while not outcome:
        await Timer(_LOOK_CYCLES * CLOCK_NS, unit="ns")
        now, seconds = machine.now(), time.monotonic()
        if (found := replay.finished()) != done:
            done, changed = found, now
        if now - changed > quiet:
            return False
        if seconds - reported >= _REPORT_SECONDS:
            rate = (now - reported_at) / (seconds - reported)
            with progress.open("a") as file:
                file.write(f"{done} {now} {rate:.0f}\n")
            reported, reported_at = seconds, now
    return True


async def _stuck(device: Device, replay: Replay) -> str:
    """What every channel waits for, when nothing ends any more."""
    lines = [f"stuck at cycle {device.machine.now()}, {replay.finished()} copies have ended"]
    for index in device.channels:
        status = await device.control.read_channel_fields(index, "STATUS")
        wait = Wait(status["WAIT"])
        lines.append(f"channel {index} waits for {WAITS[wait.value]} ({wait.name})")
    return "; ".join(lines)
