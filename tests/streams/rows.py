"""Records as they enter a stream, for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.streams.elements import Element, record_of, records_in

if TYPE_CHECKING:
    from collections.abc import Mapping


def element_of(uuid: Mapping[str, object], value: object) -> Element:
    """One record."""
    record = record_of(uuid)
    return Element((uuid, value), () if record is None else (record,))


def element_of_rows(rows: list[tuple[Mapping[str, object], object]]) -> Element:
    """Records that enter together, as a list."""
    return Element(rows, tuple(records_in(rows)))
