"""Testbench of the loader of runlists: memory, and acceptance of lists."""

import os
from typing import Any

from signalbox.hw.config import PA_BITS, Config
from signalbox.hw.host.scheduling.runlist_loader import RunlistLoader
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.runlists import RunlistError
from signalbox.tb.models.runlist import BYTES, Reading, Word, read_list
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.servers import ReadServer
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.host.runlists import List

__all__ = ["BURST", "CONFIG", "CONFIGS", "LoaderTestbench", "contents"]

CONFIGS = {
    "narrow": Config(channels=1, data_width=64, runlist_entries=1),
    "few": Config(channels=3, data_width=64, runlist_entries=7),
    "default": Config(channels=8, runlist_entries=5),
    "wide": Config(channels=64, data_width=512, runlist_entries=64),
    "longest": Config(channels=64, data_width=256, runlist_entries=600),
}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

BURST = 64
"""Bytes per burst."""

PHYSICAL = (0, 1)
"""Address space of all reads."""

ROOM = CONFIG.runlist_entries


class Outputs(Participant):
    """Records the strobes of the loader, and whether a list is pending. Checks that an offered list
    stays until it is accepted, or another one is submitted.

    Members
    -------
    words : words written since the last offer or refusal, by place.
    refusals : (cycle, error, entry).
    pending : of the cycle that has ended.
    """

    def __init__(self, tb: Testbench) -> None:
        self.words: dict[int, Word] = {}
        self.refusals: list[tuple[int, RunlistError, int]] = []
        self.pending = False
        self._tb = tb
        self._waiting: int | str | None = None
        tb.join(self)

    def sample(self, cycle: int) -> None:
        self._hold()
        self.pending = bool(self._tb.get("pending"))
        write, refused = self._tb.get("write"), self._tb.get("refused")
        if write["valid"]:
            assert write["at"] == len(self.words), "words are written in order, each once"
            self.words[write["at"]] = Word(**write["word"])
        if refused["valid"]:
            self.refusals.append((cycle, refused["error"], refused["entry"]))

    def _hold(self) -> None:
        tb = self._tb
        offered = tb.ports["list__payload"].bits() if tb.get("list__valid") else None
        assert self._waiting is None or offered == self._waiting, "the offer has changed"
        stays = not tb.get("list__ready") and not tb.get("submit")["valid"]
        self._waiting = offered if stays else None


class LoaderTestbench(Testbench):
    """Memory and acceptance of lists.

    Members
    -------
    memory : server of the memory port.
    outputs : strobes.
    lists : sink of the lists that are offered.
    page : page of the list submitted last.
    """

    timeout = 200_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(RunlistLoader, CONFIG))
        self.submits = Strobe(self, "submit")
        self.memory = ReadServer(self, Contents(), limit=BURST // CONFIG.beat_bytes)
        self.lists = Sink(self, "list", held=False)
        self.outputs = Outputs(self)
        self.page = 0

    def submit(self, entries: List, offset: int = 0, *, page: int | None = None) -> None:
        """Write a list to memory, and submit it in the cycle that begins."""
        self.page = self.random.getrandbits(PA_BITS - 12) if page is None else page
        self.memory.contents.write(PHYSICAL, self.page << 12, b"".join(entries))
        self.submits.send(page=self.page, length=len(entries), offset=offset)
        self.outputs.words = {}
        self.memory.bursts = []

    async def ended(self) -> None:
        """Step until the list that was submitted is refused or accepted."""
        await self.step()
        assert not self.outputs.pending
        await self.step()
        assert self.outputs.pending
        await self.until(lambda: not self.outputs.pending, "no list is pending")

    async def check(self, entries: List, offset: int = 0, *, page: int | None = None) -> Reading:
        """Submit a list, and compare its reading with that of the model. Returns the reading."""
        refusals, lists = len(self.outputs.refusals), len(self.lists.taken)
        self.submit(entries, offset, page=page)
        wanted = self.wanted(entries, offset)
        await self.ended()
        self.compare(wanted, refusals, lists)
        return wanted

    def compare(self, wanted: Reading, refusals: int, lists: int) -> None:
        """Check that the list has the wanted outcome. `refusals`, `lists` : numbers of earlier
        refusals and lists."""
        seen = [one[1:] for one in self.outputs.refusals[refusals:]]
        assert seen == ([(wanted.error, wanted.entry)] if wanted.error else [])
        assert [*self.outputs.words.values()] == wanted.words
        offered = [payload for _, payload in self.lists.taken[lists:]]
        assert offered == ([] if wanted.error else [contents(wanted)])
        self.check_bursts(-(-wanted.looked // 4))

    def check_bursts(self, count: int) -> None:
        """Check that the list was read in `count` bursts, in order."""
        bursts = [(one.space, one.va, one.beats) for one in self.memory.bursts]
        beats = BURST // CONFIG.beat_bytes
        first = self.page << 12
        assert bursts == [(PHYSICAL, first + BURST * one, beats) for one in range(count)]
        assert not any(one.request["atomic"] for one in self.memory.bursts)

    def wanted(self, entries: List, offset: int) -> Reading:
        """Reading of the model, with the present failures of memory."""
        bad = {number for number in range(len(entries)) if self._unreadable(number)}
        whole = b"".join(entries)
        return read_list(whole, offset, channels=CONFIG.channels, room=ROOM, unreadable=bad)

    def fail(self, low: int, size: int, status: MemoryStatus) -> None:
        """Let reads of bytes of the list fail, for every page."""
        at = (self.page << 12) + low
        failing = Failing(PHYSICAL, range(at, at + size), status, write=False)
        self.memory.contents.failing.append(failing)

    def hurry(self) -> None:
        """Memory that answers at once."""
        self.memory.latency = lambda: 1
        self.memory.request.pace = self.memory.beat.pace = self.lists.pace = lambda: True

    def vary(self) -> None:
        """Another random latency and back-pressure."""
        self.memory.latency = self.between(1, self.random.choice((1, 3, 40)))
        for end in (self.memory.request, self.memory.beat, self.lists):
            end.pace = self.share(self.random.choice((0.3, 0.8, 1)))

    def _unreadable(self, number: int) -> bool:
        if not self.memory.contents.failing:
            return False
        at = (self.page << 12) + BYTES * number
        burst = at // BURST * BURST
        whole = self._status(burst, BURST)
        size = max(CONFIG.beat_bytes, BYTES)
        own = self._status(at // size * size, size)
        return whole is MemoryStatus.FAULT or own is not MemoryStatus.OK

    def _status(self, at: int, size: int) -> MemoryStatus:
        return self.memory.contents.status(PHYSICAL, at, at + size, write=False)


def contents(reading: Reading) -> dict[str, int]:
    """Payload of the offer of a good list."""
    return {
        "groups": len(reading.words),
        "start": reading.start,
        "channels": reading.channels,
    }
