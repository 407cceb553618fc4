"""Preemption in the supplied core: saves and restores blocks, with their shared memory and the
registers of their warps (PREEMPT-2, PREEMPT-3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import SHARED_UNIT, STATE_LINE, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, lowest
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.placement import SAVE_PAGE_BITS
from signalbox.hw.sm.core.records import (
    completion,
    context,
    instruction,
    place,
    retired,
)
from signalbox.hw.sm.core.register_file import UNIT_REGISTERS
from signalbox.hw.sm.core.warp_scheduler import warp_event
from signalbox.hw.sm.isa import MASKS, Opcode
from signalbox.hw.sm.port import block_begin, block_save, core_fault
from signalbox.hw.sm.warp_fates import WarpFates, warp_fate, warp_number

__all__ = ["Job", "StateTransfer", "WarpWait", "restored_warp"]

_STATE_WORDS = 4
"""Words of a warp's state ahead of its mask stack."""

_LINES = SHARED_UNIT // STATE_LINE
_IN_UNIT = (_LINES - 1).bit_length()
"""Width of the number of a line in a unit of shared memory. `StateTransfer` has a register of its
own for each of these lines."""

_LINE_BITS = 16
"""Width of the number of a line in its place."""

_AT_BITS = SAVE_PAGE_BITS + 5
"""Width of the number of a line in memory."""


class WarpWait(enum.Enum, shape=2):
    """Wait that was interrupted when the warp's block was stopped."""

    NONE = 0
    TIME = 1
    BARRIER = 2


_high = data.StructLayout({"pc": 17, "depth": 4, "wait": WarpWait})
"""Second word of a warp's state, behind the low half of its pc. The third one is the mask, the
fourth one the cycles that it still has to wait."""


