"""Fetch: from a doorbell to pushbuffer beats (HOST-1, spec 1.1, 3.3, 3.5).

One state machine visits the channels that have something to do, round robin, and takes one step
for each: accept GP_PUT, read GP_PUT, read a burst, open an entry, read an entry. A visit takes
four cycles; reads are answered in order and up to `OUTSTANDING` are in flight, so that the visits,
not the memory's latency, bound the rate (a burst is up to 8 beats).
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import Config
from hw.errors import Cause
from hw.host.answers import Answers, Read, read_order
from hw.host.context import INDEX_BITS, prefetch_beat
from hw.host.oldest import STAMP_BITS
from hw.host.prefetch import channel_event
from hw.host.settings import setting_event, setting_ram
from hw.lib.arbiter import RoundRobin
from hw.lib.onehot import encode
from hw.methods import EntryOpcode, GpEntry
from hw.records import ReadPort

__all__ = ["ENTRIES_AHEAD", "OUTSTANDING", "Fetch"]

ENTRIES_AHEAD = 4
"""Ring entries per channel that are read ahead of the segment being fetched."""

OUTSTANDING = 16
"""Reads in flight, of all channels together."""

GP_PUT_OFFSET = 0x8C
"""Byte offset of GP_PUT in USERD (3.3)."""


class RingState(data.Struct):
    """Fetch progress of one channel.

    `put`: GP_PUT; `fetch`: next ring entry to read; `opened`: GP_GET once the last entry that was
    opened has started; `address`, `left`: what remains of the open segment, in dwords; `started`:
    its first beat was asked for.
    """

    put: INDEX_BITS
    fetch: INDEX_BITS
    opened: INDEX_BITS
    address: 38
    left: 21
    started: 1


class Fetch(wiring.Component):
    """Rings and pushbuffer segments of all channels.

    Members
    -------
    setting : channel registers as they are written (GP_BASE, USERD, CONFIG.ASID).
    enabled : per channel, whether it may fetch.
    restart : `channel` starts from an empty ring; accepted once its reads have come back.
    cleared : strobe with each restart.
    doorbell : `channel` has a new GP_PUT in USERD.
    now : count of doorbells.
    announce : entries up to `put` were accepted; their doorbell had `stamp`.
    drained : per channel, everything fetched was executed (SYNC = WAIT, 1.1).
    fill : a beat for the prefetch buffer; space was reserved.
    popped : a beat of `channel` has left the prefetch buffer.
    busy : per channel, reads are under way or beats wait.
    peek, peek_put : GP_PUT as last accepted of channel `peek`, one cycle later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "setting": In(setting_event(config)),
            "enabled": In(config.channels),
            "restart": In(stream.Signature(channel)),
            "cleared": Out(channel_event(config)),
            "doorbell": In(stream.Signature(channel)),
            "now": Out(STAMP_BITS),
            "announce": Out(channel_event(config, put=INDEX_BITS, stamp=STAMP_BITS)),
            "drained": In(config.channels),
            "fill": Out(channel_event(config, beat=prefetch_beat(config))),
            "popped": In(channel_event(config)),
            "busy": Out(config.channels),
            "read": Out(ReadPort(config)),
            "peek": In(config.channel_bits),
            "peek_put": Out(INDEX_BITS),
        })
        self._burst = min(8, config.prefetch_beats // 4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._answers(m)
        self._events()
        self._flags(m)
        self._storage(m)
        self._visit(m)
        return m

    def _answers(self, m: Module) -> None:
        layout = read_order(self._config)
        m.submodules.orders = self._orders = SyncFIFOBuffered(width=layout.size, depth=OUTSTANDING)
        m.submodules.answers = self._answer = answer = Answers(self._config)
        m.d.comb += [
            answer.order.payload.eq(self._orders.r_data),
            answer.order.valid.eq(self._orders.r_rdy),
            self._orders.r_en.eq(answer.order.ready),
            self.fill.eq(answer.fill),
        ]
        connect(m, flipped(self.read.beat), answer.beat)

    # -- what is known of every channel ------------------------------------------------------------

    def _events(self) -> None:
        """Steps that this cycle takes, each for the visited channel."""
        event = channel_event(self._config)
        self._seen = Signal(event)
        self._again = Signal(event)
        self._reserve = Signal(channel_event(self._config, beats=4))
        self._ask_put = Signal(event)
        self._accept_put = Signal(event)
        self._ask_entry = Signal(event)
        self._open_entry = Signal(event)
        self._steps = (
            self._seen,
            self._again,
            self._reserve,
            self._ask_put,
            self._accept_put,
            self._ask_entry,
            self._open_entry,
        )

    def _flags(self, m: Module) -> None:
        config, channels = self._config, self._config.channels
        self._work = Signal(channels)
        self._rung = Signal(channels)
        self._asking = Signal(channels)
        self._put_fresh = Signal(channels)
        credit = unsigned(config.prefetch_beats.bit_length())
        self._credits = Signal(data.ArrayLayout(credit, channels))
        self._claimed = Signal(data.ArrayLayout(unsigned(3), channels))
        self._arrived = Signal(data.ArrayLayout(unsigned(3), channels))
        self._flying = Signal(data.ArrayLayout(range(OUTSTANDING + 3), channels))
        self._rung_stamp = Signal(data.ArrayLayout(STAMP_BITS, channels))
        self._asked_stamp = Signal(data.ArrayLayout(STAMP_BITS, channels))

        m.d.comb += self.doorbell.ready.eq(1)
        with m.If(self.doorbell.valid):
            m.d.sync += self.now.eq(self.now + 1)
        for channel in range(channels):
            self._channel_flags(m, channel)

    def _channel_flags(self, m: Module, channel: int) -> None:
        def at(event: data.View):
            return event.valid & (event.channel == channel)

        room = self._config.prefetch_beats - self._burst
        rang = Signal(name=f"rang_{channel}")
        m.d.comb += rang.eq(
            self.doorbell.valid & (self.doorbell.payload.channel == channel) & self.enabled[channel]
        )
        with m.If(at(self._ask_put)):
            m.d.sync += [
                self._asking[channel].eq(1),
                self._asked_stamp[channel].eq(self._rung_stamp[channel]),
                self._rung[channel].eq(0),
            ]
        with m.If(rang):
            m.d.sync += self._rung[channel].eq(1)
            with m.If(~self._rung[channel] | at(self._ask_put)):
                m.d.sync += self._rung_stamp[channel].eq(self.now)
        with m.If(at(self._answer.put)):
            m.d.sync += self._put_fresh[channel].eq(1)
        with m.If(at(self._accept_put)):
            m.d.sync += [self._put_fresh[channel].eq(0), self._asking[channel].eq(0)]

        popped = at(self.popped)
        asked = at(self._ask_put) | at(self._ask_entry) | at(self._reserve)
        m.d.sync += [
            self._credits[channel].eq(
                self._credits[channel] + Mux(at(self._reserve), self._reserve.beats, 0) - popped
            ),
            self._claimed[channel].eq(
                self._claimed[channel] + at(self._ask_entry) - at(self._open_entry)
            ),
            self._arrived[channel].eq(
                self._arrived[channel] + at(self._answer.entry) - at(self._open_entry)
            ),
            self._flying[channel].eq(self._flying[channel] + asked - at(self._answer.answered)),
        ]
        was_drained = Signal(name=f"was_drained_{channel}")
        m.d.sync += was_drained.eq(self.drained[channel])
        news = (
            rang
            | at(self._answer.put)
            | at(self._answer.entry)
            | (popped & ((self._credits[channel] <= room + 1) | (self._credits[channel] == 1)))
            | (self.drained[channel] & ~was_drained)
        )
        # What comes up after the look at the channel counts for the next visit.
        with m.If(at(self._seen)):
            m.d.sync += self._work[channel].eq(0)
        with m.If(news | at(self._again)):
            m.d.sync += self._work[channel].eq(1)
        m.d.comb += self.busy[channel].eq(
            self._work[channel]
            | self._asking[channel]
            | (self._credits[channel] != 0)
            | (self._claimed[channel] != 0)
        )
        with m.If(at(self.cleared)):
            m.d.sync += [
                self._work[channel].eq(0),
                self._rung[channel].eq(0),
                self._asking[channel].eq(0),
                self._put_fresh[channel].eq(0),
                self._credits[channel].eq(0),
                self._claimed[channel].eq(0),
                self._arrived[channel].eq(0),
            ]

    # -- RAMs --------------------------------------------------------------------------------------

    def _storage(self, m: Module) -> None:
        config, answer = self._config, self._answer
        rows = 1 << config.channel_bits
        put = data.StructLayout({"value": 32, "cause": Cause})
        entry = data.StructLayout({"entry": GpEntry, "cause": Cause})
        m.submodules.states = states = Memory(shape=RingState, depth=rows, init=[])
        m.submodules.puts = puts = Memory(shape=put, depth=rows, init=[])
        m.submodules.entries = entries = Memory(shape=entry, depth=rows * ENTRIES_AHEAD, init=[])
        m.submodules.shown = shown = Memory(shape=INDEX_BITS, depth=rows, init=[])
        self._save, self._load = states.write_port(), states.read_port()
        self._put = puts.read_port()
        self._entry = entries.read_port()
        self._show, shown_read = shown.write_port(), shown.read_port()
        self._base = setting_ram(m, config, self.setting, "GP_BASE", "GP_BASE_HI")
        self._userd = setting_ram(m, config, self.setting, "USERD", "USERD_HI")
        self._setup = setting_ram(m, config, self.setting, "CONFIG")

        put_write, entry_write = puts.write_port(), entries.write_port()
        slots = data.ArrayLayout(range(ENTRIES_AHEAD), config.channels)
        self._oldest_slot, self._newest_slot = Signal(slots), Signal(slots)
        channel = answer.entry.channel
        m.d.comb += [
            shown_read.addr.eq(self.peek),
            self.peek_put.eq(shown_read.data),
            put_write.addr.eq(answer.put.channel),
            put_write.data.value.eq(answer.put.value),
            put_write.data.cause.eq(answer.put.cause),
            put_write.en.eq(answer.put.valid),
            entry_write.addr.eq(Cat(self._newest_slot[channel], channel)),
            entry_write.data.entry.eq(answer.entry.entry),
            entry_write.data.cause.eq(answer.entry.cause),
            entry_write.en.eq(answer.entry.valid),
        ]
        with m.If(answer.entry.valid):
            m.d.sync += self._newest_slot[channel].eq(self._newest_slot[channel] + 1)

    # -- one step for one channel ------------------------------------------------------------------

    def _visit(self, m: Module) -> None:
        config = self._config
        self._channel = channel = Signal(config.channel_bits)
        self._ring = Signal(RingState)
        self._planned = Signal(RingState)
        self._plan = Signal(read_order(config))
        self._can = Signal(
            data.StructLayout({"accept": 1, "ask": 1, "open": 1, "claim": 1, "room": 1, "sync": 1})
        )
        m.submodules.turns = turns = RoundRobin(config.channels)
        m.d.comb += turns.requests.eq(self._work & self.enabled)
        m.d.comb += [
            self._load.addr.eq(channel),
            self._put.addr.eq(channel),
            self._entry.addr.eq(Cat(self._oldest_slot[channel], channel)),
            self._save.addr.eq(channel),
            self._show.addr.eq(channel),
        ]
        m.d.comb += [event.channel.eq(channel) for event in self._steps]
        m.d.comb += [port.addr.eq(channel) for port in (*self._base, *self._userd, *self._setup)]
        returning = self.restart.payload.channel
        with m.FSM(name="visit"):
            with m.State("PICK"):
                with m.If(self.restart.valid & (self._flying[returning] == 0)):
                    m.d.sync += channel.eq(returning)
                    m.next = "CLEAR"
                with m.Elif(turns.requests.any()):
                    m.d.comb += turns.advance.eq(1)
                    m.d.sync += channel.eq(encode(turns.grant))
                    m.next = "LOAD"
            with m.State("CLEAR"):
                m.d.comb += [
                    self.cleared.valid.eq(1),
                    self.cleared.channel.eq(channel),
                    self.restart.ready.eq(1),
                    self._save.en.eq(1),
                    self._show.en.eq(1),
                ]
                m.d.sync += [
                    self._oldest_slot[channel].eq(0),
                    self._newest_slot[channel].eq(0),
                ]
                m.next = "PICK"
            with m.State("LOAD"):
                m.d.comb += self._seen.valid.eq(1)
                self._see(m, channel)
                m.next = "PLAN"
            with m.State("PLAN"):
                m.d.sync += self._ring.eq(self._load.data)
                self._plan_burst(m, self._load.data)
                m.next = "ACT"
            with m.State("ACT"):
                self._act(m)

    def _see(self, m: Module, channel: Signal) -> None:
        """What the visited channel can do, so that the step itself decides on registers."""
        room = self._config.prefetch_beats - self._burst
        m.d.sync += [
            self._can.accept.eq(self._put_fresh.bit_select(channel, 1)),
            self._can.ask.eq(
                self._rung.bit_select(channel, 1) & ~self._asking.bit_select(channel, 1)
            ),
            self._can.open.eq(self._arrived[channel] != 0),
            self._can.claim.eq(self._claimed[channel] < ENTRIES_AHEAD),
            self._can.room.eq(self._credits[channel] <= room),
            self._can.sync.eq(self.drained.bit_select(channel, 1) & (self._credits[channel] == 0)),
        ]

    def _plan_burst(self, m: Module, state: data.View) -> None:
        """Cut the next burst off the open segment; it ends at a multiple of the burst size."""
        dwords = self._config.beat_dwords
        shift = (dwords - 1).bit_length()
        most = self._burst * dwords
        inside, count = Signal(4), Signal(range(most + 1))
        to_edge, final = Signal(range(most + 1)), Signal()
        m.d.comb += [
            inside.eq(state.address[:shift]),
            to_edge.eq(most - state.address[: (most - 1).bit_length()]),
            final.eq(state.left <= to_edge),
            count.eq(Mux(final, state.left, to_edge)),
        ]
        m.d.sync += [
            self._plan.kind.eq(Read.BURST),
            self._plan.channel.eq(self._channel),
            self._plan.offset.eq(inside),
            self._plan.last.eq((inside + count - 1)[:shift]),
            self._plan.beats.eq((inside + count + (dwords - 1)) >> shift),
            self._plan.first.eq(~state.started),
            self._plan.end.eq(final),
            self._plan.get.eq(state.opened),
            self._planned.eq(state),
            self._planned.address.eq(state.address + count),
            self._planned.left.eq(state.left - count),
            self._planned.started.eq(1),
        ]

    def _act(self, m: Module) -> None:
        """Take the first step that is possible; without any, the channel rests until news."""
        ring, can, entry = self._ring, self._can, self._entry.data.entry
        self._step = Signal()
        self._order = Signal(read_order(self._config))
        self._word = Signal(40)
        self._mask = Signal(INDEX_BITS)
        request = self.read.request.payload
        m.d.comb += self._again.valid.eq(self._step)
        m.d.comb += [
            self._mask.eq((C(1, INDEX_BITS + 1) << self._base[1].data[16:21]) - 1),
            self._orders.w_data.eq(self._order),
            self._order.channel.eq(self._channel),
            request.asid.eq(self._setup[0].data[: self._config.asid_bits]),
            request.va.eq(self._word),
            self._save.data.eq(ring),
        ]
        with m.If(can.accept):
            self._act_accept(m)
        with m.Elif(can.ask):
            m.d.comb += self._word.eq(
                Cat(self._userd[0].data, self._userd[1].data[:8]) + GP_PUT_OFFSET
            )
            self._ask(m, Read.PUT, self._ask_put)
        with m.Elif((ring.left != 0) & can.room):
            m.d.comb += [
                self._word.eq(ring.address << 2),
                request.beats.eq(self._plan.beats - 1),
                self._reserve.beats.eq(self._plan.beats),
                self._save.data.eq(self._planned),
                self._save.en.eq(self._step),
            ]
            self._ask(m, Read.BURST, self._reserve)
            m.d.comb += self._order.eq(self._plan)
        with m.Elif((ring.left == 0) & can.open & can.room & (~entry.sync_wait | can.sync)):
            self._act_open(m)
        with m.Elif(can.claim & (ring.fetch != ring.put)):
            m.d.comb += [
                self._word.eq(Cat(self._base[0].data, self._base[1].data[:8]) + (ring.fetch << 3)),
                self._save.data.fetch.eq((ring.fetch + 1) & self._mask),
                self._save.en.eq(self._step),
            ]
            self._ask(m, Read.ENTRY, self._ask_entry)
        with m.Else():
            m.d.comb += [self._step.eq(1), self._again.valid.eq(0)]
        with m.If(self._step):
            m.next = "PICK"

    def _ask(self, m: Module, kind: Read, event: data.View) -> None:
        """Read from memory; the step is taken when the request is."""
        shift = (self._config.beat_dwords - 1).bit_length()
        m.d.comb += [
            self._order.kind.eq(kind),
            self._order.offset.eq(self._word[2 : 2 + shift]),
            self.read.request.valid.eq(self._orders.w_rdy),
            self._step.eq(self._orders.w_rdy & self.read.request.ready),
            self._orders.w_en.eq(self._step),
            event.valid.eq(self._step),
        ]

    def _mark(self, m: Module, cause: Signal) -> None:
        """Pass `cause` on behind everything that was read so far."""
        m.d.comb += [
            self._order.kind.eq(Read.MARK),
            self._order.cause.eq(cause),
            self._step.eq(self._orders.w_rdy),
            self._orders.w_en.eq(self._step),
            self._reserve.valid.eq(self._step),
            self._reserve.beats.eq(1),
        ]

    def _act_accept(self, m: Module) -> None:
        """Take the GP_PUT that was read, or pass on why not; a bad one changes nothing else."""
        put, cause = self._put.data, Signal(Cause)
        m.d.comb += [
            cause.eq(put.cause),
            self._accept_put.valid.eq(self._step),
            self._show.data.eq(put.value),
            self._save.data.put.eq(put.value),
            self.announce.channel.eq(self._channel),
            self.announce.put.eq(put.value),
            self.announce.stamp.eq(self._asked_stamp[self._channel]),
        ]
        with m.If((put.cause == Cause.NONE) & (put.value > self._mask)):
            m.d.comb += cause.eq(Cause.RING_POINTER)
        with m.If(cause == Cause.NONE):
            m.d.comb += [
                self._step.eq(1),
                self._save.en.eq(1),
                self._show.en.eq(1),
                self.announce.valid.eq(put.value[:INDEX_BITS] != self._ring.put),
            ]
        with m.Elif(self._can.room):
            self._mark(m, cause)
        with m.Else():
            # Looked at again when beats have left; `accept` stays set.
            m.d.comb += [self._step.eq(1), self._accept_put.valid.eq(0), self._again.valid.eq(0)]

    def _act_open(self, m: Module) -> None:
        """Open the oldest entry: a segment to fetch, or a mark for a control or a bad entry."""
        entry, cause = self._entry.data.entry, Signal(Cause)
        after = Signal(39)
        m.d.comb += [
            cause.eq(self._entry.data.cause),
            after.eq(entry.address + entry.length),
            self._save.data.opened.eq((self._ring.opened + 1) & self._mask),
            self._save.en.eq(self._step),
            self._open_entry.valid.eq(self._step),
        ]
        with m.If(self._step):
            slot = self._oldest_slot[self._channel]
            m.d.sync += slot.eq(slot + 1)
        with m.If(self._entry.data.cause == Cause.NONE):
            opcode = entry.as_value()[32:40]
            with m.If((entry.length == 0) & (opcode != EntryOpcode.NOP)):
                m.d.comb += cause.eq(Cause.ENTRY_OPCODE)
            with m.Elif((entry.length != 0) & after[38] & (after[:38] != 0)):
                m.d.comb += cause.eq(Cause.ENTRY_RANGE)
        with m.If((cause != Cause.NONE) | (entry.length == 0)):
            self._mark(m, cause)
            m.d.comb += [
                self._order.first.eq(1),
                self._order.end.eq(1),
                self._order.get.eq(self._save.data.opened),
            ]
        with m.Else():
            m.d.comb += [
                self._step.eq(1),
                self._save.data.address.eq(entry.address),
                self._save.data.left.eq(entry.length),
                self._save.data.started.eq(0),
            ]
