"""Reads the trees of kernels of a workload file ([[child]], `driver/workload/reader.py`)."""

from collections.abc import Iterator
from dataclasses import replace

from signalbox.driver.workload.specs import KernelSpec, LimitsSpec
from signalbox.driver.workload.toml_table import Table

__all__ = ["adopt"]

Kernels = list[tuple[Table, KernelSpec]]


def adopt(kernels: Kernels, limits: LimitsSpec) -> Kernels:
    """Complete the kernels: each child gets its parent, and the stream and count of its root, which
    is the [[kernel]] from which it descends. A root waits for all data that its descendants read
    from other work. Returns each root, followed by its descendants. Raises `WorkloadError` unless
    each child has exactly one parent, the nesting depth suffices, and data are complete when they
    are read."""
    family = _Family(kernels, limits)
    found = [one for table, spec in kernels if spec.stream for one in family.grown(table, spec)]
    for table, spec in kernels:
        if spec.name not in {one.name for _, one in found}:
            raise table.error(f"no kernel launches {spec.name!r}")
    return found


class _Family:
    """Kernels, and the parents found so far."""

    def __init__(self, kernels: Kernels, limits: LimitsSpec) -> None:
        self._limits = limits
        self._children = {spec.name: (table, spec) for table, spec in kernels if not spec.stream}
        self._parents: dict[str, str] = {}

    def grown(self, table: Table, root: KernelSpec) -> Kernels:
        """The root with its dependencies, followed by its descendants."""
        below = list(self._below(table, root, 2))
        own = {spec.name for _, spec in below}
        self._check_order(table, root, own, set())
        needs = [name for _, spec in below for name in spec.sources.values() if name not in own]
        waits = replace(root, after=tuple(dict.fromkeys((*root.after, *needs))))
        heir = {"stream": root.stream, "count": root.count}
        return [(table, waits), *((one, replace(spec, **heir)) for one, spec in below)]

    def _below(
        self, table: Table, parent: KernelSpec, depth: int
    ) -> Iterator[tuple[Table, KernelSpec]]:
        """All descendants of a kernel, each after its parent."""
        for key, name in parent.children.items():
            what = f"args: {key} = {name!r}"
            if name not in self._children:
                raise table.error(f"{what}: there is no such [[child]]")
            if name in self._parents:
                raise table.error(f"{what}: {self._parents[name]!r} launches it already")
            if depth > self._limits.nesting_depth:
                raise table.error(
                    f"{what}: it needs nesting_depth = {depth}; [limits] has nesting_depth = "
                    f"{self._limits.nesting_depth}"
                )
            self._parents[name] = parent.name
            where, child = self._children[name]
            child = replace(child, parent=parent.name)
            yield where, child
            yield from self._below(where, child, depth + 1)

    def _check_order(
        self, table: Table, spec: KernelSpec, family: set[str], done: set[str]
    ) -> set[str]:
        """Check that a kernel and its descendants read data of the same family only from children
        that are complete. `done` : names of the children that are complete before the launch of the
        kernel. Returns the names of the kernel and its descendants."""
        for key, name in spec.sources.items():
            if name in family and name not in done:
                raise table.error(f"args: {key} = {name!r}: that is not complete before it")
        names = {spec.name}
        for name in spec.children.values():
            where, child = self._children[name]
            names |= self._check_order(where, child, family, done)
            if spec.reference.ordered:
                done = done | names
        return names
