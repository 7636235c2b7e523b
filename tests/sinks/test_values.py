"""The laws of values hold in every sink: exact, as somebody else reads it, or refused by the column's name."""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from floodmark.errors import ColumnUnfit, SinkFailed
from floodmark.sinks import Console, Delta, Files, Kafka, Postgres, Scd2
from floodmark.sinks.contract import Batch, Sink
from floodmark.testing.laws.values import LAWS, Form, ValueLaw, laws_held, laws_refused, rows_of
from floodmark.testing.servers import Broker, Server
from tests.sinks import values
from tests.sinks.batches import SMALL, UNKNOWN, batch
from tests.sinks.values import Target, held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FORMS: dict[str, Form] = {
    "kafka": "json",
    "jsonl": "json",
    "json": "json",
    "console": "json",
    "csv": "csv",
    "parquet": "parquet",
    "delta": "delta",
    "postgres": "postgres",
    "headers": "message",
}
OTHER_WAYS: dict[str, Form] = {
    "small kafka": "json",
    "small headers": "message",
    "small delta": "delta",
    "merge delta": "delta",
    "scd2 delta": "delta",
    "small postgres": "postgres",
    "staged postgres": "postgres",
    "merge postgres": "postgres",
}
"""Into the same sinks: small batches from the driver, rows that are compared with those of a table, or wait in one."""
WAYS = {**FORMS, **OTHER_WAYS}
BY_SPARK_ALONE = ("moment without a zone", "variant", "nothing")
"""Values that never take the way of a small batch into a new Delta table."""
ZONE = "Asia/Kathmandu"
"""Of the session that writes: 5:45 ahead of UTC, and by its own time before 1986."""


LONG = next(law for law in LAWS if law.name == "long")
"""The key of those that need one."""


def laws_of(way: str) -> list[ValueLaw]:
    """The values that come this way."""
    known = BY_SPARK_ALONE if way == "small delta" else ()
    return [law for law in laws_held(WAYS[way]) if law.name not in known]


def target(name: str, kafka: Broker, postgres: Server, folder: Path, laws: Sequence[ValueLaw]) -> Target:
    """A sink of this name for these values, that nothing was written to."""
    form, place, (*way, kind) = WAYS[name], folder / name.replace(" ", "_"), name.split()
    if form == "postgres":
        database = postgres.create_database()
        options = {"staged": {"staged": True}, "merge": {"mode": "merge", "key": "long"}}.get("".join(way), {})
        return Target(form, Postgres(database, "t", **options), lambda: values.postgres_row(database, "t"))  # type: ignore[arg-type]
    if form == "delta":
        return Target(form, delta_sink(str(place), *way), lambda: values.delta_table(place))
    if kind in ("kafka", "headers"):
        return kafka_target(kind, kafka, laws)
    readers = {"jsonl": values.json_file, "json": values.json_file, "csv": values.csv_file}
    reader = readers.get(name, values.parquet_file)
    file_format: Any = name
    return Target(form, Files(str(place), format=file_format), lambda: reader(place))


def delta_sink(place: str, way: str = "") -> Sink:
    if way == "scd2":
        return Scd2(place, key="long", sequence="date")
    return Delta(place, mode="merge", key="long") if way == "merge" else Delta(place)


def kafka_target(name: str, kafka: Broker, laws: Sequence[ValueLaw]) -> Target:
    topic = f"values-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(topic, 1)
    if name == "kafka":
        return Target("json", Kafka(kafka.bootstrap, topic), lambda: values.message_value(kafka.bootstrap, topic))
    headers = {law.column: law.column for law in laws}
    sink = Kafka(kafka.bootstrap, topic, value="text:'x'", headers=headers)
    return Target("message", sink, lambda: values.message_headers(kafka.bootstrap, topic))


