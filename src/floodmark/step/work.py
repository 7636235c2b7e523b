"""What a step is asked to do: a job as plain values, without the user's spelling of it.

Which parts go together is decided here, before anything is read: whether a batch has to be frozen, and which sinks
may take rows that come twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from floodmark.errors import ConfigError
from floodmark.hwm import HWM, Json
from floodmark.rules import RuleSet
from floodmark.sinks.contract import Atomic, Discerning, Expressing, Freezing, Ordered, Readable, Sink, is_atomic
from floodmark.sinks.modes import TableSink, merges, replaces
from floodmark.sources.contract import (
    Deciding,
    Immutable,
    Repeating,
    Restating,
    Saving,
    Session,
    Snapshotting,
    Source,
    StoredRows,
)
from floodmark.step.repeatable import volatile_calls, why_expression_volatile
from floodmark.step.transform import (
    Function,
    Identity,
    RecordTransform,
    RowByRow,
    Sql,
    Transform,
    over_sources,
    program_fingerprint,
    short_hash,
)
from floodmark.stores.opening import HIDDEN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.step.listeners import RunListener
    from floodmark.stores.record import Intent


OUTSIDE_KINDS = ("backfill", "repair", "replay")
"""Kinds of batches that leave the mark where it is."""
SOURCE = "source '"
ASIDE = "the place of "
"""How what may have changed begins, of a table for rows that are put aside."""
KEY_OF_ASIDE = "@"
"""Before the name of such a table where others stand by their names: no sink can be called so."""
NAMING = ("name", "path", "url", "bootstrap", "driver", "glob", "by")
"""Options that say which source it is: its fingerprint has what counts of them, however they are spelled."""
LOOKING = ("start", "settle", "lag", "on_gap", "on_rewritten", "recursive", "safety", "unique", "max_future")
TUNING = ("partitions", "fetch_rows")
NOT_DECIDING = frozenset((*NAMING, *LOOKING, *TUNING))
"""Options that do not decide the rows of a span which is fixed already."""
SECRET = re.compile(r"password|passwd|secret|token|credential|jaas|user|keystore|truststore|\.key", re.IGNORECASE)
"""Options that say who reads, which decides nothing and must not be stored."""
OnSchemaChange = Literal["fail", "evolve", "ignore"]


@dataclass(frozen=True)
class Work:
    """One job: where rows come from, what happens to them, where they go.

    >>> Work("orders", (fm.testing.RowsSource([], "id long"),), (fm.testing.ListSink(),)).aside_sinks
    ()
    """

    name: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    transform: Transform = field(default_factory=Identity)
    rules: RuleSet = field(default_factory=RuleSet)
    dead_letters: Sink | None = None
    quarantine: Sink | None = None
    on_schema_change: OnSchemaChange = "fail"
    spool_folder: str = str(HIDDEN_FOLDER / "spool")

    def __post_init__(self) -> None:
        if self.rules.quarantines() and self.quarantine is None:
            raise ConfigError(f"job '{self.name}' has no place for its quarantine.", hint="give it `quarantine`")
        require_merging(self.name, self.sources, self.sinks)
        require_steady_expressions(self.name, self.sinks)

    @property
    def aside_sinks(self) -> tuple[Sink, ...]:
        """Where rows go that no other sink gets: dead letters, then the quarantine. Few batches write to them.

        The quarantine is among them for a job without rules, too: an open batch may have been judged by rules that
        were taken out since, and a replay writes to it under the job's numbers.
        """
        return tuple(sink for sink in (self.dead_letters, self.quarantine) if sink is not None)

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        """Everything that keeps the job's numbers in a ledger, in the order in which a batch is written to it."""
        return (*self.sinks, *self.aside_sinks)

    def by_key(self) -> dict[str, Sink]:
        """All of them by what the record knows them by: a sink may have the name of a table for rows put aside."""
        return {**{s.name: s for s in self.sinks}, **{f"{KEY_OF_ASIDE}{s.name}": s for s in self.aside_sinks}}

    def why_spooled(self, *, at_once: bool = False) -> str | None:
        """Why rows are frozen before they are written; None if they need not be.

        Sources are asked only where their answer decides. `at_once`: every sink takes the batch in one transaction.
        """
        reason = self._why_rows_spooled(at_once=at_once)
        saving = [source for source in self.sources if isinstance(source, Saving)]
        if reason is None and self.dead_letters is not None and not all(map(gives_same_rows, saving)):
            return "records that cannot be parsed are read a second time, and must be the same then"
        return reason

    def _why_rows_spooled(self, *, at_once: bool) -> str | None:
        transform = over_sources(self.transform, [source.name for source in self.sources])
        if_changing = why_spooled(self.sinks, transform, self.rules, is_immutable=False, at_once=at_once)
        immutable = [source for source in self.sources if isinstance(source, Immutable)]
        if if_changing is None or len(immutable) < len(self.sources):
            return if_changing
        in_any_case = why_spooled(self.sinks, transform, self.rules, is_immutable=True, at_once=at_once)
        if in_any_case or all(source.gives_same_rows() for source in immutable):
            return in_any_case
        return if_changing

    def needs_position(self) -> bool:
        wanted = any(isinstance(sink, Ordered) and sink.needs_position() for sink in self.sinks)
        return wanted or isinstance(self.transform, RecordTransform)  # a failed record is named by its place

    def fingerprints(self) -> dict[str, str]:
        """What must not change between a crash and its rerun."""
        sinks = {f"sink '{sink.name}'": sink.fingerprint() for sink in self.sinks}
        letters, quarantine = (self._place_of(sink) for sink in (self.dead_letters, self.quarantine))
        sources = {source_label(source.name): options_fingerprint(source) for source in self.sources}
        return {
            **sources,
            "the transform": self.transform.fingerprint(),
            "the rules": self.rules.fingerprint(),
            "the program": program_fingerprint(self.transform),
            **sinks,
            **letters,
            **(quarantine if self.rules.quarantines() else {}),
        }

    def _place_of(self, aside: Sink | None) -> dict[str, str]:
        return {f"{ASIDE}{aside.name}": aside.fingerprint()} if aside is not None else {}

    def changes_since(self, intent: Intent, session: Session) -> list[str]:
        """What is not as it was when this batch was begun; each source is asked which one it is."""
        before, now = dict(intent.fingerprints), self.fingerprints()
        labels = {source_label(source.name) for source in self.sources}
        if not any(what.startswith(SOURCE) for what in before):  # intents of earlier versions did not tell
            before |= {what: now[what] for what in labels}
        # Places that the batch knew nothing of cannot have a row of it; one that it had counts without its rules, too.
        now = {what: text for what, text in now.items() if what in before or not what.startswith(ASIDE)}
        now |= {what: text for what, text in self._place_of(self.quarantine).items() if what in before}
        known = intent.extras.sources or {}
        moved = [s.name for s in self.sources if s.name in known and s.fingerprint(session) != known[s.name]]
        changed = [what for what in {**before, **now} if before.get(what) != now.get(what)]
        return list(dict.fromkeys([*changed, *map(source_label, moved)]))


