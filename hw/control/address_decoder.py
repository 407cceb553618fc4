"""Address decoder of the control port, made from the register description."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.control.axi_lite_target import Access
from signalbox.hw.registers import CHANNEL, CONTEXT, GLOBAL, SEMAPHORE, Block, Register
from signalbox.hw.registers import Access as Rule

__all__ = ["AddressDecoder", "Owner"]


class Owner(enum.Enum, shape=3):
    """Owner of an access."""

    NOBODY = 0
    """SLVERR: no register, not built, read-only, or a partial write of a register that needs a
    whole word."""
    GLOBAL = 1
    DOORBELL = 2
    """Write of a handle, valid or not."""
    CHANNEL = 3
    SEMAPHORE = 4
    CONTEXT = 5


_DOORBELL = GLOBAL["DOORBELL"]
_OWNERS = (
    (GLOBAL, Owner.GLOBAL),
    (CHANNEL, Owner.CHANNEL),
    (SEMAPHORE, Owner.SEMAPHORE),
    (CONTEXT, Owner.CONTEXT),
)


class AddressDecoder(wiring.Component):
    """Finds the owner of a register access. Latency 2 cycles, during which `access` is stable.

    Global registers accept byte writes (`wstrb`). Doorbells, commands and the other blocks belong
    to other units and accept whole words only.

    Members
    -------
    access : in, the access; `data` is used only as the handle of a doorbell.
    owner : out, its `Owner`.
    known : out, the doorbell handle in `data` names a channel that was built.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({"access": In(Access), "owner": Out(Owner), "known": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.owner.eq(Owner.NOBODY)
        for block, owner in _OWNERS:
            inside = Signal(name=f"inside_{block.name.lower()}")
            allowed = Signal(name=f"allowed_{block.name.lower()}")
            m.d.sync += [inside.eq(self._inside(block)), allowed.eq(self._allowed(block))]
            with m.If(inside & allowed):
                m.d.sync += self.owner.eq(owner)
        doorbell = Signal()
        m.d.sync += doorbell.eq(self.access.word == _DOORBELL.offset // 4)
        with m.If(doorbell & self.access.write & self.access.lanes.all()):
            m.d.sync += self.owner.eq(Owner.DOORBELL)
        m.d.sync += self.known.eq(self._known())
        return m

    def _inside(self, block: Block) -> Value:
        """Whether the address is in a set of `block` that was built."""
        low, high = _log2(block.stride) - 2, _log2(block.stride * block.count) - 2
        here = self.access.word[high:] == block.base >> (high + 2)
        if block.count == 1:
            return here
        return here & (self.access.word[low:high] < block.built(self._config))

    def _allowed(self, block: Block) -> Value:
        """Whether the set has a register at this address that permits this access."""
        word = self.access.word[: _log2(block.stride) - 2]
        writable = [register for register in block if register.access.writable]
        parts = [register for register in writable if not _leaves(block, register)]
        wholes = [register for register in writable if _leaves(block, register)]

        def among(some: Iterable[Register]) -> Value:
            return word.matches(*(register.offset // 4 for register in some))

        accepted = among(parts) | (among(wholes) & self.access.lanes.all())
        return (self.access.write & accepted) | (~self.access.write & among(block))

    def _known(self) -> Value:
        """Whether `data` is a valid handle."""
        channel, runlist = (_DOORBELL.field(name) for name in ("CHID", "RUNLIST_ID"))
        handle = self.access.data
        return (handle[channel.lo : channel.hi + 1] < self._config.channels) & (
            handle[runlist.lo : runlist.hi + 1] == 0
        )


def _leaves(block: Block, register: Register) -> bool:
    """Whether a write is forwarded to another unit."""
    return block is not GLOBAL or register.access is Rule.WO


def _log2(number: int) -> int:
    """Exponent of a power of two."""
    return number.bit_length() - 1
