"""Names of jobs, sources and sinks: parts of ledgers, folders and files, so each is plain and used once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from floodmark.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


def require_name(what: str, name: str) -> None:
    """Names become parts of ledgers, folders and files."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{what} name {name!r} cannot be used.",
            hint="use letters, digits, '_', '-' and '.', and begin with none of the last two",
        )


def require_names(job: str, what: str, names: Sequence[str]) -> None:
    """Ledgers and marks are known by these names, so each is used once."""
    if not names:
        raise ConfigError(f"job '{job}' has no {what}.", hint=f"give it at least one {what}")
    for name in names:
        require_name(what, name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"job '{job}' has two {what}s named '{twice[0]}'.", hint=f"give each {what} a `name`")
