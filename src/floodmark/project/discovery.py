"""A first project from what is there: the tables of a database, files of a folder, the messages of a topic."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from floodmark.errors import ConfigError, SourceUnreadable
from floodmark.logs import redact
from floodmark.probes.rows import FileFormat, file_table
from floodmark.sinks.delta.choice import REFUSED_IN_NAMES

if TYPE_CHECKING:
    import pyarrow as pa


HEAD = """\
# yaml-language-server: $schema=.floodmark/schema.json
# The jobs are in the folder jobs. `floodmark lint` checks them, `plan` says what would happen, `run` does it.
store: sqlite:///state/marks.db
spark:
  master: local[2]
"""
JOB = """\
# yaml-language-server: $schema=../.floodmark/jobs.schema.json
# {found}
source:
{source}
{transform}sinks:
  - {{name: lake, type: delta, path: lake/{name}, {mode}}}
"""
TABLES = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       coalesce((SELECT k.place FROM pg_index AS i, unnest(CAST(i.indkey AS smallint[])) WITH ORDINALITY
                 AS k(number, place) WHERE i.indrelid = c.oid AND i.indisprimary AND k.number = a.attnum), 0)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_' AND c.relname !~ '^floodmark'
ORDER BY n.nspname, c.relname, a.attnum
"""
CHANGED = re.compile(r"^(last_)?(updated|modified|changed|update|change|modification)(_?(at|on|time|date|ts))?$")
INTEGERS = ("smallint", "integer", "bigint")
FORMATS: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
PLAIN = re.compile(r"[^A-Za-z0-9_]+")
UNFIT = re.compile(f"[{re.escape(''.join(REFUSED_IN_NAMES))}]+")
MESSAGES = 200
"""So many messages of a topic are looked at."""


@dataclass(frozen=True)
class Discovered:
    """Files of a project by their paths, and the variable that it needs, with what stands for it."""

    files: dict[str, str]
    variable: str | None = None


def discover(where: str, folder: Path) -> Discovered:
    """A project over what is there. Raises SourceUnreadable, or ConfigError if nothing can be made of it."""
    scheme = urlsplit(where).scheme
    if scheme in ("postgresql", "postgres"):
        jobs = {table.name: table.job() for table in database_tables(where)}
        return _project(jobs, where, "PG_URL")
    if scheme == "kafka":
        parts = urlsplit(where)
        topics = [topic for topic in parts.path.strip("/").split(",") if topic]
        jobs = {_name(topic): _topic_job(parts.netloc, topic) for topic in topics}
        return _project(jobs, where, "KAFKA")
    if scheme not in ("", "file"):
        raise ConfigError(
            f"{redact(where)} is no place that `init` can look into.",
            hint="give postgresql://…, kafka://HOST:PORT/TOPIC, or a folder with files",
        )
    return _project(dict(_file_jobs(Path(where.removeprefix("file://")), folder)), where, None)


def _project(jobs: dict[str, str], where: str, variable: str | None) -> Discovered:
    if not jobs:
        raise ConfigError(
            f"there is nothing to read in {redact(where)}.", hint="name a folder with files, or a database"
        )
    files = {"floodmark.yaml": HEAD, **{f"jobs/{name}.yaml": text for name, text in jobs.items()}}
    return Discovered({**files, ".gitignore": "/state/\n/lake/\n"}, variable)


