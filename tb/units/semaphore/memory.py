"""Memory at the fence unit's ports: random latency and back-pressure, errors on demand."""

from collections import defaultdict
from random import Random
from typing import Any

from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.methods import pack
from signalbox.hw.records.memory import MemoryStatus, memory_request, read_beat, write_beat

__all__ = ["Memory"]


class Memory:
    """Serves both memory ports once per cycle and checks their transfers.

    Members
    -------
    content : bytes by (ASID, address).
    latency : maximum number of cycles between request and answer; 0 answers in the next cycle.
    busy : fraction of cycles in which ready is 0.
    failing : fraction of accesses that fail.
    failure : failed access of the current operation, "BUS" or "FAULT"; cleared by the reader.
    writes : completed writes (address of the first byte, bytes); cleared by the reader.
    """

    def __init__(self, dut: Any, config: Config, random: Random) -> None:
        self.dut, self.config, self.random = dut, config, random
        self.content: dict[tuple[int, int], int] = defaultdict(int)
        self.latency, self.busy, self.failing = 0, 0.0, 0.0
        self.failure: str | None = None
        self.writes: list[tuple[int, bytes]] = []
        self._reads: list[tuple[int, dict[str, int]]] = []
        self._write_request: dict[str, int] | None = None
        self._write_beat: dict[str, int] | None = None
        self._write_due = 0
        self._held: dict[str, int] = {}
        for port in ("memory_read__request", "memory_write__request", "memory_write__beat"):
            self._port(port, "ready").value = 0
        for port in ("memory_read__beat", "memory_write__done"):
            self._port(port, "valid").value = 0
            self._port(port, "payload").value = 0

    def step(self, cycle: int) -> None:
        """Sample cycle `cycle`, drive the next one."""
        self._read(cycle)
        self._write(cycle)

    def _port(self, stream: str, member: str) -> Any:
        return self.dut[f"{stream}__{member}"]

    def _take(self, stream: str, layout: data.Layout) -> dict[str, int] | None:
        """The payload transferred on an output; an offer must be held until then."""
        valid = bool(self._port(stream, "valid").value)
        payload = int(self._port(stream, "payload").value) if valid else None
        held = self._held.pop(stream, None)
        assert held is None or held == payload, f"{stream}: an offer was changed or withdrawn"
        ready = bool(self._port(stream, "ready").value)
        self._port(stream, "ready").value = int(self.random.random() >= self.busy)
        if payload is None:
            return None
        if not ready:
            self._held[stream] = payload
            return None
        return {name: payload >> field.offset & ((1 << field.width) - 1) for name, field in layout}

    def _take_request(self, stream: str) -> dict[str, int] | None:
        request = self._take(stream, memory_request(self.config))
        if request is not None:
            assert request["beats"] == 0 and request["physical"] == 0, request
            assert request["va"] % self.config.beat_bytes == 0, request
        return request

    def _status(self) -> MemoryStatus:
        if self.random.random() >= self.failing:
            return MemoryStatus.OK
        status = self.random.choice([MemoryStatus.BUS, MemoryStatus.FAULT])
        self.failure = status.name
        return status

    def _delay(self) -> int:
        return self.random.randint(0, self.latency)

    def _read(self, cycle: int) -> None:
        valid, payload = self._port("memory_read__beat", "valid"), "memory_read__beat"
        if valid.value and self._port("memory_read__beat", "ready").value:
            valid.value = 0
        request = self._take_request("memory_read__request")
        if request is not None:
            self._reads.append((cycle + self._delay(), request))
        if self._reads and self._reads[0][0] <= cycle:
            request = self._reads.pop(0)[1]
            keys = [(request["asid"], request["va"] + i) for i in range(self.config.beat_bytes)]
            status = self._status()
            content = bytes(self.content[key] for key in keys)
            if status != MemoryStatus.OK:
                content = self.random.randbytes(len(keys))
            self._port(payload, "payload").value = pack(
                read_beat(self.config),
                data=int.from_bytes(content, "little"),
                last=1,
                status=status.value,
            )
            valid.value = 1

    def _write(self, cycle: int) -> None:
        done = "memory_write__done"
        if self._port(done, "valid").value and self._port(done, "ready").value:
            self._port(done, "valid").value = 0
        before = self._write_request is not None and self._write_beat is not None
        request = self._take_request("memory_write__request")
        beat = self._take("memory_write__beat", write_beat(self.config))
        if request is not None:
            assert self._write_request is None, "two writes at once"
            self._write_request = request
        if beat is not None:
            assert self._write_beat is None and beat["last"], beat
            self._write_beat = beat
        request, beat = self._write_request, self._write_beat
        if request is None or beat is None:
            return
        if not before:
            self._write_due = cycle + self._delay()
        if self._write_due <= cycle:
            status = self._status()
            if status == MemoryStatus.OK:
                self._store(request, beat)
            self._write_request = self._write_beat = None
            self._port(done, "payload").value = status.value
            self._port(done, "valid").value = 1

    def _store(self, request: dict[str, int], beat: dict[str, int]) -> None:
        content = beat["data"].to_bytes(self.config.beat_bytes, "little")
        lanes = [i for i in range(self.config.beat_bytes) if beat["strobe"] >> i & 1]
        assert lanes == list(range(lanes[0], lanes[0] + len(lanes))), "the strobes have a gap"
        for i in lanes:
            self.content[request["asid"], request["va"] + i] = content[i]
        self.writes.append((request["va"] + lanes[0], bytes(content[i] for i in lanes)))
