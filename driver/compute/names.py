"""Settings given by name."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

__all__ = ["by_name"]


_Setting = TypeVar("_Setting", bound=Enum)


def by_name(
    wanted: _Setting | str, names: Mapping[str, _Setting], what: str, error: type[ValueError]
) -> _Setting:
    """Look up a setting, with case and surrounding blanks ignored; one that is not a string is
    returned as is.

    Raises `error` with the known names; `what` names the setting with its article.
    """
    if not isinstance(wanted, str):
        return wanted
    found = names.get(wanted.strip().lower())
    if found is None:
        raise error(f"{wanted!r} is not {what}: choose from {', '.join(names)}")
    return found
