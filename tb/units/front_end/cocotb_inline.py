"""Compute methods that write to memory: inline transfers (HOST-14) and inline QMDs (HOST-9)."""

import os
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS, VA_BITS
from signalbox.hw.errors import Cause
from signalbox.hw.front_end.compute_methods import ComputeMethodUnit
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.semaphore import SemaphoreError
from signalbox.tb.models.inline_transfer import Transfer, packed, refusal
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import PAGE, Contents, Failing
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer
from signalbox.tb.testbench.servers import WriteServer
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]
BEAT = CONFIG.beat_bytes

LINE_LENGTH, LINE_COUNT, OUT_UPPER, OUT, PITCH = 0x180, 0x184, 0x188, 0x18C, 0x190
LAUNCH, DATA = 0x1B0, 0x1B4
SEMAPHORE_A, SEMAPHORE_B, SEMAPHORE_C = 0x1DC, 0x1E0, 0x1E4
WAIT_FOR_IDLE, QMD_A, QMD_B, QMD_DATA = 0x110, 0x318, 0x31C, 0x320

PLAIN = 0x1
"""LAUNCH_DMA of a pitch layout without a completion."""

RELEASE, INTERRUPT, ONE_WORD = 2 << 4, 1 << 8, 1 << 12

SETTING_GAP = 2
"""Minimum cycles from a setting to the next one."""

SPACE = 1 << VA_BITS

CHANNELS = min(CONFIG.channels, 8)
LAST = CHANNELS - 1


@dataclass
class Client:
    """The host's knowledge of a channel: number of LOAD_INLINE_DATA that are settings, and whether
    its transfer needs more dwords."""

    asid: int
    room: int = 0
    open: bool = False
    methods: deque[tuple[int, int]] = field(default_factory=deque)
    """Methods to be executed."""
    answers: list[dict[str, Any]] = field(default_factory=list)


