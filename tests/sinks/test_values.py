"""The laws of values hold in every sink: exact, as somebody else reads it, or refused by the column's name."""

from __future__ import annotations

import contextlib
import io
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from floodmark.errors import ColumnUnfit, SinkFailed
from floodmark.sinks import Console, Delta, Files, Kafka, Postgres
from floodmark.testing.laws.values import LAWS, Form, ValueLaw, laws_held, laws_refused, rows_of
from floodmark.testing.servers import Broker, Server
from tests.sinks import values
from tests.sinks.batches import batch
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


def target(name: str, kafka: Broker, postgres: Server, folder: Path, laws: Sequence[ValueLaw]) -> Target:
    """A sink of this name for these values, that nothing was written to."""
    form, place = FORMS[name], folder / name
    if form == "postgres":
        database = postgres.create_database()
        return Target(form, Postgres(database, "t"), lambda: values.postgres_row(database, "t"))
    if form == "delta":
        return Target(form, Delta(str(place)), lambda: values.delta_table(place))
    if name in ("kafka", "headers"):
        return kafka_target(name, kafka, laws)
    readers = {"jsonl": values.json_file, "json": values.json_file, "csv": values.csv_file}
    reader = readers.get(name, values.parquet_file)
    file_format: Any = name
    return Target(form, Files(str(place), format=file_format), lambda: reader(place))


def kafka_target(name: str, kafka: Broker, laws: Sequence[ValueLaw]) -> Target:
    topic = f"values-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(topic, 1)
    if name == "kafka":
        return Target("json", Kafka(kafka.bootstrap, topic), lambda: values.message_value(kafka.bootstrap, topic))
    headers = {law.column: law.column for law in laws}
    sink = Kafka(kafka.bootstrap, topic, value="text:'x'", headers=headers)
    return Target("message", sink, lambda: values.message_headers(kafka.bootstrap, topic))


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, kafka: Broker, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What each sink holds, read back: one row with every value that it takes. Filled when it is asked for."""
    folder = tmp_path_factory.mktemp("values")
    places: dict[str, Any] = {}

    class Written(dict[str, Any]):
        def __missing__(self, name: str) -> Any:  # noqa: ANN401 - what a reader gives
            if name == "console":
                self[name] = shown(spark)
            else:
                place = target(name, kafka, postgres, folder, laws_held(FORMS[name]))
                place.sink.write(rows_of(spark, laws_held(place.form)), batch(1))
                self[name] = place.read()
            return self[name]

    return Written(places)


def shown(spark: SparkSession) -> values.Values:
    """The line that the console prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        Console().write(rows_of(spark, laws_held("json")), batch(1))
    return values.json_values(out.getvalue())


@pytest.mark.parametrize(
    ("sink", "law"),
    [pytest.param(sink, law, id=f"{sink}-{law.name}") for sink, form in FORMS.items() for law in laws_held(form)],
)
def test_a_value_arrives_as_it_was(written: dict[str, Any], sink: str, law: ValueLaw) -> None:
    """As a reader finds it that shares no code with the sink."""
    assert repr(written[sink][law.column]) == repr(held(law, FORMS[sink]))


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
        for sink, form in FORMS.items()
        for law in laws_refused(form, "value")
    ],
)
def test_a_value_that_has_no_exact_form_stops_the_write_by_the_name_of_its_column(
    spark: SparkSession, kafka: Broker, postgres: Server, tmp_path: Path, sink: str, law: ValueLaw
) -> None:
    """Nothing of the batch is seen."""
    place = Console() if sink == "console" else target(sink, kafka, postgres, tmp_path, [law]).sink
    with pytest.raises(SinkFailed) as caught:
        place.write(rows_of(spark, [law]), batch(1))
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
