"""A topic as the output of a mill: elements in master order in every partition, and the end behind all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.hwm import Json
from floodmark.mill.milling import ENDS
from floodmark.sinks.contract import Batch, Recorded, Session
from floodmark.sinks.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TARGET = "_fm_partition"


@dataclass(frozen=True)
class KafkaOutput:
    """The Kafka sink, with partitions chosen by an element's content, and one end for each of them."""

    kafka: Kafka

    @property
    def name(self) -> str:
        return self.kafka.name

    def describe(self) -> str:
        return self.kafka.describe()

    def fingerprint(self) -> str:
        return self.kafka.fingerprint()

    def needs_position(self) -> bool:
        return True

    def takes_end(self) -> bool:
        return True

    def freeze(self, session: Session) -> Mapping[str, Json]:
        return self.kafka.freeze(session)

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        return self.kafka.recorded(ledger, session)

    def begun(self, ledger: str, session: Session) -> int | None:
        return self.kafka.begun(ledger, session)

    def holds_rows(self, session: Session) -> bool:
        return self.kafka.holds_rows(session)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        from pyspark.sql import functions as F

        count = int(str(batch.frozen[self.name]["partitions"]))
        if count == 1:
            return self.kafka.write(rows.withColumn(TARGET, F.lit(0)), batch)
        own = F.array(F.pmod(F.xxhash64("value"), F.lit(count)).cast("int"))
        every = F.sequence(F.lit(0), F.lit(count - 1))
        targets = F.explode(F.when(F.col(ENDS), every).otherwise(own))
        return self.kafka.write(rows.withColumn(TARGET, targets), batch)

    def fence(self, ledger: str, number: int, session: Session) -> None:
        self.kafka.fence(ledger, number, session)
