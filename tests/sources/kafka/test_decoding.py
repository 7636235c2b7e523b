"""Values of any format, decoded by a function of the user's."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

import floodmark as fm
from floodmark.errors import ConfigError
from floodmark.project.kinds import Site
from floodmark.project.kinds.servers import KafkaSource
from floodmark.sources import Kafka
from floodmark.sources.kafka.decoding import decoder
from tests.sources.kafka.topics import put, read, values
from tests.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]

SCHEMA = "id long, at timestamp"
DECODED = {"python": f"{__name__}:unpack", "schema": SCHEMA}


def unpack(value: bytes) -> dict[str, Any]:
    """Two big-endian numbers: an id, and seconds since 1970."""
    number, seconds = struct.unpack(">qq", value)
    return {"id": number, "at": datetime.fromtimestamp(seconds, timezone.utc)}


@dataclass
class Point:
    """What a function may give as well."""

    id: int


@pytest.mark.spark
def test_a_function_makes_columns_of_bytes(kafka: Broker, topic: Topics, spark: SparkSession) -> None:
    """Beside Kafka's own; a message without a value is a row of its key."""
    name = topic()
    put(kafka, name, struct.pack(">qq", 7, 1_700_000_000), None, key="k")
    found = read(Kafka(kafka.bootstrap, name, value=DECODED), spark)
    assert values(found, "id", "kafka_key", "kafka_offset") == [(7, "k", 0), (None, "k", 1)]
    assert [row[0] for row in found.rows.selectExpr("unix_seconds(at)").collect()] == [1_700_000_000, None]


@pytest.mark.spark
def test_what_cannot_be_decoded_is_a_dead_letter_with_the_functions_own_words(
    kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """The others go on; the record is kept whole, in Base64 as it is no text."""
    name = topic()
    put(kafka, name, struct.pack(">qq", 7, 0), b"\xff\x00")
    job = fm.Job(
        name="points",
        source=Kafka(kafka.bootstrap, name, value=DECODED, malformed="dead_letter", columns=()),
        sinks=[fm.sinks.Delta(str(tmp_path / "out"))],
        dead_letters=str(tmp_path / "dead"),
        spool=str(tmp_path / "spool"),
    )
    receipt = job.run(spark, fm.stores.open("memory"))
    [letter] = rows_of(tmp_path / "dead", "text", "reason")
    assert (receipt.rows_read, receipt.rows_dead, receipt.rows_written) == (2, 1, {"delta": 1})
    assert (letter["text"], letter["reason"]) == ("base64:/wA=", "error: unpack requires a buffer of 16 bytes")


def decoded(given: object) -> Any:  # noqa: ANN401 - fields and a reason
    schema = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
    return decoder(lambda _value: given, schema)(b"x")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "TypeError: the function gave NoneType, and not a mapping or a dataclass"),
        ({"id": 1, "odd": 2}, "ValueError: the schema has no field 'odd'"),
        ({"at": datetime(2024, 1, 1)}, "ValueError: at is a time without a zone: which moment is meant?"),  # noqa: DTZ001
    ],
)
def test_what_no_column_holds_is_malformed_too(given: object, reason: str) -> None:
    """A value that Spark would turn into a null is not one."""
    assert decoded(given) == (None, None, reason)


@pytest.mark.parametrize("given", [{"id": "1"}, {"id": 2**63}, {"id": 1.5}])
def test_a_field_of_another_type_is_malformed(given: dict[str, Any]) -> None:
    """Text is no number, and 2^63 no long."""
    fields = decoded(given)
    assert fields[:2] == (None, None)
    assert "id" in fields[2]


def test_a_dataclass_gives_its_fields_and_missing_ones_are_null() -> None:
    """As a JSON object would."""
    assert decoded(Point(3)) == (3, None, None)


def test_the_project_file_names_the_function_and_the_schema(tmp_path: Path) -> None:
    """A function beside the project file is found."""
    written = {"type": "kafka", "bootstrap": "a:1", "topic": "t", "value": DECODED}
    source = KafkaSource.model_validate(written).build(Site(tmp_path))
    assert isinstance(source, Kafka)
    assert source.value == DECODED


@pytest.mark.parametrize(
    "value", [{"python": "mod:f"}, {"python": "mod", "schema": "id long"}, {"python": "m:f", "x": 1}]
)
def test_a_function_without_a_schema_or_module_is_refused(value: dict[str, Any]) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match="is not known"):
        Kafka("a:1", "t", value=value)
