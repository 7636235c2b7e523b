"""A table of Spark's catalog in the project file, and the same in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.project.kinds import Site
from floodmark.project.kinds.servers import CatalogSource
from floodmark.sources import Cursor, Table


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (
            {"name": "system.billing.usage", "cursor": {"column": "day", "safety": {"lag": "1d"}}, "key": ["id"]},
            Table("system.billing.usage", Cursor(("day",), safety={"lag": "1d"}), key=["id"]),
        ),
        (
            {"name": "s.t", "alias": "prices", "snapshot": True, "key": "sku", "absent": "delete", "allow_empty": True},
            Table("s.t", name="prices", snapshot=True, key="sku", absent="delete", allow_empty=True),
        ),
    ],
)
def test_the_file_and_python_spell_the_same_source(text: dict[str, object], source: Table) -> None:
    """`name` is the table's there; what its mark is known by is the alias."""
    assert CatalogSource.model_validate({"type": "table", **text}).build(Site(Path())) == source
