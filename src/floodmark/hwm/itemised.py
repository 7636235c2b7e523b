"""The capability of a mark that grows by items, so that a store can keep the added ones alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.hwm.mark import HWM, Json


@runtime_checkable
class Itemised(Protocol):
    """A mark whose value is a set of named items."""

    def items(self) -> Mapping[str, Json]:
        """Every item by its name; the mark is `with_items({})` and these."""

    def with_items(self, items: Mapping[str, Json]) -> HWM[Any]:
        """The same mark, also in its `modified_time`, with exactly these items; with none of them it is the head."""
