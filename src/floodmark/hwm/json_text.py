"""Values that a person types as JSON, for the kinds whose value is more than one word."""

from __future__ import annotations

import json
from decimal import Decimal

from floodmark.errors import MarkInvalid


def from_json_text(kind: str, value: object) -> object:
    """What the text of a JSON list or object means; anything else as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value

    def without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise MarkInvalid(kind, value, reason="a key is there twice")
        return found

    try:
        meant: object = json.loads(value, parse_float=Decimal, object_pairs_hook=without_doubles)
    except json.JSONDecodeError as error:
        raise MarkInvalid(kind, value, reason=f"not JSON: {error}") from error
    return meant
