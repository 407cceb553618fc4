"""Fetch unit: from a doorbell to pushbuffer beats (HOST-1, spec 1.1, 3.3, 3.5).

One state machine visits the channels with pending work, round robin, and takes one step for each:
report a failed write to USERD, accept GP_PUT, read GP_PUT, read a burst, open an entry, read an
entry. A visit takes five cycles, six if it opens an entry. Reads are answered in order, with up to
`OUTSTANDING` in flight, so the visits, not the memory's latency, limit the rate (a burst has up to
8 beats).

    PICK    next channel
    LOAD    RAMs are read, flags of the channel are sampled
    PLAN    additions and comparisons for most steps
    CHOOSE  first possible step
    JUDGE   only before an entry is opened: decide whether it is a segment
    ACT     state is updated at once; the read is offered until memory accepts it
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_settings import ChannelControl, setting_ram
from signalbox.hw.host.fetch.arrivals import Announcements
from signalbox.hw.host.fetch.backlog import ENTRIES_AHEAD, OUTSTANDING, Backlog
from signalbox.hw.host.fetch.prefetch_buffer import FillPort
from signalbox.hw.host.fetch.read_responses import Read, ReadResponses, read_order
from signalbox.hw.host.ports import ChannelStart, ChannelState, RingIndexPort, UserdWrites
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.methods import EntryOpcode, GpEntry, Userd
from signalbox.hw.records.memory import ReadPort

__all__ = ["FetchUnit", "OutstandingReads"]

_MARKS = ("report", "refuse", "close", "skip")
_STEPS = ("accept", "ask", "burst", "open", "claim", *_MARKS)


class RingState(data.Struct):
    """Fetch progress of one channel.

    `put`: GP_PUT. `fetch`: next ring entry to read. `opened`: GP_GET after the start of the last
    opened entry. `open`: a segment is open; `address`: its next dword; `behind`: number of dwords
    after that; `started`: its first beat was requested.
    """

    put: INDEX_BITS
    fetch: INDEX_BITS
    opened: INDEX_BITS
    address: 38
    behind: 21
    open: 1
    started: 1


class OutstandingReads(wiring.Signature):
    """Work of the fetch unit.

    Members
    -------
    busy : out, per channel: there is something to fetch, in flight or waiting in the prefetch
        buffer.
    reading : out, per channel: has outstanding reads.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"busy": Out(config.channels), "reading": Out(config.channels)})


