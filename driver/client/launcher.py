"""Launches of a client, all in the server's universal context."""

from collections.abc import Callable

from signalbox.driver.client.connection import Connection
from signalbox.driver.compute.contexts import Context, Contexts
from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.compute.preemption import PreemptionError, Urgency
from signalbox.driver.faults.refused_child import RefusedChild
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import FencePool
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.messages import Done, Kill
from signalbox.hw.qmd import Placement

__all__ = ["ClientLauncher"]


class ClientLauncher(Launcher):
    """Compute engine of a client's device.

    Parameters
    ----------
    depth : greatest nesting depth of kernels.
    """

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        info: DeviceInfo,
        fences: Callable[[AddressSpace], FencePool],
        depth: int,
    ) -> None:
        super().__init__(machine, info, fences)
        self._connection, self._depth = connection, depth

    @property
    def contexts(self) -> Contexts:
        """Raises `DeviceError`: there is one context, for all applications."""
        raise _no_contexts()

    async def _enter(self, space: AddressSpace, launch: KernelLaunch) -> None:
        if launch.depth > self._depth:
            raise DeviceError(
                f"a nesting depth of {launch.depth} is more than the {self._depth} of the server"
            )

    def _check_urgency(self, wanted: Urgency) -> None:
        if wanted is Urgency.SAVE and not self._info.save_places:
            raise PreemptionError("the server's machine cannot stop blocks")

    def _policy(self, space: AddressSpace) -> Placement:
        return Placement.DEEP  # the default where address spaces share a context (ASID-32)

    async def kill_task(self, space: AddressSpace, record: int) -> None:
        """See `Launcher.kill_task`."""
        await self._connection.call(Kill(space.base, record), Done)

    async def kill_context(self, context: Context) -> None:
        """Raises `DeviceError` as `contexts`."""
        raise _no_contexts()

    async def refused_child(self) -> RefusedChild | None:
        """Raises `DeviceError`: the machine records it for all applications together."""
        raise DeviceError("refused launches of kernels are recorded for the server alone")


def _no_contexts() -> DeviceError:
    return DeviceError("all applications of a server share one context, which is the server's")
