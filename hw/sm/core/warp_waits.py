"""Waiting warps: for a time, at a barrier, or for children."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.sm.core.records import warp_place
from signalbox.hw.sm.core.retire import warp_next

__all__ = ["Barriers", "WarpWaits", "block_event", "one_hot"]

_TIME_BITS = 33


def one_hot(valid: Value, number: Value, width: int) -> Value:
    """Bit `number` of `width` if `valid`, otherwise 0."""
    return Cat(valid & (number == n) for n in range(width))


class WarpWaits(wiring.Component):
    """Ends the wait of a warp when its time has expired, its barrier or its children are complete,
    its kernel is killed or its block is stopped. Times, kills and stops are checked for one warp
    per cycle, round robin. So a warp waits for the requested time and up to `sm_warps` + 4 cycles
    more.

    Members
    -------
    at : in, a `warp_place`: a warp that starts to wait.
    next : in, a `warp_next`: wait of that warp.
    release : in, strobe per block slot: its barrier is complete.
    children : in, with nested launches, per block slot: has children that are not complete.
    kill : in, per kernel row: killed.
    stopped : in, per block slot: stopped.
    wake : out, per warp: its wait is over, or interrupted.
    cut : out, per warp: its wait was interrupted by `stopped`: a wait for a time (`timed`), at the
        barrier (`barred`).
    undo : out, strobe: a warp of the block leaves the barrier, as it is `cut`.
    start : in, strobe: the warp starts; its `cut` is 0 again.
    look : in, `warp_bits` bits: number of a warp.
    left : out, 32 bits, 1 cycle later: cycles that it would still wait.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "at": In(warp_place(config)),
            "next": In(warp_next(config)),
            "release": In(config.sm_blocks),
            **({"children": In(config.sm_blocks)} if config.nested else {}),
            "kill": In(config.rows),
            "stopped": In(config.sm_blocks),
            "wake": Out(config.sm_warps),
            "cut": Out(data.StructLayout({"timed": config.sm_warps, "barred": config.sm_warps})),
            "undo": Out(block_event(config)),
            "start": In(data.StructLayout({"valid": 1, "warp": config.warp_bits})),
            "look": In(config.warp_bits),
            "left": Out(32),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, next_ = self._config, self.next
        count = config.sm_warps
        timed = Signal(count)
        barred = Signal(count)
        joining = Signal(count)
        released = Signal(count)
        joined = Signal(count)
        slots = Signal(data.ArrayLayout(config.block_bits, count))
        found, stops, slot = self._look(m, timed, barred | joining, slots)
        cut_timed, cut_barred = (Signal(count, name=f"cuts_{name}") for name in ("timed", "barred"))
        started = one_hot(self.start.valid, self.start.warp, count)
        m.d.comb += [
            released.eq(barred & Cat(self.release.bit_select(slots[n], 1) for n in range(count))),
            self.wake.eq(released | joined | found),
            cut_timed.eq(Mux(stops, found & timed, 0)),
            cut_barred.eq(Mux(stops, found & barred & ~released, 0)),
            self.undo.valid.eq(cut_barred.any()),
            self.undo.slot.eq(slot),
        ]
        m.d.sync += [
            self.cut.timed.eq(self.cut.timed & ~started | cut_timed),
            self.cut.barred.eq(self.cut.barred & ~started | cut_barred),
        ]
        m.d.sync += [
            timed.eq(timed & ~self.wake | one_hot(next_.waits, next_.warp, count)),
            barred.eq(barred & ~self.wake | one_hot(next_.barrier, next_.warp, count)),
        ]
        if config.nested:
            waiting = (self.children.bit_select(slots[n], 1) for n in range(count))
            m.d.comb += joined.eq(joining & ~Cat(waiting))
            m.d.sync += joining.eq(joining & ~self.wake | one_hot(next_.joins, next_.warp, count))
        with m.If(self._begins()):
            m.d.sync += slots[next_.warp].eq(next_.slot)
        return m

    def _begins(self) -> Value:
        """Whether a warp starts to wait."""
        joins = self.next.joins if self._config.nested else 0
        return self.next.barrier | self.next.waits | joins

    def _look(
        self, m: Module, timed: Signal, other: Signal, slots: data.View
    ) -> tuple[Value, Signal, Signal]:
        """Returns a warp whose wait for a time is over, or that is killed or stopped while it
        waits, one-hot; whether it is stopped; and its block slot. The value read is valid only if
        the warp was already waiting at the read."""
        config, next_ = self._config, self.next
        now = Signal(_TIME_BITS)
        turn = Signal(config.warp_bits)
        before = Signal(config.warp_bits)
        late = Signal()
        killed = Signal()
        stops = Signal()
        slot = Signal(config.block_bits)
        was = Signal(2)
        shape = data.StructLayout({"until": _TIME_BITS, "row": config.row_bits})
        m.submodules.until = until = memory.Memory(shape=shape, depth=config.sm_warps, init=[])
        read, write, ask = until.read_port(), until.write_port(), until.read_port()
        rest = Signal(_TIME_BITS)
        m.d.comb += [
            read.addr.eq(turn),
            write.en.eq(self._begins()),
            write.addr.eq(next_.warp),
            write.data.until.eq(now + next_.word),
            write.data.row.eq(self.at.place.row),
            late.eq(~(now - read.data.until)[_TIME_BITS - 1]),
            killed.eq(self.kill.bit_select(read.data.row, 1)),
            slot.eq(slots[before]),
            stops.eq(self.stopped.bit_select(slot, 1) & ~killed & ~(was[0] & late)),
            ask.addr.eq(self.look),
            rest.eq(ask.data.until - now),
            self.left.eq(Mux(rest[-1], 0, rest)),
        ]
        m.d.sync += [
            now.eq(now + 1),
            before.eq(turn),
            was.eq(Cat(timed.bit_select(turn, 1), other.bit_select(turn, 1))),
        ]
        with m.If(turn == config.sm_warps - 1):
            m.d.sync += turn.eq(0)
        with m.Else():
            m.d.sync += turn.eq(turn + 1)
        ends = killed | stops
        wakes = (was[0] & (late | ends)) | (was[1] & ends)
        still = timed | other
        return one_hot(wakes, before, config.sm_warps) & still, stops, slot