class FetchUnit(wiring.Component):
    """Fetches rings and pushbuffer segments of all channels.

    Members
    -------
    control : in, writes of channel registers (GP_BASE, USERD, CONFIG.ASID); enabled channels, which
        may fetch.
    restart : in, stream: `channel` starts with an empty ring; accepted once its outstanding reads
        are complete.
    start : out, starts of channels, in the cycle in which `restart` is accepted.
    doorbell : in, stream: `channel` has a new GP_PUT in USERD.
    doorbells : out, accepted entries, and the stamp of their doorbell.
    state : in, `drained`: everything fetched was executed (SYNC = WAIT, 1.1).
    userd : in, failed writes to USERD, to be reported.
    beats : out, the prefetch buffer.
    outstanding : out, remaining fetch work.
    read : out, memory port.
    put : in, last accepted GP_PUT of a channel.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "control": In(ChannelControl(config)),
            "restart": In(stream.Signature(channel)),
            "start": Out(ChannelStart(config)),
            "doorbell": In(stream.Signature(channel)),
            "doorbells": Out(Announcements(config)),
            "state": In(ChannelState(config)),
            "userd": In(UserdWrites(config)),
            "beats": Out(FillPort(config)),
            "outstanding": Out(OutstandingReads(config)),
            "read": Out(ReadPort(config)),
            "put": In(RingIndexPort(config)),
        })
        self._burst = min(8, config.prefetch_beats // 4)
        self._shift = (config.beat_dwords - 1).bit_length()
        self._window = self._shift + (self._burst - 1).bit_length()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.backlog = self._backlog = backlog = Backlog(config, self._burst)
        m.submodules.answers = self._answer = answer = ReadResponses(config)
        m.submodules.orders = self._orders = StreamFIFO(read_order(config), OUTSTANDING)
        connect(m, flipped(self.read.beat), answer.beat)
        connect(m, flipped(self.doorbell), backlog.doorbell)
        connect(m, self._orders.o, answer.order)
        m.d.comb += [
            answer.clear.eq(self.start.cleared),
            backlog.clear.eq(self.start.cleared),
            self.beats.fill.eq(answer.fill),
            backlog.enabled.eq(self.control.enabled),
            backlog.popped.eq(self.beats.popped),
            backlog.drained.eq(self.state.drained),
            backlog.unwritten.eq(self.userd.failed),
            backlog.dropping.eq(answer.dropping),
            backlog.answered.eq(answer.answered),
            self.doorbells.now.eq(backlog.now),
            self.outstanding.busy.eq(backlog.busy),
            self.outstanding.reading.eq(~backlog.resting),
        ]
        for inner, outer in ((backlog.put, answer.put), (backlog.entry, answer.entry)):
            m.d.comb += [inner.valid.eq(outer.valid), inner.channel.eq(outer.channel)]
        self._registers()
        self._storage(m)
        self._visit(m)
        return m

    def _registers(self) -> None:
        """State of the visited channel: `can` valid from PLAN on, `plan` from CHOOSE on,
        `opening` in JUDGE, the rest in ACT. RAM outputs are stable from PLAN on, the entry's
        from CHOOSE on."""
        config, index = self._config, INDEX_BITS
        # The visited channel: number in LOAD, number from PLAN on, one-hot.
        self._number = Signal(config.channel_bits)
        self._channel = Signal(config.channel_bits)
        self._visited = Signal(config.channels)
        self._can = Signal.like(self._backlog.can)
        self._plan = Signal(
            data.StructLayout({
                # Last dword of the segment, relative to the burst boundary at or before its next
                # dword.
                "ends": 22,
                "line": 38 - self._window,
                "mask": index,
                "fetch": index,
                "opened": index,
                "entry_at": 40,
                **dict.fromkeys(("moves", "unread", "past", "bad_put"), 1),
            })
        )
        self._opening = Signal(
            data.StructLayout({
                "after": 39,
                "behind": 21,
                **dict.fromkeys(("bare", "opcode", "lost"), 1),
            })
        )
        self._slot = Signal(range(ENTRIES_AHEAD))
        self._do = Signal(data.StructLayout(dict.fromkeys(_STEPS, 1)))
        self._begun = Signal()
        self._beats = Signal(3)
        self._last = Signal(4)
        # `orders` has room for the order that a visit adds, one cycle after ACT.
        self._room = Signal()
        self._acting = Signal()
        self._cut_off = Signal(data.StructLayout({"final": 1, "last": 4, "short": 3, "full": 3}))
        self._cause = Signal(Cause)

    # -- RAMs --------------------------------------------------------------------------------------

    def _storage(self, m: Module) -> None:
        config, answer, channel = self._config, self._answer, self._channel
        rows = 1 << config.channel_bits
        put = data.StructLayout({"value": 32, "cause": Cause})
        entry = data.StructLayout({"entry": GpEntry, "cause": Cause})
        m.submodules.states = states = Memory(shape=RingState, depth=rows, init=[])
        m.submodules.puts = puts = Memory(shape=put, depth=rows, init=[])
        m.submodules.entries = entries = Memory(shape=entry, depth=rows * ENTRIES_AHEAD, init=[])
        m.submodules.shown = shown = Memory(shape=INDEX_BITS, depth=rows, init=[])
        self._save, self._load = states.write_port(), states.read_port()
        self._put, self._entry = puts.read_port(), entries.read_port()
        self._show, shown_read = shown.write_port(), shown.read_port()
        self._base = setting_ram(m, config, self.control.setting, "GP_BASE", "GP_BASE_HI")
        self._userd = setting_ram(m, config, self.control.setting, "USERD", "USERD_HI")
        self._setup = setting_ram(m, config, self.control.setting, "CONFIG")
        self._loads = [self._load, self._put, *self._base, *self._userd, *self._setup]

        put_write, entry_write = puts.write_port(), entries.write_port()
        slots = data.ArrayLayout(range(ENTRIES_AHEAD), config.channels)
        self._oldest_slot = Signal(slots)
        self._newest_slot = Signal(slots)
        arriving = answer.entry.channel
        m.d.comb += [
            shown_read.addr.eq(self.put.channel),
            self.put.index.eq(shown_read.data),
            put_write.addr.eq(answer.put.channel),
            put_write.data.value.eq(answer.put.value),
            put_write.data.cause.eq(answer.put.cause),
            put_write.en.eq(answer.put.valid),
            entry_write.addr.eq(Cat(self._newest_slot[arriving], arriving)),
            entry_write.data.entry.eq(answer.entry.entry),
            entry_write.data.cause.eq(answer.entry.cause),
            entry_write.en.eq(answer.entry.valid),
        ]
        m.d.comb += [port.addr.eq(self._number) for port in self._loads]
        m.d.comb += [
            self._entry.addr.eq(Cat(self._slot, channel)),
            self._save.addr.eq(channel),
            self._show.addr.eq(channel),
        ]
        for number in range(config.channels):
            newest, oldest = self._newest_slot[number], self._oldest_slot[number]
            with m.If(answer.entry.valid & (arriving == number)):
                m.d.sync += newest.eq(newest + 1)
            with m.If(self._backlog.step.open & self._visited[number]):
                m.d.sync += oldest.eq(oldest + 1)
            with m.If(self.start.cleared.valid & (self.start.cleared.channel == number)):
                m.d.sync += [newest.eq(0), oldest.eq(0)]

    # -- one step for one channel ------------------------------------------------------------------

    def _visit(self, m: Module) -> None:
        config, backlog, step = self._config, self._backlog, self._backlog.step
        channel, number, visited = self._channel, self._number, self._visited
        m.submodules.turns = turns = RoundRobin(config.channels)
        # Registered: the channel to start has no outstanding reads, including any just requested.
        returning, returned = self.restart.payload.channel, Signal()
        was_begun = Signal()
        begins = (self._begun | was_begun) & visited.bit_select(returning, 1)
        m.d.sync += returned.eq(
            self.restart.valid
            & ~self.restart.ready
            & backlog.resting.bit_select(returning, 1)
            & ~begins
        )
        m.d.comb += [turns.requests.eq(backlog.wanting), backlog.visited.eq(visited)]
        m.d.comb += [number.eq(encode(visited)), self.start.cleared.channel.eq(returning)]
        m.d.sync += channel.eq(number)
        m.d.comb += [port.en.eq(0) for port in (*self._loads, self._entry)]
        m.d.sync += [
            self._begun.eq(0),
            was_begun.eq(self._begun),
            self.doorbells.announce.valid.eq(0),
            # The order of the last visit may not be counted in `level` yet.
            self._room.eq(self._orders.level < OUTSTANDING - 1),
        ]
        self._steps(m)
        done = self._act(m)
        with m.FSM(name="visit"):
            with m.State("PICK"):
                m.d.sync += visited.eq(turns.grant)
                with m.If(returned):
                    m.next = "CLEAR"
                with m.Elif(turns.requests.any() & self._room):
                    m.d.comb += turns.advance.eq(1)
                    m.next = "LOAD"
            with m.State("CLEAR"):
                m.d.comb += [
                    self.start.cleared.valid.eq(1),
                    self.restart.ready.eq(1),
                    self._save.addr.eq(returning),
                    self._show.addr.eq(returning),
                    self._save.en.eq(1),
                    self._save.data.eq(0),
                    self._show.en.eq(1),
                    self._show.data.eq(0),
                ]
                m.next = "PICK"
            with m.State("LOAD"):
                m.d.comb += step.seen.eq(1)
                m.d.comb += [port.en.eq(1) for port in self._loads]
                m.d.sync += [self._can.eq(backlog.can), self._slot.eq(self._oldest_slot[number])]
                m.next = "PLAN"
            with m.State("PLAN"):
                m.d.comb += self._entry.en.eq(1)
                self._plan_steps(m)
                m.next = "CHOOSE"
            with m.State("CHOOSE"):
                opens = self._choose(m)
                m.d.sync += [self._begun.eq(~opens), self._acting.eq(~opens)]
                m.next = "ACT"
                with m.If(opens):
                    m.next = "JUDGE"
            with m.State("JUDGE"):
                self._judge(m)
                m.d.sync += [self._begun.eq(1), self._acting.eq(1)]
                m.next = "ACT"
            with m.State("ACT"):
                with m.If(done):
                    m.next = "PICK"

    def _plan_steps(self, m: Module) -> None:
        """Prepare all steps: at most one addition or comparison each."""
        plan, state = self._plan, self._load.data
        put = self._put.data
        base, base_hi = (port.data for port in self._base)
        # Bits above the ring's index; a shift needs no carry chain, unlike a comparison.
        outside = (C(-1, INDEX_BITS) << base_hi[16:21])[:INDEX_BITS]
        m.d.sync += [
            plan.ends.eq(state.address[: self._window] + state.behind),
            plan.line.eq(state.address[self._window :] + 1),
            plan.mask.eq(~outside),
            plan.fetch.eq(state.fetch + 1),
            plan.opened.eq(state.opened + 1),
            plan.entry_at.eq(Cat(base, base_hi[:8]) + (state.fetch << 3)),
            plan.moves.eq(put.value[:INDEX_BITS] != state.put),
            plan.unread.eq(state.fetch != state.put),
            plan.past.eq((put.value[:INDEX_BITS] & outside).any()),
            plan.bad_put.eq(put.value[INDEX_BITS:].any() | put.cause.any()),
        ]

    def _choose(self, m: Module) -> Value:
        """The first possible step; if there is none, the channel rests until its state changes.
        Returns whether it opens an entry."""
        can, plan, do = self._can, self._plan, self._do
        state, put, entry = self._load.data, self._put.data, self._entry.data.entry
        report = can.report & can.room
        bad = plan.past | plan.bad_put
        later = ~report & ~can.accept & ~can.ask
        fetch = later & can.room & ~can.drop
        opens = fetch & ~state.open & can.open & (~entry.sync_wait | can.sync)
        # Closes a bad segment with a mark if its last beat was never requested: no read is
        # outstanding, and the segment is still being dropped.
        closes = later & can.room & can.drop & can.rest & state.open
        m.d.sync += [
            # JUDGE decides whether the entry is opened or skipped.
            do.open.eq(0),
            do.skip.eq(0),
            do.report.eq(report),
            do.accept.eq(~report & can.accept & ~bad),
            do.refuse.eq(~report & can.accept & bad & can.room),
            do.ask.eq(~report & ~can.accept & can.ask),
            do.burst.eq(fetch & state.open),
            do.close.eq(closes),
            do.claim.eq(later & ~opens & ~closes & ~(fetch & state.open) & can.claim & plan.unread),
        ]
        with m.If(report):
            m.d.sync += self._cause.eq(Cause.USERD_WRITE)
        with m.Elif(can.accept):
            m.d.sync += self._cause.eq(Mux(put.cause.any(), put.cause, Cause.RING_POINTER))
        with m.Else():
            m.d.sync += self._cause.eq(Cause.NONE)
        self._cut(m)
        self._examine(m)
        return opens

    def _examine(self, m: Module) -> None:
        """Check the entry, whether or not it will be opened."""
        opening, entry = self._opening, self._entry.data.entry
        m.d.sync += [
            opening.after.eq(entry.address + entry.length),
            opening.behind.eq(entry.length - 1),
            opening.bare.eq(entry.length == 0),
            opening.opcode.eq(entry.as_value()[32:40] != EntryOpcode.NOP),
            opening.lost.eq(self._entry.data.cause.any()),
        ]

    def _judge(self, m: Module) -> None:
        """Open a segment, or skip a control entry or a bad entry with a mark."""
        opening, do = self._opening, self._do
        # A segment may end at the end of the address space.
        outside = opening.after[38] & opening.after[:21].any()
        skips = opening.lost | opening.bare | outside
        m.d.sync += [do.open.eq(~skips), do.skip.eq(skips)]
        with m.If(opening.lost):
            m.d.sync += self._cause.eq(self._entry.data.cause)
        with m.Elif(~opening.bare):
            m.d.sync += self._cause.eq(Cause.ENTRY_RANGE)
        with m.Elif(opening.opcode):
            m.d.sync += self._cause.eq(Cause.ENTRY_OPCODE)
        with m.Else():
            m.d.sync += self._cause.eq(Cause.NONE)

    def _cut(self, m: Module) -> None:
        """Cut the next burst off the open segment. It ends at a multiple of the burst size or,
        `short`, with the segment."""
        shift, window, ends = self._shift, self._window, self._plan.ends
        before = self._load.data.address[shift:window]
        m.d.sync += [
            self._cut_off.final.eq(ends[window:] == 0),
            self._cut_off.last.eq(ends[:shift]),
            self._cut_off.short.eq(ends[shift:window] - before),
            self._cut_off.full.eq(self._burst - 1 - before),
        ]

    def _steps(self, m: Module) -> None:
        """Reports the step to the backlog, in the first cycle of ACT."""
        do, step, begun, cut = self._do, self._backlog.step, self._begun, self._cut_off
        marks = Cat(do[name] for name in _MARKS).any()
        m.d.comb += [
            self._beats.eq(Mux(cut.final, cut.short, cut.full)),
            self._last.eq(Mux(cut.final, cut.last, self._config.beat_dwords - 1)),
            step.report.eq(begun & do.report),
            step.accept.eq(begun & (do.accept | do.refuse)),
            step.ask.eq(begun & do.ask),
            step.open.eq(begun & (do.open | do.skip)),
            step.claim.eq(begun & do.claim),
            step.reserve.eq(begun & (do.burst | marks)),
            step.beats.eq(Mux(do.burst, self._beats + 1, 1)),
            step.again.eq(begun & do.as_value().any()),
        ]

    def _act(self, m: Module) -> Value:
        """Take the step: the state is updated at once, the read is offered until memory accepts it.
        Returns whether the step is complete."""
        do, orders, request = self._do, self._orders, self.read.request
        reads = do.ask | do.burst | do.claim
        marks = Cat(do[name] for name in _MARKS).any()
        done = Signal()
        order = Signal(read_order(self._config))
        m.d.comb += [
            request.valid.eq(self._acting & reads),
            done.eq(self._acting & (~reads | request.ready)),
            self._backlog.step.over.eq(done),
        ]
        enters = Signal()
        entering = Signal(read_order(self._config), reset_less=True)
        m.d.sync += [enters.eq(done & (reads | marks)), entering.eq(order)]
        m.d.comb += [orders.i.valid.eq(enters), orders.i.payload.eq(entering)]
        with m.If(done):
            m.d.sync += self._acting.eq(0)
        self._save_state(m)
        self._ask(m, order)
        self._announce(m)
        return done

    def _save_state(self, m: Module) -> None:
        do, plan, state, saved = self._do, self._plan, self._load.data, self._save.data
        entry, passes = self._entry.data.entry, do.open | do.skip
        writes = do.accept | do.burst | do.close | passes | do.claim
        line = Cat(C(0, self._window), plan.line)
        beyond = Cat(plan.ends[: self._window], plan.ends[self._window :] - 1)
        m.d.comb += [
            self._save.en.eq(self._begun & writes),
            saved.put.eq(Mux(do.accept, self._put.data.value, state.put)),
            saved.fetch.eq(Mux(do.claim, plan.fetch & plan.mask, state.fetch)),
            saved.opened.eq(Mux(passes, plan.opened & plan.mask, state.opened)),
            saved.address.eq(Mux(do.open, entry.address, Mux(do.burst, line, state.address))),
            saved.behind.eq(
                Mux(do.open, self._opening.behind, Mux(do.burst, beyond, state.behind))
            ),
            saved.open.eq(do.open | (state.open & ~do.close & ~(do.burst & self._cut_off.final))),
            saved.started.eq(~do.open & (do.burst | state.started)),
            self._show.en.eq(self._begun & do.accept),
            self._show.data.eq(self._put.data.value),
        ]

    def _ask(self, m: Module, order: data.View) -> None:
        """Describes the read and its order, or the order of a mark, which follows all reads."""
        do, plan, state = self._do, self._plan, self._load.data
        request = self.read.request.payload
        userd = Cat(C(Userd.GP_PUT.value, 9), self._userd[0].data[9:], self._userd[1].data[:8])
        m.d.comb += [
            order.channel.eq(self._channel),
            order.offset.eq(request.va[2 : 2 + self._shift]),
            order.last.eq(self._last),
            order.single.eq(~do.burst | (self._beats == 0)),
            order.first.eq(Mux(do.burst, ~state.started, do.skip)),
            order.end.eq((do.burst & self._cut_off.final) | do.close | do.skip),
            order.get.eq(Mux(do.skip, plan.opened & plan.mask, state.opened)),
            order.cause.eq(self._cause),
            request.asid.eq(self._setup[0].data[: self._config.asid_bits]),
        ]
        with m.If(do.burst):
            m.d.comb += [
                order.kind.eq(Read.BURST),
                order.beats.eq(self._beats),
                request.beats.eq(self._beats),
                request.va.eq(state.address << 2),
            ]
        with m.Elif(do.ask):
            m.d.comb += [order.kind.eq(Read.PUT), request.va.eq(userd)]
        with m.Elif(do.claim):
            m.d.comb += [order.kind.eq(Read.ENTRY), request.va.eq(plan.entry_at)]
        with m.Else():
            m.d.comb += order.kind.eq(Read.MARK)

    def _announce(self, m: Module) -> None:
        m.d.sync += [
            self.doorbells.announce.valid.eq(self._begun & self._do.accept & self._plan.moves),
            self.doorbells.announce.channel.eq(self._channel),
            self.doorbells.announce.put.eq(self._put.data.value),
            self.doorbells.announce.stamp.eq(self._backlog.stamp),
        ]
