"""Testbench of a control port: a bus manager, register owners, protocol checks."""

import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteMaster, AxiResp

from signalbox.hw.config import Config
from signalbox.tb.testbench.bus import axi4lite

__all__ = ["Bench", "Owner", "parts"]

EVENTS = (
    "methods",
    "semaphore_ops",
    "acquire_fails",
    "wakes",
    "switches",
    "copies",
    "read_beats",
    "write_beats",
    "errors",
    "l1_hits",
    "l1_misses",
    "l2_hits",
    "page_walks",
    "invalidations",
    "launches",
    "tasks",
    "blocks",
    "warps",
    "warp_faults",
    "no_registers",
    "no_warps",
    "no_shared",
    "no_slots",
    "no_lower",
    "ignored",
)


def parts(payload: int) -> tuple[int, bool, int]:
    """Address, write and data of a register request."""
    return payload & 0xFFF, bool(payload >> 12 & 1), payload >> 13


def pauses(density: float) -> Iterator[bool]:
    """Random pauses in a fraction `density` of cycles."""
    while True:
        yield random.random() < density


class Owner:
    """Models the other end of a register port: a dictionary with delayed answers.

    `requests` lists the requests. `latency` limits the random waits, in cycles, before acceptance
    and before the response.
    """

    def __init__(self, dut: Any, port: str, latency: int = 0) -> None:
        self.requests: list[tuple[int, bool, int]] = []
        self.values: dict[int, int] = {}
        self.latency = latency
        self._clk = dut.clk
        self._valid = dut[f"{port}__request__valid"]
        self._payload = dut[f"{port}__request__payload"]
        self._ready = dut[f"{port}__request__ready"]
        self._answered = dut[f"{port}__response__valid"]
        self._answer = dut[f"{port}__response__payload"]
        self._taken = dut[f"{port}__response__ready"]
        self._ready.value = 0
        self._answered.value = 0
        self._answer.value = 0

    async def run(self) -> None:
        while True:
            await self._wait()
            self._ready.value = 1
            await RisingEdge(self._clk)
            while not self._valid.value:
                await RisingEdge(self._clk)
            address, write, data = request = parts(int(self._payload.value))
            self._ready.value = 0
            self.requests.append(request)
            await self._wait()
            if write:
                self.values[address] = data
            self._answered.value = 1
            self._answer.value = random.getrandbits(32) if write else self.values.get(address, 0)
            await RisingEdge(self._clk)
            while not self._taken.value:
                await RisingEdge(self._clk)
            self._answered.value = 0

    async def _wait(self) -> None:
        for _ in range(random.randint(0, self.latency)):
            await RisingEdge(self._clk)


class Bench:
    """Testbench with a control port."""

    def __init__(self, dut: Any, config: Config) -> None:
        self.dut = dut
        self.config = config
        self.cycle = 0
        self.rung: list[int] = []
        self.doorbell_density = 0.0
        for name in ("error", "notify", "copied", *(f"events__{event}" for event in EVENTS)):
            dut[name].value = 0
        dut.doorbell__ready.value = 0
        dut.maintain__command__ready.value = dut.maintain__done.value = 0
        for name in ("put", "status", "dropped", "record", "fault", "busy"):
            dut[f"faults__{name}"].value = 0
        for name in ("broken", "active", "context", "idle", "lost", "fault"):
            dut[f"compute__{name}"].value = int(name == "idle")
        self.channel = Owner(dut, "channel")
        self.semaphore = Owner(dut, "semaphore")
        dut.rst.value = 1
        Clock(dut.clk, 10, unit="ns").start(start_high=False)
        self.master = AxiLiteMaster(axi4lite(dut, "axi"), dut.clk, dut.rst)
        for side in (self.master.write_if, self.master.read_if):
            side.log.setLevel("WARNING")

    async def start(self) -> "Bench":
        """Reset, then start."""
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        await RisingEdge(self.dut.clk)
        cocotb.start_soon(self.channel.run())
        cocotb.start_soon(self.semaphore.run())
        cocotb.start_soon(self._doorbells())
        cocotb.start_soon(self._protocol())
        return self

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    def stress(self, density: float, latency: int) -> None:
        """Random pauses on every AXI channel and at the doorbell; slow register owners."""
        write, read = self.master.write_if, self.master.read_if
        for channel in (
            write.aw_channel,
            write.w_channel,
            write.b_channel,
            read.ar_channel,
            read.r_channel,
        ):
            if density:
                channel.set_pause_generator(pauses(density))
        self.doorbell_density = density
        self.channel.latency = self.semaphore.latency = latency

    async def read(self, address: int) -> int:
        """Word at `address`; the response must be OKAY."""
        value, response = await self.try_read(address)
        assert response == AxiResp.OKAY, f"read of {address:#06x}: {response.name}"
        return value

    async def write(self, address: int, value: int) -> None:
        """Write the word at `address`; the response must be OKAY."""
        response = await self.try_write(address, value)
        assert response == AxiResp.OKAY, f"write of {address:#06x}: {response.name}"

    async def try_read(self, address: int) -> tuple[int, AxiResp]:
        """Word and response."""
        answer = await self.master.read(address, 4)
        return int.from_bytes(answer.data, "little"), answer.resp

    async def try_write(self, address: int, value: int, size: int = 4) -> AxiResp:
        """Response to a write of `size` bytes at `address`, within one word."""
        answer = await self.master.write(address, value.to_bytes(size, "little"))
        return answer.resp

    async def raw_write(self, address: int, value: int, lanes: int) -> AxiResp:
        """Response to a write with any `wstrb`."""
        side = self.master.write_if
        aw, w = side.aw_channel._transaction_obj(), side.w_channel._transaction_obj()
        aw.awaddr, aw.awprot, w.wdata, w.wstrb = address, 0, value, lanes
        await side.aw_channel.send(aw)
        await side.w_channel.send(w)
        return AxiResp(int((await side.b_channel.recv()).bresp))

    async def _doorbells(self) -> None:
        dut, ready = self.dut, False
        while True:
            await RisingEdge(dut.clk)
            if ready and dut.doorbell__valid.value:
                self.rung.append(int(dut.doorbell__payload.value))
            ready = random.random() >= self.doorbell_density
            dut.doorbell__ready.value = int(ready)

    async def _protocol(self) -> None:
        """Check that offers are held until they are accepted; count cycles."""
        dut = self.dut
        watched = [
            (dut.axi__bvalid, dut.axi__bready, (dut.axi__bresp,)),
            (dut.axi__rvalid, dut.axi__rready, (dut.axi__rresp, dut.axi__rdata)),
            (dut.doorbell__valid, dut.doorbell__ready, (dut.doorbell__payload,)),
        ]
        for port in ("channel", "semaphore"):
            names = (f"{port}__request__{part}" for part in ("valid", "ready", "payload"))
            valid, ready, payload = (dut[name] for name in names)
            watched.append((valid, ready, (payload,)))
        held: list[list[int] | None] = [None] * len(watched)
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            for number, (valid, ready, payload) in enumerate(watched):
                offered = [int(part.value) for part in payload] if valid.value else None
                if held[number] is not None:
                    assert offered == held[number], f"{valid._name} or its payload changed"
                held[number] = None if ready.value else offered
