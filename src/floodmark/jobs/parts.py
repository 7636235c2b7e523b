"""What a job may be made of: whatever else is handed in is refused when the job is made, and not inside Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from floodmark.errors import ConfigError
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.hwm.parsing import seconds_in
from floodmark.step import Transform
from floodmark.step.work import OnSchemaChange

if TYPE_CHECKING:
    from floodmark.jobs.job import Job


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
EXAMPLES = {"sinks": 'sinks=[fm.sinks.Delta("lake/orders")]', "rules": 'rules=[fm.rules.NotNull("id")]'}
LONGEST_SHOWN = 40


def require_parts(job: Job) -> None:
    """Raise ConfigError where a part of the job is something else: a path for a source, one sink for a list of them."""
    _require_sources(job)
    _require_list(job, "sinks", "write")
    _require_list(job, "rules", "name")
    made = job.transform
    if not (made is None or isinstance(made, str | Transform) or callable(made)):
        hint = "SQL over `source`, or a function that takes a DataFrame and returns one"
        raise ConfigError(f"job '{job.name}': transform is {text_of(made)}.", hint=hint)
    known = get_args(OnSchemaChange)
    if job.on_schema_change not in known:
        near = did_you_mean(nearest_names(str(job.on_schema_change), known)) or f"one of: {', '.join(known)}"
        raise ConfigError(f"job '{job.name}': on_schema_change is {text_of(job.on_schema_change)}.", hint=near)
    if job.every is not None:
        seconds_in(job.every, field="every")


def _require_sources(job: Job) -> None:
    if isinstance(job.source, str):
        hint = f"fm.sources.Files({job.source!r}) reads a folder, fm.sources.Delta a table"
        raise ConfigError(f"job '{job.name}': source is the text {text_of(job.source)}, and no source.", hint=hint)
    for source in job.sources:
        if not hasattr(source, "look"):
            hint = "fm.sources has them, as in source=fm.sources.Files('in')"
            raise ConfigError(f"job '{job.name}': source is {text_of(source)}, and no source.", hint=hint)


def _require_list(job: Job, part: str, has: str) -> None:
    given = getattr(job, part)
    if not isinstance(given, Sequence) or isinstance(given, str):
        example = f"{part}=[{text_of(given)}]" if hasattr(given, has) else EXAMPLES[part]
        raise ConfigError(f"job '{job.name}': {part} has to be a list.", hint=f"write {example}")
    for each in given:
        if not hasattr(each, has):
            said = f"job '{job.name}': {text_of(each)} does not belong into {part}."
            raise ConfigError(said, hint=f"fm.{part} has what does, as in {EXAMPLES[part]}")


def text_of(part: object) -> str:
    """What was given, as one would write it, cut where it is long."""
    text = repr(part) if isinstance(part, str | int | float | bytes | None) else f"{type(part).__name__}(…)"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def require_name(what: str, name: str) -> None:
    """Names become parts of ledgers, folders and files, so each is plain."""
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
