"""A whole job that reads from Kafka: the mark, the dead letters, and what stops it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import RecordMalformed, SinkFailed, SourceChanged
from floodmark.project.kinds import Site
from floodmark.project.kinds.servers import KafkaSource
from floodmark.testing import InjectedFailure
from tests.sinks.kafka.messages import values
from tests.sources.kafka.topics import JSON, alter, fill, offsets_of, put, put_slowly, recreate, until
from tests.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sinks.contract import Batch
    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]

pytestmark = pytest.mark.spark


COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def job(source: fm.sources.Kafka, folder: Path, dead_letters: str | None = None) -> fm.Job:
    sink, spool = fm.sinks.Delta(str(folder / "lake")), str(folder / "spool")
    return fm.Job("orders", source, [sink], "select id, v from source", dead_letters=dead_letters, spool=spool)


def ids(folder: Path) -> list[int]:
    return sorted(row.id for row in rows_of(folder / "lake"))


def test_two_runs_deliver_every_message_once(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The second run reads what came since the first, and a third finds nothing."""
    name, store = topic(2), fm.stores.open("memory")
    orders = job(fm.sources.Kafka(kafka.bootstrap, name, value=JSON), tmp_path)
    put(kafka, name, '{"id": 1}', '{"id": 2}')
    first = orders.run(spark, store)
    put(kafka, name, '{"id": 3}', partition=1)
    second, third = orders.run(spark, store), orders.run(spark, store)
    assert (first.mark_after, second.mark_after) == ({"0": 2, "1": 0}, {"0": 2, "1": 1})
    assert (second.rows_read, third.status) == (1, "nothing_new")
    assert ids(tmp_path) == [1, 2, 3]


def test_what_cannot_be_parsed_is_put_aside(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The good messages arrive, the bad one is kept with its place and its reason."""
    name = topic()
    dead = str(tmp_path / "dead")
    orders = job(fm.sources.Kafka(kafka.bootstrap, name, value=JSON), tmp_path, dead_letters=dead)
    put(kafka, name, '{"id": 1}', "oops", '{"id": 2}')
    receipt = orders.run(spark, fm.stores.open("memory"))
    assert (receipt.rows_read, receipt.rows_dead) == (3, 1)
    assert ids(tmp_path) == [1, 2]
    assert [tuple(row) for row in rows_of(dead, "file", "line", "text")] == [(f"{name}/0", 1, "oops")]


def test_without_dead_letters_nothing_is_written(
    kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """The run fails with the message's place, and the mark stays."""
    name, store = topic(), fm.stores.open("memory")
    put(kafka, name, '{"id": 1}', "oops")
    with pytest.raises(RecordMalformed, match=rf"{name}/0, offset 1"):
        job(fm.sources.Kafka(kafka.bootstrap, name, value=JSON), tmp_path).run(spark, store)


def test_a_topic_that_was_made_anew_stops_the_job(
    kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """Exit 5, although the new topic has grown past the mark."""
    name, store = topic(), fm.stores.open("memory")
    orders = job(fm.sources.Kafka(kafka.bootstrap, name, value=JSON), tmp_path)
    put(kafka, name, '{"id": 1}')
    orders.run(spark, store)
    recreate(kafka, name)
    fill(kafka, name, {0: 5})
    with pytest.raises(SourceChanged) as caught:
        orders.run(spark, store)
    assert caught.value.exit_code == 5


def test_several_topics_move_together(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """One batch, one commit, an offset for each partition of each topic."""
    one, other = topic(), topic()
    put(kafka, one, '{"id": 1}')
    put(kafka, other, '{"id": 2}', '{"id": 3}')
    orders = job(fm.sources.Kafka(kafka.bootstrap, [one, other], value=JSON), tmp_path)
    assert orders.run(spark, fm.stores.open("memory")).mark_after == {one: {"0": 1}, other: {"0": 2}}
    assert ids(tmp_path) == [1, 2, 3]


@pytest.mark.crash
def test_a_compacted_topic_is_no_gap(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """Older messages of a key are gone and leave holes; what is left is read, and the mark is the topic's end."""
    name = topic(**COMPACTED, **{"max.compaction.lag.ms": "100"})
    put_slowly(kafka, name, '{"id": 1}', '{"id": 2}', '{"id": 3}', '{"id": 4}', key="k")
    until(lambda: 0 not in offsets_of(kafka, name))
    receipt = job(fm.sources.Kafka(kafka.bootstrap, name, value=JSON), tmp_path).run(spark, fm.stores.open("memory"))
    assert receipt.mark_after == {"0": 4}
    assert ids(tmp_path) == [offset + 1 for offset in offsets_of(kafka, name)]


def test_compacted_topic(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """Killed after its rows were frozen; then the broker removes most of them: the rerun still delivers all."""
    name = topic(**COMPACTED, **{"min.compaction.lag.ms": "600000"})
    copy, store = topic(2), fm.stores.open("memory")
    put_slowly(kafka, name, "a", "b", "c", "d", key="k")
    sink = FailingKafka(kafka.bootstrap, copy, key="offset", value="text:value")
    mirror = fm.Job("mirror", fm.sources.Kafka(kafka.bootstrap, name, value="text"), [sink], spool=str(tmp_path))
    with pytest.raises(SinkFailed):
        mirror.run(spark, store)
    alter(kafka, name, {"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "100"})
    put_slowly(kafka, name, "e", key="the segment is full")
    put_slowly(kafka, name, "f", key="and so is this one")
    until(lambda: offsets_of(kafka, name) == [3, 4, 5])
    receipt = mirror.run(spark, store)
    assert (receipt.recovered, receipt.rows_written) == (True, {"kafka": 6})
    assert values(kafka.bootstrap, copy) == ["a", "b", "c", "d", "e", "f"]


@dataclass(frozen=True)
class FailingKafka(fm.sinks.Kafka):
    """The first write fails, once the rows are ready for it."""

    failures: list[str] = field(default_factory=lambda: ["killed"], compare=False)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        if self.failures:
            raise InjectedFailure(self.failures.pop())
        return super().write(rows, batch)


def test_the_project_file_spells_the_same_source(tmp_path: Path) -> None:
    """File and API are two spellings of one thing; an option may be a number or true."""
    written = {
        "type": "kafka",
        "bootstrap": "a:1",
        "topic": ["x", "y"],
        "value": {"format": "json", "schema": "id long"},
        "start": {"x": {"0": 5}},
        "on_gap": "skip",
        "options": {"sasl.password": "hunter2", "enable.ssl.certificate.verification": True},
        "read": {"max_rows": 10},
    }
    model = KafkaSource.model_validate(written)
    assert "hunter2" not in repr(model)
    assert model.build(Site(tmp_path)) == fm.sources.Kafka(
        ("a:1",),
        ("x", "y"),
        value={"format": "json", "schema": "id long"},
        start={"x": {0: 5}},
        on_gap="skip",
        options={"sasl.password": "hunter2", "enable.ssl.certificate.verification": "true"},
    )
