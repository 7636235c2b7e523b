"""The modes of a sink that is a table, and which options belong to which: the same for Delta and PostgreSQL."""

from __future__ import annotations

from typing import Protocol

from floodmark.errors import ConfigError

MODES = ("append", "merge", "replace")


class TableOptions(Protocol):
    """What a table's mode is judged by."""

    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def sequence(self) -> tuple[str, ...]: ...
    @property
    def delete_when(self) -> str | None: ...


def check_modes(sink: TableOptions) -> None:
    """Raise ConfigError for a mode that is not known, lacks something, or has an option of another mode."""
    if sink.mode not in MODES:
        raise ConfigError(f"mode: {sink.mode!r} is not known.", hint=f"one of: {', '.join(MODES)}")
    if sink.mode == "merge" and not sink.key:
        raise ConfigError(f"sink '{sink.name}' merges and has no key.", hint="name the columns in `key: [...]`")
    if sink.by and sink.mode != "replace":
        raise ConfigError(f"sink '{sink.name}' has `by` in mode {sink.mode}.", hint="`by` goes with `mode: replace`")
    if (sink.sequence or sink.delete_when) and sink.mode != "merge":
        raise ConfigError(
            f"sink '{sink.name}' has `sequence` or `delete_when` in mode {sink.mode}.", hint="use `mode: merge`"
        )


def column_names(given: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Columns as a tuple, also where one is given as a bare name."""
    return (given,) if isinstance(given, str) else tuple(given)
