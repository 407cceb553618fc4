"""Channel registers alone (HOST-6): every read, strobe and offer under random events."""

import cocotb

from signalbox.hw.registers import CHANNEL
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer, goals
from signalbox.tb.units.host.channel_registers_testbench import ChannelRegistersTestbench

LIMIT = {"timeout_time": 50, "timeout_unit": "ms"}

ENOUGH = 2
"""Number of times that each goal must be met, on Verilator."""


@cocotb.test(**LIMIT)
async def any_events(dut):
    """With random accesses, refused methods, failed copies and tasks, resumptions and starts, and
    with back-pressure, all outputs equal those of the model in every cycle; at the end, so do all
    registers of all channels."""
    tb = await ChannelRegistersTestbench(dut).start()
    rounds, enough = Rounds(fewer(50, 5), 1500), goals(ENOUGH)
    while rounds.more(not tb.missing(enough), tb.missing(enough)):
        tb.change_pace()
        for _ in range(200):
            await tb.step()
    await tb.rest()
    for channel in range(len(tb.channels)):
        for register in CHANNEL:
            await tb.read(channel, register.name)
