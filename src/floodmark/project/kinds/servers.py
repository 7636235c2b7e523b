"""What the project file may say about databases, tables of Spark's catalog and Kafka, as sources and as sinks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from floodmark.errors import ConfigError
from floodmark.locations import importable
from floodmark.postgres import require_one_login
from floodmark.probes.kafka.client import option_text
from floodmark.project.kinds import (
    Columns,
    Duration,
    Model,
    Name,
    PythonName,
    SinkModel,
    Site,
    SourceModel,
    Text,
    WrongValue,
    timedelta_of,
)
from floodmark.project.kinds import Read as PlainRead

if TYPE_CHECKING:
    from floodmark.sinks.contract import Sink
    from floodmark.sources.contract import Source
    from floodmark.sources.tables.cursor import Cursor


Texts = Columns
OptionText = Annotated[
    str,
    BeforeValidator(
        lambda value: option_text(value) if not isinstance(value, str) else value,
        json_schema_input_type=str | int | float | bool,
    ),
]
Options = Annotated[Mapping[str, OptionText], Field(description="any option of the clients: security.protocol, sasl.…")]
Offsets = Mapping[int, Annotated[int, Field(ge=0)]]

VALUE_FORMS: Mapping[str, str] = {"json": "json", "text": "text:value"}
"""A topic that is read as text has the column `value`; written as text, it gets that column back."""


def _with_one_login(url: str) -> str:
    try:
        require_one_login(url)
    except ConfigError as error:
        raise WrongValue(error.message, hint=error.hint) from None
    return url


PostgresUrl = Annotated[Text, AfterValidator(_with_one_login)]


class CursorModel(Model):
    """The column that a table is read by, or several."""

    column: Columns = ()
    start: str | int | tuple[str | int, ...] = Field(
        default="earliest", description="earliest, latest, or a value that is read too"
    )
    on_null: Literal["fail", "exclude", "include"] = "fail"
    coalesce: Columns = Field(default=(), description="the column, and those that stand in for it where it is null")
    unique: bool = Field(default=False, description="that no two rows ever share a value, where the catalog is silent")
    safety: Literal["fence", "delay", "lag", "none"] | Mapping[str, Duration] | None = None
    max_future: Duration | None = None
    collation: Literal["bytes", "database"] = Field(default="bytes", description="by what text is compared")

    @model_validator(mode="after")
    def _some_column(self) -> "CursorModel":
        if not self.column and not self.coalesce:
            raise ValueError("name the column that a table is read by")
        return self

    def build(self) -> "Cursor":
        """The cursor itself."""
        from floodmark.sources.tables.cursor import Cursor

        return Cursor(**self.model_dump())


class TableRead(PlainRead):
    """How rows are fetched, and how many at a time."""

    partitions: int | None = Field(default=None, ge=1)
    fetch_rows: int = Field(default=10_000, ge=1)
    chunk_rows: int | None = Field(default=None, ge=1, description="rows of a batch; a run goes on until none is left")


def _as_cursor(value: object) -> object:
    """A bare name is a column, a list are several."""
    return {"column": value} if isinstance(value, (str, list)) else value


ColumnOrCursor = Annotated[CursorModel, BeforeValidator(_as_cursor, json_schema_input_type=CursorModel | Columns)]


class TableOrQuery(SourceModel):
    """A table is named, or a query is written out; a cursor says how far it was read."""

    table: Text | None = None
    query: Text | None = None
    cursor: ColumnOrCursor
    key: Columns = Field(default=(), description="what tells rows of one cursor value apart; else the primary key")
    types: Mapping[str, Text] = {}
    read: TableRead = TableRead()

    @model_validator(mode="after")
    def _one_of_both(self) -> "TableOrQuery":
        if (self.table is None) == (self.query is None):
            raise ValueError("give either table or query")
        return self

    def table_options(self) -> dict[str, object]:
        """What every such source takes."""
        return {
            "table": self.table,
            "query": self.query,
            "cursor": self.cursor.build(),
            "key": self.key,
            "types": dict(self.types),
            "partitions": self.read.partitions,
            "fetch_rows": self.read.fetch_rows,
        }


class PostgresSource(TableOrQuery):
    """A table or query of PostgreSQL."""

    type: Literal["postgres"]
    name: Name = "postgres"
    url: PostgresUrl = Field(repr=False)

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Postgres

        return Postgres(self.url, name=self.name, **self.table_options())  # type: ignore[arg-type]


class JdbcSource(TableOrQuery):
    """A table or query behind any JDBC driver; its jar has to be on Spark's class path."""

    type: Literal["jdbc"]
    name: Name = "jdbc"
    url: Text = Field(repr=False)
    driver: Text | None = None
    options: Mapping[str, str] = Field(default={}, repr=False)

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Jdbc

        own = {"driver": self.driver, "options": dict(self.options), "name": self.name}
        return Jdbc(self.url, **own, **self.table_options())  # type: ignore[arg-type]


class SqliteSource(TableOrQuery):
    """A table or query of a SQLite file that Spark's tasks see."""

    type: Literal["sqlite"]
    name: Name = "sqlite"
    path: Text

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Sqlite

        return Sqlite(site.path(self.path), name=self.name, **self.table_options())  # type: ignore[arg-type]


