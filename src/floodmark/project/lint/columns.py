"""What is known of a job's columns before Spark starts: declared in the file, or in the log of the table that is read.

Only what is certain is said: of a source whose columns only a server knows, nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError
from floodmark.errors.configuration import did_you_mean, nearest_names
from floodmark.locations import local_path
from floodmark.project.kinds import DeltaSink, DeltaSource, FilesSource, Site
from floodmark.project.kinds.servers import DecodedMessages, JsonMessages, KafkaSource, PostgresSink, TableOrQuery
from floodmark.project.lint.queries import ColumnMistake, ColumnNames, missing_column, selected_columns

if TYPE_CHECKING:
    from floodmark.inputs.yaml import Place
    from floodmark.project.kinds import SinkModel
    from floodmark.project.models import JobModel


SIMPLE_TYPES = frozenset(
    re.findall(
        r"\w+",
        "boolean tinyint byte smallint short int integer bigint long float real double date timestamp "
        "timestamp_ntz timestamp_ltz time string binary void variant ",
    )
)
SIZED_TYPES = frozenset(["decimal", "dec", "numeric", "char", "character", "varchar", "time", "geography", "geometry"])
NESTED_TYPES = {"array": 1, "map": 2}
PLAIN_NAME = re.compile(r"\w+", re.ASCII)
BEHIND_TYPE = re.compile(r"\s+(?:not\s+null|comment\b|default\b|collate\b|generated\b)", re.IGNORECASE)
ROW_FIELDS = ("key", "sequence", "by", "track", "untracked")
LAYOUT_FIELDS = ("partition_by", "cluster_by", "zorder")
"""Fields of a sink that name columns: of the rows that it gets, and of the table that it makes of them."""
WIDEST_DECIMAL = 38


def schema_mistakes(ddl: str) -> Iterator[ColumnMistake]:
    """What Spark would refuse in a schema of the file: a type that is none, a column without one, one that is twice."""
    if _is_struct(ddl):
        return
    seen: set[str] = set()
    for name, kind in declared_fields(ddl):
        if not PLAIN_NAME.fullmatch(name) and f"`{name}`" not in ddl:
            yield ColumnMistake(f"column '{name}': Spark reads such a name in backquotes only", f"write `{name}`")
        wrong = type_mistake(kind) if kind else "it has no type"
        if wrong:
            yield ColumnMistake(f"column '{name}': {wrong}", _type_hint(name, kind))
        if name.lower() in seen:
            yield ColumnMistake(f"column '{name}' stands there twice", "take one of them out")
        seen.add(name.lower())


def _is_struct(ddl: str) -> bool:
    """Whether the columns stand in a type around them, as Spark's `simpleString` writes it."""
    return ddl.strip().lower().startswith("struct<")


def _type_hint(name: str, kind: str) -> str:
    known = SIMPLE_TYPES | SIZED_TYPES | NESTED_TYPES.keys()
    near = nearest_names(_word(kind), known, likeness=0.5) if kind and _word(kind) not in known else []
    return did_you_mean(near) or f"a type of Spark's DDL, as in {name} long, or string, decimal(10,2), timestamp"


def declared_fields(ddl: str) -> list[tuple[str, str]]:
    """Each column of Spark's DDL with its type, which is empty where none is written."""
    fields = [re.match(r"\s*(`(?:[^`]|``)*`|[^\s:]+)\s*:?\s*(.*)", part, re.DOTALL) for part in _parts(ddl)]
    return [(each[1].strip("`"), _type_text(each[2])) for each in fields if each]


def declared_columns(ddl: str) -> ColumnNames:
    """The names alone."""
    return frozenset(name.lower() for name, _ in declared_fields(ddl))


def _type_text(text: str) -> str:
    """The type without what may follow it: NOT NULL, a comment, a default, a collation."""
    return re.split(r"\s+(?:not\s+null|comment\b|default\b|collate\b|generated\b)", text, flags=re.IGNORECASE)[
        0
    ].strip()


def _parts(text: str) -> list[str]:
    """The text at its commas, but for those within brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        else:
            depth += (sign in "(<") - (sign in ")>")
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]


def type_mistake(kind: str) -> str | None:
    """What is wrong with a type of Spark's DDL; None if all is well."""
    word, inner = _word(kind), re.fullmatch(r"\w+\s*[(<](.*)[)>]", kind, re.DOTALL)
    if word == "interval" or kind.lower() in SIMPLE_TYPES or (word in SIZED_TYPES and word == kind.lower()):
        return None
    if word in SIZED_TYPES and inner:
        return _size_mistake(kind, inner[1]) if word in ("decimal", "dec", "numeric") else None
    if word == "struct" and inner:
        fields = [(name, type_mistake(each) if each else "it has no type") for name, each in declared_fields(inner[1])]
        return next((f"field '{name}': {wrong}" for name, wrong in fields if wrong), None)
    if word in NESTED_TYPES and inner and len(parts := _parts(inner[1])) == NESTED_TYPES[word]:
        return next((wrong for part in parts if (wrong := type_mistake(_type_text(part.strip())))), None)
    return f"'{kind}' is no type of Spark's"


