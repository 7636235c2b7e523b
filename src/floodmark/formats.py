"""Versions of what is stored: an older program refuses what a newer one wrote, instead of misreading it.

JSON carries its version under `format`, a database in its own way. What has none was written before there were
versions, and is version 1. `docs/formats.md` lists every format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from floodmark.errors import FormatTooNew

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "format"
FIRST = 1


def with_format(facts: Mapping[str, Any], version: int = FIRST) -> dict[str, Any]:
    """The facts with their version, as they are stored."""
    return {KEY: version, **facts}


def without_format(stored: Mapping[str, Any], what: str, *, where: str, known: int = FIRST) -> dict[str, Any]:
    """The facts that were stored, without their version. Raises FormatTooNew, and ValueError for a damaged one."""
    require_known(stored.get(KEY, FIRST), what, where=where, known=known)
    return {name: fact for name, fact in stored.items() if name != KEY}


def require_known(found: int | str, what: str, *, where: str, known: int = FIRST) -> None:
    """Raises FormatTooNew for a version that this program does not know yet."""
    if int(found) > known:
        raise FormatTooNew(what, where=where, found=int(found), known=known)