class InlineTestbench(Testbench):
    """The method unit with memory and semaphores; the testbench is the host.

    Every channel executes its `methods` in order; settings of one channel continue while an action
    method of another is in progress. An answer other than complete stops its channel.

    Members
    -------
    contents : memory.
    expected : memory as the model has it.
    clients : channels.
    releases : requests of the semaphore unit.
    error : answer to the next of them.
    """

    timeout = 20_000

    def __init__(self, dut: Any, pace: float = 0.9, latency: tuple[int, int] = (1, 20)) -> None:
        super().__init__(dut, component(ComputeMethodUnit, CONFIG))
        self.contents, self.expected = Contents(), Contents()
        shares = self.share(pace)
        self.write = WriteServer(
            self, self.contents, shares, self.between(*latency), limit=256 // BEAT
        )
        self._setting, self._clear = Strobe(self, "host__setting"), Strobe(self, "host__clear")
        self._skip = Strobe(self, "host__skip")
        self._method = Source(self, "host__method", shares)
        self._response = Source(self, "semaphore__response", shares)
        self.releases: list[dict[str, Any]] = []
        self.error = SemaphoreError.NONE
        Sink(self, "semaphore__request", shares, self._release)
        self.clients = [Client(n % CONFIG.asids) for n in range(CHANNELS)]
        self.met: Counter[str] = Counter()
        self._busy: int | None = None
        self._last = 0

    def _release(self, request: dict[str, Any]) -> None:
        self.releases.append(request)
        self._response.put({"passed": 1, "error": self.error}, delay=3)

    def space(self, channel: int) -> tuple[int, int]:
        """Key of the channel's memory in `contents`."""
        return self.clients[channel].asid, 0

    # -- the host ----------------------------------------------------------------------------------

    def give(self, channel: int, *methods: tuple[int, int]) -> None:
        """Methods for a channel."""
        self.clients[channel].methods.extend(methods)

    def transfer(
        self, channel: int, transfer: Transfer, dwords: list[int], launch: int = PLAIN
    ) -> None:
        """Methods of a whole transfer."""
        self.give(channel, *settings(transfer), (LAUNCH, launch), *((DATA, d) for d in dwords))

    def clear(self, channel: int) -> None:
        """Start the channel anew."""
        self._clear.send(channel=channel)
        self.clients[channel] = Client(self.clients[channel].asid)

    def skip(self, channel: int) -> None:
        """The channel's refused method is not repeated."""
        self._skip.send(channel=channel)

    async def step(self) -> None:
        self._execute()
        await super().step()
        answer = self.get("host__answer")
        if answer["valid"]:
            self._answered(answer)

    def _execute(self) -> None:
        ready = [n for n, one in enumerate(self.clients) if one.methods and n != self._busy]
        if not ready or self.random.random() < 0.1:
            return
        channel = self.random.choice(ready)
        client = self.clients[channel]
        method, value = client.methods[0]
        sets = method in SETTINGS or QMD_DATA <= method < QMD_DATA + 256
        if sets or (method == DATA and client.room):
            if self.cycle - self._last >= SETTING_GAP:
                client.methods.popleft()
                client.room -= method == DATA
                self._last = self.cycle
                self._setting.send(channel=channel, address=method >> 2, data=value)
        elif self._busy is None:
            # The host takes longer from the last setting to an action method.
            word = {"channel": channel, "asid": client.asid, "context": 0, "epoch": 0}
            self._busy = channel
            self._method.put({**word, "address": method >> 2, "data": value}, delay=5)

    def _answered(self, answer: dict[str, Any]) -> None:
        assert self._busy is not None
        client, self._busy = self.clients[self._busy], None
        client.answers.append(answer)
        if answer["cause"] is not Cause.NONE:
            client.methods.clear()
            return
        method, _ = client.methods.popleft()
        if method in (LAUNCH, DATA):
            client.room, client.open = answer["inline"]["room"], bool(answer["inline"]["open"])
            assert client.open or client.room == 0

    async def answer_time(self) -> int:
        """Let the methods end with an action method. Returns the cycles from its acceptance to its
        answer."""
        accepted = len(self._method.sent)
        await self.until(
            lambda: len(self._method.sent) > accepted and self._busy is None, "an answer"
        )
        return self.cycle - 1 - self._method.sent[-1]

    async def finish(self, *, gap: int = 3) -> None:
        """Step until all methods are complete, or refused."""
        await self.until(
            lambda: self._busy is None and not any(one.methods for one in self.clients), "idle"
        )
        await self.steps(gap)
        assert self.get("idle") and not self.write.pending

    def check(self) -> None:
        """Check that memory is as expected."""
        for space, page in {*self.contents.pages, *self.expected.pages}:
            found, wanted = (one.page(space, page) for one in (self.contents, self.expected))
            wrong = [at for at in range(PAGE) if found[at] != wanted[at]]
            assert not wrong, (space, hex(page * PAGE + wrong[0]), len(wrong))

    def expect(self, channel: int, transfer: Transfer, dwords: list[int]) -> None:
        """Expect the bytes of a transfer in memory."""
        for va, content in transfer.stores(dwords):
            self.expected.write(self.space(channel), va, content)


SETTINGS = {
    *(LINE_LENGTH, LINE_COUNT, OUT_UPPER, OUT, PITCH),
    *(SEMAPHORE_A, SEMAPHORE_B, SEMAPHORE_C),
}


def settings(transfer: Transfer) -> list[tuple[int, int]]:
    """Methods that describe a transfer."""
    return [
        (LINE_LENGTH, transfer.length),
        (LINE_COUNT, transfer.lines),
        (OUT_UPPER, transfer.va >> 32),
        (OUT, transfer.va & 0xFFFF_FFFF),
        (PITCH, transfer.pitch),
    ]


def dwords_of(tb: InlineTestbench, transfer: Transfer) -> list[int]:
    """Random data, with random padding."""
    return [tb.random.getrandbits(32) for _ in range(transfer.dwords)]


