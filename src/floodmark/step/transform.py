"""The user's transform, as SQL or as a Python function: how it is applied, and what is known about it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import floodmark
from floodmark.errors import ColumnReserved, ConfigError, FloodmarkError, TransformFailed
from floodmark.errors.causes import cause_of
from floodmark.errors.tracebacks import place_text
from floodmark.locations import quote
from floodmark.sinks.contract import OWN, POSITION
from floodmark.step.repeatable import (
    aggregates,
    calls_unknown,
    makes_other_rows,
    parse,
    tables_read,
    tokens_of,
    why_volatile,
)
from floodmark.step.spool import RowCounts, Spool

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from sqlglot import exp

    from floodmark.hwm import Span
    from floodmark.step.work import Work
    from floodmark.stores.record import Intent


SHAPED = ("distinct", "group", "having", "joins", "laterals", "qualify", "windows")
"""Parts of a SELECT after which a row is no longer one row of the source."""


@runtime_checkable
class Transform(Protocol):
    """Turns the rows of a job's sources into the rows of its sinks.

    >>> isinstance(Sql("SELECT id FROM source"), Transform)
    True
    """

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        """Called once per attempt, before anything is written. The frame it gives is lazy; to know what to read it may
        run queries of its own, as a fact does for its dates. Raises TransformFailed if it cannot describe the rows."""

    def fingerprint(self) -> str:
        """Changes when the code changes."""

    def is_deterministic(self) -> bool:
        """Whether a second evaluation over the same rows is known to give the same rows."""


@runtime_checkable
class SpanTransform(Protocol):
    """A transform that reads tables of its own, and has to know at which versions."""

    def for_spans(self, spans: Mapping[str, Span]) -> Transform:
        """The transform of a batch with these spans; asked before `apply`."""


@runtime_checkable
class RowByRow(Protocol):
    """A transform that can tell whether it looks at one row at a time."""

    def is_row_by_row(self) -> bool:
        """Whether it is known to need no other row: no join, no grouping, no order."""


@runtime_checkable
class RecordTransform(Protocol):
    """A transform whose frame holds the rows of records that succeeded and a row for each that failed."""

    @property
    def puts_aside(self) -> bool:
        """Whether failed records become dead letters; else they fail the run."""

    def healed_rows(self, outcomes: DataFrame) -> DataFrame:
        """The rows that go on."""

    def failed_records(self, outcomes: DataFrame) -> DataFrame:
        """The failed records as (file, line, text, reason) and, to be run again, in JSON with a schema (record, shape).

        A record that came from the dead letters is named by `letter` as well.
        """


@dataclass(frozen=True)
class Identity:
    """Rows go through as they are.

    >>> Identity().is_row_by_row()
    True
    """

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        return only_frame(frames, job)

    def fingerprint(self) -> str:
        return "identity"

    def is_deterministic(self) -> bool:
        return True

    def is_row_by_row(self) -> bool:
        return True


@dataclass(frozen=True)
class Function:
    """A Python function from DataFrame to DataFrame (from several, by source name, if the job has several sources).

    >>> rows = Function(lambda frame: frame.where("id > 1")).apply(
    ...     {"source": spark.range(4)}, job="orders", attempt="a1", batch_time=datetime(2026, 1, 3)
    ... )
    >>> rows.count()
    2
    """

    function: Callable[..., DataFrame]

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        try:
            made = self.function(*frames.values()) if len(frames) == 1 else self.function(**frames)
        except Exception as error:
            raise transform_error(job, error) from error
        self._require_frame(made, job)
        return without_reserved_names(made, job)

    def _require_frame(self, made: object, job: str) -> None:
        """Raises TransformFailed for what is no DataFrame; a function without `return` gives None."""
        from pyspark.sql import DataFrame

        if isinstance(made, DataFrame):
            return
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        place = f" ({place_text(code.co_filename, code.co_firstlineno, code.co_name)})" if code else ""
        what = "None" if made is None else f"a {type(made).__name__}"
        hint = (
            "end the function with `return rows`" if made is None else "return the DataFrame itself, not what is in it"
        )
        raise TransformFailed(job, reason=f"the function gave {what} and no DataFrame{place}.", hint=hint)

    def fingerprint(self) -> str:
        """The function's own code; the program's fingerprint covers the module it stands in."""
        code = getattr(self.function, "__code__", None)
        if code is None:
            return short_hash(repr(self.function))
        return short_hash(*code_texts(code))

    def is_deterministic(self) -> bool:
        return False


@dataclass(frozen=True)
class Sql:
    """A query over `source` (or, with several sources, over their names); `:batch_time` stands for the clock.

    >>> Sql("SELECT id FROM source").is_deterministic(), Sql("SELECT rand() AS r FROM source").is_deterministic()
    (True, False)
    """

    text: str
    sources: tuple[str, ...] = ("source",)
    """The names by which it reads the job's sources; any other table is not covered by a mark."""

    def apply(self, frames: Mapping[str, DataFrame], *, job: str, attempt: str, batch_time: datetime) -> DataFrame:
        tables = {"source": only_frame(frames, job)} if len(frames) == 1 else dict(frames)
        views = {name: f"fm_{place}_{attempt}" for place, name in enumerate(tables)}
        spark = next(iter(tables.values())).sparkSession
        try:
            for name, frame in tables.items():
                frame.createOrReplaceTempView(views[name])
            positioned = len(frames) == 1 and POSITION in tables["source"].columns
            made = spark.sql(self.sql_over(views, batch_time, carried=[POSITION] if positioned else ()))
        except Exception as error:
            raise transform_error(job, error) from error
        finally:
            for view in views.values():
                spark.catalog.dropTempView(view)
        return without_reserved_names(made, job)

    def fingerprint(self) -> str:
        return short_hash(self.text)

    def over(self, sources: Sequence[str]) -> Sql:
        """The query as it stands in a job with these sources: a single one is called `source`."""
        return replace(self, sources=tuple(sources)) if len(sources) > 1 else self

    def is_deterministic(self) -> bool:
        return self.why_volatile() is None

    def why_volatile(self) -> str | None:
        """Why it is not known to give the same rows again: a call, another table, a choice among rows."""
        return why_volatile(self.text, self.sources)

    def keeps_every_row(self) -> bool:
        """Whether each row of the source is known to give exactly one."""
        return self.is_deterministic() and self.adds_no_rows() and not self._tree.args.get("where")

    def adds_no_rows(self) -> bool:
        """Whether each row of the source is known to give one or none."""
        return self.is_row_by_row() and not makes_other_rows(self.text)

    def is_row_by_row(self) -> bool:
        return self.is_plain_select() and not calls_unknown(self.text)

    def is_plain_select(self) -> bool:
        """As `is_row_by_row`, if no function of the user's own is an aggregate."""
        from sqlglot import exp

        ordering = ("order", "sort", "cluster", "distribute", "limit", "offset", "hint")
        ordered = any(self._tree.args.get(part) for part in ordering)
        return self._is_plain() and not ordered and not self._tree.find(exp.Window)

    def sql_over(self, views: Mapping[str, str], batch_time: datetime, carried: Sequence[str] = ()) -> str:
        """The same text with tables and `:batch_time` replaced in place: all else is what the user wrote.

        A table keeps the name that the query has for it, so that `source.id` and `source.*` mean its columns. The time
        goes in as a literal, since Delta's parser does not pass Spark's own parameters on. Columns to be carried are
        added to the list of a plain SELECT: a sink needs the source's order also where the user does not.
        """
        text, literal = self.text, f"TIMESTAMP '{batch_time.isoformat(sep=' ')}'"
        known = {name.lower(): view for name, view in views.items()}
        tables = [(table, known[table.name.lower()]) for table in self._tables() if table.name.lower() in known]
        changes = [(t.this.meta["start"], t.this.meta["end"], under_its_name(t, view)) for t, view in tables]
        changes += [(start, end, literal) for start, end in self._clock_places()]
        changes += [(place, place - 1, f", {', '.join(carried)} ") for place in self._end_of_list() if carried]
        for start, end, put in sorted(changes, reverse=True):
            text = text[:start] + put + text[end + 1 :]
        return text

    def _clock_places(self) -> Iterator[tuple[int, int]]:
        """Where `:batch_time` stands as a parameter, and not inside a text."""
        tokens = tokens_of(self.text)
        for sign, name in pairwise(tokens):
            if sign.text == ":" and name.text.lower() == "batch_time" and name.start == sign.end + 1:
                yield sign.start, name.end

    def _end_of_list(self) -> list[int]:
        """Where the list of a plain SELECT over the source ends; nowhere, if it joins, groups or takes all columns."""
        from sqlglot import exp

        return [self._place_of_from()] if self._is_plain() and not self._tree.find(exp.Star) else []

    def _is_plain(self) -> bool:
        """A SELECT whose rows are rows of the one source."""
        from sqlglot import exp

        tree = self._tree
        plain = isinstance(tree, exp.Select) and not any(tree.args.get(part) for part in ("with_", *SHAPED))
        is_of_one = len(list(tree.find_all(exp.Table))) == 1 and not tree.find(exp.AggFunc, exp.Subquery, exp.Pivot)
        return plain and is_of_one and not aggregates(self.text)

    def _place_of_from(self) -> int:
        depth = 0
        for token in tokens_of(self.text):
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if depth == 0 and token.text.lower() == "from":
                return int(token.start)
        return len(self.text)

    @property
    def _tree(self) -> exp.Expr:
        return parse(self.text)

    def _tables(self) -> Iterator[exp.Table]:
        """Tables that are neither of another schema nor defined by the query itself."""
        return (table for table in tables_read(self._tree) if not table.db)


