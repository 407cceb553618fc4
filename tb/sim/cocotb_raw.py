"""Runs one raw pushbuffer on the RTL; `tb.sim.raw` starts it and prints what it leaves."""

import json
import os
from pathlib import Path

import cocotb

from driver.channel import ChannelSettings
from driver.device import Device
from driver.policy import NoPriorityPolicy
from driver.raw import ImageError, MemoryImage, load_dwords, load_image, run
from tb.sim.machine import SimMachine
from tb.sim.raw import JOB, RESULT


@cocotb.test()
async def raw(dut):
    job = json.loads(os.environ[JOB])
    dwords = load_dwords(job["file"])
    image = load_image(job["memory"]) if job["memory"] else MemoryImage()
    settings = ChannelSettings(slice_cycles=job["slice"])
    device = await Device.open(await SimMachine.start(dut), NoPriorityPolicy(1), settings)
    begin = device.machine.now()
    try:
        report = await run(device, dwords, image, patience=job["patience"])
    except ImageError as error:
        outcome = {"refused": str(error)}
    else:
        outcome = {"good": report.good, "text": report.format(), "channel": report.channel}
    Path(RESULT).write_text(json.dumps(outcome | {"begin": begin}))