def sized_batch(way: str, sink: Sink, spark: SparkSession) -> Batch:
    """A batch that takes this way, as the step hands it over: with what a Kafka sink freezes."""
    made = batch(1, size=SMALL if way.startswith("small") else UNKNOWN)
    return replace(made, frozen={sink.name: sink.freeze(lambda: spark)}) if isinstance(sink, Kafka) else made


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, kafka: Broker, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What each sink holds, read back: one row with every value that it takes. Filled when it is asked for."""
    folder = tmp_path_factory.mktemp("values")
    places: dict[str, Any] = {}

    class Written(dict[str, Any]):
        def __missing__(self, name: str) -> Any:  # noqa: ANN401 - what a reader gives
            if name == "console":
                self[name] = shown(spark)
            else:
                place = target(name, kafka, postgres, folder, laws_of(name))
                made = sized_batch(name, place.sink, spark)
                place.sink.write(rows_of(spark, laws_of(name)), made)
                assert set(made.notes.ways.values()) == {"arrow"} or not name.startswith("small")
                self[name] = place.read()
            return self[name]

    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield Written(places)
    spark.conf.set("spark.sql.session.timeZone", before)


def shown(spark: SparkSession) -> values.Values:
    """The line that the console prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        Console().write(rows_of(spark, laws_held("json")), batch(1))
    return values.json_values(out.getvalue())


@pytest.mark.parametrize(
    ("sink", "law"),
    [pytest.param(sink, law, id=f"{sink}-{law.name}") for sink in WAYS for law in laws_of(sink)],
)
def test_a_value_arrives_as_it_was(written: dict[str, Any], sink: str, law: ValueLaw) -> None:
    """As a reader finds it that shares no code with the sink, whatever zone the session has."""
    assert repr(written[sink][law.column]) == repr(held(law, WAYS[sink]))


@pytest.mark.parametrize(
    ("sink", "law"),
    [
        pytest.param(sink, law, id=f"{sink}-{law.name}")
        for sink, form in FORMS.items()
        for law in laws_refused(form, "type")
    ],
)
def test_a_type_that_has_no_exact_form_is_refused_by_the_name_of_the_column(
    spark: SparkSession, kafka: Broker, postgres: Server, tmp_path: Path, sink: str, law: ValueLaw
) -> None:
    """Before a row is read."""
    place = Console() if sink == "console" else target(sink, kafka, postgres, tmp_path, [law]).sink
    with pytest.raises((ColumnUnfit, AnalysisException), match=law.column):
        place.write(rows_of(spark, [law]), batch(1))
    assert not list(tmp_path.glob(f"{sink}/batch=*"))


@pytest.mark.parametrize(
    ("sink", "law"),
    [
        pytest.param(sink, law, id=f"{sink}-{law.name}")
        for sink, form in WAYS.items()
        for law in laws_refused(form, "value")
    ],
)
def test_a_value_that_has_no_exact_form_stops_the_write_by_the_name_of_its_column(
    spark: SparkSession, kafka: Broker, postgres: Server, tmp_path: Path, sink: str, law: ValueLaw
) -> None:
    """Nothing of the batch is seen."""
    place = Console() if sink == "console" else target(sink, kafka, postgres, tmp_path, [law]).sink
    with pytest.raises(SinkFailed) as caught:
        place.write(rows_of(spark, [LONG, law]), sized_batch(sink, place, spark))
    assert law.column in caught.value.reason
    assert not list(tmp_path.glob(f"{sink}/batch=*"))


def test_every_law_has_a_column_of_its_own() -> None:
    """Two laws of one name would be one."""
    assert len({law.column for law in LAWS}) == len(LAWS)


def test_two_rows_of_a_key_that_differ_in_a_microsecond_are_not_one(spark: SparkSession, tmp_path: Path) -> None:
    """A merge that cannot tell which is newer refuses them, and takes neither for the other."""
    rows = spark.sql(
        "select 1 as id, 1 as seq, timestamp'2024-05-01 12:00:00.000001' as at"
        " union all select 1, 1, timestamp'2024-05-01 12:00:00.000002'"
    )
    with pytest.raises(SinkFailed, match="two different rows have the key"):
        Delta(str(tmp_path), mode="merge", key=("id",), sequence=("seq",)).write(rows, batch(1))
