"""Testbench of a shared read port: memory and two clients."""

import os
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.host.read_share import ReadShare
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.contents import PAGE, Contents, Failing
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.servers import ReadServer

__all__ = ["DEPTH", "SIZES", "ShareTestbench"]

SIZES = {
    "one": (Config(data_width=64), 1),
    "default": (Config(), 9),
    "wide": (Config(data_width=512), 4),
}
"""Configuration, and number of outstanding bursts."""

CONFIG, DEPTH = SIZES[os.environ.get("SIZE", "default")]

SPACES = ((0, 1), (2, 0))
"""Address spaces of the bursts: ASID, and whether it is physical."""


class Order(Participant):
    """Follows the requests and beats. Checks in each cycle that a request passes exactly when one
    can, and that it is the right one.

    Members
    -------
    outstanding : bursts whose last beat has not passed.
    most : maximum of `outstanding` so far.
    overtaken : cycles in which client 0 had to let a request of client 1 pass that was already
        offered.
    owners : client of each burst.
    beats : per client, its beats.
    """

    def __init__(self, tb: "ShareTestbench") -> None:
        self.outstanding = self.most = self.overtaken = 0
        self.owners: list[int] = []
        self.beats: list[list[dict[str, Any]]] = [[], []]
        self._tb, self._offered, self._ended = tb, False, 0
        tb.join(self)

    def sample(self, cycle: int) -> None:
        passes, last = self._requests(), self._beat()
        self.outstanding += passes - last
        self.most = max(self.most, self.outstanding)

    def _requests(self) -> bool:
        tb = self._tb
        valid, ready = (
            [bool(tb.get(f"clients__{number}__request__{end}")) for number in range(2)]
            for end in ("valid", "ready")
        )
        offered = bool(tb.get("port__request__valid"))
        taken = offered and bool(tb.get("port__request__ready"))
        chosen = 1 if self._offered or not valid[0] else 0
        passes = [one and other for one, other in zip(valid, ready, strict=True)]
        assert passes == [taken and chosen == 0, taken and chosen == 1]
        if offered:
            assert valid[chosen], "an offer of nobody"
            shown = tb.ports["port__request__payload"].bits()
            assert shown == tb.ports[f"clients__{chosen}__request__payload"].bits()
        else:
            assert not any(valid) or self.outstanding >= DEPTH, "a request waits for nothing"
        self.overtaken += self._offered and valid[0]
        self._offered = offered and not taken and chosen == 1
        if taken:
            self.owners.append(chosen)
        return taken

    def _beat(self) -> bool:
        tb = self._tb
        valid = bool(tb.get("port__beat__valid"))
        if not (valid and tb.get("port__beat__ready")):
            return False
        assert self._ended < len(self.owners), "a beat without a request"
        beat = tb.get("port__beat__payload")
        self.beats[self.owners[self._ended]].append(beat)
        self._ended += beat["last"]
        return bool(beat["last"])


class Client:
    """A unit that reads.

    Members
    -------
    requests, beats : its port.
    """

    def __init__(self, tb: "ShareTestbench", number: int) -> None:
        self.requests = Source(tb, f"clients__{number}__request")
        self.beats = Sink(tb, f"clients__{number}__beat")
        self._tb, self._number = tb, number
        self._asked: list[tuple[int, int]] = []

    def ask(self, beats: int) -> None:
        """Request a burst of `beats` beats at a random place."""
        tb = self._tb
        asid, physical = space = tb.random.choice(SPACES)
        size = beats * CONFIG.beat_bytes
        va = (tb.random.randrange(1 << 30) * PAGE) + tb.random.randrange(PAGE - size + 1)
        va -= va % CONFIG.beat_bytes
        if tb.random.random() < tb.failing:
            status = tb.random.choice((MemoryStatus.BUS, MemoryStatus.FAULT))
            at = va + tb.random.randrange(size)
            tb.memory.contents.failing = [Failing(space, range(at, at + 1), status, write=False)]
        self._asked.append((va, beats))
        self.requests.put({"va": va, "beats": beats - 1, "asid": asid, "physical": physical})

    def check(self) -> None:
        """Check that all requests reached memory and all beats the client, in order."""
        tb, number = self._tb, self._number
        assert not self.requests.pending
        bursts = zip(tb.order.owners, tb.memory.bursts, strict=True)
        mine = [(burst.va, burst.beats) for owner, burst in bursts if owner == number]
        assert mine == self._asked
        assert [beat for _, beat in self.beats.taken] == tb.order.beats[number]


class ShareTestbench(Testbench):
    """Memory and two clients.

    Members
    -------
    memory : server of the shared port.
    clients : the two clients.
    order : the rules of each cycle.
    failing : share of bursts that fail.
    """

    timeout = 5000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(ReadShare, CONFIG, DEPTH))
        self.failing = 0.0
        self.memory = ReadServer(self, Contents(), port="port")
        self.clients = [Client(self, number) for number in range(2)]
        self.order = Order(self)

    async def finish(self) -> None:
        """Step until all bursts have ended, and check them."""
        await self.until(lambda: not self.busy, "all bursts end")
        await self.steps(3)
        for client in self.clients:
            client.check()

    @property
    def busy(self) -> bool:
        """A burst is waiting or outstanding."""
        waiting = any(client.requests.pending for client in self.clients)
        return waiting or self.order.outstanding > 0
