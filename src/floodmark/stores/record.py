"""What a store keeps for a job: the record, the intent of an open batch, the lease, and the receipts of its runs."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError
from floodmark.formats import KEY, require_known
from floodmark.hwm import HWM, Json, Span, deserialize, digest, signed_digest
from floodmark.hwm.mark import short_mark
from floodmark.stores.extras import IntentExtras, RecordExtras

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


RECEIPT_FORMAT = 3
"""Since 2 it says by which way a sink was written; since 3 which dates were restated, and what Spark used."""
DATES_KEPT = 366
FORMAT = 1
"""Of the record as JSON, with all that is in it: marks, the open intent, extras."""
Origin = Literal["commit", "set", "reset", "import", "rollback"]
IntentKind = Literal["batch", "refresh", "backfill", "repair", "replay"]
"""A backfill, a repair and a replay of dead letters write rows and leave the marks where they are."""
UPKEEP, VIEWS = "floodmark.optimize", "floodmark.views"
"""The names under which the upkeep of tables and the publishing of views keep their receipts; `durations` has the
seconds of each table or view."""


@dataclass(frozen=True)
class Intent:
    """A batch that was begun: made durable before the first write, so that a crash can be finished exactly.

    >>> span = fm.hwm.Span(None, fm.hwm.ColumnIntHWM("orders", 7))
    >>> began = datetime(2026, 1, 3, tzinfo=timezone.utc)
    >>> intent = Intent(1, "span", {"source": span}, began, attempt="a1", spool=None, fingerprints={})
    >>> Intent.deserialize(intent.serialize()) == intent
    True
    """

    number: int
    kind: IntentKind
    spans: Mapping[str, Span]
    batch_time: datetime
    attempt: str
    spool: str | None
    fingerprints: Mapping[str, str]
    extras: IntentExtras = field(default_factory=IntentExtras)

    @property
    def digest(self) -> str:
        """Which rows the number stands for, and in whose record: sinks keep it, and compare it."""
        return signed_digest(digest(self.spans), self.extras.identity)

    def serialize(self) -> dict[str, Json]:
        return {
            "number": self.number,
            "kind": self.kind,
            "spans": {name: span.serialize() for name, span in self.spans.items()},
            "batch_time": self.batch_time.isoformat(),
            "attempt": self.attempt,
            "spool": self.spool,
            "fingerprints": dict(self.fingerprints),
            "extras": self.extras.serialize(),
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Intent:
        spans = {name: Span.deserialize(span) for name, span in stored["spans"].items()}
        batch_time = datetime.fromisoformat(stored["batch_time"])
        extras = IntentExtras.deserialize(stored.get("extras", {}))
        return cls(**{**stored, "spans": spans, "batch_time": batch_time, "extras": extras})


@dataclass(frozen=True)
class JobRecord:
    """All marks of a job and what belongs to them, stored and committed in one piece.

    `number` is that of the last committed batch and only grows; 0 means that nothing was committed yet.
    A source without an entry in `marks` has no mark, which is a state of its own and never a value.
    `sources` holds the fingerprint of the source that each mark was made for.

    >>> JobRecord("orders", number=3, marks={"source": fm.hwm.ColumnIntHWM("orders", 7)}).marks["source"].value
    7
    """

    job: str
    number: int = 0
    marks: Mapping[str, HWM[Any]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    extras: RecordExtras = field(default_factory=RecordExtras)
    intent: Intent | None = None
    origin: Origin = "commit"
    modified_time: datetime | None = None

    def serialize(self) -> dict[str, Json]:
        return {
            KEY: FORMAT,
            "job": self.job,
            "number": self.number,
            "marks": {source: mark.serialize() for source, mark in self.marks.items()},
            "sources": dict(self.sources),
            "extras": dict(self.extras.stored),
            "intent": self.intent.serialize() if self.intent else None,
            "origin": self.origin,
            "modified_time": self.modified_time.isoformat() if self.modified_time else None,
        }

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any], *, where: str = "its store") -> JobRecord:
        """The record that was serialised. Raises FormatTooNew."""
        require_known(stored.get(KEY, FORMAT), f"the record of job '{stored['job']}'", where=where, known=FORMAT)
        return cls(
            job=stored["job"],
            number=stored["number"],
            marks={source: deserialize(mark) for source, mark in stored["marks"].items()},
            sources=stored["sources"],
            extras=RecordExtras(dict(stored["extras"])),
            intent=Intent.deserialize(stored["intent"]) if stored["intent"] else None,
            origin=stored["origin"],
            modified_time=datetime.fromisoformat(stored["modified_time"]) if stored["modified_time"] else None,
        )

    @property
    def highest_number(self) -> int:
        """Of the open batch, if there is one."""
        return self.intent.number if self.intent else self.number

    def mark_moved_to(self, text: str) -> tuple[str, HWM[Any]]:
        """The source, and the mark that it would have. Raises ConfigError, or MarkInvalid for a wrong value."""
        if not self.marks:
            hint = f"floodmark run --select {self.job}; with `--from VALUE` it begins at a place that you know"
            raise ConfigError(f"job '{self.job}' has no mark that could be moved: it has not run yet.", hint=hint)
        if len(self.marks) > 1:
            said = f"job '{self.job}' has {len(self.marks)} marks, and `set` moves the mark of a job that has one."
            raise ConfigError(said, hint="`floodmark marks export`, change the file, `floodmark marks import`")
        [(source, mark)] = self.marks.items()
        return source, mark.set_value(text)

    def without_intent(self) -> JobRecord:
        return replace(self, intent=None)


@dataclass(frozen=True)
class Owner:
    """Who holds a lease: enough to tell, on the same machine, whether it is still alive.

    >>> str(Owner(host="etl-1", boot="b", namespace="n", pid=4711, started="0"))
    'pid 4711 on etl-1'
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    jvm_pid: int | None = None
    jvm_started: str | None = None
    remote: tuple[str, ...] = ()
    """Addresses of the sessions on Spark Connect servers that work for it, or for one from whom it took over."""

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"

    def serialize(self) -> dict[str, Json]:
        known = asdict(self)
        remote = known.pop("remote")
        return {**known, "remote": list(remote)} if remote else known  # without, older programs can read it

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Owner:
        known = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        return cls(**{**known, "remote": tuple(stored.get("remote", ()))})


