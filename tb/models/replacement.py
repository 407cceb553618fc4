"""Reference model of tree pseudo-LRU replacement, as in textbooks (ASID-11)."""

from collections.abc import Hashable

__all__ = ["PseudoLru"]


class PseudoLru:
    """`sets` sets of `ways` places each; `ways` is a power of two.

    A new key takes the lowest empty place of its set. If there is none, it takes the place to which
    the tree points: each node points away from the half that was used last. The tree is stored as a
    heap: its root is node 1, and the places follow the last node.
    """

    def __init__(self, ways: int, sets: int = 1) -> None:
        self._ways = ways
        self._places: list[list[Hashable | None]] = [[None] * ways for _ in range(sets)]
        self._points = [[1] * ways for _ in range(sets)]

    def access(self, key: Hashable, group: int = 0) -> bool:
        """Use a key of the set `group`. Returns whether it was present."""
        places = self._places[group]
        hit = key in places
        if not hit:
            way = places.index(None) if None in places else self._victim(group)
            places[way] = key
        self._use(group, places.index(key))
        return hit

    def remove(self, key: Hashable, group: int = 0) -> None:
        """Remove a key, if it is present."""
        self._places[group] = [None if one == key else one for one in self._places[group]]

    def _victim(self, group: int) -> int:
        node = 1
        while node < self._ways:
            node = 2 * node + self._points[group][node]
        return node - self._ways

    def _use(self, group: int, way: int) -> None:
        node = way + self._ways
        while node > 1:
            node, upper = divmod(node, 2)
            self._points[group][node] = 1 - upper