@dataclass(frozen=True)
class RunRequest:
    """How this run differs from a scheduled one.

    >>> RunRequest(abandon=True).drops_open_batch
    True
    """

    start: str | None = None
    full_refresh: bool = False
    max_rows: int | None = None
    finish: bool = False
    abandon: bool = False
    waits_for_settling: bool = True
    listeners: tuple[RunListener, ...] = ()
    """Who is told when a batch begins and when its mark has moved."""

    @property
    def drops_open_batch(self) -> bool:
        """Whether a batch that was begun is given up instead of finished."""
        return self.abandon or self.full_refresh


def gives_same_rows(source: Source) -> bool:
    """Whether a span of it gives the same rows whenever it is read."""
    return isinstance(source, Immutable) and source.gives_same_rows()


def source_label(name: str) -> str:
    """What a source is called among the things that may have changed."""
    return f"{SOURCE}{name}'"


def options_fingerprint(source: Source) -> str:
    """How a source parses and shapes what it reads; which one it is, its own fingerprint tells."""
    options = source.row_options() if isinstance(source, Deciding) else shown_fields(source)
    return short_hash(type(source).__name__, option_text(options))


def shown_fields(part: object) -> dict[str, object]:
    """The options of a dataclass, without what is kept in it for the life of a process."""
    kept = [each.name for each in fields(part) if each.init and each.compare] if is_dataclass(part) else []
    return {name: getattr(part, name) for name in kept if name not in NOT_DECIDING}


