"""A Delta table as it stood at one version: its columns and its files, by the log alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.hwm import Json
from floodmark.probes.places import native_uri

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Stand:
    """Columns with their types as Delta writes them, and the size of each file in bytes."""

    columns: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


NOTHING = Stand()
"""How a table stood before its first version."""


def stand_at(where: str, version: int) -> Stand | None:
    """The table at a version; None if its log no longer reaches back to it."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version < 0:
        return NOTHING
    try:
        table = DeltaTable(native_uri(where), version=version)
        files = pa.table(table.get_add_actions(flatten=True))
    except (DeltaError, OSError):
        return None
    sizes = zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True)
    return Stand(column_types(table), dict(sizes))


def column_types(table: DeltaTable) -> dict[str, str]:
    """The table's columns, each with its type as Delta writes it."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {each["name"]: _type(each["type"]) for each in fields}


def _type(told: Json) -> str:
    return told if isinstance(told, str) else json.dumps(told, sort_keys=True)
