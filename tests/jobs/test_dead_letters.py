"""A job's own dead letters, replayed: the saved records go through its transform into its sinks, each once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.errors import ConfigError, RuleBroken
from floodmark.jobs.dead_letters import discard_letters, replay_letters
from floodmark.step.set_aside import Letters
from floodmark.testing import ListSink, RowsSource
from tests.sources.kafka.topics import put

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Receipt
    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]

RETURNED = "id long, doubled decimal(10,2), key string, place long, trace binary"


def doubling(limit: int) -> Any:  # noqa: ANN401 (a function of records)
    """A function that fails on ids from the limit on."""

    def double(record: Any) -> dict[str, Any]:  # noqa: ANN401
        if record["id"] >= limit:
            raise ValueError(f"{record['id']} is too much")
        return {
            "id": record["id"],
            "doubled": record["amount"] * 2,
            "key": record["kafka_key"],
            "place": record["kafka_offset"],
            "trace": record["kafka_headers"][0]["value"],
        }

    return double


@dataclass(frozen=True)
class Desk:
    """A job with a store and a session, and what can be asked of its letters."""

    job: fm.Job
    spark: SparkSession
    store: MarkStore

    def run(self) -> Receipt:
        return self.job.run(self.spark, self.store)

    def replay(self, *ids: str) -> Receipt:
        return replay_letters(self.job, ids, lambda: self.spark, self.store)

    def with_fields(self, **changes: Any) -> Desk:  # noqa: ANN401 (any of a job's fields)
        return replace(self, job=replace(self.job, **changes))

    def open_letters(self) -> list[tuple[str, int, str]]:
        """The open letters: their text, how often they were tried, and why they failed last."""
        found = Letters.of(self.job.work(self.store), 1_000_000).open_letters(self.spark)
        assert found is not None
        return sorted((row["text"], row["attempts"], row["reason"]) for row in found.collect())


@pytest.mark.spark
def test_messages_and_records_that_failed_run_again_and_each_is_written_once(
    kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """Whether the source could not parse them or the function failed; with their keys, places and every digit."""
    name = topic()
    put(
        kafka,
        name,
        '{"id": 1, "amount": 1.25}',
        '{"id": 2, "amount": 2.50}',
        "oops",
        key="k",
        headers={"trace": b"\xff"},
    )
    put(kafka, name, '{"id": 4, "amount": 4.75}', '{"id": 5, "amount": "five"}', headers={"trace": b"\xff"})
    sinks = [first := ListSink(name="first"), second := ListSink(name="second")]
    strict = {"format": "json", "schema": "id long, amount decimal(10,2)"}
    source = fm.sources.Kafka(kafka.bootstrap, name, value=strict)
    heal = fm.heal(doubling(2), schema=RETURNED, on_error="dead_letter")
    job = fm.Job("amounts", source, sinks, heal, dead_letters=str(tmp_path / "dead"), spool=str(tmp_path / "spool"))
    desk = Desk(job, spark, fm.stores.open("memory"))
    before = desk.run()
    fixed = desk.with_fields(transform=fm.heal(doubling(4), schema=RETURNED, on_error="dead_letter"))
    receipt, again = fixed.replay(), fixed.replay()
    assert (before.rows_read, before.rows_dead, receipt.rows_read, receipt.rows_dead) == (5, 4, 4, 3)
    assert first.rows == second.rows
    assert [(row["id"], str(row["doubled"]), row["key"], row["place"], row["trace"]) for row in first.rows] == [
        (1, "2.50", "k", 0, b"\xff"),
        (2, "5.00", "k", 1, b"\xff"),
    ]
    assert receipt.mark_after == before.mark_after == {"0": 5}
    assert (again.rows_read, again.rows_dead, fixed.run().status) == (3, 3, "nothing_new")
    assert sorted((attempts, reason) for _, attempts, reason in fixed.open_letters()) == [
        (3, "ValueError: 4 is too much"),
        (3, "the value is not a JSON object of this schema"),
        (3, "the value is not a JSON object of this schema"),
    ]


def numbers(record: Any) -> dict[str, int]:  # noqa: ANN401
    return {"id": int(record["v"])}


def words(record: Any) -> dict[str, int]:  # noqa: ANN401
    return {"id": len(record["v"])}


@pytest.fixture
def desk(spark: SparkSession, tmp_path: Path) -> Desk:
    """A job whose function failed on one of two records, so that it is a dead letter."""
    heal = fm.heal(numbers, schema="id long", on_error="dead_letter")
    source = RowsSource([{"v": "1"}, {"v": "seven"}], "v string")
    job = fm.Job("ids", source, [ListSink()], heal, dead_letters=str(tmp_path / "dead"), spool=str(tmp_path / "spool"))
    desk = Desk(job, spark, fm.stores.open("memory"))
    desk.run()
    return desk


@pytest.mark.crash
@pytest.mark.spark
def test_a_replay_that_fails_before_any_sink_has_it_leaves_the_job_free(desk: Desk) -> None:
    """The letters stay open as they were; the job's own batches go on, and a fixed replay takes the letters."""
    source, [sink] = desk.job.source, desk.job.sinks
    assert isinstance(source, RowsSource)
    assert isinstance(sink, ListSink)
    ruled = desk.with_fields(
        transform=fm.heal(words, schema="id long", on_error="dead_letter"), rules=[fm.rules.check("id < 5")]
    )
    with pytest.raises(RuleBroken):
        ruled.replay()
    assert [(text, attempts) for text, attempts, _ in ruled.open_letters()] == [('{"v": "seven"}', 1)]
    source.rows.append({"v": "abc"})
    assert ruled.run().rows_read == 1
    ruled.with_fields(rules=()).replay()
    assert ([row["id"] for row in sink.rows], ruled.open_letters()) == ([1, 3, 5], [])


@pytest.mark.spark
def test_a_full_refresh_gives_earlier_letters_up_and_leaves_those_of_other_jobs(desk: Desk) -> None:
    """What is read again would be delivered twice by a replay; the table is not only this job's."""
    other = desk.with_fields(name="others", sinks=[ListSink()])
    other.run()
    fixed = desk.with_fields(transform=fm.heal(words, schema="id long", on_error="dead_letter"))
    receipt = fixed.job.run(desk.spark, desk.store, full_refresh=True)
    assert (receipt.rows_dead, fixed.open_letters(), len(other.open_letters())) == (0, [], 1)
    assert fixed.replay().status == "nothing_new"


@pytest.mark.spark
def test_a_letter_that_was_given_up_is_not_replayed(desk: Desk) -> None:
    """It stays in the table, and nobody runs it."""
    assert discard_letters(desk.job, (), lambda: desk.spark, desk.store) == 1
    assert (desk.open_letters(), desk.replay().status) == ([], "nothing_new")


def source_of(name: str) -> RowsSource:
    return RowsSource([], "v string", name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dead_letters": None}, "job 'ids' has no dead letters"),
        ({"source": [source_of("one"), source_of("two")]}, "has 2 sources: a letter would be joined with nothing"),
        ({"sinks": [fm.sinks.Delta("lake", mode="replace")]}, "replaces rows: a part would take the place"),
    ],
)
def test_a_job_whose_letters_cannot_run_by_themselves_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Before a letter is read."""
    job = fm.Job("ids", source_of("rows"), [ListSink()], "select * from source", dead_letters=str(tmp_path / "dead"))
    with pytest.raises(ConfigError, match=message):
        replay_letters(replace(job, **changes), (), pytest.fail, fm.stores.open("memory"))
