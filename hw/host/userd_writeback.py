"""Writes to USERD: GP_GET lazily, REF at SET_REFERENCE (spec 2, 3.3)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import ChannelControl, setting_ram
from signalbox.hw.host.ports import (
    ChannelStart,
    ChannelState,
    EntryEvents,
    RingIndexPort,
    UserdWrites,
)
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.methods import Userd
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.memory import MemoryStatus, WritePort

__all__ = ["ReferencePort", "UserdWriteback"]


class ReferencePort(wiring.Signature):
    """REF of the served channel, seen from the execution of methods.

    Members
    -------
    write : out, strobe: REF of `channel` becomes `value`; not while one of its writes is
        outstanding.
    referring : in, per channel, its REF is not in memory yet.
    failed : in, per channel, the last write of REF has failed.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "write": Out(channel_event(config, value=32)),
            "referring": In(config.channels),
            "failed": In(config.channels),
        })


class UserdWriteback(wiring.Component):
    """Writes USERD of every channel, one word at a time, round robin.

    A moved GP_GET is written at the next tick, with a tick every `period` cycles, or at once if the
    channel has run empty. REF is written at once. A disabled channel has no writes, except one in
    progress, which is completed. A failed write is reported, not repeated: for GP_GET in `writes`,
    for REF in `reference`, to the waiting SET_REFERENCE.

    Members
    -------
    control : in, writes of channel registers (USERD, CONFIG.ASID); enabled channels.
    period : in, 32 bits: cycles between lazy write-backs.
    entries : in, entries that start: GP_GET becomes `get`.
    start : in, starts of channels. GP_GET becomes 0; no write of it is in progress.
    state : in, `empty`: nothing is left to execute.
    reference : in, the execution of methods.
    writes : out, state and results of the writes.
    write : out, memory port.
    get : in, GP_GET of a channel.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "control": In(ChannelControl(config)),
            "period": In(32),
            "entries": In(EntryEvents(config)),
            "start": In(ChannelStart(config)),
            "state": In(ChannelState(config)),
            "reference": In(ReferencePort(config)),
            "writes": Out(UserdWrites(config)),
            "write": Out(WritePort(config)),
            "get": In(RingIndexPort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        started, cleared, writes = self.entries.started, self.start.cleared, self.writes
        m.submodules.gets = gets = Memory(shape=INDEX_BITS, depth=1 << config.channel_bits, init=[])
        m.submodules.references = references = Memory(
            shape=32, depth=1 << config.channel_bits, init=[]
        )
        m.submodules.turns = turns = RoundRobin(config.channels)
        moved, peeked, got = gets.write_port(), gets.read_port(), gets.read_port()
        referred, reference = references.write_port(), references.read_port()
        userd = setting_ram(m, config, self.control.setting, "USERD", "USERD_HI")
        (setup,) = setting_ram(m, config, self.control.setting, "CONFIG")
        dirty = Signal(config.channels)
        due = Signal(config.channels)
        lazy = Signal(config.channels)
        wanted = Signal(config.channels)
        was_enabled = Signal(config.channels)
        clearing = Signal(channel_event(config))
        timer = Signal(32)
        channel = Signal(config.channel_bits)
        value = Signal(32)
        is_reference = Signal()
        written = Signal()
        answered = Signal()
        refused = Signal()
        elapsed = Signal()
        idle = Signal()

        m.d.comb += [
            moved.addr.eq(Mux(started.valid, started.channel, clearing.channel)),
            moved.data.eq(Mux(started.valid, started.get, 0)),
            moved.en.eq(started.valid | clearing.valid),
            peeked.addr.eq(self.get.channel),
            self.get.index.eq(peeked.data),
            referred.addr.eq(self.reference.write.channel),
            referred.data.eq(self.reference.write.value),
            referred.en.eq(self.reference.write.valid),
            turns.requests.eq(wanted),
            refused.eq(self.write.done.payload.status != MemoryStatus.OK),
            writes.referenced.valid.eq(answered & is_reference & ~refused),
            writes.referenced.channel.eq(channel),
            writes.referenced.value.eq(value),
            writes.failed.valid.eq(answered & ~is_reference & refused),
            writes.failed.channel.eq(channel),
        ]
        # A clear of GP_GET waits for a cycle without `started`, which has the write port. Entries
        # of the cleared channel start later.
        with m.If(cleared.valid):
            m.d.sync += clearing.eq(cleared)
        with m.Elif(~started.valid):
            m.d.sync += clearing.valid.eq(0)
        m.d.comb += [port.addr.eq(channel) for port in (got, reference, setup, *userd)]
        # A write-back of REF in progress is masked by `writing`: `referring` is cleared only when
        # it ends. `dirty` is cleared long before the next choice.
        m.d.comb += lazy.eq(dirty & (due | self.state.empty))
        m.d.sync += [
            wanted.eq((lazy | (self.reference.referring & ~writes.writing)) & self.control.enabled),
            was_enabled.eq(self.control.enabled),
        ]
        m.d.sync += [timer.eq(timer + 1), elapsed.eq((timer >= self.period) & ~elapsed)]
        with m.If(elapsed):
            m.d.sync += [timer.eq(0), due.eq(dirty)]
        for number in range(config.channels):
            mine = Signal(name=f"moved_{number}")
            m.d.comb += [
                mine.eq(moved.en & (moved.addr == number)),
                writes.writing[number].eq(~idle & (channel == number)),
            ]
            with m.If(mine):
                m.d.sync += dirty[number].eq(1)
            with m.Elif(written & (channel == number)):
                m.d.sync += [dirty[number].eq(0), due[number].eq(0)]
            with m.If(answered & is_reference & (channel == number)):
                m.d.sync += [
                    self.reference.referring[number].eq(0),
                    self.reference.failed[number].eq(refused),
                ]
            with m.If(self.reference.write.valid & (self.reference.write.channel == number)):
                m.d.sync += self.reference.referring[number].eq(1)
            # Last assignment: also overrides a `reference.write` in this cycle.
            with m.If(was_enabled[number] & ~self.control.enabled[number]):
                m.d.sync += [dirty[number].eq(0), self.reference.referring[number].eq(0)]

        with m.FSM(name="write_userd") as writer:
            m.d.comb += idle.eq(writer.ongoing("PICK"))
            with m.State("PICK"):
                m.d.sync += channel.eq(encode(turns.grant))
                with m.If(turns.requests.any()):
                    m.d.comb += turns.advance.eq(1)
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                # GP_GET first: it is due once per period, so it does not starve REF.
                m.d.sync += is_reference.eq(
                    (self.reference.referring & ~lazy).bit_select(channel, 1)
                )
                m.next = "LOAD"
            with m.State("LOAD"):
                # GP_GET is read in this cycle; if it moves now, the channel stays dirty.
                m.d.comb += written.eq(~is_reference)
                m.next = "ADDRESS"
            with m.State("ADDRESS"):
                request = self.write.request.payload
                offset = Mux(is_reference, Userd.REF.value, Userd.GP_GET.value)
                m.d.sync += [
                    request.asid.eq(setup.data[: config.asid_bits]),
                    request.va.eq(Cat(userd[0].data, userd[1].data[:8]) + offset),
                ]
                m.d.sync += value.eq(Mux(is_reference, reference.data, got.data))
                m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += self.write.request.valid.eq(1)
                with m.If(self.write.request.ready):
                    m.next = "DATA"
            with m.State("DATA"):
                beat = self.write.beat.payload
                lane = self.write.request.payload.va[2 : config.offset_bits]
                m.d.comb += [
                    self.write.beat.valid.eq(1),
                    beat.last.eq(1),
                    beat.data.eq(value.replicate(config.beat_dwords)),
                    beat.strobe.word_select(lane, 4).eq(0xF),
                ]
                with m.If(self.write.beat.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.write.done.ready.eq(1)
                with m.If(self.write.done.valid):
                    m.d.comb += answered.eq(1)
                    m.next = "PICK"
        return m
