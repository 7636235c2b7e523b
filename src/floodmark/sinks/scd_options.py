"""Which options of a table with history go together."""

from __future__ import annotations

from typing import Protocol

from floodmark.errors import ConfigError

TIES = ("error", "quarantine", "last_arrival")
CHANGES = ("log", "feed", "snapshot")


class HistoryOptions(Protocol):
    """What is judged."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def sequence(self) -> tuple[str, ...]: ...
    @property
    def track(self) -> tuple[str, ...]: ...
    @property
    def delete_when(self) -> str | None: ...
    @property
    def untracked(self) -> tuple[str, ...]: ...
    @property
    def on_conflict(self) -> str: ...
    @property
    def changes(self) -> str: ...
    @property
    def allow_empty(self) -> bool: ...


def check_options(sink: HistoryOptions) -> None:
    """Raise ConfigError for what is missing, not known, or belongs to another kind of changes."""
    for option, given, known in (("on_conflict", sink.on_conflict, TIES), ("changes", sink.changes, CHANGES)):
        if given not in known:
            raise ConfigError(f"{option}: {given!r} is not known.", hint=f"one of: {', '.join(known)}")
    if not sink.key:
        raise ConfigError(f"sink '{sink.name}' has no key.", hint="name the columns in `key: [...]`")
    if sink.changes == "log" and not sink.sequence:
        raise ConfigError(
            f"sink '{sink.name}' has no sequence.", hint="name the column that says since when a row holds"
        )
    if sink.delete_when and sink.changes != "log":
        raise ConfigError(f"sink '{sink.name}' has `delete_when` for a {sink.changes}.", hint="leave it out")
    if sink.allow_empty and sink.changes != "snapshot":
        raise ConfigError(f"sink '{sink.name}' has `allow_empty` for a {sink.changes}.", hint="leave it out")
    if sink.track and sink.untracked:
        raise ConfigError(f"sink '{sink.name}' has `track` and `untracked`.", hint="give one of the two")
    both = [name for name in sink.track if name in (*sink.key, *sink.sequence)]
    if both:
        raise ConfigError(f"sink '{sink.name}' tracks '{both[0]}', its key or sequence.", hint="leave it out of track")
