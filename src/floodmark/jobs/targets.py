"""What a table sink holds now, read back with Spark: the other half of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.errors import ConfigError
from floodmark.probes.cursor_query import Relation, for_jdbc
from floodmark.probes.postgres import Address, PostgresProbe, connect
from floodmark.probes.tables import Asked
from floodmark.sinks import Delta, Postgres
from floodmark.sources.postgres import jdbc_properties, jdbc_url
from floodmark.sources.table_postgres_types import selected
from floodmark.sources.table_split import partitions_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import Sink

FETCH_ROWS = 10_000
PAGES_WORTH_SPLITTING = 2_000
PAGES = """
SELECT CASE WHEN c.relkind = 'r' THEN pg_relation_size(c.oid) / current_setting('block_size')::int ELSE 0 END
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""


def table_sink(sinks: tuple[Sink, ...], name: str | None, job: str) -> Delta | Postgres:
    """The sink that is meant: the one of that name, or the job's only table. Raises ConfigError."""
    tables = [sink for sink in sinks if isinstance(sink, (Delta, Postgres)) and name in (None, sink.name)]
    if len(tables) == 1:
        return tables[0]
    if name is None and tables:
        said, hint = f"job '{job}' has {len(tables)} tables", f"--sink {' or --sink '.join(t.name for t in tables)}"
    else:
        said = f"job '{job}' has no table that could be compared" if name is None else f"sink '{name}' is no such table"
        hint = "Delta tables (but not scd1 and scd2) and PostgreSQL tables can be"
    raise ConfigError(f"{said}.", hint=hint)


def held_rows(sink: Delta | Postgres, spark: SparkSession) -> DataFrame:
    """All rows of the target. Raises ConfigError if it is not there."""
    rows = sink.read(lambda: spark) if isinstance(sink, Delta) else postgres_rows(sink, spark)
    if rows is None:
        raise ConfigError(f"{sink.describe()} is not there.", hint="floodmark run makes it")
    return rows


def postgres_rows(sink: Postgres, spark: SparkSession) -> DataFrame | None:
    """The table through JDBC, in as many parts as there are cores, each of them some of its pages."""
    from pyspark.sql import functions as F

    if sink.schema(lambda: spark) is None:
        return None
    address, relation = Address.parse(sink.url), Relation(sink.table)
    probe = PostgresProbe(address, relation, Asked(()), f"{sink.name}/reconcile")
    columns = selected(probe.columns(), {}, sink.describe())
    table = relation.sql(lambda name: '"' + name.replace('"', '""') + '"', {})
    probe.close()
    items = ", ".join(column.item for column in columns)
    rows = spark.read.jdbc(
        jdbc_url(address),
        for_jdbc(f"(SELECT {items}, ctid AS _fm_place FROM {table} fm) fm"),
        predicates=parts_of(pages_of(address, table), partitions_for(spark, None)),
        properties=jdbc_properties(address, FETCH_ROWS, f"floodmark/{sink.name}"),
    )
    arrivals = {each.name: F.expr(each.arrival.format(f"`{each.name}`")) for each in columns if each.arrival}
    return rows.drop("_fm_place").withColumns(arrivals)


def pages_of(address: Address, table: str) -> int:
    """How large the table is; 0 for a view, or one in partitions, which is read in one part."""
    with connect(address, "floodmark/reconcile") as connection:
        found = connection.execute(PAGES, [table]).fetchone()
    return int(found[0]) if found else 0


def parts_of(pages: int, parts: int) -> list[str]:
    """Conditions that cut a table into ranges of pages; the last one takes what is appended meanwhile."""
    if pages < PAGES_WORTH_SPLITTING or parts < 2:
        return ["1 = 1"]
    cuts = [pages * part // parts for part in range(1, parts)]
    ends = [f"_fm_place < '({cut},0)'::tid" for cut in cuts]
    starts = [f"_fm_place >= '({cut},0)'::tid" for cut in cuts]
    return [ends[0], *(f"{low} AND {high}" for low, high in zip(starts, ends[1:], strict=False)), starts[-1]]