@cocotb.test(**LIMIT)
async def bytes_exact(dut: Any) -> None:
    """A transfer writes its bytes and no others, for every alignment, length around whole dwords,
    and end of a page; the padding of the last dword is not written."""
    tb = await InlineTestbench(dut).start()
    cases = [(low, length) for low in (*range(9), BEAT - 1) for length in (1, 2, 3, 4, 5, 8, 13)]
    for low, length in tb.random.sample(cases, fewer(len(cases), 3)):
        for start in (0x12_3456_7000 + low, 0x12_3456_7FFF - low):
            transfer = Transfer(start, length)
            dwords = dwords_of(tb, transfer)
            tb.transfer(0, transfer, dwords)
            tb.expect(0, transfer, dwords)
            await tb.finish()
            tb.check()


@cocotb.test(**LIMIT)
async def lines(dut: Any) -> None:
    """Every line begins with a new dword and is `PITCH_OUT` after the previous one; lines may
    overlap, and later lines win."""
    tb = await InlineTestbench(dut).start()
    for length, count, pitch in ((5, 4, 7), (1, 9, 1), (300, 3, 4096), (64, 5, 0), (3, 4, 2)):
        transfer = Transfer(0x20_0000_0FF1 + tb.random.randrange(32), length, count, pitch)
        content = [tb.random.randbytes(length) for _ in range(count)]
        dwords = packed(content)
        tb.transfer(LAST, transfer, dwords)
        tb.expect(LAST, transfer, dwords)
        await tb.finish()
        tb.check()
    first = tb.write.bursts[0]
    assert first.space == tb.space(LAST)


