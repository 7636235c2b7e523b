"""Which files hold the rows of a small Delta table, or what some of its commits changed: its log tells, without a JVM.

Only of tables whose files say all about their rows: no deletion vectors, no column mapping, no column that is kept in a
way of its own. Whatever is not on the lists here is left to Delta's own reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.locations import local_path
from floodmark.probes.delta import DeltaProbe, as_arrow
from floodmark.probes.delta.commits import RowFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_FILES = 32
"""More are listed by Spark in a job of its own."""
MOST_BYTES = 16 * 1024 * 1024
"""Of a larger table Delta's reader passes over the files in which nothing is looked for."""
MOST_ACTIONS = 10_000
"""In a checkpoint; one with more of them is a large table's, and takes a while to be read."""
READER_FEATURES = frozenset({"timestampNtz"})
PLAIN_TYPES = frozenset(
    {
        "binary", "boolean", "byte", "date", "double", "float", "integer", "long", "short", "string", "timestamp",
        "timestamp_ntz",
    }
)  # fmt: skip
DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)")
PARTITION_TYPES = frozenset({"boolean", "byte", "date", "integer", "long", "short", "string"})
FROM_DATABASES = frozenset({"isSigned", "isTimestampNTZ", "jdbcClientType", "logical_time_type", "scale"})
"""What Spark notes of a column that it reads by JDBC, and nobody asks for in a table."""
HARMLESS_NOTES = FROM_DATABASES | {"comment"}
OWN_NOTES = "floodmark."
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
PLAIN_NAME = re.compile(r"[A-Za-z0-9._=-]+")
"""Spark gives the name of any other file in another spelling."""


@dataclass(frozen=True)
class FewFiles:
    """The files, and the columns that the table has (Delta's JSON)."""

    schema_json: str
    files: tuple[RowFile, ...]


def files_at(where: str, version: int | None = None) -> FewFiles | None:
    """The files of a small and plain table on a local disk, at a version or now; None if it is not such a one."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = local_path(where)
    if folder is None or has_large_checkpoint(folder):
        return None
    try:
        table = DeltaTable(folder, version=version)
        return _files_of(table) if is_plain(table) else None
    except (DeltaError, OSError):
        return None  # Delta's reader has the words for it
    except (OverflowError, ValueError):
        return None  # Python has no dates before the year 1, nor behind 9999


def files_of_changes(probe: DeltaProbe, first: int, last: int) -> FewFiles | None:
    """The files whose rows are what the change feed has for these versions; None if they are many, or do not tell.

    The probe was just refreshed, and the feed was on all the time.
    """
    if probe.local is None or last - first >= MOST_FILES or has_large_checkpoint(probe.local):
        return None
    changing = {each.version for each in probe.commits(first - 1, last) if each.changes_rows}
    try:
        actions = [each for each in probe.file_actions(first, last) if each.version in changing or each.alters]
    except FileNotFoundError:
        return None
    if not probe.ask(is_plain) or any(each.alters and each.version > first for each in actions):
        return None
    if has_own_moments(probe) or not has_columns_of_now(probe, last):
        return None
    if not all(each.tells_changes for each in actions):
        return None
    moments = commit_moments(probe.local, first, last)
    files = tuple(file.at(moments[each.version]) for each in actions for file in each.changes)
    return FewFiles(probe.schema_json(), files) if are_few(files) else None


def has_own_moments(probe: DeltaProbe) -> bool:
    """Whether commits say themselves when they were made, whatever the times of their files are."""
    return probe.properties().get("delta.enableInCommitTimestamps", "false").lower() == "true"


def has_columns_of_now(probe: DeltaProbe, version: int) -> bool:
    """Whether the columns of a version are those that the table has now; else Delta says which of them can be read."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if version == probe.latest():
        return True
    try:
        return DeltaTable(str(probe.local), version=version).schema().to_json() == probe.schema_json()
    except (DeltaError, OSError):
        return False


