"""Views over the tables of a lake: kept by a catalog, or as Delta tables where the catalog forgets with its session.

Either way a new session finds them. How long each took to be asked is measured on the way, and kept as a receipt.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Literal

from floodmark.errors import ConfigError
from floodmark.errors.causes import reason_of
from floodmark.inputs import parse_sql
from floodmark.locations import local_path, quote, quote_table
from floodmark.probes.delta import DeltaProbe
from floodmark.sinks.contract import Batch, BatchSize, ledger_id
from floodmark.sinks.delta import Delta
from floodmark.spark.remote import isolated_session
from floodmark.spark.table_files import read_table
from floodmark.step.repeatable import tables_read
from floodmark.step.transform import short_hash
from floodmark.stores.record import VIEWS, Receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore

AT_ONCE = 4
"""Views and names side by side: of a small one, most is Spark's planning on one core."""


@dataclass(frozen=True)
class ViewReport:
    """What became of a view, and how many seconds it took to be asked; one that is as it was is not asked again.

    >>> ViewReport("daily_cost", "view", seconds=0.2).error is None
    True
    """

    name: str
    kept_as: Literal["view", "table", "unchanged", "nothing"]
    seconds: float | None = None
    error: str | None = None


def publish_views(
    spark: SparkSession,
    views: Mapping[str, str],
    tables: Mapping[str, str],
    *,
    schema: str,
    folder: str,
    store: MarkStore,
) -> list[ViewReport]:
    """Bring every view up to its tables: by its name in `schema`, or as a Delta table in `folder`.

    `views` are SELECTs over the names in `tables`, which say where each Delta table lies. A view that fails does not
    stop the others; all of them are one receipt.

    >>> spark.range(3).write.format("delta").save(f"{folder}/orders")
    >>> views, tables = {"totals": "SELECT count(*) AS n FROM orders"}, {"orders": f"{folder}/orders"}
    >>> reports = publish_views(spark, views, tables, schema="s", folder=folder, store=fm.stores.open("memory"))
    >>> [(report.name, report.kept_as) for report in reports]
    [('totals', 'table')]
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    with isolated_session(spark) as own, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="views") as pool:
        publisher = ViewPublisher(own, tables, schema, folder, store.namespace)
        reports = list(pool.map(publisher.publish, views, views.values()))
    if any(each.kept_as != "unchanged" for each in reports):
        store.add_run(receipt_of(reports, started, time.monotonic() - clock))
    return reports


def receipt_of(reports: list[ViewReport], started: datetime, seconds: float) -> Receipt:
    """All views as one run, with the seconds of each that was asked; its rows are views, so their pace is judged."""
    errors = [f"{each.name}: {each.error}" for each in reports if each.error]
    return Receipt(
        VIEWS,
        uuid.uuid4().hex[:12],
        "failed" if errors else "done",
        started,
        round(seconds, 3),
        rows_read=sum(each.seconds is not None for each in reports),
        durations={each.name: each.seconds for each in reports if each.seconds is not None},
        error="; ".join(errors) or None,
    )


@dataclass(frozen=True)
class ViewPublisher:
    """Publishes views in a session of its own, since names without a schema are looked up in `schema` there.

    It looks at each table once, and may publish several views side by side: those that become tables, and name their
    tables without a schema, show the same version of each. What a catalog keeps, or is named with, is as it is read.
    """

    spark: SparkSession
    tables: Mapping[str, str]
    schema: str
    folder: str
    namespace: str
    _named: set[str] = field(default_factory=set, compare=False, repr=False)
    _with_rows: set[str] = field(default_factory=set, compare=False, repr=False)
    _probes: dict[str, DeltaProbe] = field(default_factory=dict, compare=False, repr=False)
    _one_at_a_time: Lock = field(default_factory=Lock, compare=False, repr=False)

    def publish(self, name: str, sql: str) -> ViewReport:
        """One view, up to date when this returns, or the reason why it is not."""
        try:
            versions = self._versions(name, sql)
            if self.is_persistent:
                return self._as_view(name, sql, versions)
            return self._as_table(name, sql, versions)
        except Exception as error:  # noqa: BLE001 - it is the report of this view, and the next one is tried
            return ViewReport(name, "nothing", error=reason_of(error))

    @cached_property
    def is_persistent(self) -> bool:
        """Whether the catalog has its views longer than this application lasts; asked once, with the schema made."""
        self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote_table(self.schema)}")
        self.spark.sql(f"USE {quote_table(self.schema)}")
        is_session_catalog = self.schema.rpartition(".")[0] in ("", "spark_catalog")
        return not is_session_catalog or self.spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"

    def _versions(self, name: str, sql: str) -> dict[str, str]:
        """By name the tables that a view reads, each with its version of now."""
        wanted = sorted({table.name for table in tables_read(parse_sql(sql))})
        unknown = [each for each in wanted if each not in self.tables]
        if unknown:
            raise ConfigError(f"view '{name}' reads {unknown[0]}, which is none of the tables.", hint="check its FROM")
        return {each: self._version(each) for each in wanted}

    def _version(self, table: str) -> str:
        with self._one_at_a_time:
            if table not in self._probes:
                probe = DeltaProbe(self.tables[table])
                if not probe.refresh():
                    hint = "run the job that fills it first"
                    raise ConfigError(f"there is no Delta table {self.tables[table]}.", hint=hint)
                self._probes[table] = probe
            return f"{self._probes[table].table_id()} {self._probes[table].latest()}"

    def _as_view(self, name: str, sql: str, versions: Mapping[str, str]) -> ViewReport:
        self._give_names(versions)
        self.spark.sql(f"CREATE OR REPLACE VIEW {quote_table(f'{self.schema}.{name}')} AS {sql}")
        clock = time.monotonic()
        self.spark.table(quote_table(f"{self.schema}.{name}")).write.format("noop").mode("overwrite").save()
        return ViewReport(name, "view", round(time.monotonic() - clock, 3))

    def _as_table(self, name: str, sql: str, versions: Mapping[str, str]) -> ViewReport:
        digest = short_hash(sql, *(f"{table} {version}" for table, version in sorted(versions.items())))
        sink = Delta(f"{self.folder}/{name}", mode="replace", name=name)
        recorded = sink.recorded(ledger_id(self.namespace, VIEWS, name), lambda: self.spark)
        if recorded is not None and recorded.digest == digest:
            return ViewReport(name, "unchanged")
        self._give_rows(sql, versions)
        number, now = recorded.number + 1 if recorded else 1, datetime.now(timezone.utc)
        clock = time.monotonic()
        rows = self.spark.sql(sql)
        batch = Batch(self.namespace, VIEWS, number, uuid.uuid4().hex[:12], digest, "refresh", now)
        sink.write(rows, replace(batch, size=self._size(versions)))
        return ViewReport(name, "table", round(time.monotonic() - clock, 3))

    def _size(self, tables: Iterable[str]) -> BatchSize:
        """A view over little is taken for small: should it make many rows of it, that shows before they are written."""
        found = sum(self._probes[table].files_and_bytes()[1] for table in tables)
        return BatchSize(file_bytes=found, is_bound=True)

    def _give_rows(self, sql: str, tables: Iterable[str]) -> None:
        """Let the statement find the tables as they were looked at; a name with its schema only the catalog knows."""
        if any(table.db for table in tables_read(parse_sql(sql))):
            self._give_names(tables)
            return
        with self._one_at_a_time:
            for table in sorted({*tables} - self._with_rows):
                rows = read_table(self.spark, self.tables[table], self._probes[table].latest())
                rows.createOrReplaceTempView(quote(table))
                self._with_rows.add(table)

    def _give_names(self, tables: Iterable[str]) -> None:
        with self._one_at_a_time:
            for table in sorted({*tables} - self._named):
                name_table(self.spark, f"{self.schema}.{table}", self.tables[table])
                self._named.add(table)


def name_tables(spark: SparkSession, tables: Mapping[str, str]) -> set[str]:
    """Let the catalog know Delta tables by name, as `name_table` does with one; which of them are there.

    >>> spark.range(3).write.format("delta").save(f"{folder}/orders")
    >>> places = {"example.orders": f"{folder}/orders", "example.refunds": f"{folder}/refunds"}
    >>> name_tables(spark, places)
    {'example.orders'}
    """
    there = {name: path for name, path in tables.items() if DeltaProbe(path).refresh()}
    for schema in sorted({name.rpartition(".")[0] for name in there}):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote_table(schema)}")
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="names") as pool:
        list(pool.map(partial(_lead_to, spark), there, there.values()))
    return set(there)


def name_table(spark: SparkSession, name: str, path: str) -> bool:
    """Let the catalog know a Delta table by name; whether there is one. A name that leads elsewhere is given anew.

    Raises ConfigError for the name of a view, or of a table that the catalog owns: its rows would go with the name.

    >>> spark.range(3).write.format("delta").save(f"{folder}/orders")
    >>> name_table(spark, "example.orders", f"{folder}/orders"), spark.table("example.orders").count()
    (True, 3)
    """
    return name_tables(spark, {name: path}) == {name}


def _lead_to(spark: SparkSession, name: str, path: str) -> None:
    """The name of a table in a schema that is there."""
    known = known_as(spark, name)
    if known is not None and known.place in (path, str(local_path(path))):
        return
    if known is not None:
        known.require_external(name, path)
        spark.sql(f"DROP TABLE {quote_table(name)}")  # no file goes with it
    literal = path.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {quote_table(name)} USING delta LOCATION '{literal}'")


@dataclass(frozen=True)
class CatalogEntry:
    """What a catalog has under a name: a table of its own, one that lies at a place of somebody else's, or a view."""

    kind: str
    place: str

    def require_external(self, name: str, path: str) -> None:
        if self.kind != "EXTERNAL":
            raise ConfigError(
                f"{name} is in the catalog already ({self.kind.lower()}), and is not the table at {path}.",
                hint="name another schema, or give that one another name",
            )


def known_as(spark: SparkSession, name: str) -> CatalogEntry | None:
    """What the catalog has under the name, a local folder as a path; None if it has nothing."""
    if not spark.catalog.tableExists(name):
        return None
    described = spark.sql(f"DESCRIBE EXTENDED {quote_table(name)}").where("col_name IN ('Location', 'Type')")
    found = {row["col_name"]: str(row["data_type"]) for row in described.collect()}
    where = found.get("Location", "")
    return CatalogEntry(found.get("Type", "VIEW"), str(local_path(where) or where) if where else "")
