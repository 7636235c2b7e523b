"""What the project file may say about a source or a sink: one model per `type`.

Here stand the words that all models share, and files, Delta, Python and the console. A later source or sink is one more
model, and its name in `AnySource` or `AnySink` of `models`; nothing else changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from floodmark.locations import is_url, load_name
from floodmark.project.findings import Promise

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source


NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$"
PYTHON_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
DURATION = r"^\d+(\.\d+)?\s*(ms|s|m|h|d)?$"


def _as_text(value: object) -> object:
    """A bare number is a number of seconds."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def timedelta_of(duration: str | None, *, field: str) -> timedelta | None:
    """A duration of the file as Python has it."""
    from floodmark.hwm.parsing import seconds_in

    return timedelta(seconds=seconds_in(duration, field=field)) if duration is not None else None


Text = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=200)]
_DurationText = Annotated[str, StringConstraints(pattern=DURATION)]
Duration = Annotated[_DurationText, BeforeValidator(_as_text, json_schema_input_type=_DurationText | int | float)]
PythonName = Annotated[str, StringConstraints(pattern=PYTHON_NAME)]
Columns = Annotated[
    tuple[Text, ...],
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=Text | tuple[Text, ...]
    ),
]


class WrongValue(ValueError):
    """A value that a model refuses, with the next step; the message does not repeat the value, which may be secret."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Site:
    """Where things are built: the project's folder, and where a console sink prints its rows."""

    folder: Path
    console: Literal["stdout", "stderr"] = "stdout"

    def path(self, path: str) -> str:
        """The path as seen from the project's folder; URLs and absolute paths stay as they are."""
        return path if is_url(path) else str(self.folder / path)


class Model(BaseModel):
    """Frozen, and refuses a field it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Read(Model):
    """How much is read at a time."""

    max_rows: int | None = Field(default=None, ge=1)


class SourceModel(Model):
    """A source as the file spells it."""

    read: Read = Read()

    def build(self, site: Site) -> "Source":
        """The source itself. Raises ConfigError if its options contradict each other."""
        raise TypeError(f"{type(self).__name__} is not a source of its own")


class SinkModel(Model):
    """A sink as the file spells it; its name is what its ledger is known by."""

    type: str
    name: Name | None = None
    guarantee: ClassVar[Promise] = "exactly once"

    def ledger_name(self) -> str:
        """The sink's name, by default its type."""
        return self.name or self.type

    def build(self, site: Site) -> "Sink":
        """The sink itself. Raises ConfigError if its options contradict each other."""
        raise TypeError(f"{type(self).__name__} is not a sink of its own")


class PathOrTable(Model):
    """A Delta table is named by its path or by its name in the catalog."""

    path: Text | None = None
    table: Text | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "PathOrTable":
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path or table")
        return self

    def place(self, site: Site) -> str | None:
        """The table's folder, if it is known by its folder."""
        return None if self.path is None else site.path(self.path)


class FilesSource(SourceModel):
    """Files of a folder, each read once."""

    type: Literal["files"]
    name: Name = "files"
    path: Text
    format: Literal["json", "jsonl", "csv", "parquet"] = "jsonl"
    schema_: Text | None = Field(default=None, alias="schema", description="columns as Spark's DDL: id long, v string")
    by: Literal["list", "modified"] = "list"
    options: Mapping[str, str] = {}
    settle: Duration = Field(default="5s", description="a file younger than this may still be written, and waits")
    lag: Duration = "1h"
    on_rewritten: Literal["fail", "reread"] = "fail"
    glob: Text | None = None

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Files

        fields = self.model_dump(exclude={"type", "read", "path", "schema_", "options"})
        return Files(site.path(self.path), schema=self.schema_, options=dict(self.options) or None, **fields)


class DeltaSource(PathOrTable, SourceModel):
    """A Delta table: a snapshot first, then what was committed since."""

    type: Literal["delta"]
    name: Name = "delta"
    changes: Literal["append", "feed"] = "append"
    start: Literal["earliest", "latest"] | int = "earliest"

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Delta

        return Delta(path=self.place(site), table=self.table, changes=self.changes, start=self.start, name=self.name)


class PythonSource(SourceModel):
    """A source of the user's own: an object, or something that gives one when called with the options."""

    type: Literal["python"]
    object: PythonName = Field(description="module:name of a Source, or of a class or function that gives one")
    options: Mapping[str, str | int | float | bool | None] = {}

    def build(self, site: Site) -> "Source":
        named = load_name(self.object, site.folder)
        is_source = hasattr(named, "look") and not isinstance(named, type)
        source: Source = named if is_source else named(**self.options)  # type: ignore[operator, assignment]
        return source


class Optimize(Model):
    """How `floodmark optimize` looks after the table."""

    target_file_size: int | None = Field(default=None, ge=1, description="in bytes")
    after_small_files: int = Field(default=2, ge=2, description="compact once so many files are below half the target")
    vacuum: Duration | None = Field(default=None, description="keep removed files so long")


