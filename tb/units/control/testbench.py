"""Testbench of a control port: a bus manager, register owners, protocol checks."""

from functools import partial
from typing import Any, Self

from cocotbext.axi import AxiLiteMaster, AxiResp

from signalbox.hw.config import Config
from signalbox.hw.control.port import ControlPort
from signalbox.tb.testbench.bus import axi4lite, pause
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.ends import Sink, Source

__all__ = ["EVENTS", "ControlTestbench", "Owner"]

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
    "context_starts",
    "context_switch",
    "blocks_saved",
    "blocks_restored",
    "sm_cycles",
)


class Owner:
    """Models the other end of a register port: a dictionary with delayed answers.

    Members
    -------
    requests : address, write and data of the requests.
    values : by address.
    latency : maximum of the random waits, in cycles, before acceptance and before the response.
    """

    def __init__(self, tb: Testbench, port: str) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.values: dict[int, int] = {}
        self.latency = 0
        self._tb, self._busy, self._opens = tb, False, 0
        Sink(tb, f"{port}__request", self._pace, self._take)
        self._response = Source(tb, f"{port}__response", then=self._end)

    def _pace(self) -> bool:
        return not self._busy and self._tb.cycle >= self._opens

    def _take(self, request: dict[str, int]) -> None:
        self.requests.append((request["address"], request["write"], request["data"]))
        self._busy = True
        self._response.put(partial(self._answer, request), self._wait())

    def _answer(self, request: dict[str, int]) -> dict[str, int]:
        address = request["address"]
        if not request["write"]:
            return {"data": self.values.get(address, 0)}
        self.values[address] = request["data"]
        return {"data": self._tb.random.getrandbits(32)}

    def _end(self, _: dict[str, int]) -> None:
        self._busy, self._opens = False, self._tb.cycle + self._wait()

    def _wait(self) -> int:
        return 1 + self._tb.random.randint(0, self.latency)


class _Responses(Participant):
    """Checks that a response of the bus is held until it is accepted."""

    def __init__(self, tb: Testbench, channel: str, payload: tuple[str, ...]) -> None:
        self._name = channel
        self._valid, self._ready = (tb.ports[f"axi__{channel}{end}"] for end in ("valid", "ready"))
        self._payload = [tb.ports[f"axi__{name}"] for name in payload]
        self._held: list[int | str] | None = None
        tb.join(self)

    def sample(self, cycle: int) -> None:
        offered = [part.bits() for part in self._payload] if self._valid.get() else None
        assert self._held is None or offered == self._held, f"{self._name} changed"
        self._held = None if self._ready.get() else offered


class ControlTestbench(Testbench):
    """Testbench with a control port; cycles pass in the background. Only the manager drives the
    bus.

    Members
    -------
    master : manager of the bus.
    channel, semaphore : owners of forwarded registers.
    rung : doorbells so far.
    doorbell_density : fraction of cycles in which no doorbell is taken.
    """

    def __init__(self, dut: Any, config: Config) -> None:
        super().__init__(dut, component(ControlPort, config))
        self.rung: list[int] = []
        self.doorbell_density = 0.0
        self.drive(compute__idle=1)
        self.channel, self.semaphore = Owner(self, "channel"), Owner(self, "semaphore")
        Sink(self, "doorbell", self._takes_doorbell, self._ring)
        _Responses(self, "b", ("bresp",))
        _Responses(self, "r", ("rresp", "rdata"))
        dut.rst.value = 1
        self.master = AxiLiteMaster(axi4lite(dut, "axi"), dut.clk, dut.rst)
        for side in (self.master.write_if, self.master.read_if):
            side.log.setLevel("WARNING")

    async def start(self) -> Self:
        """Start the clock, reset, and let cycles pass."""
        await super().start()
        self.run()
        await self.steps()
        return self

    def stress(self, density: float, latency: int) -> None:
        """Random pauses on every AXI channel and at the doorbell; slow register owners."""
        if density:
            pause(self.master, density, self.random)
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

    def _takes_doorbell(self) -> bool:
        return self.random.random() >= self.doorbell_density

    def _ring(self, doorbell: dict[str, int]) -> None:
        self.rung.append(doorbell["channel"])
