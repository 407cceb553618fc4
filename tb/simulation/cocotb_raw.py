"""Runs one raw pushbuffer on the RTL. `tb.simulation.raw` starts it and reads its result."""

import json
import os
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.device import Device
from signalbox.driver.raw.submission import ImageError, MemoryImage, load_dwords, load_image, run
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.raw import JOB, RESULT, cycles
from signalbox.tb.simulation.top import TRACE


@cocotb.test()
async def raw(dut):
    job = json.loads(os.environ[JOB])
    dwords = load_dwords(job["file"])
    image = load_image(job["memory"]) if job["memory"] else MemoryImage()
    settings = ChannelSettings(slice_cycles=job["slice"])
    device = await Device.open(await SimMachine.start(dut), NoPriorityPolicy(1), settings)
    try:
        report = await run(device, dwords, image, patience=job["patience"])
    except ImageError as error:
        outcome = {"refused": str(error)}
    else:
        first, last = cycles(await _events(dut), report.channel)
        text = report.timed(first, last).format()
        channel = report.channel
        outcome = {"good": report.good, "text": text, "channel": channel, "first": first}
    Path(RESULT).write_text(json.dumps(outcome))


async def _events(dut: Any) -> list[trace.Event]:
    """The trace so far."""
    dut.monitor.flush.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    return trace.read(Path(TRACE))
