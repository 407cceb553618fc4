"""Limits of an application's launches, set by its server."""

from dataclasses import replace

from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.sm_set import SmSetError
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.messages import Welcome
from signalbox.driver.runtime.limits import MOST, Limit

__all__ = ["LaunchLimits"]


class LaunchLimits:
    """Limits of the launches of one application. `welcome` : the server's answer with the limits.

    The records of launches are in the application's memory, so its driver enforces these limits.
    """

    def __init__(self, welcome: Welcome) -> None:
        self._nests = bool(welcome.info.nested_kernels)
        self._depth, self._priority = welcome.depth, welcome.priority
        self._sms = frozenset(welcome.sms)

    def applied(self, launch: KernelLaunch, *, child: bool = False) -> KernelLaunch:
        """The launch, restricted to the SMs of the application. `child` : whether kernels launch
        it. Raises `SmSetError` if the application has none of the SMs that the launch names;
        `DeviceError` for a device priority or a nesting depth that the application cannot have, and
        for a limit of pending launches below the server's."""
        self._check_depth(launch, child=child)
        most = MOST[Limit.PENDING_LAUNCHES]
        if self._nests and 0 < launch.pending < most:
            raise DeviceError(
                f"{launch.pending} pending launches: the limit is the server's, {most}"
            )
        if launch.priority > self._priority:
            raise DeviceError(
                f"device priority {launch.priority} is above {self._priority}, the highest that "
                "the server allows this application"
            )
        return replace(launch, sms=self._share(launch.sms))

    def _check_depth(self, launch: KernelLaunch, *, child: bool) -> None:
        """Raise `DeviceError` for a nesting depth other than the server's, which holds for all
        applications, and 1, with which there are no children."""
        depth, most = launch.depth, self._depth
        if depth > most:
            raise DeviceError(f"a nesting depth of {depth} is more than the {most} of the server")
        if self._nests and 1 < depth < most:
            raise DeviceError(
                f"a nesting depth of {depth} is less than the {most} of the server, which holds "
                f"for all applications: set it to {most}, or to 1 for no nested launches"
            )
        if self._nests and child and depth == 1:
            raise DeviceError(
                f"a nesting depth of 1 allows no children: set it to {most}, that of the server"
            )

    def _share(self, wanted: frozenset[int] | None) -> frozenset[int] | None:
        """Those of the wanted SMs that the application may use; None stands for all. Raises
        `SmSetError` if there is none."""
        if not self._sms:
            return wanted
        share = self._sms if wanted is None else self._sms & wanted
        if wanted and not share:
            raise SmSetError(
                f"SMs {sorted(wanted)}: the server allows this application only {sorted(self._sms)}"
            )
        return share
