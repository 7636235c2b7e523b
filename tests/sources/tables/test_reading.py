"""What is refused before a table is read."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError
from floodmark.inputs.yaml import parse
from floodmark.probes.tables import CursorColumn, ResolvedCursor
from floodmark.sources.tables.reading import require_ordered


def test_the_hint_for_a_number_that_is_read_as_text_can_be_pasted() -> None:
    """A comma inside braces ends a value in YAML, unless it is quoted."""
    with pytest.raises(ConfigError) as refused:
        require_ordered(ResolvedCursor((CursorColumn("x", "int", "bigint"),)), {"x": "string"})
    assert parse(refused.value.hint, "hint")[0] == {"types": {"x": "decimal(38,10)"}}
