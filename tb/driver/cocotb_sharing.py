"""Applications of a server on the SMs at the same time, and one at a time (SHARE-7)."""

import itertools

import cocotb

from signalbox.driver.kernels.library import SPIN
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.server.in_process import LocalInbox, LocalLink
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.residents import Residence, residences
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

KERNELS, CYCLES = 3, 6000
"""Kernels of an application, and cycles of each."""

SLICE = 4000
"""Cycles that a context runs while another waits."""


@cocotb.test(**LIMIT)
@cocotb.parametrize(apart=(False, True))
async def applications_at_once(dut, apart: bool):
    """Kernels of two applications, neither of which fills the machine: in the universal context
    warps of both are on one SM in the same cycles, for most of the time; with a context each, there
    is no cycle with both on any SM, although they alternate (SHARE-7)."""
    first, second = await applications(dut, apart=apart)
    pairs = [*itertools.product(first, second)]
    if apart:
        assert not any(together(*pair) for pair in pairs)
        order = sorted(first + second, key=lambda one: one.began)
        assert len([*itertools.groupby(order, lambda one: one.asid)]) >= 4
    else:
        longest = max(together(*pair) for pair in pairs if pair[0].sm == pair[1].sm)
        assert longest > CYCLES / 2


async def applications(dut, *, apart: bool) -> tuple[list[Residence], list[Residence]]:
    """Run the kernels of two applications, `apart` in a context each. Returns when their warps were
    on SMs."""
    machine = await SimMachine.start(dut)
    saves = await ControlPort(machine).read("SAVE_PLACES")
    settings = ServerSettings(
        memory_each=1 << 18,
        context_each=apart,
        level="cilp" if saves else "cta",
        slice_cycles=SLICE,
    )
    inbox, trace = LocalInbox(machine), await TraceFile.open(machine)
    server = await Server.open(machine, settings, inbox, cocotb.start_soon)
    running = cocotb.start_soon(server.run())
    clients = [await LocalLink(machine, inbox).device(name) for name in ("one", "other")]
    streams = [await client.stream() for client in clients]
    # The larger kernel does not fit on one SM, so it shares one with the smaller.
    blocks = (1, clients[0].info.sm_blocks + 1)
    for _ in range(KERNELS):
        for stream, count in zip(streams, blocks, strict=True):
            await stream.launch(SPIN, count, 32, {"CYCLES": CYCLES})
    for stream in streams:
        await stream.synchronize()
    found = [*residences(await trace.events())]
    for client in clients:
        await client.close()
    inbox.put(Stop())
    await running
    first, second = ([one for one in found if one.asid == asid] for asid in {r.asid for r in found})
    assert len(first) + len(second) >= KERNELS * sum(blocks)
    return first, second


def together(one: Residence, other: Residence) -> int:
    """Cycles in which both are on SMs."""
    return max(0, min(one.ended, other.ended) - max(one.began, other.began))
