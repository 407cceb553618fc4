"""Every request of a core gets the ASID of its kernel row, and nothing else changes (ASID-1)."""

import os
from collections import deque
from functools import partial
from typing import Any, Self

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.records.placement import KernelWord, space_word
from signalbox.hw.sm.memory_gate import MemoryGate
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("CONFIG", "default")]
REQUESTS = {"core__read_request": "read__request", "core__write_request": "write__request"}
PASSED = {
    "read__beat": "core__read_beat",
    "core__write_beat": "write__beat",
    "write__done": "core__write_done",
}
SPACE = Record(space_word)


class GateTestbench(Testbench):
    """Sends random payloads, and checks the payloads that leave. All rows are described after the
    reset.

    Members
    -------
    sinks : sinks of the payloads that leave, by the stream on which they enter.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(MemoryGate, CONFIG))
        self._kernel = Strobe(self, "kernel")
        self._spaces: dict[int, int] = {}
        streams = REQUESTS | PASSED
        self._inside: dict[str, deque[Any]] = {name: deque() for name in streams}
        # Sources first: a payload may leave in the cycle in which it enters.
        self._sources = {
            name: Source(self, name, then=inside.append) for name, inside in self._inside.items()
        }
        self.sinks = {
            name: Sink(self, other, then=partial(self._check, name))
            for name, other in streams.items()
        }

    async def start(self) -> Self:
        await super().start()
        for row in range(CONFIG.rows):
            await self.describe(row)
        return self

    async def describe(self, row: int) -> None:
        """Send words of a row, which are random except for the ASID."""
        self._spaces[row] = self.random.randrange(CONFIG.asids)
        for word in KernelWord:
            data = self.random.getrandbits(32)
            if word is KernelWord.SPACE:
                data = SPACE.replaced(data, asid=self._spaces[row])
            self._kernel.send(row=row, word=word, data=data)
            await self.step()

    async def play(self, cycles: int, fraction: float) -> None:
        """Send and take payloads in a fraction of these cycles."""
        self._set_pace(fraction)
        for _ in range(cycles):
            for name, source in self._sources.items():
                if not source.pending:
                    source.put(self._payload(name))
            await self.step()

    async def rest(self) -> None:
        """Step until all payloads have left."""
        self._set_pace(1.0)
        await self.steps(10)
        assert not any(source.pending for source in self._sources.values())
        assert not any(self._inside.values())

    def _set_pace(self, fraction: float) -> None:
        for end in (*self._sources.values(), *self.sinks.values()):
            end.pace = self.share(fraction)

    def _payload(self, name: str) -> dict[str, Any]:
        record = self.ports[f"{name}__payload"].record
        payload = record.unpack(self.random.getrandbits(record.width))
        if name in REQUESTS:
            payload["row"] = self.random.randrange(CONFIG.rows)
        return payload

    def _check(self, name: str, taken: dict[str, Any]) -> None:
        given = self._inside[name].popleft()
        if name in REQUESTS:
            kept = {"va": given["va"], "beats": given["beats"]}
            given = {**kept, "asid": self._spaces[given["row"]], "physical": 0, "atomic": 0}
        assert taken == given, name


@cocotb.test(**LIMIT)
async def rows_name_spaces(dut):
    """Requests get their row's ASID, in order and without loss, at any pace, even after new words
    of a row."""
    tb = await GateTestbench(dut).start()
    counts, rounds = dict.fromkeys(tb.sinks, 0), Rounds(6)
    while rounds.more(min(counts.values()) > 100, counts):
        await tb.play(200, tb.random.choice([0.2, 0.5, 0.9]))
        await tb.rest()
        await tb.describe(tb.random.randrange(CONFIG.rows))
        counts = {name: len(sink.taken) for name, sink in tb.sinks.items()}


@cocotb.test(**LIMIT)
async def rate(dut):
    """One request of each kind passes per cycle, with a latency of one cycle, and one write beat,
    with a latency of two."""
    tb = await GateTestbench(dut).start()
    await tb.play(200, 1.0)
    for name, sink in tb.sinks.items():
        late = 1 if name in REQUESTS else 2 if name == "core__write_beat" else 0
        assert len(sink.taken) == 200 - late
