"""Reference model of tree pseudo-LRU, as textbooks have it (ASID-11)."""

from collections.abc import Hashable

__all__ = ["PseudoLru"]


class PseudoLru:
    """Sets of `ways` places each, a power of two.

    The nodes of a set's tree stand as in a heap, the root at 1, the places behind the last node.
    Each points away from the half that was used last. A key that is new takes the lowest empty
    place; without one, the place to which the tree points.
    """

    def __init__(self, ways: int, sets: int = 1) -> None:
        self._ways = ways
        self._places: list[list[Hashable | None]] = [[None] * ways for _ in range(sets)]
        self._points = [[1] * ways for _ in range(sets)]

    def access(self, key: Hashable, group: int = 0) -> bool:
        """Use a key of the set `group`; whether it was there."""
        places = self._places[group]
        hit = key in places
        if not hit:
            way = places.index(None) if None in places else self._victim(group)
            places[way] = key
        self._use(group, places.index(key))
        return hit

    def remove(self, key: Hashable, group: int = 0) -> None:
        """Empty the place of a key, if it has one."""
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