@dataclass(frozen=True)
class DatabaseTable:
    """A table as PostgreSQL describes it: columns with their types, those that are never null, its primary key."""

    schema: str
    table: str
    types: dict[str, str]
    required: frozenset[str]
    key: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its job is called."""
        return _name(self.table if self.schema == "public" else f"{self.schema}_{self.table}")

    def cursor(self) -> tuple[str, str]:
        """The column to read by, and what that means."""
        changed = [
            name
            for name, kind in self.types.items()
            if CHANGED.match(name.lower()) and kind.startswith("timestamp") and name in self.required
        ]
        if changed and self.key:
            return changed[0], "new and changed rows; deleted ones are found by `floodmark reconcile`"
        if len(self.key) == 1 and self.types[self.key[0]] in INTEGERS:
            return self.key[0], "new rows; a row that changes later is not seen: name a column that says when it did"
        return (
            "xmin",
            "new and changed rows, at the price of a scan of the table; an updated_at with an index is cheaper",
        )

    def job(self) -> str:
        """The job that keeps a copy of it."""
        cursor, meaning = self.cursor()
        names = plain_names(self.types)
        key = f"  key: [{', '.join(self.key)}]\n" if self.key else ""
        source = f"  type: postgres\n  url: ${{PG_URL}}\n  table: {self.schema}.{self.table}\n{key}"
        source += f"  cursor: {cursor}  # {meaning}"
        newest = f", sequence: [{names[cursor]}]" if cursor in self.types and cursor not in self.key else ""
        key_there = ", ".join(names[name] for name in self.key)
        mode = f"mode: merge, key: [{key_there}]{newest}" if self.key else "mode: append"
        known = f"primary key {', '.join(self.key)}" if self.key else "no primary key: changed rows are added again"
        found = f"{self.schema}.{self.table}: {len(self.types)} columns, {known}."
        return JOB.format(found=found, source=source, transform=renaming(names, {}), name=self.name, mode=mode)


def database_tables(url: str) -> list[DatabaseTable]:
    """The tables of a database that its user may see, but the system's own. Raises SourceUnreadable."""
    from floodmark.postgres import Address
    from floodmark.probes.postgres import connect_read_only, failing_as_unreadable

    with failing_as_unreadable(redact(url)), connect_read_only(Address.parse(url), "floodmark init") as connection:
        rows = connection.execute(TABLES).fetchall()
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for schema, table, *column in rows:
        found.setdefault((schema, table), []).append(tuple(column))
    return [_table(schema, table, columns) for (schema, table), columns in found.items()]


def _table(schema: str, table: str, columns: Sequence[tuple[Any, ...]]) -> DatabaseTable:
    by_place = sorted((place, name) for name, _, _, place in columns if place)
    required = frozenset(name for name, _, is_required, _ in columns if is_required)
    types = {name: kind for name, kind, _, _ in columns}
    return DatabaseTable(schema, table, types, required, tuple(name for _, name in by_place))