class DeltaSink(PathOrTable, SinkModel):
    """A Delta table; `scd1` and `scd2` have history, rebuilt key by key; `dates` is a fact, `dimension` is one."""

    type: Literal["delta"]
    mode: Literal["append", "merge", "replace", "scd1", "scd2", "dates", "dimension"] = "append"
    key: Columns = ()
    by: Columns = ()
    sequence: Columns = ()
    delete_when: Text | None = None
    partition_by: Columns = ()
    cluster_by: Columns = ()
    change_feed: bool = Field(default=False, description="give the table a change feed, for jobs with `changes: feed`")
    keep_deleted: Duration | None = Field(
        default=None, description="how long a merge with sequence and delete_when knows deleted keys; default for ever"
    )
    writer: Literal["auto", "spark"] = Field(
        default="auto", description="`spark` has Spark's writer commit small batches too, which else go through Arrow"
    )
    track: Columns = Field(default=(), description="columns whose change makes a version; by default all")
    untracked: Columns = Field(default=(), description="columns whose change makes no version")
    on_conflict: Literal["error", "quarantine", "last_arrival"] = "error"
    changes: Literal["log", "feed", "snapshot"] = "log"
    allow_empty: bool = False
    events: Literal["own", "source"] = Field(
        default="own", description="source: the Delta source is the log of events, and no copy of it is kept"
    )
    keep_events: Duration | None = Field(default=None, description="prune the log of events to this age")
    deletion_vectors: bool = Field(default=False, description="cheaper changes, for readers that know the feature")
    first_valid_from: Text | None = Field(default=None, description="the column that says when a key began")
    zorder: Columns = ()
    statistics: Columns = ()
    optimize: Optimize = Optimize()

    HISTORY: ClassVar[frozenset[str]] = frozenset(
        {"track", "untracked", "on_conflict", "changes", "allow_empty", "events", "deletion_vectors"}
    )
    LAYOUT: ClassVar[frozenset[str]] = frozenset({"partition_by", "cluster_by"})
    ROWS: ClassVar[frozenset[str]] = frozenset({"mode", "by", "change_feed", "writer"})
    SHARED: ClassVar[frozenset[str]] = frozenset({"key", "sequence", "delete_when"})

    @model_validator(mode="after")
    def _dates_lie_by_date(self) -> "DeltaSink":
        given = [name for name in ("partition_by", "cluster_by") if getattr(self, name)]
        if self.mode == "dates" and given:
            raise ValueError(f"`{given[0]}` does not go with `mode: dates`: the table is partitioned by its date")
        return self

    def build(self, site: Site) -> "Sink":
        from floodmark import sinks

        place: dict[str, Any] = {"path": self.place(site), "table": self.table, "name": self.ledger_name()}
        if self.mode in ("scd1", "scd2"):
            return self._history(place)
        if self.mode == "dates":
            return sinks.DeltaDates(**place, change_feed=self.change_feed, writer=self.writer)
        if self.mode == "dimension":
            from floodmark.sinks.delta import members_table

            return members_table(**place, key=self.key, partition_by=self.partition_by, cluster_by=self.cluster_by)
        fields = self.model_dump(include=set(self.SHARED | self.ROWS | self.LAYOUT))
        return sinks.Delta(**place, **fields, keep_deleted=timedelta_of(self.keep_deleted, field="keep_deleted"))

    def _history(self, place: dict[str, Any]) -> "Sink":
        from floodmark import sinks

        fields = self.model_dump(include=set(self.SHARED | self.HISTORY | self.LAYOUT))
        kept = timedelta_of(self.keep_events, field="keep_events")
        if self.mode == "scd1":
            return sinks.Scd1(**place, **fields, keep_events=kept)
        return sinks.Scd2(**place, **fields, keep_events=kept, first_valid_from=self.first_valid_from)

    def idle_options(self) -> list[str]:
        """What was given and means nothing in this mode."""
        history = {*self.SHARED, *self.HISTORY, "keep_events"}
        rows = {
            "append": {"writer"},
            "dates": {"writer"},
            "dimension": {"key"},
            "merge": {*self.SHARED, "keep_deleted", "writer"},
            "replace": {"by", "writer"},
        }
        used = {**rows, "scd1": history, "scd2": {*history, "first_valid_from"}}[self.mode]
        every = [*self.SHARED, "by", "keep_deleted", *self.HISTORY, "keep_events", "first_valid_from", "writer"]
        return [name for name in type(self).model_fields if name in every and name not in used and self._is_set(name)]

    def _is_set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].get_default())


class FilesSink(SinkModel):
    """A folder of files."""

    type: Literal["files"]
    path: Text
    format: Literal["json", "jsonl", "csv", "parquet"] = "jsonl"

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Files

        return Files(site.path(self.path), format=self.format, name=self.ledger_name())


class ConsoleSink(SinkModel):
    """Rows printed as they come; a repeat prints them again."""

    type: Literal["console"]
    format: Literal["jsonl", "table"] = "jsonl"
    limit: int | None = Field(default=None, ge=1)
    guarantee: ClassVar[Promise] = "at least once"

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Console

        return Console(format=self.format, limit=self.limit, name=self.ledger_name(), stream=site.console)
