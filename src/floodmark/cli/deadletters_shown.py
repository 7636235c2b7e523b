"""A dead letter as the command line shows it, of a stream or of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Letter:
    """`whole` is what only `show` prints; `id` and `can_run` are those of a job's letter."""

    of: str
    kind: str
    letter: str
    status: str
    at: str
    attempts: int
    step: str
    error: str
    whole: Mapping[str, object] = field(default_factory=dict)
    id: str | None = None
    can_run: bool = True

    def entry(self) -> dict[str, object]:
        """As `list --json` prints it."""
        named = ("of", "kind", "letter", "status", "at", "attempts", "step", "error")
        return {name: getattr(self, name) for name in named}