@dataclass(frozen=True)
class Lease:
    """The right to write for a job. `token` is new with every taking; `beat` grows while its owner lives.

    >>> store = fm.stores.open("memory")
    >>> with hold(store, "orders"):
    ...     store.lease("orders").owner == this_process()
    True
    """

    job: str
    owner: Owner
    token: str
    beat: int
    since: datetime

    def serialize(self) -> dict[str, Json]:
        return {**asdict(self), "owner": self.owner.serialize(), "since": self.since.isoformat()}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Lease:
        owner, since = Owner.deserialize(stored["owner"]), datetime.fromisoformat(stored["since"])
        return cls(**{**stored, "owner": owner, "since": since})


@dataclass(frozen=True)
class RuleOutcome:
    """How one quality rule did in a run: of `checked` rows (1, for a rule on the batch itself) `failed` broke it."""

    name: str
    action: str
    failed: int
    checked: int
    samples: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The share that held: 1.0 is perfect, and so is nothing to check."""
        return 1.0 if not self.checked else 1 - self.failed / self.checked

    def followed_by(self, later: RuleOutcome) -> RuleOutcome:
        """Two batches of one run as one outcome."""
        failed, checked = self.failed + later.failed, self.checked + later.checked
        return replace(later, failed=failed, checked=checked, samples=later.samples or self.samples)

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> RuleOutcome:
        return cls(**{**stored, "samples": tuple(stored["samples"])})


@dataclass(frozen=True)
class RestatedDates:
    """Dates that a batch wrote anew: `whole`, all of them; else how many, and the first of them."""

    count: int = 0
    dates: tuple[int, ...] = ()
    whole: bool = False

    @classmethod
    def of(cls, dates: Sequence[int] | None) -> RestatedDates:
        """Dates as yyyyMMdd; None means all."""
        return cls(whole=True) if dates is None else cls(len(dates), tuple(sorted(dates)[:DATES_KEPT]))

    def followed_by(self, later: RestatedDates) -> RestatedDates:
        """Two batches as one; where not all dates are known, a date of both may be counted twice."""
        if self.whole or later.whole:
            return RestatedDates(whole=True)
        known = sorted({*self.dates, *later.dates})
        twice = len(self.dates) + len(later.dates) - len(known)
        return RestatedDates(self.count + later.count - twice, tuple(known[:DATES_KEPT]))

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> RestatedDates:
        return cls(**{**stored, "dates": tuple(stored["dates"])})


@dataclass(frozen=True, repr=False)
class Receipt:
    """What one run did, in numbers that were counted and not believed. Marks are shown as their stored values.

    >>> job = fm.Job(name="orders", source=fm.testing.RowsSource([], "id long"), sinks=[fm.testing.ListSink()])
    >>> receipt = job.run(store=fm.stores.open("memory"))
    >>> receipt.status, receipt.rows_read, receipt.error
    ('nothing_new', 0, None)
    """

    job: str
    run: str
    status: Literal["done", "nothing_new", "failed", "skipped"]
    started: datetime
    seconds: float = 0.0
    batches: int = 0
    number: int = 0
    rows_read: int = 0
    rows_written: Mapping[str, int] = field(default_factory=dict)
    rows_refused: int = 0
    rows_dead: int = 0
    rows_held_back: int = 0
    mark_before: Json = None
    mark_after: Json = None
    span: Json = None
    durations: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None
    recovered: bool = False
    rows_quarantined: int = 0
    rows_dropped: int = 0
    rules: tuple[RuleOutcome, ...] = ()
    """Every rule of the job, also those that held. Receipts from before rules have none."""
    written_by: Mapping[str, str] = field(default_factory=dict)
    """By sink, where it has two ways: `arrow` from the driver, `spark` by Spark's writer. Of several batches, the last.

    Receipts of version 1 do not tell."""
    restated: Mapping[str, RestatedDates] = field(default_factory=dict)
    """By sink, the dates of a fact that were written anew."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """What Spark says that the run used: `cpu_seconds`, `peak_memory_bytes`, `shuffle_bytes`, `spill_bytes`.

    What it does not tell is absent."""

    @property
    def outcome(self) -> str:
        """The status for people: rows that are there and have to wait are not nothing."""
        return "held_back" if self.status == "nothing_new" and self.rows_held_back else self.status

    @property
    def score(self) -> float | None:
        """How good the rows were: the mean of the rules' scores, or None if there was no rule."""
        return sum(each.score for each in self.rules) / len(self.rules) if self.rules else None

    def __repr__(self) -> str:
        moved = f"mark {short_mark(self.mark_before)} → {short_mark(self.mark_after)}"
        parts = [f"{self.rows_read} rows read", self._written_text(), moved, f"{self.seconds:.1f} s", self.error]
        return f"Receipt({self.job}: {self.outcome}, {', '.join(filter(None, parts))})"

    def _repr_html_(self) -> str:
        from floodmark.notebook import fact_table

        facts: dict[str, object] = {"run": self.run, "started": self.started, "seconds": round(self.seconds, 3)}
        facts |= {"batch": self.number or None, "rows read": self.rows_read, "rows written": self._written_text()}
        aside = {"quarantined": self.rows_quarantined, "dropped": self.rows_dropped, "dead": self.rows_dead}
        facts |= {f"rows {what}": rows for what, rows in {**aside, "held back": self.rows_held_back}.items() if rows}
        facts |= {"mark before": short_mark(self.mark_before), "mark after": short_mark(self.mark_after)}
        facts |= {f"rule {rule.name}": f"{rule.failed:,} of {rule.checked:,} broke it" for rule in self.rules}
        return fact_table(f"{self.job}: {self.outcome}", {**facts, "error": self.error, "notes": "; ".join(self.notes)})

    def _written_text(self) -> str:
        return ", ".join(f"{sink} {rows:,}" for sink, rows in self.rows_written.items())

    def followed_by(self, later: Receipt) -> Receipt:
        """Two batches of one run as one receipt."""
        names = {**self.rows_written, **later.rows_written}
        return replace(
            later,
            started=self.started,
            seconds=round(self.seconds + later.seconds, 3),
            batches=self.batches + later.batches,
            rows_read=self.rows_read + later.rows_read,
            rows_written={n: self.rows_written.get(n, 0) + later.rows_written.get(n, 0) for n in names},
            rows_refused=self.rows_refused + later.rows_refused,
            rows_dead=self.rows_dead + later.rows_dead,
            mark_before=self.mark_before,
            notes=self.notes + later.notes,
            recovered=self.recovered,
            rows_quarantined=self.rows_quarantined + later.rows_quarantined,
            rows_dropped=self.rows_dropped + later.rows_dropped,
            rules=combine_outcomes(self.rules, later.rules),
            written_by={**self.written_by, **later.written_by},
            restated=combine_dates(self.restated, later.restated),
            resources=combine_resources(self.resources, later.resources),
        )

    def serialize(self) -> dict[str, Json]:
        """As it is stored, under RECEIPT_FORMAT."""
        return {**asdict(self), "started": self.started.isoformat(), "notes": list(self.notes)}

    @classmethod
    def deserialize(cls, stored: Mapping[str, Any]) -> Receipt:
        started = datetime.fromisoformat(stored["started"])
        rules = tuple(RuleOutcome.deserialize(each) for each in stored.get("rules", ()))
        dates = {sink: RestatedDates.deserialize(each) for sink, each in stored.get("restated", {}).items()}
        changed = {"started": started, "notes": tuple(stored["notes"]), "rules": rules, "restated": dates}
        return cls(**{**stored, **changed})


def combine_dates(earlier: Mapping[str, RestatedDates], later: Mapping[str, RestatedDates]) -> dict[str, RestatedDates]:
    """The dates of two batches, sink by sink."""
    both = {sink: earlier[sink].followed_by(later[sink]) for sink in earlier if sink in later}
    return {**earlier, **later, **both}


def combine_resources(earlier: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """What two batches used: the higher peak, and the sum of the rest."""
    names = {**earlier, **later}
    return {n: (max if "peak" in n else sum)([earlier.get(n, 0), later.get(n, 0)]) for n in names}


def new_run_id() -> str:
    """By which `runs`, `diff` and `rollback` know a run."""
    return uuid.uuid4().hex[:12]


def combine_outcomes(earlier: tuple[RuleOutcome, ...], later: tuple[RuleOutcome, ...]) -> tuple[RuleOutcome, ...]:
    """The outcomes of two batches, rule by rule; a rule that only one of them knew stays as it is."""
    before, after = ({each.name: each for each in outcomes} for outcomes in (earlier, later))
    both = {name: before[name].followed_by(after[name]) for name in before if name in after}
    return tuple({**before, **after, **both}.values())
