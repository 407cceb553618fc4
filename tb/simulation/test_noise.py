"""Noise on invalid payload."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.tb.simulation.noise import Noisy, payloads


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
