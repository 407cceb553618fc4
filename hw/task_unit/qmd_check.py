"""Checks a QMD and computes the resource needs of its blocks (HOST-10, PLACE-27)."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import REGISTER_UNIT, SHARED_UNIT, WARP_THREADS, Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.qmd import MOST_REGISTERS, MOST_THREADS, QMD, QMD_VERSION, SkedCheck
from signalbox.hw.records.placement import (
    BLOCK_COUNT_BITS,
    LOCAL_PAGE,
    LOCAL_UNIT,
    coordinates,
    kernel_needs,
    local_area,
    local_word,
)
from signalbox.hw.task_unit.qmd_fetch import QMD_DWORDS

__all__ = ["QmdCheck", "local_units", "sm_mask"]

_ENOUGH = 24
"""Dwords that hold the grid, the resume position, threads and registers."""

_LAST_STEP = 11
"""Step at which all products are available."""

_NOT_MODELLED = (
    "SELF_COPY_ON_COMPLETION",
    "RUN_CTA_IN_ONE_SM_PARTITION",
    "SEQUENTIALLY_RUN_CTAS",
    "CWD_REFERENCE_COUNT_INCR_ENABLE",
    "CWD_REFERENCE_COUNT_DECR_ENABLE",
    "DEPENDENT_QMD1_ENABLE",
)
"""Fields that must be 0."""


class QmdCheck(wiring.Component):
    """Checks a QMD while it is being read. `done` rises 12 cycles after dword 23 arrives or 2 after
    the last dword, whichever is later.

    One 32 × 16 bit multiplier, in two halves with registers on both sides, computes all products in
    turn: the blocks of the grid, the blocks before the resume position, threads and registers of a
    block.

    Members
    -------
    start : in, strobe: a new QMD will be read.
    resumed : in, the task resumes at CTA_RASTER_*_RESUME; otherwise it starts at its first block.
    entered : in, the task was accepted before: the queue pointers are no longer those of the QMD,
        and the dependence counter may belong to the next launch.
    decrements : in, the dependence counter is about to be decremented; otherwise it must be 0.
    local : in, a `local_area`: area of the local memory of its channel.
    record : in, the QMD.
    dwords : in, 0 … 64: number of dwords read so far.
    done : out, the outputs below are valid, until `start`.
    wrong : out, a `SkedCheck`: the failed check with the lowest public number, if any.
    foreign : out, wrong version, use of a feature that is not modelled, no block, at least 2^32
        blocks, or all SMs disabled; `wrong` is then undefined. No public check covers an empty grid
        or mask; SKEDCHECK 16 is for a block without threads.
    needs : out, a `kernel_needs`: resource needs of a block.
    grid : out, size of the grid; of a queue, a single unbounded line.
    first : out, position of the first block; undefined for a queue.
    blocks : out, 32 bits: blocks from `first` on, at least 1; undefined for a queue.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "start": In(1),
            "resumed": In(1),
            "entered": In(1),
            "decrements": In(1),
            "local": In(local_area),
            "record": In(QMD),
            "dwords": In(range(QMD_DWORDS + 1)),
            "done": Out(1),
            "wrong": Out(SkedCheck),
            "foreign": Out(1),
            "needs": Out(kernel_needs),
            "grid": Out(coordinates),
            "first": Out(coordinates),
            "blocks": Out(BLOCK_COUNT_BITS),
        })
        self._step = Signal(range(_LAST_STEP + 1))
        self._xy = Signal(32)
        self._threads = Signal(32)
        self._plane = Signal(48)
        self._total = Signal(48)
        self._planes_before = Signal(32)
        self._low = Signal(48)
        self._high = Signal(32)
        self._block_registers = Signal(16)
        self._before = Signal(32)
        self._rest = Signal(BLOCK_COUNT_BITS)
        """`_before`: lines before that of the first block. `_rest`: blocks from that line on."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        qmd, needs = self.record, self.needs
        m.d.comb += [
            self.grid.eq(_raster(qmd)),
            self.first.x.eq(Mux(self.resumed, qmd.CTA_RASTER_WIDTH_RESUME, 0)),
            self.first.y.eq(Mux(self.resumed, qmd.CTA_RASTER_HEIGHT_RESUME, 0)),
            self.first.z.eq(Mux(self.resumed, qmd.CTA_RASTER_DEPTH_RESUME, 0)),
            needs.priority.eq(qmd.QMD_GROUP_ID),
            needs.barrier.eq(qmd.BARRIER_COUNT != 0),
            needs.registers.eq(_units(qmd.REGISTER_COUNT_V, REGISTER_UNIT // WARP_THREADS)),
            needs.shared.eq(_units(qmd.SHARED_MEMORY_SIZE, SHARED_UNIT)),
            needs.block_registers.eq(self._block_registers),
        ]
        with m.If(qmd.IS_QUEUE):
            m.d.comb += [self.grid.x.eq(~0), self.grid.y.eq(1), self.grid.z.eq(1)]
        self._multiply(m)
        wrong = self._wrong()
        complete = Signal()
        count = Signal(BLOCK_COUNT_BITS)
        found = Signal(len(wrong))
        first = Signal(len(wrong))
        m.d.comb += first.eq(lowest(found))
        m.d.sync += [
            needs.warps.eq(_units(self._threads[:11], WARP_THREADS)),
            self._before.eq(self._planes_before + self.first.y),
            count.eq(self._total - self.first.x),
            self._rest.eq(count - self._low),
            self.blocks.eq(self._rest - (self._high << 16)),
            found.eq(Cat(wrong.values())),
            self.wrong.eq(select(first, [Value.cast(one) for one in wrong])),
            self.foreign.eq(self._foreign()),
            complete.eq(self.dwords == QMD_DWORDS),
            self.done.eq((self._step == _LAST_STEP) & complete & ~self.start),
        ]
        return m

    def _multiply(self, m: Module) -> None:
        """Start one product per step: a narrow product is available three steps later, a wide one
        four, a value derived from it one more. With oversized block dimensions the products may be
        wrong, but the excess is still detected."""
        qmd, first, step = self.record, self.first, self._step
        grid = _raster(qmd)
        narrow = {
            0: (qmd.CTA_THREAD_DIMENSION0, qmd.CTA_THREAD_DIMENSION1, self._xy),
            2: (grid.y, first.z, self._planes_before),
            3: (self._xy[:16], qmd.CTA_THREAD_DIMENSION2, self._threads),
            7: (self.needs.warps, self.needs.registers, self._block_registers),
            8: (grid.x[:16], self._before[16:], self._high),
        }
        wide = {
            1: (grid.x, grid.y, self._plane),
            5: (self._plane[:32], grid.z, self._total),
            6: (grid.x, self._before[:16], self._low),
        }
        a = Signal(32)
        b = Signal(16)
        low = Signal(32)
        high = Signal(32)
        product = Signal(48)
        m.d.sync += [low.eq(a[:16] * b), high.eq(a[16:] * b), product.eq(low + (high << 16))]
        for products, of, steps in ((narrow, low, 2), (wide, product, 3)):
            for number, (one, other, result) in products.items():
                with m.If(step == number):
                    m.d.sync += [a.eq(one), b.eq(other)]
                with m.If(step == number + steps):
                    m.d.sync += result.eq(of)
        with m.If(self.start):
            m.d.sync += step.eq(0)
        with m.Elif((step != _LAST_STEP) & (self.dwords >= _ENOUGH)):
            m.d.sync += step.eq(step + 1)

    def _wrong(self) -> dict[SkedCheck, Value]:
        """All checks; valid once all products are available."""
        qmd, config, first = self.record, self._config, self.first
        grid = _raster(qmd)
        threads = (qmd.CTA_THREAD_DIMENSION0, qmd.CTA_THREAD_DIMENSION1, qmd.CTA_THREAD_DIMENSION2)
        registers = qmd.REGISTER_COUNT_V
        return {
            SkedCheck.LOCAL_MEMORY_LOW: _parts(qmd.SHADER_LOCAL_MEMORY_LOW_SIZE),
            SkedCheck.LOCAL_MEMORY_HIGH: _parts(qmd.SHADER_LOCAL_MEMORY_HIGH_SIZE),
            SkedCheck.LOCAL_MEMORY: self._local_wrong(),
            SkedCheck.REGISTER_COUNT: (registers == 0) | (registers > MOST_REGISTERS),
            SkedCheck.THREADS: ((self._xy > MOST_THREADS) & (threads[2] != 0))
            | (self._threads > MOST_THREADS),
            SkedCheck.PROGRAM: qmd.PROGRAM_ADDRESS_LOWER[:3] != 0,
            SkedCheck.SHARED_MEMORY: qmd.SHARED_MEMORY_SIZE > config.sm_shared,
            SkedCheck.THREAD_DIMENSION_ZERO: _any(one == 0 for one in threads),
            SkedCheck.REGISTERS: self._block_registers > config.register_units,
            SkedCheck.QUEUE_GET_PUT: self._pointers_wrong(),
            SkedCheck.QUEUE_SIZE: qmd.IS_QUEUE & _size_wrong(qmd),
            SkedCheck.RESUME: (first.x >= grid.x) | (first.y >= grid.y) | (first.z >= grid.z),
            SkedCheck.WARPS: self.needs.warps > config.sm_warps,
            SkedCheck.DEPENDENCE: self._counter_wrong(),
        }

    def _local_wrong(self) -> Value:
        """Whether local memory does not fit the area, or the area is misaligned or does not cover
        all SMs."""
        units, area, config = local_units(self.record), self.local, self._config
        threads = WARP_THREADS << config.warp_bits
        wrong = (
            (units >> local_word["units"].width != 0)
            | ((units * (threads * LOCAL_UNIT)) > area.size)
            | (((area.va | area.size) % LOCAL_PAGE) != 0)
            | (area.sms < config.sms)
        )
        return (units != 0) & wrong

    def _pointers_wrong(self) -> Value:
        """Whether a queue does not start at its first entry, or has more entries than its size."""
        qmd = self.record
        gets = (qmd.INNER_GET | qmd.OUTER_GET) != 0
        wrong = gets | (qmd.INNER_PUT > qmd.CIRCULAR_QUEUE_SIZE)
        return qmd.IS_QUEUE & ~self.entered & wrong

    def _counter_wrong(self) -> Value:
        return ~self.entered & ((self.record.DEPENDENCE_COUNTER == 0) == self.decrements)

    def _foreign(self) -> Value:
        qmd = self.record
        version = Cat(qmd.QMD_VERSION, qmd.QMD_MAJOR_VERSION)
        major, minor = QMD_VERSION
        used = _any(qmd[name] != 0 for name in _NOT_MODELLED)
        grid = _raster(qmd)
        empty = _any(size == 0 for size in (grid.x, grid.y, grid.z))
        many = (self._plane[32:] != 0) | (self._total[BLOCK_COUNT_BITS:] != 0)
        return (version != (major << 4 | minor)) | used | empty | many | self._masked()

    def _masked(self) -> Value:
        """Whether SMs are disabled on a machine without masks, or all SMs are."""
        config, mask = self._config, sm_mask(self.record)
        if not config.masked_sms:
            return mask != 0
        return mask[: config.sms].all() if config.sms <= len(mask) else Const(0)


def sm_mask(qmd: data.View) -> Value:
    """Disabled SMs, one bit each."""
    return Cat(qmd.SM_DISABLE_MASK_LOWER, qmd.SM_DISABLE_MASK_UPPER)


def _raster(qmd: data.View) -> data.View:
    """Size of the grid in the QMD."""
    return data.View(
        coordinates, Cat(qmd.CTA_RASTER_WIDTH, qmd.CTA_RASTER_HEIGHT, qmd.CTA_RASTER_DEPTH)
    )


def _size_wrong(qmd: data.View) -> Value:
    """Whether a queue's size is not a power of two, or smaller than the entries of one block."""
    size, block = qmd.CIRCULAR_QUEUE_SIZE, qmd.QUEUE_ENTRIES_PER_CTA_LOG2
    return (size == 0) | ((size & (size - 1)) != 0) | ((size >> block) == 0)


def local_units(qmd: data.View) -> Value:
    """Local memory per thread: both parts together, in units."""
    low, high = qmd.SHADER_LOCAL_MEMORY_LOW_SIZE, qmd.SHADER_LOCAL_MEMORY_HIGH_SIZE
    return low // LOCAL_UNIT + high // LOCAL_UNIT


def _parts(size: Value) -> Value:
    """Whether `size` is not a whole number of units."""
    return size % LOCAL_UNIT != 0


def _units(amount: Value, unit: int) -> Value:
    """`amount` in units, rounded up; `unit` is a power of two."""
    bits = unit.bit_length() - 1
    return amount[bits:] + (amount[:bits] != 0)


def _any(bits) -> Value:
    return reduce(or_, bits)
