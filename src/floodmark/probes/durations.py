"""Spans of time as people write them: `500ms`, `5s`, `10m`, `1h`, `7d`, or a bare number of seconds."""

from __future__ import annotations

import re

from floodmark.errors import ConfigError

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SHAPE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*")


def seconds_in(duration: str | float, *, field: str) -> float:
    """The duration in seconds; `field` is named if it cannot be read."""
    found = SHAPE.fullmatch(str(duration))
    if not found:
        raise ConfigError(f"{field}: {duration!r} is not a duration.", hint="write it like 500ms, 5s, 10m, 1h or 7d")
    number, unit = found.groups()
    return float(number) * UNITS[unit or "s"]