def transform_error(job: str, error: Exception) -> FloodmarkError:
    """What the user's code or SQL met, in words; an error of ours says it itself."""
    if isinstance(error, FloodmarkError):
        return error
    cause = cause_of(error)
    return TransformFailed(job, reason=cause.reason, hint=cause.hint)


def under_its_name(table: exp.Table, view: str) -> str:
    """The view in the place of a table, called as the query calls it."""
    if table.alias:
        return view
    named = f"{view} AS {quote(table.name)}"
    return f"({named})" if table.args.get("sample") else named  # a name stands behind TABLESAMPLE, or within


@dataclass(frozen=True)
class FrozenOutcomes:
    """What became of each record of one batch, kept beside its spool: the user's code runs once per batch."""

    transform: RecordTransform
    spool: Spool

    @classmethod
    def of(cls, work: Work, intent: Intent) -> FrozenOutcomes | None:
        """None for a transform that knows nothing of single records."""
        if not isinstance(work.transform, RecordTransform) or intent.spool is None:
            return None
        if work.transform.puts_aside and work.dead_letters is None:
            raise ConfigError(
                f"job '{work.name}' puts failed records aside and has no place for them.",
                hint="give it dead_letters, a folder for a Delta table",
            )
        return cls(work.transform, Spool(f"{intent.spool}-outcomes"))

    def freeze(self, rows: DataFrame, job: str) -> DataFrame:
        """Run the user's code, once; the rows that go on. Raises TransformFailed for a failure that may not pass."""
        self.spool.write(rows)
        failed = self.transform.failed_records(self.spool.read(rows.sparkSession))
        dead = failed.count()
        if dead and not self.transform.puts_aside:
            raise TransformFailed(job, reason=failure_message(failed, dead))
        self.spool.finish(RowCounts(read=0, dead=dead))
        return self.transform.healed_rows(self.spool.read(rows.sparkSession))

    def dead_records(self, spark: SparkSession) -> DataFrame | None:
        """The records that were put aside, if there are any."""
        counts = self.spool.counts()
        return self.transform.failed_records(self.spool.read(spark)) if counts and counts.dead else None


