"""Memory model: contents, latency, rate, back-pressure and errors; with cocotbext-axi and by
hand."""

import os
import random
import time

import cocotb
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.simulation.backdoor import Backdoor, ProcessBackdoor, open_backdoor
from signalbox.tb.testbench.reset import reset

BEAT = 16

SHARED = "MEMORY_SHARED"
"""Environment variable: size in bytes of a `SharedMemory` for the contents; not set for none."""


async def prepare(dut) -> None:
    """Drive all inputs and reset."""
    for name in ("awvalid", "wvalid", "arvalid"):
        dut[f"s_axi_{name}"].value = 0
    dut.s_axi_bready.value = 1
    dut.s_axi_rready.value = 1
    dut.error_hi.value = 0
    await reset(dut)
    await RisingEdge(dut.clk)


async def start(dut) -> Backdoor | ProcessBackdoor:
    """Prepare, and give access to the contents."""
    await prepare(dut)
    shared = os.environ.get(SHARED)
    return open_backdoor(dut, SharedMemory(int(shared)) if shared else None)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def backdoor_merges(dut):
    memory = await start(dut)
    memory.write(32, bytes(range(64)))
    memory.write(37, b"Signalbox")
    expected = bytearray(range(64))
    expected[5:14] = b"Signalbox"
    assert memory.read(32, 64) == expected
    assert memory.read(33, 3) == expected[1:4]
    memory.write(50, b"x")
    assert memory.read(49, 3) == bytes([17, 0x78, 19])
    if not os.environ.get(SHARED):
        assert open_backdoor(dut).read(49, 3) == bytes([17, 0x78, 19])


@cocotb.test(timeout_time=10, timeout_unit="ms")
async def backdoor_speed(dut):
    memory = await start(dut)
    data = random.randbytes(1 << 18)
    for round in ("first", "again"):
        began = time.perf_counter()
        memory.write(0, data)
        wrote = time.perf_counter()
        assert memory.read(0, len(data)) == data
        read = time.perf_counter()
        cocotb.log.info(
            "backdoor, %s: 256 KiB write %.3f s, read %.3f s", round, wrote - began, read - wrote
        )


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def random_traffic(dut):
    """After random reads and writes under back-pressure, the memory equals a bytearray."""
    memory = await start(dut)
    for name in ("ar", "r", "aw", "w", "b"):
        dut[f"stall_{name}"].value = random.choice((0, 60, 200))
    dut.random.value = random.getrandbits(63) + 1
    dut.read_latency.value = random.randrange(40)
    dut.write_latency.value = random.randrange(40)
    master = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
    model = bytearray(memory.read(0, 8192))
    for _ in range(40):
        address = random.randrange(8192 - 600)
        count = random.randrange(1, 600)
        if random.randrange(2):
            data = random.randbytes(count)
            model[address : address + count] = data
            assert (await master.write(address, data)).resp == AxiResp.OKAY
        else:
            assert (await master.read(address, count)).data == model[address : address + count]
    assert memory.read(0, 8192) == model
    for name in ("ar", "r", "aw", "w", "b"):
        dut[f"stall_{name}"].value = 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def errors(dut):
    memory = await start(dut)
    before = memory.read(0x1000, 64)
    dut.error_lo.value = 0x1010
    dut.error_hi.value = 0x1020
    master = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
    assert (await master.write(0x1000, bytes(64))).resp == AxiResp.SLVERR
    assert memory.read(0x1000, 64) == bytes(16) + before[16:32] + bytes(32)
    assert (await master.read(0x1018, 4)).resp == AxiResp.SLVERR
    assert (await master.read(0x1020, 4)).resp == AxiResp.OKAY
    assert (await master.read(1 << 30, 4)).resp == AxiResp.DECERR
    dut.error_hi.value = 0


@cocotb.test(timeout_time=100, timeout_unit="us")
async def read_rate(dut):
    """With a latency of 100 cycles, the first beat arrives after 100 cycles, then one per cycle."""
    memory = await start(dut)
    dut.read_latency.value = 100
    memory.write(0, bytes(16 * 256))
    await RisingEdge(dut.clk)
    dut.s_axi_arvalid.value = 1
    dut.s_axi_araddr.value = 0
    dut.s_axi_arid.value = 3
    dut.s_axi_arlen.value = 15
    dut.s_axi_arsize.value = 4
    dut.s_axi_arburst.value = 1
    accepted, beats = [], []
    for cycle in range(400):
        await RisingEdge(dut.clk)
        if dut.s_axi_arvalid.value and dut.s_axi_arready.value:
            accepted.append(cycle)
            dut.s_axi_araddr.value = 256 * len(accepted)
            dut.s_axi_arvalid.value = len(accepted) < 16
        if dut.s_axi_rvalid.value:
            beats.append(cycle)
            assert dut.s_axi_rid.value == 3
            assert dut.s_axi_rlast.value == (len(beats) % 16 == 0)
    assert accepted == list(range(accepted[0], accepted[0] + 16))
    assert beats == list(range(accepted[0] + 100, accepted[0] + 100 + 256))


