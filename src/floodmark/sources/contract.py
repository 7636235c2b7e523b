"""The contract of a source: look without Spark, then read exactly the span that the look fixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from floodmark.errors import FloodmarkError
from floodmark.hwm import HWM, Json, Span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


LETTER = "_fm_letter"
"""A column that says of a record which dead letter it was saved as."""
Session: TypeAlias = "Callable[[], SparkSession]"
"""Gives the Spark session, and starts it only when somebody asks: a look that finds nothing needs no JVM."""


@dataclass(frozen=True)
class Sight:
    """What a look saw. `span` None: nothing new. Held back: there, but not safe to read yet, with the reason."""

    span: Span | None
    held_back: int = 0
    held_reason: str | None = None
    settles_in_seconds: float | None = None
    expected_rows: int | None = None
    expected_bytes: int | None = None
    """How large the files of the span are, where it is one of files."""
    extras: Mapping[str, Json] = field(default_factory=dict)
    """What the record has to remember beside the mark once this span is committed."""
    ahead: float | None = None
    """Which share of what lies above the mark is left for later batches, as far as the source can tell."""
    pending: Mapping[str, Json] = field(default_factory=dict)
    """What the record has to learn even if there is no span; nothing: what it knows already stays."""
    notes: tuple[str, ...] = ()
    """What the receipt of the batch has to say of this span."""


@dataclass(frozen=True)
class Reading:
    """Rows of a span. `reason` is not null on rows that could not be parsed; `dead` gives those as dead letters.

    `reason` may only use columns of `rows`; names in `hidden` are dropped before the user's transform sees the rows.
    `position` orders rows as the source did; it is None where the source has no order.
    `dead` is a frame of (file string, line long, text string, reason string), asked for only if a row was bad; a source
    that can read a bad record again (see Saving) adds `record`, a struct of all that it takes.
    `placed` gives the same reading with `position`, and with Spark's column `_metadata` where it is one of files; a
    source has it if rows without their place cost less.
    """

    rows: DataFrame
    reason: Column | None = None
    hidden: tuple[str, ...] = ()
    position: Column | None = None
    dead: Callable[[], DataFrame] | None = None
    placed: Callable[[], Reading] | None = None


@dataclass(frozen=True)
class Request:
    """How a look is narrowed: `start` is the user's --from (inclusive), `max_rows` bounds the span where it can.

    `whole` asks for everything there is, whatever the source's own start says: a full refresh must not begin at latest.
    """

    start: str | None = None
    max_rows: int | None = None
    whole: bool = False
    waits: bool = False
    """Whether the run has time to wait a little for what is held back; a loop looks again soon."""
    extras: Mapping[str, Json] = field(default_factory=dict)
    """What an earlier Sight asked the record to remember."""
    pending: Mapping[str, Json] = field(default_factory=dict)
    """What an earlier Sight had pending; forgotten where a person says anew how far the source was read."""


class Source(Protocol):
    """Something that has rows above a mark."""

    @property
    def name(self) -> str:
        """What its mark is known by within the job."""

    def fingerprint(self, session: Session) -> str:
        """Which source this is, in words that a person can compare; a mark made for another one stops the run."""

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One cheap, read-only probe; it fixes the span. Must not start Spark if it can answer without.

        Raises SourceUnreadable if it could not look, and a DecisionNeeded if going on would lose rows.
        """

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of exactly this span, lazily; called again with the same span after a crash."""


class Immutable:
    """Marks a source whose span gives the same rows whenever it is read."""

    def gives_same_rows(self) -> bool:
        """Whether it does so today, for a source that may be set up otherwise; asked when a batch is intended."""
        return True


@runtime_checkable
class Repeating(Protocol):
    """A source that may give rows again which an earlier batch had."""

    def repeats_by(self) -> tuple[str, ...]:
        """The columns by which such a row is known; none if it gives no row twice. Raises ConfigError."""


@dataclass(frozen=True)
class StoredRows:
    """The rows that a sink has, read when they are compared; `is_log`: it keeps every version of a key."""

    read: Callable[[Session], DataFrame | None]
    is_log: bool


@runtime_checkable
class Snapshotting(Protocol):
    """A source that has no mark to read above: it gives all its rows, unless it is told which are known."""

    def takes_snapshots(self) -> bool:
        """Whether it does so."""

    def compared_with(self, stored: StoredRows) -> Source:
        """The source as it gives only what differs from these rows; called when a job is put together."""


@runtime_checkable
class Restating(Protocol):
    """A source that may give a row again after it has changed, where no other mark would have told the two apart."""

    def restates(self) -> str | None:
        """Which of the user's choices makes it so; None if it never does."""


@runtime_checkable
class Telling(Protocol):
    """A source that can tell its columns without a span: in a batch of several sources it may have nothing new."""

    def without_rows(self, spark: SparkSession) -> Reading:
        """The columns of `read`; the rows are not asked for. Raises ConfigError if they cannot be told yet."""


@runtime_checkable
class Deciding(Protocol):
    """A source that tells which of its options decide its rows; of any other one, all fields are taken."""

    def row_options(self) -> Mapping[str, object]:
        """What must not change between a crash and its rerun, beside the fingerprint: how rows are parsed, not how the
        source is reached. No secrets."""


@runtime_checkable
class Comparable(Protocol):
    """A source whose span was fixed by what lay there: it can be compared once more when it has been read."""

    def require_unchanged(self, span: Span) -> None:
        """Called after a batch was read, before it counts as done. Raises SourceRewritten if something changed."""


@runtime_checkable
class Saving(Protocol):
    """A source whose dead letters hold the whole record, so that it can be parsed again without the source."""

    def read_saved(self, saved: DataFrame) -> Reading:
        """The records as they would be parsed now; `saved` has the fields of `record`, and LETTER, which stays.

        Called when dead letters are replayed. What cannot be parsed even now is told by the reading's `reason`.
        """


@runtime_checkable
class Explaining(Protocol):
    """A source that can tell what a failed write really met."""

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> FloodmarkError | None:
        """Called after a write failed; gives the error a person should see, or None if it was not the source's."""