def failure_message(failed: DataFrame, count: int) -> str:
    """The first of the failed records and why, and how many more there are."""
    first = failed.orderBy("file", "line", "text").first()
    place = [str(first[name]) for name in ("file", "line") if first[name] is not None] if first else []
    where = ":".join(place) or (first["text"] if first else "")
    more = f", and {count - 1} more" if count > 1 else ""
    return f"record {where}: {first['reason'] if first else ''}{more}."


def over_sources(transform: Transform, names: Sequence[str]) -> Transform:
    """The transform of a job with these sources, as it knows which tables are theirs."""
    return transform.over(names) if isinstance(transform, Sql) else transform


def program_fingerprint(transform: Transform) -> str:
    """Floodmark's version and, for a function, the file it was defined in: helpers beside it count too."""
    if not isinstance(transform, Function):
        return floodmark.__version__
    try:
        source = Path(inspect.getsourcefile(inspect.unwrap(transform.function)) or "").read_text()
    except (OSError, TypeError):
        source = ""
    return short_hash(floodmark.__version__, source)


def only_frame(frames: Mapping[str, DataFrame], job: str) -> DataFrame:
    """The one frame of a job with one source."""
    if len(frames) != 1:
        raise ConfigError(
            f"job '{job}' has {len(frames)} sources and no transform that joins them.",
            hint="give it a transform: SQL over the sources' names, or a function that takes them by name",
        )
    return next(iter(frames.values()))


def without_reserved_names(made: DataFrame, job: str) -> DataFrame:
    """What a user's code made; it may hand on the position, and has no other column of ours. Raises ColumnReserved."""
    if columns := getattr(made, "columns", None):  # a function may give anything: what is no frame fails by its name
        refuse_reserved([name for name in columns if name != POSITION], f"the transform of job '{job}'")
    return made


def refuse_reserved(columns: Iterable[str], place: str) -> None:
    """Raise ColumnReserved for a name that only a step gives: sinks would leave the column out without a word."""
    for name in columns:
        if name.lower().startswith(OWN):
            raise ColumnReserved(place, column=name, prefix=OWN)


def code_texts(code: CodeType) -> Iterator[str]:
    """A function's instructions, names and constants, with those of the functions inside it."""
    yield from (code.co_code.hex(), repr(code.co_names))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_texts(constant)
        else:
            yield repr(constant)


def short_hash(*parts: str) -> str:
    """Enough of a hash to tell two versions apart."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
