"""Invalidations of translations by methods: MEM_OP_A … D (HOST-3, ASID-9; spec 2.5)."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.host.ports import MethodEvents
from signalbox.hw.host.tickets import TicketArbiter
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.methods import HostMethod, MemOp, MemOpA, MemOpC, MemOpD
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.translation import MmuPort
from signalbox.hw.registers import MmuOperation

__all__ = ["InvalidationPort", "MemOps"]


class InvalidationPort(wiring.Signature):
    """Invalidations by methods, seen from the execution of methods.

    Members
    -------
    ask : out, strobe: MEM_OP_D with `data`; ignored while the channel waits or its wait is
        complete.
    drop : out, strobe: ends the wait, completed or not; two cycles after its `ask` at the earliest.
    over : in, per channel, its wait is complete, until `drop`.
    refused : in, per channel, with `over`: nothing was done.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "ask": Out(channel_event(config, data=MemOpD)),
            "drop": Out(channel_event(config)),
            "over": In(config.channels),
            "refused": In(config.channels),
        })


VIDEO = 0
"""PDB_APERTURE of this machine's own memory, the only place for page directories."""


def _arguments(config: Config) -> data.StructLayout:
    """Stored parts of A, B, C and D. `sized`: more than 4 KiB; `targeted`: one address; `all`: of
    all page directories; `foreign`: the page directory is not in this machine's memory."""
    return data.StructLayout({
        "a": data.StructLayout({"sized": 1, "page": 20}),
        "b": data.StructLayout({"page": VA_BITS - 32}),
        "c": data.StructLayout({"all": 1, "foreign": 1, "base": 20}),
        "d": data.StructLayout({"targeted": 1, "base": config.address_width - 32}),
    })


class MemOps(wiring.Component):
    """One invalidation per channel may wait; the channels take turns, round robin. Commands:

        PDB  operation            INVALIDATION_SIZE   command
        ALL  both                 any                 INVALIDATE_ALL
        ONE  TLB_INVALIDATE       any                 INVALIDATE_ASID by base
        ONE  ..._TARGETED         more than 4 KiB     INVALIDATE_ASID by base
        ONE  ..._TARGETED         4 KiB               INVALIDATE_PAGE by base, whatever its size

    More may be invalidated than requested, never less: the whole space for a range, entries of all
    levels for some, all TLBs for some. Every ACK_TYPE waits for the acknowledgement. ONE is refused
    with a PDB_APERTURE other than this machine's memory. The rest of A and C is ignored (no fault
    is replayable), as are address bits that the machine does not have.

    A command is offered 7 cycles after `ask` if none is before it; the channel's wait is over one
    cycle after the acknowledgement. A command already offered is completed even if its channel
    drops it; the channel's next wait is for a new command.

    Members
    -------
    mmu : out, the translation; acknowledges one cycle after it takes a command at the earliest.
    methods : in, executed methods, and channels that start with nothing set.
    client : in, the execution of methods.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "mmu": Out(MmuPort(config)),
            "methods": In(MethodEvents(config)),
            "client": In(InvalidationPort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.turns = self._turns = turns = TicketArbiter(self._config)
        m.submodules.order = order = RoundRobin(self._config.channels)
        m.d.sync += order.requests.eq(turns.waiting)
        m.d.comb += [turns.choice.eq(order.grant), order.advance.eq(turns.begins)]
        # Both come late in their cycle.
        asked = delayed(m, self.client.ask, "asked")
        executed = delayed(m, self.methods.executed, "set")
        kept = self._keep(m, executed, delayed(m, self.methods.cleared, "new"), asked)
        m.d.comb += [
            turns.ask.valid.eq(asked.valid),
            turns.ask.channel.eq(asked.channel),
            turns.drop.eq(self.client.drop),
            self.client.over.eq(turns.over),
            self.client.refused.eq(turns.refused),
        ]
        self._execute(m, kept)
        return m

    def _keep(
        self, m: Module, executed: data.View, cleared: data.View, asked: data.View
    ) -> data.View:
        """Stored request of the channel with the turn, one cycle later."""
        method, kept = executed.method, Signal(_arguments(self._config))
        a, c = data.View(MemOpA, method.data), data.View(MemOpC, method.data)
        words = {
            HostMethod.MEM_OP_A: Cat(a.invalidation_size != 0, a.target_addr_lo),
            HostMethod.MEM_OP_B: method.data[: VA_BITS - 32],
            HostMethod.MEM_OP_C: Cat(c.pdb_all, c.pdb_aperture != VIDEO, c.pdb_addr_lo),
        }
        for (name, word), part in zip(words.items(), (kept.a, kept.b, kept.c), strict=True):
            written = executed.valid & (method.address == name >> 2)
            write = self._ram(m, name.name.lower(), part)
            m.d.comb += [
                write.addr.eq(Mux(cleared.valid, cleared.channel, executed.channel)),
                write.data.eq(Mux(cleared.valid, 0, word)),
                write.en.eq(cleared.valid | written),
            ]
        write = self._ram(m, "mem_op_d", kept.d)
        targeted = asked.data.operation == MemOp.MMU_TLB_INVALIDATE_TARGETED
        m.d.comb += [
            write.addr.eq(asked.channel),
            write.data.eq(Cat(targeted, asked.data.pdb_addr_hi)),
            write.en.eq(asked.valid),
        ]
        return kept

    def _ram(self, m: Module, name: str, part: data.View) -> Any:
        """Write port of a RAM with a word per channel; `part` is the word of the channel with the
        turn."""
        ram = Memory(shape=len(part.as_value()), depth=1 << self._config.channel_bits, init=[])
        m.submodules[name] = ram
        write, read = ram.write_port(), ram.read_port()
        m.d.comb += [read.addr.eq(self._turns.channel), part.eq(read.data)]
        return write

    def _execute(self, m: Module, kept: data.View) -> None:
        """Perform the request in its turn, unless it is refused at once."""
        port, turns = self.mmu, self._turns
        with m.FSM(name="invalidation"):
            with m.State("FORM"):
                self._form(m, kept)
                with m.If(turns.form & kept.c.foreign & ~kept.c.all):
                    m.d.comb += [turns.ends.eq(1), turns.denied.eq(1)]
                with m.Elif(turns.form):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += port.command.valid.eq(1)
                with m.If(port.command.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += [turns.ends.eq(port.done.valid), turns.denied.eq(port.done.refused)]
                with m.If(port.done.valid):
                    m.next = "FORM"

    def _form(self, m: Module, kept: data.View) -> None:
        """The command; stable while it is offered."""
        command, one_page = self.mmu.command.payload, kept.d.targeted & ~kept.a.sized
        m.d.sync += [
            command.operation.eq(
                Mux(one_page, MmuOperation.INVALIDATE_PAGE, MmuOperation.INVALIDATE_ASID)
            ),
            command.by_base.eq(~kept.c.all),
            command.page.eq(Cat(kept.a.page, kept.b.page)),
            command.base.eq(Cat(kept.c.base, kept.d.base)),
        ]
        with m.If(kept.c.all):
            m.d.sync += command.operation.eq(MmuOperation.INVALIDATE_ALL)