def block_event(config: Config) -> data.StructLayout:
    """Strobe for the block of a slot."""
    return data.StructLayout({"valid": 1, "slot": config.block_bits})


class Barriers(wiring.Component):
    """Counts, per block, warps that have not ended and warps at the barrier.

    Members
    -------
    begin : in, strobe: a block begins.
    warps : in, 7 bits, with `begin`: number of warps of the block.
    arrive : in, strobe: a warp of the block arrives at the barrier.
    undo : in, strobe: a warp of the block leaves the barrier without a release.
    leave : in, strobe: a warp of the block ends.
    release : out, strobe per slot, 1 cycle after the last arrival: all warps left are at the
        barrier and continue.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "begin": In(block_event(config)),
            "warps": In(7),
            "arrive": In(block_event(config)),
            "undo": In(block_event(config)),
            "leave": In(block_event(config)),
            "release": Out(config.sm_blocks),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for slot in range(self._config.sm_blocks):
            left, here = Signal(7, name=f"left{slot}"), Signal(7, name=f"here{slot}")

            def mine(event: data.View, slot: int = slot) -> Value:
                return event.valid & (event.slot == slot)

            release = self.release[slot]
            m.d.comb += release.eq((here != 0) & (here == left))
            m.d.sync += left.eq(left - mine(self.leave))
            with m.If(release):
                m.d.sync += here.eq(0)
            with m.Else():
                m.d.sync += here.eq(here + mine(self.arrive) - mine(self.undo))
            with m.If(mine(self.begin)):
                m.d.sync += [left.eq(self.warps), here.eq(0)]
        return m
