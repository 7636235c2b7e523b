"""Sources that read some rows again, to find those that came late: only sinks that know a row again may take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.sinks.contract import Discerning, Sink
from floodmark.sources.contract import Repeating, Restating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.rules import RuleSet
    from floodmark.sources.contract import Source


def without_repeats(job: str, sources: Sequence[Source], sinks: tuple[Sink, ...], rules: RuleSet) -> tuple[Sink, ...]:
    """The sinks as they leave out what they have, if a source may repeat rows. Raises ConfigError if one cannot."""
    by = tuple(name for source in sources if isinstance(source, Repeating) for name in source.repeats_by())
    if not by:
        return sinks
    if rules.quarantines():
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag) and would quarantine them again.",
            hint="choose safety: fence or {delay: 30s}, or another action than quarantine",
        )
    return tuple(_discerning(job, sink, by) for sink in sinks)


def require_merging(job: str, sources: Sequence[Source], sinks: Sequence[Sink]) -> None:
    """A row that comes again after it has changed has to replace what it was. Raises ConfigError."""
    choices = [source.restates() for source in sources if isinstance(source, Restating)]
    appending = [sink.name for sink in sinks if getattr(sink, "mode", None) != "merge"]
    if any(choices) and appending:
        choice, sink = next(filter(None, choices)), appending[0]
        raise ConfigError(
            f"job '{job}' reads a row again once it has a cursor ({choice}), and its sink '{sink}' would keep both.",
            hint="write to a sink with mode: merge, or choose on_null: exclude or coalesce",
        )


def _discerning(job: str, sink: Sink, by: tuple[str, ...]) -> Sink:
    able = sink.without_repeats(by) if isinstance(sink, Discerning) else None
    if able is None:
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag), and its sink '{sink.name}' would write them twice.",
            hint="use a Delta table, or mode: merge; or choose safety: fence or {delay: 30s}",
        )
    return able
