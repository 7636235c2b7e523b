"""The types of a class's fields, found where the class was defined and taken along to where its elements are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeAlias, get_args, get_type_hints

from floodmark.errors import ConfigError

Hints: TypeAlias = "dict[str, Any]"
KNOWN: dict[type, Hints] = {}
"""A class of a script travels to the tasks as a value, and there the names in its annotations mean nothing."""


def hints_of(cls: type) -> Hints:
    """The types of a class's fields. Raises ConfigError if one is named that cannot be found."""
    if cls in KNOWN:
        return KNOWN[cls]
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise ConfigError(
            f"the fields of {cls.__name__} cannot be understood: {error}.",
            hint="define the class, and what it names, at the top of a module",
        ) from error


def all_hints(cls: type) -> dict[type, Hints]:
    """The types of the fields of a class and of every dataclass inside it."""
    found: dict[type, Hints] = {}
    _collect(cls, found)
    return found


def remember(hints: Mapping[type, Hints]) -> None:
    """Take over what was found elsewhere."""
    KNOWN.update(hints)


def mentions(cls: type, wanted: type) -> bool:
    """Whether a field of a class, or of one inside it, has the wanted type."""
    fields = [hint for hints in all_hints(cls).values() for hint in hints.values()]
    return any(_has(hint, wanted) for hint in fields)


def _collect(hint: object, found: dict[type, Hints]) -> None:
    if isinstance(hint, type) and is_dataclass(hint) and hint not in found:
        found[hint] = hints_of(hint)
        for inner in found[hint].values():
            _collect(inner, found)
    for argument in get_args(hint):
        _collect(argument, found)


def _has(hint: object, wanted: type) -> bool:
    return hint is wanted or any(_has(argument, wanted) for argument in get_args(hint))