def commit_moments(folder: Path, first: int, last: int) -> Mapping[int, int]:
    """When each version was committed, in milliseconds: when its file was written, and always after the one before."""
    versions = range(first, last + 1)
    log = folder / "_delta_log"
    written = ((log / f"{version:020d}.json").stat().st_mtime_ns // 1_000_000 for version in versions)
    return dict(zip(versions, accumulate(written, lambda before, own: max(before + 1, own)), strict=True))


def has_large_checkpoint(folder: Path) -> bool:
    """Whether the table is known to have many files before its log is read."""
    try:
        last = json.loads((folder / "_delta_log" / "_last_checkpoint").read_bytes())
        return int(last.get("size", 0)) > MOST_ACTIONS
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def are_few(files: Sequence[RowFile]) -> bool:
    """Whether Spark reads them in no time, and tells their rows apart by their names."""
    small = len(files) <= MOST_FILES and sum(each.size_bytes for each in files) <= MOST_BYTES
    return small and why_not_these(files) is None


def why_not_these(files: Sequence[RowFile]) -> str | None:
    """Why rows cannot be told by the names of their files; None if they can. Writers put a UUID into them."""
    odd = next((each.path for each in files if not PLAIN_NAME.fullmatch(each.name)), None)
    if odd is not None:
        return f"the name of a file has an unusual character: {odd}"
    counted = Counter((each.name, each.change) for each in files)  # a file that comes and goes does either once
    (name, _), count = max(counted.items(), key=lambda pair: pair[1], default=(("", None), 0))
    return f"{count} files are named {name}" if count > 1 else None


def is_plain(table: DeltaTable) -> bool:
    """Whether the files of the table hold its rows as they are, but for the values of partitions."""
    protocol, fields = table.protocol(), json.loads(table.schema().to_json())["fields"]
    if protocol.min_reader_version > 1 and set(protocol.reader_features or ("columnMapping",)) - READER_FEATURES:
        return False
    types = {each["name"]: each["type"] for each in fields}
    partitioned_well = all(str(types.get(name)) in PARTITION_TYPES for name in table.metadata().partition_columns)
    return partitioned_well and all(map(is_plain_column, fields))


def is_plain_column(column: Mapping[str, Any]) -> bool:
    """Whether it may be null and nothing is noted of it, nor of those inside of it."""
    noted = set(column.get("metadata") or {}) - HARMLESS_NOTES
    is_bare = column["nullable"] and all(name.startswith(OWN_NOTES) for name in noted)
    return is_bare and is_plain_type(column["type"])


def is_plain_type(kind: object) -> bool:
    """Whether Parquet holds every value of the type, as Delta writes it, just as Spark has it."""
    if isinstance(kind, str):
        return kind in PLAIN_TYPES or DECIMAL.fullmatch(kind) is not None
    if not isinstance(kind, dict):
        return False
    if kind.get("type") == "struct":
        return all(map(is_plain_column, kind["fields"]))
    may_be_null = kind.get("containsNull", kind.get("valueContainsNull"))
    return may_be_null is True and all(map(is_plain_type, _inner_types(kind)))


def _inner_types(kind: Mapping[str, Any]) -> Iterator[object]:
    return (kind[name] for name in ("elementType", "keyType", "valueType") if name in kind)


def may_be_empty(path: str, column: str, value: object) -> bool:
    """Whether the value of a partition may be an empty text, which `deltalake` takes for NULL, and Delta's reader not.

    Writers name the folder of NULL as Hive does.
    """
    return value is None and f"{column}={HIVE_NULL}" not in path


def _files_of(table: DeltaTable) -> FewFiles | None:
    actions = as_arrow(table.get_add_actions(flatten=True))
    if actions.num_rows > MOST_FILES:
        return None
    parted = {name: f"partition.{name}" for name in table.metadata().partition_columns}
    rows = actions.select(["path", "size_bytes", *parted.values()]).to_pylist()
    if any(may_be_empty(row["path"], name, row[own]) for row in rows for name, own in parted.items()):
        return None
    files = tuple(
        RowFile(
            path=row["path"],
            partition={name: None if row[column] is None else str(row[column]) for name, column in parted.items()},
            version=table.version(),
            size_bytes=row["size_bytes"],
        )
        for row in rows
    )
    return FewFiles(table.schema().to_json(), files) if are_few(files) else None