def restored_warp(config: Config) -> data.StructLayout:
    """A warp continues with its context; first it waits for `left` cycles, or at the barrier."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "place": place(config),
        "context": context(config),
        "wait": WarpWait,
        "left": 32,
    })


class Job(enum.Enum, shape=2):
    """Transfers, most urgent first. CLOSE: shared memory and fates of a stopped block. SAVE: a
    stopped warp. OPEN: fates and shared memory of a block that continues. RESTORE: a warp that
    continues."""

    CLOSE = 0
    SAVE = 1
    OPEN = 2
    RESTORE = 3


_SAVES = 4
"""Maximum number of saved warps with their state on the way to memory."""

_WARP_ACCESSES = _STATE_WORDS + MASKS + 4 * 64
"""Most accesses of memory that save a warp: up to 64 units of registers, 4 each."""

_COUNT_BITS = ((_SAVES + 1) * _WARP_ACCESSES).bit_length() + 1
"""Width of a count of accesses. Counts of all warps on the way are compared, and the oldest warp
may wait long for its fault to be accepted."""


class StateTransfer(wiring.Component):
    """Executes instructions of its own, interleaved with those of the warps: moves, loads and
    stores, with registers of the warps or its own. One block or warp at a time; saves go first.
    While the stores of a warp are on the way to memory, the next one is saved.

    A place in memory has lines of 128 bytes: the fates of the block's warps, its shared memory, and
    per warp its state followed by its registers.

    Members
    -------
    begin : in, strobe: a block begins.
    stop : in, stream of `block_save`: blocks to be saved.
    stopped : out, per block slot: its warps execute nothing more.
    finish : in, strobe per block slot: all warps of the block have ended.
    saved : out, strobe per block slot: the stopped block's state is in memory.
    kill : in, per kernel row: nothing of it need be saved.
    start : in, strobe: a warp starts with a number of units of registers.
    at : in, block slot and number of the starting warp, a `warp_number`.
    fate : out, 1 cycle later: fate of the starting warp (`warp_fate`).
    resume : in, strobe: the starting warp can be restored.
    over : in, strobe: a warp has ended.
    saving : in, per warp: must be saved.
    gone : out, strobe: a warp is saved.
    look : out, `warp_bits` bits: number of a warp, for the next four.
    context : in, a `context`, 1 cycle later: context of that warp.
    place : in, a `place`, 1 cycle later: place of that warp.
    wait : in, a `WarpWait`, 1 cycle later: its interrupted wait.
    left : in, 32 bits, 1 cycle later: cycles left of that wait.
    o : out, stream of `instruction`.
    room : in, there is room for the rows of an instruction on `memory`, on `shared` memory.
    wants : out, such an instruction is offered, and has precedence.
    reserve : out, strobe: the room is used.
    retired : in, a `retired`: executed instructions.
    top : in, 32 bits, with `retired`: top of the mask stack.
    done : in, strobe, a `completion`: a completed memory instruction; on shared memory if `shared`.
    put : out, stream of `restored_warp`.
    lost : out, stream of warp numbers: a warp that could not be restored.
    fault : out, stream of `core_fault`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        room = data.StructLayout({"memory": 1, "shared": 1})
        started = {"valid": 1, "warp": config.warp_bits, "registers": range(65)}
        super().__init__({
            "begin": In(data.StructLayout({"valid": 1, "what": block_begin(config)})),
            "stop": In(stream.Signature(block_save(config))),
            "stopped": Out(config.sm_blocks),
            "finish": In(config.sm_blocks),
            "saved": Out(config.sm_blocks),
            "kill": In(config.rows),
            "start": In(data.StructLayout(started)),
            "at": In(warp_number(config)),
            "fate": Out(warp_fate),
            "resume": In(warp_event(config)),
            "over": In(data.StructLayout({"valid": 1, "place": place(config)})),
            "saving": In(config.sm_warps),
            "gone": Out(warp_event(config)),
            "look": Out(config.warp_bits),
            "context": In(context(config)),
            "place": In(place(config)),
            "wait": In(WarpWait),
            "left": In(32),
            "o": Out(stream.Signature(instruction(config))),
            "room": In(room),
            "wants": Out(room),
            "reserve": Out(room),
            "retired": In(retired(config)),
            "top": In(32),
            "done": In(data.StructLayout({"valid": 1, "shared": 1, "what": completion(config)})),
            "put": Out(stream.Signature(restored_warp(config))),
            "lost": Out(stream.Signature(config.warp_bits)),
            "fault": Out(stream.Signature(core_fault(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.fates = self._fates = WarpFates(config)
        self._job = Signal(Job, name="job")
        self._warp = Signal(config.warp_bits)
        self._at = Signal(place(config))
        self._shared = Signal(range(config.shared_units + 1), name="shared_units")
        self._registers = Signal(9, name="registers")
        self._line = Signal(_AT_BITS)
        """The next line in memory."""
        self._count = Signal(9, name="count")
        self._unit = Signal.like(self._shared, name="unit")
        self._words = Signal(data.ArrayLayout(32, _STATE_WORDS), name="words")
        """Words of a warp's state; or words with the fates of a block."""
        high = data.View(_high, self._words[1][: _high.size])
        self._depth = Signal(_high["depth"].shape, name="depth")
        m.d.comb += self._depth.eq(high.depth)
        self._word = Signal(32, name="word")
        self._bad = Signal(name="bad")
        self._offers, self._sent, self._heard = (
            Signal(name=name) for name in ("offers", "sent", "heard")
        )
        """An instruction is offered (`_offers`), is sent (`_sent`); the last one retires
        (`_heard`)."""
        self._executed, self._landed, self._here = (
            Signal(name=name) for name in ("executed", "landed", "here")
        )
        """`_executed`: all instructions have retired. `_landed`: all accesses of memory have
        completed. `_here`: all accesses of shared memory have."""
        self._asked, self._fails = Signal(_COUNT_BITS, name="asked"), Signal(name="fails")
        """`_asked`: number of accesses of memory so far. `_fails`: one fails."""
        way = {"warp": config.warp_bits, "at": place(config), "until": self._asked.shape()}
        m.submodules.way = self._way = StreamFIFO(data.StructLayout(way), _SAVES)
        """Saved warps with their state on the way to memory; `until`: number of accesses up to the
        last one of that state."""
        self._blocks(m)
        self._track(m)
        self._see(m)
        with m.FSM(name="transfer"):
            self._choose(m)
            self._find(m)
            self._save_warp(m)
            self._save_block(m)
            self._read_state(m)
            self._restore(m)
            self._end(m)
        self._arrive(m)
        return m

    def _blocks(self, m: Module) -> None:
        """State of the block slots."""
        config, begin, stop = self._config, self.begin, self.stop
        slots = config.sm_blocks
        self._opening, self._closing = (
            Signal(slots, name=f"{name}_blocks") for name in ("opening", "closing")
        )
        self._opened, self._closed = (Signal(slots, name=name) for name in ("opened", "closed"))
        m.submodules.pages = pages = memory.Memory(shape=SAVE_PAGE_BITS, depth=slots, init=[])
        owner = data.StructLayout({"row": config.row_bits, "shared": self._shared.shape()})
        m.submodules.owners = owners = memory.Memory(shape=owner, depth=slots, init=[])
        page, given = pages.write_port(), owners.write_port()
        self._page, self._owner = pages.read_port(), owners.read_port()
        begins = Cat(begin.valid & (begin.what.slot == n) for n in range(slots))
        stops = Cat(stop.valid & stop.ready & (stop.p.slot == n) for n in range(slots))
        m.d.comb += [
            stop.ready.eq(~begin.valid),
            page.en.eq(begin.valid | stop.valid),
            page.addr.eq(Mux(begin.valid, begin.what.slot, stop.p.slot)),
            page.data.eq(Mux(begin.valid, begin.what.page, stop.p.page)),
            given.en.eq(begin.valid),
            given.addr.eq(begin.what.slot),
            given.data.row.eq(begin.what.row),
            given.data.shared.eq(begin.what.shared),
            self._page.addr.eq(self._at.slot),
            self._owner.addr.eq(self._at.slot),
            self._fates.fresh.eq(begins),
            self._fates.over.valid.eq(self.over.valid),
            [self._fates.over.number[name].eq(self.over.place[name]) for name in ("slot", "index")],
            self._fates.look[0].eq(self.at.slot),
            self._fates.look[1].eq(self._at.slot),
            self.saved.eq(self._closed),
        ]
        continues = Mux(begin.what.restores, begins, 0)
        m.d.sync += [
            self.stopped.eq(self.stopped & ~self._closed | stops),
            self._opening.eq(self._opening & ~self._opened | continues),
            self._closing.eq(self._closing & ~self._closed | (self.finish & self.stopped)),
        ]
        self._tell_fate(m)

    def _tell_fate(self, m: Module) -> None:
        at, fates = Signal.like(self.at, name="starting"), self._fates.fates[0]
        m.d.sync += at.eq(self.at)
        m.d.comb += [
            self.fate.waits.eq(self._opening.bit_select(at.slot, 1)),
            self.fate.over.eq(fates.over.bit_select(at.index, 1)),
            self.fate.saved.eq(fates.saved.bit_select(at.index, 1)),
        ]

    def _track(self, m: Module) -> None:
        """Instructions under way, and their failures."""
        retired, done, o = self.retired, self.done, self.o
        flying, retires, ends = (
            Signal(6, name="flying"),
            Signal(name="retires"),
            Signal(name="ends"),
        )
        self._ended, inside = Signal.like(self._asked, name="ended"), Signal(7, name="inside")
        """`_ended`: number of completed accesses of memory. `inside`: outstanding accesses of
        shared memory."""
        sends, wants = self._sent, self.wants
        m.d.comb += [
            retires.eq(retired.valid & retired.transfer),
            ends.eq(done.valid & done.what.transfer),
            self._fails.eq(ends & (done.what.cause != CoreCause.NONE)),
            o.valid.eq(self._offers & ~(self.wants.as_value() & ~self.room.as_value()).any()),
            self._sent.eq(o.valid & o.ready),
            self.reserve.eq(Mux(self._sent, self.wants.as_value(), 0)),
            self._executed.eq(flying == 0),
            self._landed.eq(self._asked == self._ended),
            self._here.eq(inside == 0),
            self._heard.eq(retires & (flying == 1)),
        ]
        m.d.sync += [
            flying.eq(flying + self._sent - retires),
            self._asked.eq(self._asked + (sends & wants.memory)),
            self._ended.eq(self._ended + (ends & ~done.shared)),
            inside.eq(inside + (sends & wants.shared) - (ends & done.shared)),
        ]
        with m.If(self._fails):
            m.d.sync += self._bad.eq(1)

    def _see(self, m: Module) -> None:
        """Read the data of the warp; drive the parts common to all instructions."""
        config, o = self._config, self.o.p
        m.submodules.amounts = amounts = memory.Memory(
            shape=range(65), depth=config.sm_warps, init=[]
        )
        amount, self._amount = amounts.write_port(), amounts.read_port()
        m.d.comb += [
            amount.en.eq(self.start.valid),
            amount.addr.eq(self.start.warp),
            amount.data.eq(self.start.registers),
            self._amount.addr.eq(self._warp),
            self.look.eq(self._warp),
            o.transfer.eq(1),
            o.own.eq(1),
            o.at.warp.eq(self._warp),
            o.at.place.eq(self._at),
            o.at.context.pc.eq(self._line << 7),
            o.at.context.mask.eq(~0),
        ]

    def _choose(self, m: Module) -> None:
        """Select a block or a warp."""
        count, resume = self._config.sm_warps, self.resume
        waiting, issued = Signal(count, name="waiting"), Signal(count, name="issued")
        idle = ~issued.any()
        m.submodules.saves = saves = RoundRobin(count)
        m.submodules.loads = loads = RoundRobin(count)
        resumed = Cat(resume.valid & (resume.warp == n) for n in range(count))
        gone = Cat(self.gone.valid & (self.gone.warp == n) for n in range(count))
        m.d.comb += [saves.requests.eq(self.saving & ~issued), loads.requests.eq(waiting)]
        m.d.sync += [
            waiting.eq(waiting & ~Mux(loads.advance, loads.grant, 0) | resumed),
            issued.eq((issued | Mux(saves.advance, saves.grant, 0)) & ~gone),
        ]
        with m.State("CHOOSE"):
            m.d.sync += [self._count.eq(0), self._unit.eq(0), self._bad.eq(0)]
            with m.If(self._closing.any() & idle):
                self._take_block(m, Job.CLOSE, self._closing)
            with m.Elif(saves.requests.any() & self._way.i.ready):
                self._take_warp(m, Job.SAVE, saves)
            with m.Elif(self._opening.any() & idle):
                self._take_block(m, Job.OPEN, self._opening)
            with m.Elif(waiting.any() & idle):
                self._take_warp(m, Job.RESTORE, loads)

    def _take_block(self, m: Module, job: Job, blocks: Signal) -> None:
        m.d.sync += [
            self._job.eq(job),
            self._at.slot.eq(encode(lowest(blocks))),
            # Index in faults of a block; the last value was that of a warp.
            self._at.index.eq(0),
        ]
        m.next = "SLOT"

    def _take_warp(self, m: Module, job: Job, turns: RoundRobin) -> None:
        m.d.comb += turns.advance.eq(1)
        m.d.sync += [self._job.eq(job), self._warp.eq(encode(turns.grant))]
        m.next = "WARP"

    def _find(self, m: Module) -> None:
        """Read the data of the block or warp, and determine its lines in memory."""
        words, context, job = self._words, self.context, self._job
        high, before = Signal(_high, name="high"), Signal(_LINE_BITS, name="lines_before")
        m.d.comb += [
            high.pc.eq(context.pc[32:]),
            high.depth.eq(context.depth),
            high.wait.eq(self.wait),
            before.eq(1 + self._shared * _LINES + self._at.index * (self._registers + 1)),
        ]
        with m.State("WARP"):
            m.next = "CONTEXT"
        with m.State("CONTEXT"):
            values = (context.pc[:32], high, context.mask, self.left)
            m.d.sync += [
                self._at.eq(self.place),
                self._registers.eq(self._amount.data * UNIT_REGISTERS),
                *(word.eq(value) for word, value in zip(words, values, strict=True)),
            ]
            m.next = "SLOT"
        with m.State("SLOT"):
            m.next = "PLACE"
        with m.State("PLACE"):
            m.d.sync += [
                self._shared.eq(self._owner.data.shared),
                self._at.row.eq(self._owner.data.row),
                self._line.eq(self._page.data << 5),
            ]
            m.next = "LINE"
        with m.State("LINE"):
            warp = (job == Job.SAVE) | (job == Job.RESTORE)
            m.d.sync += self._line.eq(self._line + Mux(warp, before, job == Job.CLOSE))
            m.next = "STATE IN"
            with m.If(job == Job.SAVE):
                m.next = "STATE OUT"
            with m.If(job == Job.CLOSE):
                m.next = "SHARED OUT"
                with m.If(self.kill.bit_select(self._at.row, 1)):
                    m.next = "DONE"

    def _offer(self, m: Module, op: Opcode) -> None:
        """Offer an instruction. Loads and stores have a register for each count; accesses of memory
        go on to the next line."""
        o, count = self.o.p, self._count
        m.d.comb += [self._offers.eq(1), o.op.eq(op)]
        if op in {Opcode.LDG, Opcode.STG}:
            m.d.comb += self.wants.memory.eq(1)
            with m.If(self._sent):
                m.d.sync += self._line.eq(self._line + 1)
        if op in {Opcode.LDS, Opcode.STS}:
            inside = Cat(count[:_IN_UNIT], self._unit)
            m.d.comb += [self.wants.shared.eq(1), o.at.context.pc.eq(inside << 7)]
        if op in {Opcode.LDG, Opcode.LDS}:
            m.d.comb += o.d.eq(count)
        if op in {Opcode.STG, Opcode.STS}:
            m.d.comb += o.c.eq(count)

    def _access(
        self, m: Module, state: str, op: Opcode, last: Value | int, then: str, *, own: bool = True
    ) -> None:
        """Offer instructions number 0 to `last`, then go to state `then`."""
        with m.State(state):
            self._offer(m, op)
            m.d.comb += self.o.p.own.eq(own)
            self._counts(m, last, then)

    def _counts(self, m: Module, last: Value | int, then: str) -> None:
        with m.If(self._sent):
            m.d.sync += self._count.eq(self._count + 1)
            with m.If(self._count == last):
                m.d.sync += self._count.eq(0)
                m.next = then

    def _each(self, m: Module, number: Value, then: str) -> None:
        """Offer `number` instructions, possibly none, then go to state `then`."""
        ends = self._count == number
        m.d.comb += self._offers.eq(~ends)
        with m.If(self._sent):
            m.d.sync += self._count.eq(self._count + 1)
        with m.If(ends):
            m.d.sync += self._count.eq(0)
            m.next = then

    def _settle(self, m: Module, state: str, then: str, *settled: Value) -> None:
        """Wait until all instructions have retired, and until `settled`."""
        with m.State(state):
            with m.If(Cat(self._executed, *settled).all()):
                m.next = then

    def _write_word(self, m: Module, lane: Value, word: Value) -> None:
        """Offer a move to one lane of the first own register."""
        o = self.o.p
        self._offer(m, Opcode.MOV)
        m.d.comb += [o.immediate.eq(1), o.value.eq(word), o.at.context.mask.eq(1 << lane)]

    def _hear(self, m: Module, state: str, word: Value, then: str) -> None:
        """Wait for the instruction under way, and take `word` as it retires."""
        with m.State(state):
            m.d.sync += self._word.eq(word)
            with m.If(self._heard):
                m.next = then

    def _save_warp(self, m: Module) -> None:
        """State with the mask stack, then registers. Masks are read as POP would, one after the
        other, and written behind the state."""
        count, depth = self._count, self._depth
        popped, way, retired = Signal(range(MASKS + 1), name="popped"), self._way.i, self.retired
        m.submodules.masks = masks = memory.Memory(shape=32, depth=MASKS, init=[])
        kept, mask = masks.write_port(), masks.read_port(domain="comb")
        m.d.sync += popped.eq(popped + kept.en)
        m.d.comb += [
            kept.en.eq(retired.valid & retired.transfer & (retired.op == Opcode.POP)),
            kept.addr.eq(popped),
            kept.data.eq(self.top),
            mask.addr.eq(count),
            way.p.warp.eq(self._warp),
            way.p.at.eq(self._at),
            way.p.until.eq(self._asked),
        ]
        with m.State("STATE OUT"):
            m.d.sync += popped.eq(0)
            self._write_word(m, count[:2], self._words[count[:2]])
            self._counts(m, _STATE_WORDS - 1, "MASKS IN")
        with m.State("MASKS IN"):
            self._offer(m, Opcode.POP)
            m.d.comb += self.o.p.at.context.depth.eq(count + 1)
            self._each(m, depth, "MASKS HERE")
        self._settle(m, "MASKS HERE", "MASKS OUT")
        with m.State("MASKS OUT"):
            self._write_word(m, _STATE_WORDS + count[:4], mask.data)
            self._each(m, depth, "STATE WRITTEN")
        self._settle(m, "STATE WRITTEN", "STATE SAVED")
        self._access(m, "STATE SAVED", Opcode.STG, 0, "REGISTERS OUT")
        self._access(m, "REGISTERS OUT", Opcode.STG, self._registers - 1, "SENT", own=False)
        with m.State("SENT"):
            m.d.comb += way.valid.eq(1)
            m.next = "CHOOSE"

    def _read_state(self, m: Module) -> None:
        """First line of a block or a warp, word by word."""
        count, word, o = self._count, self._word, self.o.p
        self._access(m, "STATE IN", Opcode.LDG, 0, "STATE LOADED")
        self._settle(m, "STATE LOADED", "WORD", self._landed)
        with m.State("WORD"):
            self._offer(m, Opcode.MOV)
            m.d.comb += [o.d.eq(1), o.at.context.mask.eq(1 << count[:4])]
            with m.If(self._sent):
                m.next = "WORD READ"
        self._hear(m, "WORD READ", self.retired.word, "WORD KNOWN")
        with m.State("WORD KNOWN"):
            of_state = count < _STATE_WORDS
            with m.If(of_state):
                m.d.sync += self._words[count[:2]].eq(word)
            with m.Else():
                self._offer(m, Opcode.PUSH)
                m.d.comb += [
                    o.at.context.depth.eq(count - _STATE_WORDS),
                    o.at.context.mask.eq(word),
                ]
            with m.If(of_state | self._sent):
                m.d.sync += count.eq(count + 1)
                m.next = "WORD NEXT"
        with m.State("WORD NEXT"):
            m.next = "WORD"
            with m.If(count >= _STATE_WORDS):
                with m.If(self._job == Job.OPEN):
                    m.d.sync += count.eq(0)
                    m.next = "FATES"
                with m.Elif(count == _STATE_WORDS + self._depth):
                    m.d.sync += count.eq(0)
                    m.next = "REGISTERS IN"

    def _restore(self, m: Module) -> None:
        """Registers of a warp; fates and shared memory of a block."""
        fates, words = self._fates, Value.cast(self._words)
        load, bad = fates.load, self._bad
        self._access(m, "REGISTERS IN", Opcode.LDG, self._registers - 1, "DRAIN", own=False)
        m.d.comb += [
            load.p.slot.eq(self._at.slot),
            load.p.fates.over.eq(words[:64] | bad.replicate(64)),
            load.p.fates.saved.eq(words[64:]),
        ]
        with m.State("FATES"):
            m.d.comb += load.valid.eq(1)
            with m.If(load.ready):
                m.next = "SHARED IN"
        self._move_shared(m, "SHARED IN", Opcode.LDG, Opcode.STS, "DRAIN")

    def _move_shared(self, m: Module, state: str, load: Opcode, store: Opcode, then: str) -> None:
        """Shared memory, unit by unit, by way of the own registers. Stores may be outstanding when
        the next unit is loaded."""
        unit, loaded = self._unit, self._landed if load is Opcode.LDG else self._here
        with m.State(state):
            m.next = f"{state} LOAD"
            with m.If(unit == self._shared):
                m.next = then
        self._access(m, f"{state} LOAD", load, _LINES - 1, f"{state} HERE")
        self._settle(m, f"{state} HERE", f"{state} STORE", loaded)
        self._access(m, f"{state} STORE", store, _LINES - 1, f"{state} DONE")
        with m.State(f"{state} DONE"):
            m.d.sync += unit.eq(unit + 1)
            m.next = state

    def _save_block(self, m: Module) -> None:
        """Shared memory, then fates."""
        fates, count = self._fates.fates[1], self._count
        words = Signal(data.ArrayLayout(32, 4), name="fate_words")
        m.d.comb += Value.cast(words).eq(
            Cat(fates.over, Const(0, 64 - len(fates.over)), fates.saved)
        )
        self._move_shared(m, "SHARED OUT", Opcode.LDS, Opcode.STG, "FATES OUT")
        with m.State("FATES OUT"):
            m.d.sync += self._line.eq(self._page.data << 5)
            self._write_word(m, count[:2], words[count[:2]])
            self._counts(m, 3, "FATES WRITTEN")
        self._settle(m, "FATES WRITTEN", "FATES SAVED")
        self._access(m, "FATES SAVED", Opcode.STG, 0, "DRAIN")

    def _end(self, m: Module) -> None:
        """Report the end of all but saved warps, and a failure."""
        job, at, put = self._job, self._at, self.put
        high = data.View(_high, self._words[1][: _high.size])
        done = Signal(name="done_now")
        place = Cat(done & (at.slot == n) for n in range(self._config.sm_blocks))
        self._restored, self._failed = Signal(name="restored"), Signal(name="failed")
        self._settle(m, "DRAIN", "DONE", self._landed, self._here)
        with m.State("DONE"):
            m.d.comb += self._failed.eq(self._bad)
            with m.If(self.fault.ready | ~self._bad):
                m.next = "REPORT"
        with m.State("REPORT"):
            m.d.comb += [
                put.valid.eq((job == Job.RESTORE) & ~self._bad),
                self.lost.valid.eq((job == Job.RESTORE) & self._bad),
                done.eq(Mux(job == Job.RESTORE, Mux(self._bad, self.lost.ready, put.ready), 1)),
            ]
            with m.If(done):
                m.next = "CHOOSE"
        m.d.comb += [
            self._closed.eq(Mux(job == Job.CLOSE, place, 0)),
            self._opened.eq(Mux(job == Job.OPEN, place, 0)),
            self._restored.eq(done & (job == Job.RESTORE)),
            self.lost.payload.eq(self._warp),
            put.p.warp.eq(self._warp),
            put.p.place.eq(at),
            put.p.context.pc.eq(Cat(self._words[0], high.pc)),
            put.p.context.mask.eq(self._words[2]),
            put.p.context.depth.eq(high.depth),
            put.p.wait.eq(high.wait),
            put.p.left.eq(self._words[3]),
        ]

    def _arrive(self, m: Module) -> None:
        """Report each saved warp once its state is in memory, and each failed save once. All these
        warps are of one row; meanwhile no block is transferred and no warp restored."""
        way, fault, change = self._way.o, self.fault, self._fates.change
        warps = self._config.sm_warps
        bad, fails = Signal(warps, name="save_failed"), Signal(name="save_fails")
        told = Signal(warps, name="told")
        failing = self._fails & (self._job == Job.SAVE)
        # The next warps may fail while a fault waits, so each has a bit of its own.
        mine = bad.bit_select(way.p.warp, 1)
        # The numbers wrap, and are less than half a round apart: the highest bit is the sign.
        over = ~(self._ended - way.p.until)[_COUNT_BITS - 1]
        changed, faulty = (Signal(place(self._config), name=name) for name in ("changed", "faulty"))
        m.d.comb += [
            fails.eq(way.valid & over & mine),
            told.eq((fails & fault.ready) << way.p.warp),
            way.ready.eq(over & ~mine),
            self.gone.valid.eq(way.valid & way.ready),
            self.gone.warp.eq(way.p.warp),
            change.valid.eq(self.gone.valid | self._restored),
            changed.eq(Mux(self.gone.valid, way.p.at, self._at)),
            [change.number[name].eq(changed[name]) for name in ("slot", "index")],
            change.saved.eq(self.gone.valid),
            fault.valid.eq(fails | self._failed),
            faulty.eq(Mux(fails, way.p.at, self._at)),
            [fault.p[name].eq(faulty[name]) for name in ("row", "slot", "index")],
            fault.p.cause.eq(CoreCause.STATE_BUS),
        ]
        m.d.sync += bad.eq(bad & ~told | (failing << self.done.what.warp))