@cocotb.test(timeout_time=100, timeout_unit="us")
async def write_rate(dut):
    """With a latency of 100 cycles, one beat is written per cycle, and none is visible before its
    response is due."""
    memory = await start(dut)
    dut.write_latency.value = 100
    memory.write(0, bytes(16 * 128))
    await RisingEdge(dut.clk)
    dut.s_axi_awvalid.value = 1
    dut.s_axi_awaddr.value = 0
    dut.s_axi_awid.value = 5
    dut.s_axi_awlen.value = 15
    dut.s_axi_awsize.value = 4
    dut.s_axi_awburst.value = 1
    dut.s_axi_wvalid.value = 1
    dut.s_axi_wdata.value = int.from_bytes(b"\x55" * 16, "little")
    dut.s_axi_wstrb.value = 0x7FFF
    dut.s_axi_wlast.value = 0
    addressed, beats, answers = 0, [], []
    for cycle in range(300):
        await RisingEdge(dut.clk)
        if dut.s_axi_awvalid.value and dut.s_axi_awready.value:
            addressed += 1
            dut.s_axi_awaddr.value = 256 * addressed
            dut.s_axi_awvalid.value = addressed < 8
        if dut.s_axi_wvalid.value and dut.s_axi_wready.value:
            beats.append(cycle)
            dut.s_axi_wlast.value = len(beats) % 16 == 15
            dut.s_axi_wvalid.value = len(beats) < 128
        if dut.s_axi_bvalid.value:
            answers.append(cycle)
            assert dut.s_axi_bid.value == 5
        if beats and cycle == beats[0] + 90:
            assert memory.read(0, 16 * 128) == bytes(16 * 128)
    assert beats == list(range(beats[0], beats[0] + 128))
    assert answers == [beats[16 * burst + 15] + 100 for burst in range(8)]
    assert memory.read(0, 16 * 128) == (b"\x55" * 15 + b"\0") * 128


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(later=[-1, 0, 1])
async def read_beside_write(dut, later: int):
    """A beat read and written at the same edge is read with its old contents. `later` : cycles from
    the write to the read."""
    memory = await start(dut)
    memory.write(0, bytes(BEAT))
    dut.read_latency.value = dut.write_latency.value = 10
    for channel in ("aw", "ar"):
        dut[f"s_axi_{channel}addr"].value = 0
        dut[f"s_axi_{channel}len"].value = 0
        dut[f"s_axi_{channel}size"].value = 4
        dut[f"s_axi_{channel}burst"].value = 1
    dut.s_axi_wdata.value = int.from_bytes(b"\x55" * BEAT, "little")
    dut.s_axi_wstrb.value = 0xFFFF
    dut.s_axi_wlast.value = 1
    dut.s_axi_awvalid.value = 1
    found = {}
    for cycle in range(30):
        await RisingEdge(dut.clk)
        for channel in ("aw", "w", "ar"):
            valid = dut[f"s_axi_{channel}valid"]
            if valid.value and dut[f"s_axi_{channel}ready"].value:
                found[channel] = cycle
                valid.value = 0
        if cycle == 4:
            dut.s_axi_wvalid.value = 1
        if cycle == 4 + later:
            dut.s_axi_arvalid.value = 1
        if dut.s_axi_rvalid.value:
            found["data"] = dut.s_axi_rdata.value.to_unsigned().to_bytes(BEAT, "little")
    assert found["ar"] - found["w"] == later
    assert found["data"] == (b"\x55" if later > 0 else b"\0") * BEAT
    assert memory.read(0, BEAT) == b"\x55" * BEAT


@cocotb.test(timeout_time=100, timeout_unit="us")
async def held_until_accepted(dut):
    """A stalled R channel holds its beat."""
    memory = await start(dut)
    memory.write(0, bytes(range(32)))
    dut.read_latency.value = 2
    dut.s_axi_rready.value = 0
    dut.s_axi_arvalid.value = 1
    dut.s_axi_araddr.value = 0
    dut.s_axi_arlen.value = 1
    dut.s_axi_arsize.value = 4
    dut.s_axi_arburst.value = 1
    await RisingEdge(dut.clk)
    dut.s_axi_arvalid.value = 0
    for _ in range(5):
        await RisingEdge(dut.clk)
    for _ in range(5):
        await RisingEdge(dut.clk)
        assert dut.s_axi_rvalid.value
        assert dut.s_axi_rdata.value.to_unsigned() == int.from_bytes(bytes(range(16)), "little")
    dut.s_axi_rready.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert dut.s_axi_rdata.value.to_unsigned() == int.from_bytes(bytes(range(16, 32)), "little")
    assert dut.s_axi_rlast.value