@cocotb.test(**LIMIT)
async def whole_beats(dut: Any) -> None:
    """A long aligned transfer is written in bursts of 256 bytes, one burst per 64 dwords, and takes
    few cycles per dword."""
    tb = InlineTestbench(dut, pace=1, latency=(4, 4))
    await tb.start()
    transfer = Transfer(0x7000_0000, 2048)
    dwords = dwords_of(tb, transfer)
    begun = tb.cycle
    tb.transfer(0, transfer, dwords)
    tb.expect(0, transfer, dwords)
    await tb.finish(gap=1)
    cycles = (tb.cycle - begun) / len(dwords)
    print(f"{BEAT} bytes per beat: {cycles:.2f} cycles per dword of 2 KiB, settings every 2 cycles")
    tb.check()
    assert [burst.beats for burst in tb.write.bursts] == [256 // BEAT] * 8
    assert cycles < 4


@cocotb.test(**LIMIT)
async def latency(dut: Any) -> None:
    """LAUNCH_DMA is answered 7 cycles after it is accepted. The last dword of a part is answered
    after 10 cycles, one per beat and the latency of memory's response, plus 3 if the transfer
    continues."""
    response = 4
    tb = InlineTestbench(dut, pace=1, latency=(response, response))
    await tb.start()
    for length, beats, goes_on in (
        (4, 1, False),
        (256, 256 // BEAT, False),
        (260, 256 // BEAT, True),
    ):
        transfer = Transfer(0x7000, length)
        tb.give(0, *settings(transfer), (LAUNCH, PLAIN))
        assert await tb.answer_time() == 7
        dwords = dwords_of(tb, transfer)
        client = tb.clients[0]
        tb.give(0, *((DATA, dword) for dword in dwords[: client.room + 1]))
        assert await tb.answer_time() == 10 + beats + response + 3 * goes_on
        tb.give(0, *((DATA, dword) for dword in dwords[64:]))
        await tb.finish()


@cocotb.test(**LIMIT)
async def completions(dut: Any) -> None:
    """After the last byte, and not before, the semaphore is released with one word or four, and the
    interrupt is requested; a refused release is reported, and repeated with the method."""
    tb = await InlineTestbench(dut).start()
    transfer = Transfer(0x5_0003, 300, 2, 512)
    kinds = ((PLAIN, 0), (1 << 4, 0), (RELEASE, 1), (RELEASE | ONE_WORD, 1), (RELEASE | 1 << 6, 1))
    for bits, count in kinds:
        for trap in (0, 1):
            dwords, payload = dwords_of(tb, transfer), tb.random.getrandbits(32)
            tb.releases.clear()
            tb.clients[LAST].answers.clear()
            tb.give(LAST, (SEMAPHORE_A, 0x9A), (SEMAPHORE_B, 0x7654_3210), (SEMAPHORE_C, payload))
            tb.expect(LAST, transfer, dwords)
            tb.transfer(LAST, transfer, dwords, PLAIN | bits | trap * INTERRUPT)
            await tb.until(lambda: tb.releases or not tb.clients[LAST].methods, "end")
            tb.check()
            await tb.finish()
            answers = tb.clients[LAST].answers
            assert [one["trap"] for one in answers] == [0] * (len(answers) - 1) + [trap]
            assert [one["inline"]["open"] for one in answers] == [1] * (len(answers) - 1) + [0]
            assert len(tb.releases) == count
            if count:
                request = tb.releases[0]
                assert request["va"] == 0x9A_7654_3210 and request["payload"] == payload
                assert request["timestamp"] == (not bits & ONE_WORD) and not request["wide"]
                assert (
                    request["operation"].name == "RELEASE"
                    and request["asid"] == tb.clients[LAST].asid
                )
    tb.error = SemaphoreError.FAULT
    dwords = dwords_of(tb, transfer)
    tb.transfer(LAST, transfer, dwords, PLAIN | RELEASE | INTERRUPT)
    await tb.finish()
    answer = tb.clients[LAST].answers[-1]
    assert answer["cause"] is Cause.SEM_FAULT and answer["va"] == 0x9A_7654_3210
    assert not answer["trap"]
    tb.error = SemaphoreError.NONE
    tb.releases.clear()
    tb.give(LAST, (DATA, dwords[-1]))
    await tb.finish()
    answer = tb.clients[LAST].answers[-1]
    assert answer["cause"] is Cause.NONE and answer["trap"] and len(tb.releases) == 1


@cocotb.test(**LIMIT)
async def refused_modes(dut: Any) -> None:
    """Block-linear layouts, reductions, undefined values, reserved bits and transfers of no bytes
    are refused, and write nothing; fields of unused features are ignored."""
    tb = await InlineTestbench(dut).start()
    one = Transfer(0x1000, 4)
    words = [PLAIN ^ 1 << bit for bit in range(32)]
    words += [PLAIN | 3 << 4, PLAIN | 3 << 8, 0x41, 0x1001, PLAIN | 7 << 13 | 3 << 2]
    cases = [(word, one) for word in words]
    cases += [(PLAIN, Transfer(0x1000, 0)), (PLAIN, Transfer(0x1000, 4, 0)), (0, Transfer(0, 0))]
    for launch, transfer in cases:
        tb.give(0, *settings(transfer), (LAUNCH, launch))
        await tb.finish()
        answer = tb.clients[0].answers[-1]
        assert answer["cause"].name == refusal(launch, transfer), hex(launch)
        if answer["cause"] is Cause.NONE:
            assert answer["inline"] == {"open": 1, "room": 0}
            tb.give(0, (DATA, 0x1234_5678))
            await tb.finish()
    tb.expect(0, one, [0x1234_5678])
    tb.check()
    assert {launch for launch, _ in cases if refusal(launch, one) == "NONE"} >= {0x41, 0x1001}


@cocotb.test(**LIMIT)
async def faults(dut: Any) -> None:
    """A part that cannot be written is refused with its first address on the failing page, and
    written when its method is repeated; the transfer continues."""
    tb = await InlineTestbench(dut).start()
    for status, cause in (
        (MemoryStatus.FAULT, Cause.INLINE_FAULT),
        (MemoryStatus.BUS, Cause.INLINE_BUS),
    ):
        for start in (0x8_0FF5, 0x8_1000, 0x8_1021):
            transfer = Transfer(start, 400)
            dwords = dwords_of(tb, transfer)
            pages = range(0x8_1000, 0x8_2000)
            tb.contents.failing = [Failing(tb.space(LAST), pages, status, write=True)]
            tb.transfer(LAST, transfer, dwords)
            await tb.finish()
            client = tb.clients[LAST]
            assert client.answers[-1]["cause"] is cause
            assert client.answers[-1]["va"] == max(start, 0x8_1000)
            assert [one["cause"] for one in client.answers[-2:-1]] == [Cause.NONE]
            (room,) = (one["inline"]["room"] for one in client.answers[-2:-1])
            tb.contents.failing = []
            tb.give(LAST, *((DATA, dword) for dword in dwords[room:]))
            tb.expect(LAST, transfer, dwords)
            await tb.finish()
            tb.check()
            assert not client.open


@cocotb.test(**LIMIT)
async def records_that_fault(dut: Any) -> None:
    """Dwords of a QMD that could not be written are written when the refused method is repeated. If
    it is not, they are dropped, and only later dwords are written; dwords of other channels
    stay."""
    tb = await InlineTestbench(dut).start()
    space, start = tb.space(LAST), 0x8_1000
    page = range(start, start + PAGE)
    for status, cause in (
        (MemoryStatus.FAULT, Cause.INLINE_FAULT),
        (MemoryStatus.BUS, Cause.INLINE_BUS),
    ):
        for repeats, later in product((True, False), repeat=2):
            loaded = {n: tb.random.getrandbits(32) for n in tb.random.sample(range(64), 20)}
            dwords = [(QMD_DATA + 4 * n, word) for n, word in loaded.items()]
            if CHANNELS > 1:
                tb.give(0, (QMD_A, 0), (QMD_B, 0x400), (QMD_DATA, len(loaded)))
            tb.contents.failing = [Failing(space, page, status, write=True)]
            tb.give(LAST, (QMD_A, 0), (QMD_B, start >> 8), *dwords, (WAIT_FOR_IDLE, 0))
            await tb.finish()
            answer = tb.clients[LAST].answers[-1]
            assert answer["cause"] is cause and answer["va"] == start
            tb.contents.failing = []
            if not repeats:
                tb.skip(LAST)
                await tb.step()
                loaded = {0: 0x1234_5678} if later else {}
                tb.give(LAST, *((QMD_DATA, word) for word in loaded.values()))
            tb.give(LAST, (WAIT_FOR_IDLE, 0))
            await tb.finish()
            for n, word in loaded.items():
                tb.expected.write(space, start + 4 * n, word.to_bytes(4, "little"))
            tb.check()
            if CHANNELS > 1:
                tb.give(0, (WAIT_FOR_IDLE, 0))
                await tb.finish()
                tb.expected.write(tb.space(0), 0x4_0000, (20).to_bytes(4, "little"))
                tb.check()


@cocotb.test(**LIMIT)
async def after_a_record(dut: Any) -> None:
    """Dwords of a QMD are written before a transfer begins, and after it, without mixing with its
    dwords. A transfer ended by a start leaves nothing behind."""
    tb = await InlineTestbench(dut).start()
    space = tb.space(0)
    transfer = Transfer(0x3_0000, 256)
    for round_ in range(3):
        loaded = {n: tb.random.getrandbits(32) for n in tb.random.sample(range(64), 20)}
        tb.give(0, (QMD_A, 0), (QMD_B, 0x400))
        tb.give(0, *((QMD_DATA + 4 * n, word) for n, word in loaded.items()))
        for n, word in loaded.items():
            tb.expected.write(space, 0x4_0000 + 4 * n, word.to_bytes(4, "little"))
        dwords = dwords_of(tb, transfer)
        if round_ != 1:
            tb.transfer(0, transfer, dwords)
            tb.expect(0, transfer, dwords)
        else:
            tb.give(0, *settings(transfer), (LAUNCH, PLAIN), *((DATA, 0) for _ in range(30)))
        await tb.finish()
        tb.check()
        if round_ == 1:
            tb.clear(0)
            await tb.step()
            tb.give(0, (LAUNCH, PLAIN))
            await tb.finish()
            assert tb.clients[0].answers[-1]["cause"] is Cause.INLINE_ZERO
    tb.give(0, (QMD_DATA, 7), (WAIT_FOR_IDLE, 0))
    await tb.finish()
    tb.expected.write(space, 0x4_0000, (7).to_bytes(4, "little"))
    tb.check()


@cocotb.test(**LIMIT)
async def page_after_a_start(dut: Any) -> None:
    """A channel's inline QMDs are in page 0 after its start, whatever its former page was; other
    channels keep theirs (HOST-9)."""
    tb = await InlineTestbench(dut).start()
    for channel in {0, LAST}:
        tb.give(channel, (QMD_A, 0), (QMD_B, 0x400 + channel))
    await tb.finish()
    tb.clear(0)
    await tb.steps(5)
    for channel in {0, LAST}:
        tb.give(channel, (QMD_DATA, 7), (WAIT_FOR_IDLE, 0))
    await tb.finish()
    pages = {channel: (0x400 + channel) << 8 & ~0xFFF for channel in {0, LAST}} | {0: 0}
    assert {page << 12 for _, page in tb.contents.pages} == {*pages.values()}


@cocotb.test(**LIMIT)
async def random_transfers(dut: Any) -> None:
    """Random transfers of several channels at once, with inline QMDs between them, leave memory as
    in the model."""
    tb = await InlineTestbench(dut, pace=0.8).start()
    met, rounds = tb.met, Rounds(fewer(25, 5))
    names = ("unaligned", "crosses a page", "several lines", "several parts", "wraps", "record")
    while rounds.more(all(met[name] >= 3 for name in names), met):
        for channel in range(CHANNELS):
            if tb.random.random() < 0.3:
                continue
            transfer = random_transfer(tb)
            dwords = dwords_of(tb, transfer)
            if tb.random.random() < 0.3:
                met["record"] += 1
                word, page = tb.random.getrandbits(32), 0x6000 + tb.random.randrange(4)
                tb.give(channel, (QMD_A, 0), (QMD_B, page), (QMD_DATA + 20, word))
                tb.expected.write(tb.space(channel), (page << 8) + 20, word.to_bytes(4, "little"))
            tb.transfer(channel, transfer, dwords)
            tb.expect(channel, transfer, dwords)
        await tb.finish()
        tb.check()
    print(dict(met))


def random_transfer(tb: InlineTestbench) -> Transfer:
    """A random transfer: small, near the end of a page, or long."""
    numbers, met = tb.random, tb.met
    lines = numbers.choice((1, 1, 1, 2, 5))
    length = numbers.choice((numbers.randint(1, 16), numbers.randint(1, 700), 256))
    va = (
        numbers.choice((
            numbers.getrandbits(VA_BITS),
            (numbers.getrandbits(VA_BITS - 12) << 12) - numbers.randint(1, 2 * BEAT),
            numbers.getrandbits(VA_BITS - 4) << 4,
            -numbers.randint(1, 100),
        ))
        % SPACE
    )
    transfer = Transfer(
        va, length, lines, numbers.choice((length, 0, 4096, numbers.getrandbits(32)))
    )
    met["unaligned"] += va % 4 != 0
    met["crosses a page"] += va // PAGE != (va + length - 1) // PAGE
    met["several lines"] += lines > 1
    met["several parts"] += length > 256
    met["wraps"] += va + length > SPACE
    return transfer
