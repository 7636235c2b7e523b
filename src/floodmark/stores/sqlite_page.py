"""One job's rows in the SQLite store, inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.stores.page import Entry, ItemRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

MINE = "namespace = :namespace and job = :job"
MARK = "namespace = :namespace and key = :job"


class SqlitePage:
    """The rows of one job."""

    def __init__(self, connection: sqlite3.Connection, namespace: str, job: str) -> None:
        self._connection, self._me = connection, {"namespace": namespace, "job": job}

    def stamp(self) -> str | None:
        return self._text(f"select stamp from floodmark_marks where {MARK}")

    def entry(self) -> Entry | None:
        columns = "select stamp, number, modified_time, val from floodmark_marks"
        row = self._do(f"{columns} where {MARK}").fetchone()
        return Entry(*row) if row else None

    def save(self, entry: Entry) -> None:
        self._do(
            "insert or replace into floodmark_marks (namespace, key, val, number, modified_time, stamp) "
            "values (:namespace, :job, :val, :number, :modified_time, :stamp)",
            val=entry.val,
            number=entry.number,
            modified_time=entry.modified_time,
            stamp=entry.stamp,
        )

    def items(self, source: str, base: int, after: int, upto: int) -> Iterator[tuple[str, str]]:
        # a later base has higher numbers than all rows of an earlier one, so the numbers alone tell them apart
        rows = self._do(
            f"select item, value from floodmark_items where {MINE} and source = :source "
            "and number > :after and number <= :upto order by number",
            source=source,
            after=max(after, base - 1),
            upto=upto,
        )
        return ((_text_of(item), value) for item, value in rows)

    def add_items(self, rows: Sequence[ItemRow]) -> None:
        me = (self._me["namespace"], self._me["job"])
        self._connection.executemany(
            "insert or replace into floodmark_items (namespace, job, source, item, number, value) "
            "values (?, ?, ?, ?, ?, ?)",
            ((*me, row.source, _storable(row.item), row.number, row.value) for row in rows),
        )

    def keep_bases(self, used: frozenset[tuple[str, int]]) -> None:
        sources = self._do(f"select distinct source from floodmark_items where {MINE}").fetchall()
        for (source,) in sources:
            lowest = min((base for name, base in used if name == source), default=None)
            if lowest is None:
                self._do(f"delete from floodmark_items where {MINE} and source = :source", source=source)
            else:
                older = f"delete from floodmark_items where {MINE} and source = :source and number < :lowest"
                self._do(older, source=source, lowest=lowest)

    def history(self, limit: int) -> Sequence[str]:
        newest = f"select val from floodmark_history where {MARK} order by number desc limit :limit"
        return [val for (val,) in self._do(newest, limit=limit)]

    def add_history(self, number: int, val: str, keep: int) -> None:
        self._do(
            "insert or replace into floodmark_history values (:namespace, :job, :number, :val)", number=number, val=val
        )
        self.trim_history(keep)

    def trim_history(self, keep: int) -> None:
        surplus = f"select number from floodmark_history where {MARK} order by number desc limit 1 offset :keep"
        self._do(f"delete from floodmark_history where {MARK} and number <= ({surplus})", keep=keep)

    def runs(self, limit: int) -> Sequence[str]:
        newest = f"select val from floodmark_runs where {MINE} order by id desc limit :limit"
        return [val for (val,) in self._do(newest, limit=limit)]

    def add_run(self, text: str, keep: int) -> None:
        self._do("insert into floodmark_runs (namespace, job, val) values (:namespace, :job, :val)", val=text)
        self.trim_runs(keep)

    def trim_runs(self, keep: int) -> None:
        surplus = f"select id from floodmark_runs where {MINE} order by id desc limit 1 offset :keep"
        self._do(f"delete from floodmark_runs where {MINE} and id <= ({surplus})", keep=keep)

    def lease(self) -> str | None:
        return self._text(f"select val from floodmark_leases where {MINE}")

    def put_lease(self, text: str | None) -> None:
        if text is None:
            self._do(f"delete from floodmark_leases where {MINE}")
        else:
            self._do("insert or replace into floodmark_leases values (:namespace, :job, :val)", val=text)

    def looked(self) -> str | None:
        return self._text(f"select at from floodmark_looked where {MINE}")

    def put_looked(self, text: str) -> None:
        self._do("insert or replace into floodmark_looked values (:namespace, :job, :at)", at=text)

    def forget(self) -> None:
        for table in ("items", "runs", "leases", "looked"):
            self._do(f"delete from floodmark_{table} where {MINE}")
        for table in ("history", "marks"):
            self._do(f"delete from floodmark_{table} where {MARK}")

    def _do(self, statement: str, **values: str | int) -> sqlite3.Cursor:
        return self._connection.execute(statement, {**self._me, **values})

    def _text(self, query: str) -> str | None:
        row = self._do(query).fetchone()
        return str(row[0]) if row else None


def _storable(item: str) -> str | bytes:
    """Names that are not text (a file's name may be any bytes) are kept as those bytes."""
    try:
        item.encode()
    except UnicodeEncodeError:
        return item.encode("utf-8", "surrogateescape")
    return item


def _text_of(item: str | bytes) -> str:
    return item if isinstance(item, str) else item.decode("utf-8", "surrogateescape")
