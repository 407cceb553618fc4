"""Launches of a client, in the context that the server has given it."""

from collections.abc import Callable

from signalbox.driver.client.connection import Connection
from signalbox.driver.client.launch_limits import LaunchLimits
from signalbox.driver.client.spaces import ClientSpaces
from signalbox.driver.compute.contexts import Context, Contexts
from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.compute.preemption import PreemptionError, Urgency
from signalbox.driver.faults.refused_child import RefusedChild
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import FencePool
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.messages import Done, Kill, Welcome
from signalbox.hw.qmd import Placement

__all__ = ["ClientLauncher"]


class ClientLauncher(Launcher):
    """Compute engine of a client's device. `spaces` : all address spaces of the client."""

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        spaces: ClientSpaces,
        fences: Callable[[AddressSpace], FencePool],
        welcome: Welcome,
    ) -> None:
        super().__init__(machine, welcome.info, fences)
        self._connection, self._spaces = connection, spaces
        self._limits, self._shared = LaunchLimits(welcome), welcome.shared

    @property
    def contexts(self) -> Contexts:
        """Raises `DeviceError`: contexts are the server's."""
        raise _no_contexts()

    @property
    def depth(self) -> int:
        """1: the depth in contexts is the server's."""
        return 1

    async def _enter(self, space: AddressSpace, launch: KernelLaunch) -> None:
        """Does nothing: the server has made the context ready."""

    def _applied(self, launch: KernelLaunch, *, child: bool = False) -> KernelLaunch:
        return self._limits.applied(launch, child=child)

    def _check_urgency(self, wanted: Urgency) -> None:
        if wanted is Urgency.SAVE and not self._info.save_places:
            raise PreemptionError("the server's machine cannot stop blocks")

    def _policy(self, space: AddressSpace) -> Placement:
        several = self._shared or len([*self._spaces]) > 1
        return Placement.DEEP if several else Placement.WIDE  # the defaults of ASID-32

    async def kill_task(self, space: AddressSpace, record: int) -> None:
        """See `Launcher.kill_task`."""
        await self._connection.call(Kill(space.base, record), Done)

    async def kill_context(self, context: Context) -> None:
        """Raises `DeviceError` as `contexts`."""
        raise _no_contexts()

    async def refused_child(self) -> RefusedChild | None:
        """Raises `DeviceError`: the machine has one record for all applications together."""
        raise DeviceError("refused launches of kernels are recorded for the server alone")


def _no_contexts() -> DeviceError:
    return DeviceError("the contexts of a server's applications are the server's")
