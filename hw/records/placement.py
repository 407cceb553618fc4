"""Records between the task unit, the global logic controller and the SMs."""

from amaranth.hdl import ShapeLike
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = [
    "BLOCK_COUNT_BITS",
    "ENDS_WAITING",
    "KERNEL_WORDS",
    "LEVEL_BITS",
    "GlobalPort",
    "KernelWord",
    "Policy",
    "SmLink",
    "block_record",
    "coordinates",
    "kernel_needs",
    "kernel_open",
    "kernel_word",
    "queue_span",
    "row_blocks",
    "row_left",
    "sm_report",
    "space_word",
    "task_level",
    "task_pointer",
]

BLOCK_COUNT_BITS = 32
"""Bits of a count of blocks: a grid has less than 2^32."""

ENDS_WAITING = 8
"""Of the blocks of an SM that have come free, the ends of so many at most may not be taken yet."""

LEVEL_BITS = 7
"""Bits of a priority of which there may be none: 0 none, else the device priority and 1."""

task_pointer = data.StructLayout({
    "page": 32,
    "asid": 10,
    "channel": 6,
    "depth": 5,
    "resumed": 1,
    "epoch": 1,
    "is_queue": 1,
    "queue": 6,
    "reserved": 2,
})
"""A task that holds no slot, 8 bytes in the lists: its QMD at virtual address `page` << 8 of its
address space, the channel that launched it, its nesting depth. `resumed`: it has run before and
goes on where it stopped. `epoch`: the host's, for its waits; so have tasks that it launches.
`is_queue`: it is an open queue, number `queue`."""


queue_span = data.StructLayout({"start": 24, "count": 8, "behind": 1})
"""Entries that were appended to a queue: `count` of them from number `start` on, which counts
modulo 2^24; none: the queue is closed. `behind`: wherever the queue is."""


def task_level(config: Config) -> data.StructLayout:
    """One list of tasks."""
    return data.StructLayout({"level": 6, "context": config.context_bits})


coordinates = data.StructLayout({"x": 32, "y": 16, "z": 16})
"""Of a block in its grid, or a grid's size (CTA_RASTER_WIDTH, HEIGHT, DEPTH)."""

kernel_needs = data.StructLayout({
    "priority": 6,
    "barrier": 1,
    "warps": 7,
    "registers": 7,
    "shared": 8,
    "block_registers": 10,
})
"""What a kernel's blocks need: `warps` per block, 1 … 64; `registers` units per warp, 1 … 64, and
`block_registers`, the same for a whole block; `shared` units per block. `barrier`: its warps wait
for each other, so a block starts whole (PLACE-26). Whoever opens a row has checked that a block
fits an empty SM (PLACE-27)."""


class Policy(enum.Enum, shape=2):
    """Which SM among those that qualify (PLACE-9, ASID-30 … 32)."""

    WIDE = 0
    DEEP = 1
    AFFINITY = 2


def kernel_open(config: Config) -> data.StructLayout:
    """A task becomes a row: `blocks` ≥ 1 are undistributed, the first of them at `first`."""
    return data.StructLayout({
        "row": config.row_bits,
        "needs": kernel_needs,
        "asid": config.asid_bits,
        "policy": Policy,
        "blocks": BLOCK_COUNT_BITS,
        "first": coordinates,
        "grid": coordinates,
    })


def row_blocks(config: Config) -> data.StructLayout:
    """`blocks` more of a row are undistributed."""
    return data.StructLayout({"row": config.row_bits, "blocks": BLOCK_COUNT_BITS})


def row_left(config: Config) -> data.StructLayout:
    """Of a row that was stopped: how many blocks were undistributed, and the first of them."""
    return data.StructLayout({
        "row": config.row_bits,
        "blocks": BLOCK_COUNT_BITS,
        "next": coordinates,
    })


class GlobalPort(wiring.Signature):
    """The kernel status register table, seen from the task unit.

    `open` a free row; `add` blocks to an open one; `stop` takes away all that is undistributed, and
    is answered by `stopped`; `close` frees a row that is `drained`: nothing of it is undistributed
    or on an SM. `drained` is 0 from the cycle after `open` or `add` was accepted until then, 1 for
    a free row. One of them per cycle at most for one row.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "open": Out(stream.Signature(kernel_open(config))),
            "add": Out(stream.Signature(row_blocks(config))),
            "stop": Out(stream.Signature(config.row_bits)),
            "stopped": In(stream.Signature(row_left(config))),
            "close": Out(stream.Signature(config.row_bits)),
            "drained": In(config.rows),
        })


def block_record(config: Config) -> data.StructLayout:
    """One block on its way to an SM; kernel words of its row have been sent before."""
    return data.StructLayout({"row": config.row_bits, "at": coordinates})


def sm_report(config: Config) -> data.StructLayout:
    """What has come free on an SM in this cycle, in units: a warp's registers and hardware warp
    (`warps`), and with a block's last warp its shared memory and slot (`block`)."""
    return data.StructLayout({
        "registers": range(config.register_units + 1),
        "warps": 1,
        "shared": range(config.shared_units + 1),
        "block": 1,
    })


class SmLink(wiring.Signature):
    """An SM, seen from the global logic controller.

    block : a block for it; its slot is free, so the SM takes it within a few cycles.
    freed : what has come free in this cycle (PLACE-24); all 0 else. Amounts add up, in any order.
    ended : a block of this row has ended, all its warps and their memory accesses included; it has
        been in `freed` before or is in the same cycle. ENDS_WAITING ends may be behind.
    highest : highest priority of any block on the SM, of LEVEL_BITS.
    received : blocks taken since reset, modulo 64. `highest` covers them all, so the controller
        knows whether it covers what it has sent.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "block": Out(stream.Signature(block_record(config))),
            "freed": In(sm_report(config)),
            "ended": In(stream.Signature(config.row_bits)),
            "highest": In(LEVEL_BITS),
            "received": In(6),
        })


class KernelWord(enum.IntEnum, shape=4):
    """What SMs keep of each row, 32 bits a word; from the lowest bit."""

    NEEDS = 0
    """priority 6, barrier 1, warps 7, registers 7, shared 8: `kernel_needs` without its last."""
    SPACE = 1
    """block_registers 10, registers per thread 9, ASID 10."""
    PROGRAM_LOW = 2
    """Virtual address of the first instruction, 49 bits in two words."""
    PROGRAM_HIGH = 3
    CONSTANTS_LOW = 4
    """Virtual address of constant buffer 0 (the arguments), 49 bits in two words."""
    CONSTANTS_HIGH = 5
    GRID_WIDTH = 6
    GRID_REST = 7
    """height 16, depth 16."""
    BLOCK_XY = 8
    """threads of a block in x 16, in y 16."""
    BLOCK_Z = 9
    """threads of a block in z 16, constant buffer 0 in 16-byte units 13."""


space_word = data.StructLayout({"block_registers": 10, "thread_registers": 9, "asid": 10})
"""KernelWord.SPACE."""

KERNEL_WORDS = len(KernelWord)
"""Words that the task unit sends of a row before it opens it, NEEDS first."""


def kernel_word(config: Config) -> ShapeLike:
    """One of a row's words, sent to all SMs at once; a strobe, no one can refuse it."""
    return data.StructLayout({
        "valid": 1,
        "row": config.row_bits,
        "word": KernelWord,
        "data": 32,
    })
