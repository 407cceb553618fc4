"""Launches and ends of blocks of all SMs, in turn (NEST-10, NEST-12)."""

import os
from collections import deque
from itertools import pairwise
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.nested.kernel_tree import TreeEvent, TreeOp
from signalbox.hw.nested.sm_hub import SmHub
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.nested.test_sm_hub import config

SMS = int(os.environ["SMS"])
CONFIG: Config = config(SMS)


class HubTestbench(Testbench):
    """Launches are numbered by the pages of their QMDs.

    Members
    -------
    launches, notices : sources of each SM.
    asked : pages of each SM, in order, whose launch has not been taken.
    order, noticed : SMs in the order in which launches, and notices, were taken; `sent` : SMs in
        the order in which notices were offered.
    answers : number of answers.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(SmHub, CONFIG))
        self.launches = [Source(self, f"sm__{n}__launch", self.share(0.7)) for n in range(SMS)]
        self.notices = [Source(self, f"sm__{n}__notice", self.share(0.7)) for n in range(SMS)]
        self.asks: list[deque[bool]] = [deque() for _ in range(SMS)]
        self.asked: list[deque[int]] = [deque() for _ in range(SMS)]
        self.order: list[int] = []
        self.noticed: list[int] = []
        self.sent: list[int] = []
        self.answers = self._number = self._wait = 0
        self._current: tuple[int, int] | None = None
        self._due: dict[str, dict[str, Any]] = {}
        self._answer, self._told = Strobe(self, "answer"), Strobe(self, "told")
        Sink(self, "child", self.share(0.6), self._takes)
        Sink(self, "blocks", self.share(0.6), self._notices)

    def launch(self, sm: int) -> None:
        self._number += 1
        self.asked[sm].append(self._number)
        block = {"related": self._number & 1, "family": self._number % CONFIG.nested_kernels}
        row = self._number % CONFIG.rows
        self.launches[sm].put({"row": row, "page": self._number, "block": block})

    def notice(self, sm: int) -> None:
        """A block of the SM is over, or asks; its family identifies the SM."""
        self.sent.append(sm)
        asks = self.random.random() < 0.4
        self.asks[sm].append(asks)
        self.notices[sm].put({"asks": asks, "family": sm})

    def _takes(self, word: dict[str, Any]) -> None:
        number = word["page"]
        sm = next(n for n, asked in enumerate(self.asked) if number in asked)
        assert self.asked[sm].popleft() == number and self._current is None
        assert word["row"] == number % CONFIG.rows and word["block"]["related"] == number & 1
        assert word["block"]["family"] == number % CONFIG.nested_kernels
        self._current, self._wait = (sm, number), self.random.randrange(4)
        self.order.append(sm)

    def _notices(self, word: dict[str, Any]) -> None:
        asks = self.asks[word["family"]].popleft()
        assert word["op"] is (TreeOp.ASK if asks else TreeOp.LEAVE) and word["related"]
        self.noticed.append(word["family"])

    async def step(self) -> None:
        """One cycle. Sends answers to launches and events of the tree, which reach the SMs one
        cycle later."""
        due, self._due = self._due, {}
        if self._current is not None and self._wait == 0:
            (sm, number), self._current = self._current, None
            refusal = self.random.choice((Refusal.NONE, Refusal.DEPTH))
            block = {"related": 1, "family": number % CONFIG.nested_kernels}
            self._answer.send(verdict={"refusal": refusal}, block=block)
            self._due["answer"] = {"sm": sm, "refusal": refusal, "block": block}
            self.answers += 1
        self._wait -= self._wait > 0
        if self.random.random() < 0.2:
            kind = self.random.choice(list(TreeEvent))
            family = self.random.randrange(CONFIG.nested_kernels)
            self._told.send(event={"kind": kind, "family": family, "failed": family & 1})
            if kind is TreeEvent.JOINED:
                self._due["joined"] = {"family": family}
        await super().step()
        for sm in range(SMS):
            self._hears(sm, due)

    def _hears(self, sm: int, due: dict[str, dict[str, Any]]) -> None:
        answer, joined = (self.get(f"sm__{sm}__{name}") for name in ("answer", "joined"))
        assert joined["valid"] == ("joined" in due)
        if joined["valid"]:
            family = due["joined"]["family"]
            assert joined["family"] == family and joined["failed"] == family & 1
        mine = "answer" in due and due["answer"]["sm"] == sm
        assert answer["valid"] == mine
        if mine:
            assert answer["verdict"]["refusal"] is due["answer"]["refusal"]
            assert answer["block"] == due["answer"]["block"]


@cocotb.test()
async def random_sms(dut: Any) -> None:
    """Each launch is answered to its SM; each notice reaches the tree."""
    tb = await HubTestbench(dut).start()
    for _ in range(300):
        sm = tb.random.randrange(SMS)
        (tb.launch if tb.random.random() < 0.6 else tb.notice)(sm)
        await tb.steps(tb.random.choice((0, 0, 3, 20)))
    await tb.until(lambda: tb.answers + len(tb.noticed) == 300, "all answered", 20_000)
    await tb.steps(3)
    assert tb.get("idle") and sorted(tb.sent) == sorted(tb.noticed)


@cocotb.test()
async def in_turn(dut: Any) -> None:
    """While all SMs launch and send notices, each has one turn before any has a second."""
    tb = await HubTestbench(dut).start()
    for sm in range(SMS):
        tb.launches[sm].pace = tb.notices[sm].pace = lambda: True
        for _ in range(6):
            tb.launch(sm)
            tb.notice(sm)
    await tb.until(lambda: len(tb.order) == len(tb.noticed) == 6 * SMS, "all", 20_000)
    for order in (tb.order, tb.noticed):
        for sm in range(SMS):
            places = [n for n, one in enumerate(order) if one == sm]
            assert all(after - before == SMS for before, after in pairwise(places)), order
