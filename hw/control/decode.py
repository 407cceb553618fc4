"""Who answers an access: the address decoder, made from the register description."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hw import registers
from hw.config import Config
from hw.control.target import Access
from hw.registers import CHANNEL, GLOBAL, SEMAPHORE, Block

__all__ = ["Decode", "Owner"]


class Owner(enum.Enum, shape=3):
    """Who answers an access."""

    NOBODY = 0
    """SLVERR: nothing there, not built, not writable, or part of a word that must be whole."""
    GLOBAL = 1
    DOORBELL = 2
    """A write of a valid handle; an invalid one is GLOBAL, where it has no effect."""
    CHANNEL = 3
    SEMAPHORE = 4


_OWNERS = ((GLOBAL, Owner.GLOBAL), (CHANNEL, Owner.CHANNEL), (SEMAPHORE, Owner.SEMAPHORE))


class Decode(wiring.Component):
    """Registered: `owner` belongs to the `access` of the cycle before.

    Registers that live in this unit take single bytes (`wstrb`). What leaves it, doorbells and the
    other two blocks, takes whole words only.

    Members
    -------
    access : the access; of `data` only the doorbell's handle is looked at.
    owner : who answers it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({"access": In(Access), "owner": Out(Owner)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.owner.eq(Owner.NOBODY)
        for block, owner in _OWNERS:
            mine = Signal(name=f"is_{block.name.lower()}")
            m.d.comb += mine.eq(self._inside(block) & self._allowed(block))
            with m.If(mine):
                m.d.sync += self.owner.eq(owner)
        rung = Signal()
        m.d.comb += rung.eq(
            (self.access.word == registers.address("DOORBELL") // 4)
            & self.access.write
            & self.access.lanes.all()
            & self._handle()
        )
        with m.If(rung):
            m.d.sync += self.owner.eq(Owner.DOORBELL)
        return m

    def _inside(self, block: Block) -> Value:
        """Whether the address belongs to a set of `block` that was built."""
        low, high = _log2(block.stride) - 2, _log2(block.stride * block.count) - 2
        here = self.access.word[high:] == block.base >> (high + 2)
        if block.count == 1:
            return here
        return here & (self.access.word[low:high] < block.built(self._config))

    def _allowed(self, block: Block) -> Value:
        """Whether the set has a register at this address that may be accessed like this."""
        word = self.access.word[: _log2(block.stride) - 2]
        parts = [r for r in block if r.access.writable and block is GLOBAL and r.name != "DOORBELL"]
        wholes = [r for r in block if r.access.writable and r not in parts]

        def among(some) -> Value:
            return word.matches(*(register.offset // 4 for register in some))

        writable = among(parts) | (among(wholes) & self.access.lanes.all())
        return (self.access.write & writable) | (~self.access.write & among(block))

    def _handle(self) -> Value:
        """Whether the written handle names a channel that was built."""
        doorbell = data.View(_layout("DOORBELL"), self.access.data)
        return (doorbell.CHID < self._config.channels) & (doorbell.RUNLIST_ID == 0)


def _layout(name: str) -> data.FlexibleLayout:
    """Layout of a global register."""
    fields = {f.name: data.Field(f.width, f.lo) for f in GLOBAL[name].fields}
    return data.FlexibleLayout(32, fields)


def _log2(number: int) -> int:
    """Exponent of a power of two."""
    return number.bit_length() - 1