def _size_mistake(kind: str, sizes: str) -> str | None:
    numbers = [int(each) for each in sizes.split(",") if each.strip().isdigit()]
    if not numbers or numbers[0] > WIDEST_DECIMAL:
        return f"'{kind}' has more digits than the {WIDEST_DECIMAL} that a decimal holds"
    return f"'{kind}' has more digits behind the point than at all" if max(numbers) > numbers[0] else None


def _word(kind: str) -> str:
    return re.split(r"[\s(<]", kind.strip(), maxsplit=1)[0].lower()


def declared_schemas(job: JobModel) -> Iterator[tuple[Place, str]]:
    """Where the job's source declares columns as DDL, with the text; types of single columns are such a text too."""
    source = job.source
    if isinstance(source, FilesSource) and source.schema_:
        yield ("source", "schema"), source.schema_
    if isinstance(source, KafkaSource) and isinstance(source.value, (JsonMessages, DecodedMessages)):
        yield ("source", "value", "schema"), source.value.schema_
    if isinstance(source, TableOrQuery):
        for name, kind in source.types.items():
            yield ("source", "types", name), f"`{name}` {kind}"


def source_columns(job: JobModel, site: Site) -> ColumnNames | None:
    """The columns of the job's source, where the file or the log of a table on this machine tells them."""
    source = job.source
    if isinstance(source, FilesSource):
        return declared_columns(source.schema_) if source.schema_ and not _is_struct(source.schema_) else None
    if isinstance(source, DeltaSource) and source.changes == "append":
        return _logged_columns(source.place(site))
    return message_columns(source) if isinstance(source, KafkaSource) else None


def message_columns(source: KafkaSource) -> ColumnNames | None:
    """Kafka's own columns, and beside them those of the value, where its schema says which."""
    from floodmark.sources.kafka.reading import COLUMNS, PREFIX

    own = [name for name in COLUMNS if source.columns is None or name in source.columns]
    if isinstance(source.value, str):
        return frozenset({"value", *own})
    if _is_struct(source.value.schema_):
        return None
    return declared_columns(source.value.schema_) | {f"{PREFIX}{name}" for name in own if name != "value"}


def _logged_columns(place: str | None) -> ColumnNames | None:
    """What the table's log says; None where it is elsewhere, not there yet, or cannot be read: the look tells of it."""
    local = local_path(place) if place else None
    if local is None or not (local / "_delta_log").is_dir():
        return None
    from floodmark.probes.delta import DeltaProbe

    probe = DeltaProbe(str(local))
    try:
        return frozenset(map(str.lower, probe.columns())) if probe.refresh() else None
    except FloodmarkError:
        return None


def row_columns(job: JobModel, site: Site) -> ColumnNames | None:
    """The columns of the rows that rules and sinks get; None where only Spark knows."""
    source = source_columns(job, site)
    if job.transform is None:
        return source
    return selected_columns(job.transform.sql, source) if job.transform.sql is not None else None


def unfit_name(sink: SinkModel, columns: ColumnNames, site: Site) -> ColumnMistake | None:
    """A column that Delta makes no table with; one that is there with it may have names of its own in its files."""
    odd = [name for name in sorted(columns) if not PLAIN_NAME.fullmatch(name)]
    if not odd or not isinstance(sink, DeltaSink):
        return None
    from floodmark.project.discovery import plain_names, renaming_query

    names = plain_names(sorted(columns))
    wrong = [name for name in odd if names[name] != name]
    if not wrong or set(wrong) <= (_logged_columns(sink.place(site)) or frozenset()):
        return None
    said = f"a Delta table takes no column '{wrong[0]}', with a blank or one of ,;={{}}() in its name"
    return ColumnMistake(said, f'transform: {{sql: "{renaming_query(names, {})}"}}')


def sink_mistakes(sink: SinkModel, columns: ColumnNames) -> Iterator[tuple[Place, ColumnMistake]]:
    """Columns that a sink is told to use and that its rows do not have, each with its field."""
    has_columns_of_its_own = getattr(sink, "mode", "") not in ("append", "merge", "replace")  # is_current, valid_from
    for field in ROW_FIELDS if has_columns_of_its_own else (*ROW_FIELDS, *LAYOUT_FIELDS):
        named: Sequence[str] = getattr(sink, field, ()) if isinstance(sink, DeltaSink | PostgresSink) else ()
        for name in named:
            if name.split(".")[0].lower() not in columns:
                found = missing_column(name, columns, "the rows have")
                yield (field,), ColumnMistake(f"{field} names '{name}': {found.message}", found.hint)
