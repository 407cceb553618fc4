"""TLB maintenance: executes binds and invalidations for several requesters (ASID-8, ASID-9)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.mmu.asid_table import bind_event
from signalbox.hw.mmu.pdb_lookup import PdbLookup
from signalbox.hw.mmu.records import PAGE_BITS, Scope
from signalbox.hw.mmu.translation import maintenance_command
from signalbox.hw.records.translation import MmuPort, mmu_command
from signalbox.hw.registers import MmuOperation

__all__ = ["Maintenance"]


class Maintenance(wiring.Component):
    """Executes the commands of all requesters one at a time, in turn.

    A command is offered to the translation 2 cycles after it was accepted. A command that names a
    page directory base is executed for every matching ASID: the ASIDs are searched one per cycle,
    and each match is offered 3 cycles after it was looked up. Completion is signalled once no burst
    is outstanding that was accepted before the command took effect.

    An unknown operation, an ASID that was not built and a page directory base past the end of
    memory are refused, 3 cycles after the command was accepted.

    Members
    -------
    port : in, one `MmuPort` per requester.
    command : out, stream of `maintenance_command`, to the translation.
    done : in, strobe: the translation has executed the command accepted last.
    binds : out, strobe: the row that changes with the command accepted in this cycle.
    older : in, a burst accepted up to the last `done` is outstanding, see `OutstandingBursts`.
    begins : out, strobe: 2 cycles after a command was accepted, unless it is refused.
    """

    def __init__(self, config: Config, requesters: int) -> None:
        self._config, self._requesters = config, requesters
        super().__init__({
            "port": In(MmuPort(config)).array(requesters),
            "command": Out(stream.Signature(maintenance_command(config))),
            "done": In(1),
            "binds": Out(bind_event(config)),
            "older": In(1),
            "begins": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        asked = Signal(mmu_command(config))
        asid = Signal(config.asid_bits)
        searches = Signal()
        refused = Signal()
        ends = Signal()
        m.submodules.search = search = PdbLookup(config)
        m.d.comb += [
            searches.eq(asked.by_base & (asked.operation != MmuOperation.INVALIDATE_ALL)),
            search.bind.eq(self.binds),
            search.base.eq(asked.base),
        ]
        idle = self._take(m, asked, refused, ends)
        self._judge(m, asked, search.begin, refused)
        self._offer(m, asked, asid)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += idle.eq(1)
                with m.If(Cat(port.command.valid for port in self.port).any()):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.comb += search.begin.eq(1)
                m.d.sync += asid.eq(asked.asid)
                m.next = "OFFER"
                with m.If(searches):
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                m.d.comb += search.run.eq(1)
                with m.If(refused):
                    m.next = "END"
                with m.Elif(search.found):
                    m.d.sync += asid.eq(search.asid)
                    m.next = "OFFER"
                with m.Elif(search.ended):
                    m.next = "DRAIN"
            with m.State("OFFER"):
                m.d.comb += self.command.valid.eq(~refused)
                with m.If(refused):
                    m.next = "END"
                with m.Elif(self.command.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(self.done):
                    m.next = "DRAIN"
                    with m.If(searches):
                        m.next = "SEARCH"
            with m.State("DRAIN"):
                with m.If(~self.older):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += ends.eq(1)
                m.next = "IDLE"
        return m

    def _take(self, m: Module, asked: Signal, refused: Signal, ends: Signal) -> Signal:
        """Accepts a command while the returned signal is 1, and answers its requester."""
        m.submodules.turns = turns = RoundRobin(self._requesters)
        idle = Signal()
        whose = Signal(self._requesters)
        words = (port.command.p.as_value() for port in self.port)
        m.d.comb += [
            turns.requests.eq(Cat(port.command.valid for port in self.port)),
            turns.advance.eq(idle),
        ]
        with m.If(idle):
            m.d.sync += [asked.eq(select(turns.grant, words)), whose.eq(turns.grant)]
        for number, port in enumerate(self.port):
            m.d.comb += [
                port.command.ready.eq(idle & turns.grant[number]),
                port.done.valid.eq(ends & whose[number]),
                port.done.refused.eq(refused),
            ]
        return idle

    def _judge(self, m: Module, asked: Signal, now: Signal, refused: Signal) -> None:
        """`refused` is valid 1 cycle after `now`, when the command would be executed."""
        operation, judged = asked.operation, Signal()
        everything = operation == MmuOperation.INVALIDATE_ALL
        outside = asked.base >= self._config.memory_bytes >> PAGE_BITS
        with m.If(now):
            m.d.sync += refused.eq(
                (Value.cast(operation) > MmuOperation.UNBIND.value)
                | (~everything & ~asked.by_base & (asked.asid >= self._config.asids))
                | ((operation == MmuOperation.BIND) & outside)
            )
        m.d.sync += judged.eq(now)
        m.d.comb += self.begins.eq(judged & ~refused)

    def _offer(self, m: Module, asked: Signal, asid: Signal) -> None:
        """Command for one address space."""
        command, binds = self.command.p, self.binds
        row = binds.row
        changes = asked.operation == MmuOperation.BIND
        m.d.comb += [
            command.bind.eq(changes | (asked.operation == MmuOperation.UNBIND)),
            command.scope.eq(Scope.ASID),
            command.asid.eq(asid),
            command.vpn.eq(asked.page),
            command.row.eq(row),
            row.bound.eq(changes),
            row.base.eq(asked.base),
            row.last.eq(asked.limit),
            binds.valid.eq(self.command.valid & self.command.ready & command.bind),
            binds.asid.eq(asid),
        ]
        for operation, scope in (
            (MmuOperation.INVALIDATE_ALL, Scope.ALL),
            (MmuOperation.INVALIDATE_PAGE, Scope.PAGE),
        ):
            with m.If(asked.operation == operation):
                m.d.comb += command.scope.eq(scope)
