"""Task lists: driver-allocated memory in which tasks wait for a slot (ASID-23)."""

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.config import level_bits, list_entry_bytes

__all__ = ["TaskListError", "TaskLists", "list_bytes", "log_size"]

_MOST_LOG_SIZE = 20

_POLL_CYCLES = 50
"""Cycles between two polls for an idle compute engine."""

_PATIENCE_CYCLES = 200_000
"""Cycles after which the compute engine counts as hung."""


class TaskListError(Exception):
    """The compute engine does not become idle, so its lists cannot be moved; or it has lost a task
    from a list."""


def log_size(rows: int, waiting: int) -> int:
    """Binary logarithm of the number of entries of a list, which has room for `waiting` tasks and
    those evicted from `rows` rows of the kernel table. Raises `ValueError`."""
    size = (rows + waiting - 1).bit_length()
    if waiting < 1 or size > _MOST_LOG_SIZE:
        raise ValueError(f"waiting = {waiting}: 1 … {(1 << _MOST_LOG_SIZE) - rows}")
    return size


def list_bytes(
    *, rows: int, contexts: int, waiting: int, save_places: int, nested_kernels: int
) -> int:
    """Size of all task lists; see `TaskLists`. Raises `ValueError`."""
    lists = contexts << level_bits(nested_kernels)
    return lists * list_entry_bytes(save_places) << log_size(rows, waiting)


class TaskLists:
    """All task lists of a machine, in one buffer, used through one address space at a time.

    Parameters
    ----------
    rows, contexts : numbers of kernel table rows and contexts of the machine.
    waiting : maximum number of waiting tasks of one priority in each context.
    save_places, nested_kernels : of the machine.
    """

    def __init__(
        self,
        control: ControlPort,
        memory: Memory,
        *,
        rows: int,
        contexts: int,
        waiting: int,
        save_places: int,
        nested_kernels: int,
    ) -> None:
        self._control = control
        self._lock = FairLock(control.machine)
        self._log_size = log_size(rows, waiting)
        size = list_bytes(
            rows=rows,
            contexts=contexts,
            waiting=waiting,
            save_places=save_places,
            nested_kernels=nested_kernels,
        )
        self._buffer = memory.allocate_pages(size, name="task lists")
        self._space: AddressSpace | None = None

    async def place(self, space: AddressSpace, asid: int) -> None:
        """Move the lists to `space`, unless they are already there. The space must keep `asid` as
        long as the lists are in it. Raises `TaskListError`, `OutOfMemory`, `OutOfAddresses`."""
        async with self._lock:
            if self._space is space:
                return
            if not space.has(self._buffer):
                await space.map(self._buffer, above=space.upper)
            await self.rest()
            va = space.at(self._buffer)
            self._space = None  # until all registers are written: the call may be cancelled
            await self._control.write("TASK_LISTS_LO", va & 0xFFFF_FFFF)
            await self._control.write("TASK_LISTS_HI", va >> 32)
            await self._control.write("TASK_LISTS_SIZE", LOG_SIZE=self._log_size, ASID=asid)
            self._space = space

    async def rest(self) -> None:
        """Wait until the compute engine holds no task and binds no address space. Raises
        `TaskListError`."""
        waited = 0
        while await self._works():
            if waited >= _PATIENCE_CYCLES:
                raise TaskListError(f"the compute engine still has tasks after {waited} cycles")
            await self._control.machine.wait_cycles(_POLL_CYCLES)
            waited += _POLL_CYCLES

    async def _works(self) -> bool:
        """Whether the compute engine has tasks, or binds address spaces."""
        state = await self._control.read_fields("TASK_STATE")
        return bool(not state["IDLE"] or state["STARTING"])

    def free(self) -> None:
        """Free the memory, once no address space maps it."""
        self._buffer.free()
