"""Checks an AXI4 manager port against the protocol rules."""

from collections import deque
from typing import Any

from cocotb.triggers import RisingEdge

__all__ = ["AxiRules"]

_ADDRESS = ("id", "addr", "len", "size", "burst", "lock", "cache", "prot", "qos")
_OUT = {"aw": _ADDRESS, "ar": _ADDRESS, "w": ("data", "strb", "last")}


class AxiRules:
    """Asserts the following rules in each cycle:

    - `valid` and payload are held until `ready`.
    - Bursts are INCR, of full width, aligned, inside 4 KiB and below `limit` (bytes). `lock` and
      `qos` are 0.
    - W bursts match AW bursts in order and length.
    - The ids of channel "aw" are below `ids["aw"]`, those of "ar" below `ids["ar"]`.

    Start with `cocotb.start_soon(AxiRules(...).run())`. `bursts` counts the bursts per channel.
    """

    def __init__(self, dut: Any, port: str, *, limit: int, ids: dict[str, int]) -> None:
        self._clock = dut.clk
        self._limit = limit
        self._ids = ids
        self._handles = {
            channel: {name: getattr(dut, f"{port}__{channel}{name}") for name in names}
            for channel, names in _OUT.items()
        }
        self._valid = {channel: getattr(dut, f"{port}__{channel}valid") for channel in _OUT}
        self._ready = {channel: getattr(dut, f"{port}__{channel}ready") for channel in _OUT}
        self._bytes = len(getattr(dut, f"{port}__wstrb"))
        self._offered: dict[str, dict[str, int] | None] = dict.fromkeys(_OUT)
        self._lengths: deque[int] = deque()
        self._beats: deque[int] = deque()
        self._moved = 0
        self.bursts = {"aw": 0, "ar": 0}

    async def run(self) -> None:
        while True:
            await RisingEdge(self._clock)
            for channel in _OUT:
                self._watch(channel)
            while self._lengths and self._beats:
                want, got = self._lengths.popleft(), self._beats.popleft()
                assert want == got, f"AWLEN says {want} beats, WLAST came after {got}"

    def _watch(self, channel: str) -> None:
        valid = int(self._valid[channel].value)
        before = self._offered[channel]
        if not valid:
            assert before is None, f"{channel}valid fell before {channel}ready"
            return
        offer = {name: int(one.value) for name, one in self._handles[channel].items()}
        assert before is None or before == offer, f"{channel} changed: {before} -> {offer}"
        taken = int(self._ready[channel].value)
        self._offered[channel] = None if taken else offer
        if not taken:
            return
        if channel == "w":
            self._moved += 1
            if offer["last"]:
                self._beats.append(self._moved)
                self._moved = 0
        else:
            self._check_burst(channel, offer)

    def _check_burst(self, channel: str, burst: dict[str, int]) -> None:
        self.bursts[channel] += 1
        if channel == "aw":
            self._lengths.append(burst["len"] + 1)
        size = (burst["len"] + 1) * self._bytes
        assert 1 << burst["size"] == self._bytes and burst["burst"] == 1, burst
        assert burst["lock"] == burst["qos"] == 0, burst
        assert burst["addr"] % self._bytes == 0, f"{channel} is not aligned: {burst}"
        assert burst["addr"] // 4096 == (burst["addr"] + size - 1) // 4096, f"4 KiB: {burst}"
        assert burst["addr"] + size <= self._limit, f"past the memory: {burst}"
        assert burst["id"] < self._ids[channel], f"no such client: {burst}"
