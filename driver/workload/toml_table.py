"""Checked access to the tables of a workload file; errors name file, table and key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LONGEST", "Table", "WorkloadError"]

LONGEST = 1 << 40
"""Upper bound of times and counts, far beyond any simulation."""


class WorkloadError(ValueError):
    """A workload file is not valid; the message names file, table and key."""


@dataclass
class Table:
    """A table of the file; `what` names it in errors. All methods raise `WorkloadError`."""

    file: str
    what: str
    values: Mapping[str, Any]

    def error(self, message: str) -> WorkloadError:
        return WorkloadError(f"{self.file}: {self.what}: {message}")

    def known(self, keys: set[str]) -> None:
        for key in self.values:
            if key not in keys:
                raise self.error(f"unknown key {key!r}; known keys: {', '.join(sorted(keys))}")

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error(f"{key} is not a table: write [{key}]")
        return value

    def tables(self, key: str) -> list["Table"]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"{key} is not a list of tables: write [[{key}]]")
        found = []
        for number, item in enumerate(value, 1):
            name = item.get("name")
            title = f" ({name!r})" if isinstance(name, str) else ""
            found.append(Table(self.file, f"{key} {number}{title}", item))
        return found

    def number(self, key: str, default: int | None, low: int = 0, high: int = LONGEST) -> int:
        value = self.values.get(key, default)
        if value is None:
            raise self.error(f"{key} is missing")
        if type(value) is not int:
            raise self.error(f"{key} = {value!r} is not an integer")
        if not low <= value <= high:
            raise self.error(f"{key} = {value} is outside {low} … {high}")
        return value

    def text(self, key: str, default: str | None, choices: Sequence[str] = ()) -> str:
        value = self.values.get(key, default)
        if value is None:
            raise self.error(f"{key} is missing")
        if not isinstance(value, str) or not value:
            raise self.error(f"{key} = {value!r} is not a string")
        if choices and value not in choices:
            raise self.error(f"{key} = {value!r} is not one of {', '.join(map(repr, choices))}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if type(value) is not bool:
            raise self.error(f"{key} = {value!r} is neither true nor false")
        return value

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise self.error(f"{key} = {value!r} is not a list of integers")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"{key} = {value!r} is not a list of strings")
        return tuple(value)
