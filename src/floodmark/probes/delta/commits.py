"""What the log of a Delta table says of one commit: what it did to rows, and which batch it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from floodmark.formats import with_format, without_format

NOTE = "floodmark"
"""The key under which a commit's user metadata names ledger, number and digest of its batch."""

MAINTENANCE = frozenset(
    {
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "ADD DELETION VECTOR FEATURE",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "COMPUTE STATS",
        "CREATE TABLE",
        "DROP COLUMNS",
        "DROP CONSTRAINT",
        "DROP FEATURE",
        "FSCK",
        "OPTIMIZE",
        "RENAME COLUMN",
        "REORG",
        "REPLACE COLUMNS",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE COLUMN METADATA",
        "UPDATE SCHEMA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations that never bring or take a row. One that is not listed counts as data: a needless read costs little."""

INSERTED = (
    "numTargetRowsInserted", "numOutputRows", "num_target_rows_inserted", "num_inserted_rows", "num_added_rows",
)  # fmt: skip
UPDATED = ("numTargetRowsUpdated", "numUpdatedRows", "num_updated_rows", "num_target_rows_updated")
DELETED = ("numTargetRowsDeleted", "numDeletedRows", "num_deleted_rows", "num_target_rows_deleted")
REMOVED_FILES = ("numRemovedFiles", "num_removed_files")


@dataclass(frozen=True)
class Commit:
    """What the log says of one version; counts are None where the log does not give them."""

    version: int
    operation: str
    timestamp_ms: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    ledger: str | None = None
    number: int | None = None
    digest: str | None = None
    engine: str = ""
    before: int | None = None
    """Of a fence: the batch below it."""

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Commit:
        note = _parse_note(entry.get("userMetadata"))
        return cls(
            version=int(entry["version"]),
            operation=str(entry.get("operation", "")),
            timestamp_ms=int(entry.get("timestamp", 0)),
            parameters={name: str(value) for name, value in (entry.get("operationParameters") or {}).items()},
            metrics=_whole_numbers(entry.get("operationMetrics") or {}),
            ledger=note.get("ledger"),
            number=note.get("number"),
            digest=note.get("digest"),
            engine=str(entry.get("engineInfo") or ""),
            before=note.get("before"),
        )

    @property
    def is_native(self) -> bool:
        """Whether `deltalake` made it, and not Spark."""
        return self.engine.startswith("delta-rs")

    @property
    def names_files(self) -> bool:
        """Whether `deltalake` committed files that Spark had written: then its counts have Spark's names."""
        return self.is_native and "numOutputRows" in self.metrics

    @property
    def is_maintenance(self) -> bool:
        """Whether it cannot have brought or taken a row; one of `deltalake` that makes a table may name files."""
        return self.operation in MAINTENANCE and not (self.is_native and self.operation == "CREATE TABLE")

    @property
    def inserted_rows(self) -> int | None:
        found = self._first(INSERTED)
        if found is None or self.operation == "MERGE":
            return found
        return found - self.metrics.get("numCopiedRows", 0)

    @property
    def updated_rows(self) -> int:
        return self._first(UPDATED) or 0

    @property
    def deleted_rows(self) -> int:
        return self._first(DELETED) or 0

    @property
    def rows_written(self) -> int | None:
        """Rows of a batch that this commit put into the table, or took out of it by a merge."""
        return (
            (self.inserted_rows or 0) + self.updated_rows + self.deleted_rows
            if self.operation == "MERGE"
            else self.inserted_rows
        )

    @property
    def rows_in_feed(self) -> int | None:
        """How many rows the change feed has for it, where the log tells; an update has two."""
        if not (self._is_counted or self.inserted_rows):
            return None
        return (self.inserted_rows or 0) + 2 * self.updated_rows + self.deleted_rows

    @property
    def rewrites(self) -> bool:
        """Whether rows that were there before are gone or other ones now."""
        if self.is_maintenance:
            return False
        if self._is_counted:
            return bool(self.updated_rows or self.deleted_rows)
        return self.operation in ("RESTORE", "TRUNCATE") or bool(self._first(REMOVED_FILES))

    @property
    def changes_rows(self) -> bool:
        """Whether a reader of changes has anything to see here; True where the log does not tell."""
        if self.is_maintenance:
            return False
        return self.rewrites or bool(self.inserted_rows) or (self.inserted_rows is None and not self._is_counted)

    @property
    def replaces_all(self) -> bool:
        """Whether the rows that it wrote took the place of everything, columns included."""
        return self.parameters.get("mode") == "Overwrite" and "predicate" not in self.parameters

    @property
    def counts_rows(self) -> bool:
        """Whether the log tells all that it did to rows: what an overwrite took away is not counted anywhere."""
        return self._is_counted or (self.inserted_rows is not None and not self.rewrites)

    @property
    def _is_counted(self) -> bool:
        return self._first(UPDATED + DELETED) is not None

    def sets_property(self, name: str) -> bool:
        return name in self.parameters.get("properties", "")

    def _first(self, names: tuple[str, ...]) -> int | None:
        return next((self.metrics[name] for name in names if name in self.metrics), None)


@dataclass(frozen=True)
class RowFile:
    """A file with rows of a table: its path below the table or its URI, as the log writes it, and its partition."""

    path: str
    partition: Mapping[str, str | None]
    version: int
    """Of the commit that brought it."""
    timestamp_ms: int = 0
    size_bytes: int = 0
    change: str | None = "insert"
    """What the commit did to its rows; None where they say so themselves, each its own."""

    @property
    def name(self) -> str:
        return unquote(self.path).rpartition("/")[2]

    def at(self, timestamp_ms: int) -> RowFile:
        """The same file, of a commit at that time."""
        return replace(self, timestamp_ms=timestamp_ms)


@dataclass(frozen=True)
class FileActions:
    """What one commit did to the files that hold rows; upkeep, which only moves rows between files, did nothing."""

    version: int
    added: tuple[RowFile, ...]
    rewrites: bool
    """Whether it took rows away, or wrote rows again that were there before."""
    changes: tuple[RowFile, ...] = ()
    """All that it did to rows, as the change feed has it; a commit may have written that down in files of its own."""
    tells_changes: bool = True
    """Whether whole files, as they are named, tell the changes: not those of which a part counts as deleted."""
    alters: bool = False
    """Whether it changed the table's columns, settings or abilities."""

    @classmethod
    def parse(cls, version: int, text: str) -> FileActions:
        """From the lines of the commit's file in the log."""
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        moment = next((int(each["commitInfo"].get("timestamp", 0)) for each in actions if "commitInfo" in each), 0)
        adds, removals = (
            [each[name] for each in actions if each.get(name, {}).get("dataChange")] for name in ("add", "remove")
        )
        written_down = [each["cdc"] for each in actions if "cdc" in each]
        # What a deletion vector leaves of a file was there before; an append has no changes beside its rows.
        rewrites = bool(written_down or removals) or any(add.get("deletionVector") for add in adds)
        added, removed, changed = (
            tuple(_row_file(each, version, moment, change) for each in files)
            for files, change in ((adds, "insert"), (removals, "delete"), (written_down, None))
        )
        is_whole = all("partitionValues" in each and not each.get("deletionVector") for each in (*adds, *removals))
        alters = any("metaData" in each or "protocol" in each for each in actions)
        return cls(version, added, rewrites, changed or (*removed, *added), bool(changed) or is_whole, alters)


def _row_file(action: Mapping[str, Any], version: int, timestamp_ms: int, change: str | None) -> RowFile:
    partition, size = action.get("partitionValues") or {}, int(action.get("size") or 0)
    return RowFile(action["path"], partition, version, timestamp_ms, size, change)


def note(ledger: str, number: int, digest: str | None, **more: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    """The user metadata that goes into the commit of a batch."""
    facts = {"ledger": ledger, "number": number, "digest": digest, **more}
    return json.dumps({NOTE: with_format(facts)}, sort_keys=True)


def _parse_note(text: object) -> Mapping[str, Any]:
    """Other writers put what they like into user metadata, so anything that is not ours reads as nothing."""
    try:
        metadata = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    own = metadata.get(NOTE) if isinstance(metadata, dict) else None
    return without_format(own, "a commit", where="the log of a Delta table") if isinstance(own, dict) else {}


def _whole_numbers(metrics: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in metrics.items() if str(value).lstrip("-").isdigit()}
