"""Memories at the AXI4 port, for tests of the fabric."""

from collections import deque
from collections.abc import Callable, Container

from signalbox.tb.testbench.clocked import Participant, Testbench

__all__ = ["ShufflingMemory", "Store"]


class Store:
    """Bytes; accesses at `bad` addresses fail. A target for `cocotbext.axi.AxiSlave`."""

    def __init__(self, content: bytes, bad: Container[int]) -> None:
        self.content = bytearray(content)
        self.bad = bad

    async def read(self, address: int, length: int) -> bytes:
        return self.load(address, length)

    async def write(self, address: int, data: bytes) -> None:
        self.save(address, data)

    def load(self, address: int, length: int) -> bytes:
        if address in self.bad:
            raise ValueError("bad address")
        return bytes(self.content[address : address + length])

    def save(self, address: int, data: bytes) -> None:
        if address in self.bad:
            raise ValueError("bad address")
        self.content[address : address + len(data)] = data


class ShufflingMemory(Participant):
    """An AXI4 subordinate that answers ids in any order and interleaves their beats, with stalls.

    Each channel proceeds in a fraction `share` of cycles; within an id the order is kept, as AXI4
    requires. Failed accesses are answered with DECERR. There are `latency` cycles between a request
    and its first answer; ids in `held` get no answer.
    """

    def __init__(self, tb: Testbench, store: Store, *, share: float, latency: int = 0) -> None:
        self.tb, self.store, self.rng, self.share = tb, store, tb.random, share
        self.latency, self.held = latency, set[int]()
        self.bytes = tb.ports["axi__wstrb"].record.width
        self.cycle = 0
        self.reads: dict[int, deque[tuple[int, int, bool]]] = {}
        self.writes: deque[tuple[int, int, int]] = deque()
        self.moved: list[tuple[int, int]] = []
        self.bursts: deque[list[tuple[int, int]]] = deque()
        self.done: dict[int, deque[tuple[int, int]]] = {}
        self.shown = {"r": False, "b": False}
        self.open = dict.fromkeys(("ar", "aw", "w"), False)
        tb.join(self)

    def get(self, channel: str, name: str) -> int:
        return self.tb.get(f"axi__{channel}{name}")

    def set(self, channel: str, **values: int) -> None:
        self.tb.drive(**{f"axi__{channel}{name}": value for name, value in values.items()})

    def sample(self, cycle: int) -> None:
        self.cycle = cycle + 1
        taken = {one: self.open[one] and self.get(one, "valid") for one in self.open}
        for channel in self.shown:
            if self.shown[channel] and self.get(channel, "ready"):
                self.shown[channel] = False
        if taken["ar"]:
            self._take_read()
        if taken["aw"]:
            self.writes.append((self.get("aw", "id"), self.get("aw", "addr"), self.cycle))
        if taken["w"]:
            self._take_beat()
        if self.writes and self.bursts:
            self._write()

    def _take_read(self) -> None:
        count = self.get("ar", "len") + 1
        beats = self.reads.setdefault(self.get("ar", "id"), deque())
        for index in range(count):
            address = self.get("ar", "addr") + index * self.bytes
            beats.append((self.cycle, address, index == count - 1))

    def _take_beat(self) -> None:
        self.moved.append((self.get("w", "data"), self.get("w", "strb")))
        if self.get("w", "last"):
            self.bursts.append(self.moved)
            self.moved = []

    def _write(self) -> None:
        number, address, _ = self.writes.popleft()
        response = 0
        for data, strobe in self.bursts.popleft():
            for lane, byte in enumerate(data.to_bytes(self.bytes, "little")):
                if strobe >> lane & 1:
                    try:
                        self.store.save(address + lane, bytes([byte]))
                    except ValueError:
                        response = 3
            address += self.bytes
        self.done.setdefault(number, deque()).append((self.cycle, response))

    def drive(self, cycle: int) -> None:
        for channel in self.open:
            self.open[channel] = self.rng.random() < self.share
            self.set(channel, ready=self.open[channel])
        self._answer("r", self.reads, self._show_read)
        self._answer("b", self.done, self._show_done)

    def _answer(
        self, channel: str, owed: dict[int, deque], show: Callable[[int, tuple], None]
    ) -> None:
        if not self.shown[channel] and self.rng.random() < self.share:
            due = [one for one in owed if owed[one] and self._is_due(one, owed[one][0][0])]
            if due:
                number = self.rng.choice(due)
                show(number, owed[number].popleft())
                self.shown[channel] = True
        self.set(channel, valid=self.shown[channel])

    def _is_due(self, number: int, since: int) -> bool:
        return since + self.latency < self.cycle and number not in self.held

    def _load(self, address: int) -> tuple[int, int]:
        """A beat and its response."""
        try:
            return int.from_bytes(self.store.load(address, self.bytes), "little"), 0
        except ValueError:
            return 0, 3

    def _show_read(self, number: int, beat: tuple[int, int, bool]) -> None:
        _, address, last = beat
        data, response = self._load(address)
        self.set("r", id=number, data=data, resp=response, last=last)

    def _show_done(self, number: int, outcome: tuple[int, int]) -> None:
        self.set("b", id=number, resp=outcome[1])
