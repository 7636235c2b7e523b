"""Tables that rules look into: the keys of a Delta table, as it is when the batch is judged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from floodmark.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class KnownKeys:
    """The keys that a table holds, and the columns of a batch that are compared with them."""

    rule: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    path: str | None
    table: str | None
    must_exist: bool

    def look_up(self, rows: DataFrame, found: str) -> DataFrame:
        """The rows with one more column: true where the table has the key, NULL where it has not."""
        from pyspark.sql import functions as F

        held = self._held(rows.sparkSession)
        if held is None:
            return rows.withColumn(found, F.lit(None).cast("boolean"))
        names = [f"_fm_key_{place}" for place in range(len(self.key))]
        keys = held.select(*(F.col(name).alias(to) for name, to in zip(self.key, names, strict=True))).distinct()
        same = reduce(and_, (F.col(own) == F.col(name) for own, name in zip(self.columns, names, strict=True)))
        return rows.join(keys.withColumn(found, F.lit(True)), same, "left").drop(*names)

    def _held(self, spark: SparkSession) -> DataFrame | None:
        """The table, or None if it is not there and need not be."""
        from pyspark.errors import AnalysisException

        try:
            held = spark.table(self.table) if self.table else spark.read.format("delta").load(absolute(self.path or ""))
            held.schema  # noqa: B018  (under Connect nothing is looked up before somebody asks)
        except AnalysisException as error:
            if not self.must_exist:
                return None
            raise ConfigError(
                f"rule '{self.rule}' looks into {self.path or self.table}, which cannot be read: "
                f"{str(error).splitlines()[0]}",
                hint="fill that table first, or mend the rule",
            ) from error
        return held


def absolute(path: str) -> str:
    """Spark's JVM has a working folder of its own, so a relative path is made absolute here."""
    return path if urlsplit(path).scheme else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
