"""The rows and statements of a Delta merge: one row per key, the newest, and never over a newer one that is stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from floodmark.locations import quote
from floodmark.sinks.contract import DELETE, POSITION, written_columns
from floodmark.sinks.modes import with_deletes
from floodmark.spark.faults import END, fault_begin, raise_in_plan
from floodmark.spark.schemas import EXACT_JSON, comparable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


ROW = "_fm_row"
GONE = "_fm_gone"
"""True on a member of a dimension that its table no longer has; it never reaches the dimension."""


def newest_per_key(rows: DataFrame, key: Sequence[str], sequence: Sequence[str], delete_when: str | None) -> DataFrame:
    """One row of each key, with a column that says whether it deletes.

    The highest sequence wins, then the source's position. Rows that neither tells apart must be the same row.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = (*sequence, *((POSITION,) if POSITION in rows.columns else ()))
    ranks = [F.col(quote(name)).desc_nulls_last() for name in order] or [F.col(quote(key[0]))]
    keyed = Window.partitionBy(*map(quote, key)).orderBy(*ranks)
    row = F.struct(*map(quote, rows.columns))
    ranked = _with_keys(rows, key).select("*", F.row_number().over(keyed).alias("_fm_rank"))
    against = ranked.withColumn("_fm_first", F.first(row).over(keyed))
    columns = [rows.schema[name] for name in written_columns(rows)]
    chosen = against.where((F.col("_fm_rank") == 1) | _contradicts(key, order, columns))
    return with_deletes(chosen, delete_when).select(*map(quote, written_columns(rows)), DELETE)


def _with_keys(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The guard is the key's own value, so no optimiser can take it away."""
    from pyspark.sql import functions as F

    def required(name: str) -> Column:
        return F.coalesce(
            F.col(quote(name)), raise_in_plan("sink", f"key column {name} is NULL in a row: a merge needs every key")
        )

    return rows.withColumns({name: required(name) for name in key})


def _contradicts(key: Sequence[str], order: Sequence[str], columns: Sequence[StructField]) -> Column:
    """False for a row that lost against the first of its key; refused if nothing says which of the two is newer."""
    from pyspark.sql import functions as F

    first = F.col("_fm_first")
    ties = F.lit(True)
    for name in order:
        ties = ties & F.col(quote(name)).eqNullSafe(first[name])
    pairs = [(F.col(quote(each.name)), first[each.name], each.dataType) for each in columns]
    alike = (comparable(own, kind).eqNullSafe(comparable(other, kind)) for own, other, kind in pairs)
    differ = ~reduce(and_, alike, F.lit(True))
    key_text = F.to_json(F.struct(*map(quote, key)), EXACT_JSON)
    reason = F.concat(F.lit("two different rows have the key "), key_text, F.lit(" and nothing says which is newer: "))
    hint = F.lit("name a column that does in `sequence`")
    return F.when(ties & differ, raise_in_plan("sink", F.concat(reason, hint)).cast("boolean")).otherwise(F.lit(False))


def merge_statement(
    target: str,
    view: str,
    columns: Sequence[str],
    key: Sequence[str],
    sequence: Sequence[str],
    named_by: Sequence[str] = (),
    *,
    evolve: bool,
) -> str:
    """A MERGE by key; with `sequence`, a row below the stored one changes nothing.

    Rows that share a key and differ in `named_by` stop it: the key of one was taken for that of another.
    """
    matched = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in key)
    newer = f" AND {not_older(sequence)}" if sequence else ""
    newer += f" AND {_same(matched, key, named_by)}" if named_by else ""
    updates = ", ".join(f"{quote(name)} = s.{quote(name)}" for name in columns)
    return (
        f"{_merge_into(target, evolve=evolve)} AS t USING {view} AS s ON {matched}"
        f" WHEN MATCHED AND s.{DELETE}{newer} THEN DELETE"
        f" WHEN MATCHED AND NOT s.{DELETE}{newer} THEN UPDATE SET {updates}"
        f" WHEN NOT MATCHED AND NOT s.{DELETE} THEN {_insert(columns)}"
    )


def _same(matched: str, key: Sequence[str], named_by: Sequence[str]) -> str:
    """Judged on the pairs that the merge finds anyway, so that no pass over the table is added.

    Delta asks the condition of rows without a partner too, where one side is NULL: they collide with nobody.
    """
    same = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in named_by)
    key_text = ", ".join(f"cast(s.{quote(name)} AS string)" for name in key)
    reason = f"two members have the {', '.join(key)} ".replace("'", "")
    refusal = f"cast(raise_error(concat('{fault_begin('sink')}{reason}', {key_text}, '{END}')) AS boolean)"
    return f"CASE WHEN {matched} AND NOT ({same}) THEN {refusal} ELSE true END"


def replace_statement(target: str, view: str, columns: Sequence[str], by: Sequence[str], *, evolve: bool) -> str:
    """A MERGE that takes out every row with the batch's values of `by` and puts the batch's rows there.

    Each value comes once as a row that only deletes; the rows themselves match nothing, so all of them are inserted.
    """
    named = ", ".join(map(quote, columns))
    values = ", ".join(quote(name) if name in by else f"NULL AS {quote(name)}" for name in columns)
    distinct = f"SELECT DISTINCT {', '.join(map(quote, by))} FROM {view}"
    source = f"SELECT {named}, true AS {ROW} FROM {view} UNION ALL SELECT {values}, false AS {ROW} FROM ({distinct})"
    matched = " AND ".join(f"t.{quote(name)} <=> s.{quote(name)}" for name in by)
    return (
        f"{_merge_into(target, evolve=evolve)} AS t USING ({source}) AS s ON NOT s.{ROW} AND {matched}"
        f" WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.{ROW} THEN {_insert(columns)}"
    )


def not_older(sequence: Sequence[str]) -> str:
    """Left to right, with NULL below every value."""
    new, old = f"s.{quote(sequence[0])}", f"t.{quote(sequence[0])}"
    above = f"{new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL)"
    rest = f" AND {not_older(sequence[1:])}" if len(sequence) > 1 else ""
    return f"({above} OR ({new} IS NOT DISTINCT FROM {old}{rest}))"


def _merge_into(target: str, *, evolve: bool) -> str:
    return f"MERGE {'WITH SCHEMA EVOLUTION ' if evolve else ''}INTO {target}"


def _insert(columns: Sequence[str]) -> str:
    return f"INSERT ({', '.join(map(quote, columns))}) VALUES ({', '.join(f's.{quote(name)}' for name in columns)})"


@contextmanager
def shared_view(rows: DataFrame) -> Iterator[str]:
    """The rows as a view that another session sees, under a name that no other batch has."""
    name = f"floodmark_{uuid.uuid4().hex}"
    rows.createGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        rows.sparkSession.catalog.dropGlobalTempView(name)