def option_text(value: object, around: tuple[object, ...] = ()) -> str:
    """An option as text that is the same in every process; never with a secret.

    `around` are the values that this one is part of: one that is part of itself has been shown already.
    """
    if any(value is each for each in around):
        return "itself"
    inside = (*around, value)
    if isinstance(value, Mapping):
        shown = {str(name): option_text(each, inside) for name, each in value.items() if not SECRET.search(str(name))}
        return str(sorted(shown.items()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return str([option_text(each, inside) for each in value])
    if value is None or isinstance(value, (str, int, float, os.PathLike)):
        return str(value)
    if isinstance(value, type):
        return f"{value.__qualname__} {value.__annotations__ if '__annotations__' in vars(value) else ''}"
    as_json = getattr(value, "json", None)
    if callable(as_json):  # a type of Spark
        return str(as_json())
    return f"{type(value).__name__} {option_text(shown_fields(value), inside)}"


def display_marks(marks: Mapping[str, HWM[Any]]) -> Json:
    """Marks as people read them: the one value, or a value per source."""
    values: dict[str, Json] = {source: mark.show() for source, mark in marks.items()}
    return next(iter(values.values())) if len(values) == 1 else (values or None)


@runtime_checkable
class TransformMaker(Protocol):
    """A source whose rows only say what the job's transform has to make."""

    def transform_for(self, transform: Transform) -> Transform:
        """The transform that makes the job's rows of what this source reads; called once per run."""


class RuleTraits(Protocol):
    """What is known of rules before any row is judged."""

    def __bool__(self) -> bool: ...
    def needs_whole_batch(self) -> bool: ...
    def quarantines(self) -> bool: ...
    def conditions(self) -> Sequence[str] | None: ...


def why_spooled(
    sinks: Sequence[Sink], transform: Transform, rules: RuleTraits, *, is_immutable: bool, at_once: bool = False
) -> str | None:
    """Why the rows of a batch must be frozen before they are written: they might be others when they are read again.

    `is_immutable` tells that all sources give the same rows for the same span, `at_once` that the sinks take this very
    batch in one transaction. `lint` asks here too, with a job that exists only in a file.
    """
    if isinstance(transform, RecordTransform):
        return "the code that runs for each record may do more than return rows"
    for sink in sinks:
        if not isinstance(sink, (Atomic, Freezing)):  # it would spoil the count, too
            return f"sink '{sink.name}' takes only some of the rows, or reads them more than once"
    volatile_rule = why_rule_volatile(rules)
    is_repeatable = is_immutable and transform.is_deterministic() and volatile_rule is None
    judged_first = why_judged_first(sinks, transform, rules, is_repeatable=is_repeatable) if rules else None
    if judged_first or is_repeatable or (len(sinks) == 1 and (at_once or is_atomic(sinks[0]))):
        return judged_first  # a single sink that is all or nothing never compares two attempts
    if not is_immutable:
        return "the source may give other rows when it is read again"
    if isinstance(transform, Function):
        return "a Python function may give other rows when it is called again"
    if transform.is_deterministic():
        return f"a rule may judge a row otherwise when it is judged again: {volatile_rule}"
    why = transform.why_volatile() if isinstance(transform, Sql) else None
    return f"the transform is not known to give the same rows again{f': {why}' if why else ''}"


def why_rule_volatile(rules: RuleTraits) -> str | None:
    """Why a row may be judged otherwise for another sink, or for the quarantine; None if it never is."""
    conditions = rules.conditions()
    if conditions is None:
        return "it is of a kind that does not say by which SQL it judges"
    return next((why for why in map(why_expression_volatile, conditions) if why), None)


def why_judged_first(
    sinks: Sequence[Sink], transform: Transform, rules: RuleTraits, *, is_repeatable: bool
) -> str | None:
    """Why rules cannot be judged and counted in the pass that writes, with the quarantine read again after it.

    Above a shuffle a row may be counted twice, so only a transform that goes row by row allows it, and only sinks
    that take the batch as one.
    """
    if rules.needs_whole_batch():
        return "a rule has to see all rows before any is written"
    if not all(isinstance(sink, Atomic) for sink in sinks):
        return "rows are judged before a sink that takes a batch piece by piece"
    if not (isinstance(transform, RowByRow) and transform.is_row_by_row()):
        return "rows that a rule breaks are counted once they lie still, and the transform may shuffle them"
    if rules.quarantines() and not is_repeatable:
        return "rows for the quarantine are read a second time, and must be the same then"
    return None


def without_repeats(job: str, sources: Sequence[Source], sinks: tuple[Sink, ...], rules: RuleSet) -> tuple[Sink, ...]:
    """The sinks as they leave out what they have, if a source reads some rows again to find those that came late.

    Raises ConfigError for a sink that does not know a row again.
    """
    by = tuple(name for source in sources if isinstance(source, Repeating) for name in source.repeats_by())
    if not by:
        return sinks
    if rules.quarantines():
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag) and would quarantine them again.",
            hint="choose safety: fence or {delay: 30s}, or another action than quarantine",
        )
    return tuple(_recognising_sink(job, sink, by) for sink in sinks)


