"""Noise on invalid payload."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.tb.simulation.noise import Noisy, payloads, records


class Echo(wiring.Component):
    """Copies its inputs to its outputs, valid or not."""

    i: In(stream.Signature(100))
    seen: Out(100)
    plain: In(8)
    copied: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.seen.eq(self.i.payload), self.copied.eq(self.plain)]
        m.d.comb += self.i.ready.eq(1)
        return m


def test_only_what_is_not_valid():
    dut, seen = Noisy(Echo()), []

    async def drive(ctx):
        ctx.set(dut.i.payload, 5)
        ctx.set(dut.plain, 7)
        for cycle in range(100):
            ctx.set(dut.i.valid, cycle % 2)
            assert ctx.get(dut.copied) == 7 and ctx.get(dut.i.ready)
            if cycle % 2:
                assert ctx.get(dut.seen) == 5
            else:
                seen.append(ctx.get(dut.seen))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    assert len(set(seen)) == 50, "the noise differs in every cycle"
    for bit in range(100):
        ones = sum(value >> bit & 1 for value in seen)
        assert 10 < ones < 40, f"bit {bit} was set in {ones} of 50 cycles"


class Events(wiring.Component):
    """Copies its records to its outputs, valid or not."""

    def __init__(self):
        record = data.StructLayout({"low": 3, "valid": 1, "high": 60})
        names = ("event", "link__claim", "pipeline__unpark")
        ports = {name: In(record) for name in names} | {"link__recall": In(1)}
        super().__init__(ports | {f"{name}_seen": Out(record) for name in names})

    def elaborate(self, platform):
        m = Module()
        for name in ("event", "link__claim", "pipeline__unpark"):
            m.d.comb += getattr(self, f"{name}_seen").eq(getattr(self, name))
        return m


def test_other_fields_of_records():
    """`valid` itself is never noise; two records have fields with a meaning without it."""
    dut, seen, sent = Noisy(Events()), [], {"low": 5, "high": 7}

    async def drive(ctx):
        for cycle in range(100):
            valid, recall = cycle % 2, cycle % 4 == 2
            ctx.set(dut.link__recall, recall)
            for name in ("event", "link__claim", "pipeline__unpark"):
                ctx.set(getattr(dut, name), {**sent, "valid": valid})
                got = ctx.get(getattr(dut, f"{name}_seen"))
                assert got.valid == valid
                given = valid or name == "pipeline__unpark" or (recall and name == "link__claim")
                if given:
                    assert (got.low, got.high) == (5, 7)
                elif name == "event":
                    seen.append(got.low << 60 | got.high)
                else:
                    assert got.high != 7
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.run()
    assert len(set(seen)) == 50
    for bit in range(63):
        ones = sum(value >> bit & 1 for value in seen)
        assert 10 < ones < 40, f"bit {bit} was set in {ones} of 50 cycles"


def test_names_of_records():
    assert records(Events()) == {"event": 3, "link__claim": 3} | {
        f"{name}_seen": 3 for name in ("event", "link__claim", "pipeline__unpark")
    }


def test_names_of_streams_and_buses():
    inward = [
        "axi__rvalid axi__rdata axi__awready",
        "s__arvalid s__araddr s__rready",
        "take__valid take__payload take__inner__valid take__inner__payload take__ready",
        "valid data",
    ]
    names = " ".join(inward).split()
    flat = {name: (Signal(), PortDirection.Input) for name in names}
    flat["o__payload"] = (Signal(), PortDirection.Output)
    assert payloads(flat) == {
        "axi__rdata": "axi__rvalid",
        "s__araddr": "s__arvalid",
        "take__payload": "take__valid",
        "take__inner__payload": "take__inner__valid",
    }
