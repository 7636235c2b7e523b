"""How long somebody waits: milliseconds, as watermill counts, or text with its unit."""

from __future__ import annotations

from floodmark.errors import ConfigError
from floodmark.probes.durations import seconds_in


def wait_seconds(given: float | str | None, *, field: str) -> float | None:
    """The seconds; None, or infinity, is for ever. Raises ConfigError for what is no length of time."""
    if given is None or given == float("inf"):
        return None
    seconds = given / 1000 if isinstance(given, (int, float)) else seconds_in(given, field=field)
    if not seconds > 0:
        raise ConfigError(f"{field}: {given!r} is no time to wait.", hint="milliseconds, or text like '20s'")
    return seconds