def with_stored_rows(job: str, sources: Sequence[Source], sinks: Sequence[Sink]) -> tuple[Source, ...]:
    """The sources, each that takes snapshots told of the rows that the job's first table has.

    A sink with history that takes whole snapshots compares them itself. Raises ConfigError where nobody would.
    """
    return tuple(
        _compared_source(job, source, sinks)
        if isinstance(source, Snapshotting) and source.takes_snapshots()
        else source
        for source in sources
    )


def _compared_source(job: str, source: Snapshotting, sinks: Sequence[Sink]) -> Source:
    whole = [sink for sink in sinks if getattr(sink, "changes", None) == "snapshot"]
    if len(whole) == len(sinks):
        return source  # type: ignore[return-value]  # it is a Source, which may take snapshots
    known = next((s for s in sinks if isinstance(s, Readable) and isinstance(s, TableSink) and not replaces(s)), None)
    if whole or known is None:
        what = "wants whole snapshots, and others of its sinks do not" if whole else "has no table to compare them with"
        raise ConfigError(
            f"job '{job}' reads snapshots and {what}.",
            hint="write to a Delta table with append or merge, or to tables with `changes: snapshot` alone",
        )
    return source.compared_with(StoredRows(known.read, is_log=not merges(known)))


def require_merging(job: str, sources: Sequence[Source], sinks: Sequence[Sink]) -> None:
    """A row that comes again after it has changed has to replace what it was. Raises ConfigError."""
    choices = [source.restates() for source in sources if isinstance(source, Restating)]
    appending = [sink.name for sink in sinks if not merges(sink)]
    if any(choices) and appending:
        choice, sink = next(filter(None, choices)), appending[0]
        raise ConfigError(
            f"job '{job}' reads a row again once it has a cursor ({choice}), and its sink '{sink}' would keep both.",
            hint="write to a sink with mode: merge, or choose on_null: exclude or coalesce",
        )


def require_steady_expressions(job: str, sinks: Sequence[Sink]) -> None:
    """A batch that goes on after its last piece must make the same messages of the same rows. Raises ConfigError.

    A spool does not help here: the SQL runs anew over its rows.
    """
    texts = [
        (s.name, option, sql) for s in sinks if isinstance(s, Expressing) for option, sql in s.expressions().items()
    ]
    for sink, option, sql in texts:
        calls = [
            call for call, why in volatile_calls(f"select {sql}").items() if why in ("clock", "chance", "partition")
        ]
        if calls:
            raise ConfigError(
                f"{option} of sink '{sink}' of job '{job}' asks {calls[0]}, which answers otherwise when a batch is "
                "finished after a crash: rows would be lost or come twice.",
                hint="make it a column of the transform, whose rows are kept until the batch is done",
            )


def _recognising_sink(job: str, sink: Sink, by: tuple[str, ...]) -> Sink:
    able = sink.without_repeats(by) if isinstance(sink, Discerning) else None
    if able is None:
        raise ConfigError(
            f"job '{job}' reads some rows again (safety: lag), and its sink '{sink.name}' would write them twice.",
            hint="use a Delta table, or mode: merge; or choose safety: fence or {delay: 30s}",
        )
    return able
