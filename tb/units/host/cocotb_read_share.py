"""Two units at one read port of memory (HOST-7): each gets the beats of its own bursts."""

import cocotb

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer
from signalbox.tb.units.host.read_share_testbench import DEPTH, ShareTestbench

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


def vary(tb: ShareTestbench) -> None:
    """Another random latency, and other paces of memory and clients."""
    tb.memory.latency = tb.between(1, tb.random.choice((1, 2, 5, 30)))
    tb.memory.request.pace = tb.share(tb.random.choice((0.2, 0.7, 1)))
    tb.memory.beat.pace = tb.share(tb.random.choice((0.5, 1)))
    for client in tb.clients:
        client.requests.pace = tb.share(tb.random.choice((0.05, 0.3, 1)))
        client.beats.pace = tb.share(tb.random.choice((0.2, 0.8, 1)))


@cocotb.test(**LIMIT)
async def random_bursts(dut):
    """With random bursts, failures, latencies and back-pressure each client gets its beats, once
    and in order. Client 0 comes first, unless a request of client 1 has been offered."""
    tb = await ShareTestbench(dut).start()
    tb.failing = 0.1
    rounds, order = Rounds(fewer(40, 4), 400), tb.order
    while rounds.more(order.overtaken > 5 and order.most >= DEPTH, (order.overtaken, order.most)):
        vary(tb)
        for client in tb.clients:
            for _ in range(tb.random.randrange(20)):
                client.ask(tb.random.choice((1, 1, 2, 7, 16)))
        await tb.finish()


@cocotb.test(**LIMIT)
async def first_client_first(dut):
    """If both clients have a request, client 0 comes first."""
    tb = await ShareTestbench(dut).start()
    for client in tb.clients:
        for _ in range(DEPTH):
            client.ask(2)
    await tb.finish()
    assert tb.order.owners == [0] * DEPTH + [1] * DEPTH


@cocotb.test(**LIMIT)
async def offer_stays(dut):
    """A request of client 1 that was offered to memory stays, even if client 0 requests meanwhile;
    then client 0 comes next."""
    tb = await ShareTestbench(dut).start()
    for delay in range(1, 6):
        tb.memory.request.pace = lambda: False
        tb.clients[1].ask(1)
        await tb.steps(delay)
        tb.clients[0].ask(1)
        tb.clients[1].ask(1)
        await tb.steps(2)
        tb.memory.request.pace = lambda: True
        await tb.finish()
        assert tb.order.owners[-3:] == [1, 0, 1]


@cocotb.test(**LIMIT)
async def depth(dut):
    """`DEPTH` bursts can be outstanding, or one more. Further bursts wait until a burst ends; none
    is lost."""
    tb = await ShareTestbench(dut).start()
    tb.memory.beat.pace = lambda: False
    for client in tb.clients:
        for _ in range(DEPTH + 3):
            client.ask(2)
    await tb.steps(3 * DEPTH + 20)
    assert tb.order.outstanding in {DEPTH, DEPTH + 1}
    tb.memory.beat.pace = lambda: True
    await tb.finish()
    assert tb.order.most <= DEPTH + 1


@cocotb.test(**LIMIT, skip=DEPTH < 4)
async def rate(dut):
    """A request and a beat pass in every cycle; a request passes in the cycle of its offer."""
    tb = await ShareTestbench(dut).start()
    for number in (0, 1):
        client = tb.clients[number]
        for beats, count in ((1, 30), (4, 10)):
            tb.memory.latency = lambda: 2
            start, sent = tb.cycle, len(client.beats.taken)
            for _ in range(count):
                client.ask(beats)
            await tb.finish()
            cycles = [cycle for cycle, _ in client.beats.taken[sent:]]
            assert cycles == [*range(start + 2, start + 2 + beats * count)]
            if beats == 1:
                assert client.requests.sent[-count:] == [*range(start, start + count)]
