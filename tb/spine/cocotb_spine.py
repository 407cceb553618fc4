"""Runs the two applications on the RTL; `tb.spine.run` starts it and reads what it leaves."""

import json
import os
from pathlib import Path
from typing import Any

import cocotb

from driver.device import Device
from driver.policy import PriorityPolicy
from tb.sim.machine import SimMachine
from tb.spine.applications import Application, applications, urgent
from tb.spine.run import RESULT, SEED

BUSY_BLOCKS = 12
"""The urgent kernel comes once so many blocks were placed."""

MEMORY = {"read_latency": 16, "write_latency": 16}


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def spine(dut: Any) -> None:
    seed = int(os.environ[SEED])
    machine = await SimMachine.start(dut)
    for name, value in MEMORY.items():
        getattr(machine.dut.memory, name).value = value
    device = await Device.open(machine, PriorityPolicy(1))
    programs = []
    for name, works in applications(seed).items():
        programs.append(await Application.start(name, device))
        for work in works:
            await programs[-1].run(work)
    late = await Application.start("alarm", device)
    while await device.control.read("BLOCKS") < BUSY_BLOCKS:
        await machine.wait_cycles(20)
    await late.run(urgent(seed))
    for one in (late, *programs):
        await one.finish()
    tasks = [
        {
            "page": launched.task.record >> 8,
            "kernel": launched.work.kernel.name,
            "application": program.name,
            "priority": launched.work.priority,
        }
        for program in (*programs, late)
        for launched in program.launched
    ]
    asids = {program.name: program.space.asid for program in (*programs, late)}
    await device.close()
    Path(RESULT).write_text(json.dumps({"tasks": tasks, "asids": asids}))