def _file_jobs(path: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """A job for the folder, or for each of the folders in it that hold files."""
    if not path.exists():
        raise SourceUnreadable(str(path), reason="there is no such file or folder")
    inside = sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []
    for place in [path, *inside]:
        files = sorted(each for each in (place.iterdir() if place.is_dir() else [place]) if each.suffix in FORMATS)
        if files:
            name = _name(place.stem if place.is_file() else place.resolve().name)
            yield name, _file_job(name, place, files, folder)


def _file_job(name: str, place: Path, files: Sequence[Path], folder: Path) -> str:
    file_format, first = FORMATS[files[0].suffix], files[0]
    import pyarrow as pa

    try:
        columns = file_table(first, file_format).schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SourceUnreadable(str(first), reason=str(error).splitlines()[0]) from error
    where = os.path.relpath(place.resolve(), folder.resolve())
    source = f"  type: files\n  path: {where}\n  format: {file_format}\n  schema: {json.dumps(ddl_of(columns))}"
    count = f"{len(files)} {file_format} {'file' if len(files) == 1 else 'files'}"
    found = f"{count}; the columns are those of {first.name}. Where rows change: mode: merge, key: [id]."
    return JOB.format(found=found, source=source, transform=fit_for_delta(columns), name=name, mode="mode: append")


def _topic_job(bootstrap: str, topic: str) -> str:
    name, values = _name(topic), _messages(bootstrap, topic)
    columns = _columns_of(values)
    form = f"{{format: json, schema: {json.dumps(ddl_of(columns))}}}" if columns else "text"
    source = f"  type: kafka\n  bootstrap: ${{KAFKA}}\n  topic: {topic}\n  value: {form}"
    found = f"topic {topic}; " + (f"the fields are those of {len(values)} messages." if columns else "no JSON objects.")
    transform = fit_for_delta(columns) if columns else ""
    return JOB.format(found=found, source=source, transform=transform, name=name, mode="mode: append")


def _columns_of(values: Sequence[bytes]) -> pa.Schema | None:
    """The fields of JSON objects; None if the messages are something else."""
    import pyarrow as pa

    try:
        objects = [json.loads(value) for value in values]
        is_json = bool(objects) and all(isinstance(each, dict) for each in objects)
        return pa.Table.from_pylist(_whole(objects)).schema if is_json else None
    except (ValueError, pa.ArrowException):
        return None


def _whole(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every object with the fields of all: pyarrow looks at the first one alone."""
    names = list(dict.fromkeys(name for each in objects for name in each))
    return [{name: each.get(name) for name in names} for each in objects]


def _messages(bootstrap: str, topic: str) -> list[bytes]:
    """The first messages of a topic; nothing is committed. Raises SourceUnreadable."""
    from confluent_kafka import TopicPartition

    from floodmark.probes.kafka import KafkaProbe
    from floodmark.probes.kafka.client import KafkaOptions

    options = KafkaOptions(bootstrap)
    found = KafkaProbe(options).topics([topic])[topic]
    consumer = options.consumer(**{"auto.offset.reset": "earliest", "enable.partition.eof": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found.partitions])
        messages = consumer.consume(MESSAGES, timeout=5.0)
        return [value for message in messages if message.error() is None and (value := message.value())]
    finally:
        consumer.close()


def ddl_of(schema: pa.Schema) -> str:
    """The columns as Spark writes them."""
    return ", ".join(f"{_column_name(each.name)} {spark_type(each.type)}" for each in schema)


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """What a Delta table may call each column: as it is called, or with `_` for what is not allowed there."""
    found: dict[str, str] = {}
    for name in names:
        plain = UNFIT.sub("_", name).strip("_") or "column" if UNFIT.search(name) else name
        while plain in found.values() or (plain != name and plain in names):
            plain += "_2"
        found[name] = plain
    return found


def fit_for_delta(columns: pa.Schema) -> str:
    """The transform that renames what Delta does not take, also within structs; nothing if it takes all."""
    names = plain_names(columns.names)
    inside = {
        each.name: kind for each in columns if (kind := spark_type(each.type, plain=True)) != spark_type(each.type)
    }
    return renaming(names, inside)


def renaming(names: Mapping[str, str], types: Mapping[str, str]) -> str:
    """The lines of a transform by `renaming_query`; none where nothing has another name."""
    sql = renaming_query(names, types)
    return f"transform:\n  sql: {json.dumps(sql, ensure_ascii=False)}\n" if sql else ""


def renaming_query(names: Mapping[str, str], types: Mapping[str, str]) -> str | None:
    """A query that gives columns other names, and some of them types with other names in them; None if none has."""
    changed = [name for name, plain in names.items() if name != plain or name in types]
    if not changed:
        return None
    old = {name: _column_name(name) for name in changed}
    new = [
        f"{f'cast({old[name]} as {types[name]})' if name in types else old[name]} as {_column_name(names[name])}"
        for name in changed
    ]
    return f"select * except ({', '.join(old.values())}), {', '.join(new)} from source"


def _column_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def spark_type(kind: pa.DataType, *, plain: bool = False) -> str:
    """A type of Arrow's in Spark's words; what no value told, and what Spark has no word for, is text.

    With `plain`, fields have names that a Delta table takes.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        names = plain_names([each.name for each in fields]) if plain else {each.name: each.name for each in fields}
        parts = (f"{_column_name(names[each.name])}: {spark_type(each.type, plain=plain)}" for each in fields)
        return f"struct<{', '.join(parts)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type, plain=plain)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    tests = (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int64, "long"),
        (pa.types.is_integer, "int"),
        (pa.types.is_floating, "double"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_binary, "binary"),
    )
    return next((word for test, word in tests if test(kind)), "string")


def _name(text: str) -> str:
    return PLAIN.sub("_", text).strip("_") or "rows"