class CatalogSource(SourceModel):
    """Any table or view that Spark's catalog has: by a cursor, or as snapshots that are compared by key."""

    type: Literal["table"]
    name: Text = Field(description="as SQL names it: catalog.schema.table")
    alias: Name = Field(default="table", description="what its mark is known by, and SQL in a job of several sources")
    cursor: ColumnOrCursor | None = None
    key: Columns = Field(default=(), description="what makes two rows the same thing")
    snapshot: bool = Field(default=False, description="read all of it, and compare it with what the first sink has")
    absent: Literal["keep", "delete"] = Field(default="keep", description="what a key means that a snapshot lacks")
    allow_empty: bool = False

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Table

        options = self.model_dump(include={"key", "snapshot", "absent", "allow_empty"})
        return Table(self.name, self.cursor.build() if self.cursor else "", name=self.alias, **options)


class PostgresSink(SinkModel):
    """A table of PostgreSQL."""

    type: Literal["postgres"]
    url: PostgresUrl = Field(repr=False)
    table: Text
    mode: Literal["append", "merge", "replace"] = "append"
    key: Columns = ()
    by: Columns = ()
    sequence: Columns = ()
    delete_when: Text | None = None
    create: bool = Field(default=True, description="whether the first batch makes the table")
    staged: bool = Field(default=False, description="whether rows always wait in a staging table before they are moved")
    keep_deleted: Duration | None = Field(
        default=None, description="how long a merge with sequence and delete_when knows deleted keys; default for ever"
    )

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Postgres

        fields = self.model_dump(exclude={"type", "name", "url", "keep_deleted"})
        kept = timedelta_of(self.keep_deleted, field="keep_deleted")
        return Postgres(self.url, name=self.ledger_name(), **fields, keep_deleted=kept)


class JsonMessages(Model):
    """Values that are JSON objects."""

    format: Literal["json"]
    schema_: Text = Field(alias="schema", description="columns as Spark's DDL: id long, v string")


class DecodedMessages(Model):
    """Values of any format, decoded by a function."""

    python: PythonName = Field(description="module:name of a function that takes bytes and gives a mapping")
    schema_: Text = Field(alias="schema", description="columns as Spark's DDL: id long, v string")


class KafkaSource(SourceModel):
    """Messages of a topic, or of several, each read once."""

    type: Literal["kafka"]
    name: Name = "kafka"
    bootstrap: Texts
    topic: Texts
    value: Literal["bytes", "text"] | JsonMessages | DecodedMessages = "bytes"
    key: Literal["bytes", "text"] | None = Field(default=None, description="text, and bytes where the value is bytes")
    columns: Texts | None = Field(default=None, description="which of Kafka's own columns are wanted: all")
    start: Offsets | Mapping[str, Offsets] | Text = Field(
        default="earliest", description="earliest, latest, group:<id>, or offsets: {0: 100}, or {topic: {0: 100}}"
    )
    on_gap: Literal["fail", "skip"] = "fail"
    options: Options = Field(default_factory=dict, repr=False)

    def build(self, site: Site) -> "Source":
        from floodmark.sources import Kafka
        from floodmark.sources.kafka.reading import COLUMNS

        importable(site.folder)  # a function that decodes values may stand beside the project file
        value = self.value if isinstance(self.value, str) else self.value.model_dump(by_alias=True)
        return Kafka(
            self.bootstrap,
            self.topic,
            value=value,
            key=self.key,
            start=self.start,
            on_gap=self.on_gap,
            options=dict(self.options),
            name=self.name,
            columns=COLUMNS if self.columns is None else self.columns,
        )


class NewTopic(Model):
    """How a topic is made that is not there yet."""

    partitions: int = Field(default=1, ge=1)
    replication: int = Field(default=1, ge=1)


class BytesColumn(Model):
    """The value is a column of bytes, as it is."""

    column: Text

    def sink_text(self) -> str:
        """As the sink takes it."""
        return f"bytes:{self.column}"


class TextExpression(Model):
    """The value is the text of a column or expression."""

    text: Text

    def sink_text(self) -> str:
        """As the sink takes it."""
        return f"text:{self.text}"


class KafkaSink(SinkModel):
    """A topic that gets each row as one message."""

    type: Literal["kafka"]
    bootstrap: Texts
    topic: Text
    key: Text | None = Field(default=None, description="the column, or expression, that is the message's key")
    headers: Mapping[str, Text] | Text | None = None
    value: Literal["json", "text"] | TextExpression | BytesColumn = Field(
        default="json", description="json: all columns; text: the column `value`; {text: expression}; {column: bytes}"
    )
    create: NewTopic | None = None
    options: Options = Field(default_factory=dict, repr=False)

    def build(self, site: Site) -> "Sink":
        from floodmark.sinks import Kafka

        return Kafka(
            self.bootstrap,
            self.topic,
            key=self.key,
            value=VALUE_FORMS[self.value] if isinstance(self.value, str) else self.value.sink_text(),
            headers=self.headers if self.headers is None or isinstance(self.headers, str) else dict(self.headers),
            create=self.create.model_dump() if self.create else None,
            options=dict(self.options),
            name=self.ledger_name(),
        )
