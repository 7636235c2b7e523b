"""A look at Kafka: which offsets the next batch reads, and what stops it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, MarkKindMismatch, SourceGap, SourceRegressed, SourceUnreadable, UnknownKind
from floodmark.hwm import ColumnIntHWM, KeyValueIntHWM
from floodmark.sinks import Delta
from floodmark.sinks import Kafka as KafkaSink
from floodmark.sources import Kafka
from floodmark.sources.kafka.offsets import split
from floodmark.step.work import Work
from tests.sources.kafka.topics import (
    add_partitions,
    commit_offset,
    expire,
    fill,
    look,
    mark,
    no_session,
    open_transaction,
    put,
    recreate,
    until,
    upto,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]


def test_the_seeds_story(kafka: Broker, topic: Topics) -> None:
    """{0: 100, 1: 150, 2: 200} and ten and five new messages give {0: 110, 1: 155, 2: 200}."""
    name = topic(3)
    source = Kafka(kafka.bootstrap, name)
    fill(kafka, name, {0: 100, 1: 150, 2: 200})
    first = look(source).span
    assert first is not None
    fill(kafka, name, {0: 10, 1: 5})
    second = look(source, first.upto).span
    assert second is not None
    assert first.upto == mark(name, {0: 100, 1: 150, 2: 200})
    assert second.upto == mark(name, {0: 110, 1: 155, 2: 200})
    assert second.detail["from"] == {name: {"0": 100, "1": 150}}
    assert second.detail["upto"] == {name: {"0": 110, "1": 155}}


def test_nothing_new_is_no_span(kafka: Broker, topic: Topics) -> None:
    """An idle tick gives the step nothing to do."""
    name = topic()
    put(kafka, name, "a")
    assert look(Kafka(kafka.bootstrap, name), mark(name, {0: 1})).span is None


def test_an_empty_topic_has_no_mark(kafka: Broker, topic: Topics) -> None:
    """No mark is a state of its own, and the first message will be read from offset 0."""
    assert look(Kafka(kafka.bootstrap, topic(2))).span is None


def test_latest_puts_the_mark_at_the_end_and_reads_nothing(kafka: Broker, topic: Topics) -> None:
    """Without that mark the next run would begin at a later end, and lose what came between."""
    name = topic(2)
    put(kafka, name, "a", "b")
    sight = look(Kafka(kafka.bootstrap, name, start="latest"))
    assert upto(sight) == {0: 2, 1: 0}
    assert sight.expected_rows == 0


def test_a_full_refresh_begins_at_the_beginning_also_where_the_job_began_at_latest(
    kafka: Broker, topic: Topics
) -> None:
    """Else it would send nothing, and say that it sent everything."""
    name = topic()
    put(kafka, name, "a", "b")
    span = look(Kafka(kafka.bootstrap, name, start="latest"), whole=True).span
    assert span is not None
    assert (span.upto.value, span.detail["from"]) == ({0: 2}, {name: {"0": 0}})


def test_a_group_hands_its_offsets_over(kafka: Broker, topic: Topics) -> None:
    """What the group has not committed of begins at the earliest offset."""
    name = topic(2)
    fill(kafka, name, {0: 5, 1: 3})
    commit_offset(kafka, name, group=f"{name}-group", offset=2)
    span = look(Kafka(kafka.bootstrap, name, start=f"group:{name}-group")).span
    assert span is not None
    assert span.detail["from"] == {name: {"0": 2, "1": 0}}


def test_a_group_without_offsets_is_an_error(kafka: Broker, topic: Topics) -> None:
    """A misspelt group must not read the whole topic."""
    with pytest.raises(SourceUnreadable, match="has committed no offset"):
        look(Kafka(kafka.bootstrap, topic(), start="group:nobody"))


def test_named_offsets_are_where_the_first_run_begins(kafka: Broker, topic: Topics) -> None:
    """A start is inclusive; a partition that it does not name begins at its earliest offset."""
    name = topic(2)
    fill(kafka, name, {0: 5, 1: 3})
    span = look(Kafka(kafka.bootstrap, name, start={0: 4})).span
    assert span is not None
    assert span.detail["from"] == {name: {"0": 4, "1": 0}}


def test_from_is_stronger_than_the_mark(kafka: Broker, topic: Topics) -> None:
    """A person asks for a place: what they do not name goes on from the mark."""
    name = topic(2)
    fill(kafka, name, {0: 5, 1: 3})
    span = look(Kafka(kafka.bootstrap, name), mark(name, {0: 5, 1: 1}), start='{"0": 3}').span
    assert span is not None
    assert span.detail["from"] == {name: {"0": 3, "1": 1}}


def test_from_latest_moves_the_mark_without_a_record(kafka: Broker, topic: Topics) -> None:
    """Skipping is a batch without rows."""
    name = topic()
    fill(kafka, name, {0: 5})
    assert upto(look(Kafka(kafka.bootstrap, name), mark(name, {0: 1}), start="latest")) == {0: 5}


def test_a_new_partition_starts_at_its_earliest_record(kafka: Broker, topic: Topics) -> None:
    """Also where the job itself began with latest: what is in it came after the mark."""
    name = topic()
    source = Kafka(kafka.bootstrap, name, start="latest")
    put(kafka, name, "a")
    add_partitions(kafka, name, 2)
    put(kafka, name, "b", "c", partition=1)
    span = look(source, mark(name, {0: 1})).span
    assert span is not None
    assert span.detail["from"] == {name: {"1": 0}}
    assert span.upto.value == {0: 1, 1: 2}


def test_a_partition_that_is_gone_keeps_its_offset(
    kafka: Broker, topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    """The mark keeps it, and an operator is told once, not at every tick."""
    name = topic()
    source, held = Kafka(kafka.bootstrap, name), mark(name, {0: 0, 7: 40})
    put(kafka, name, "a")
    with caplog.at_level(logging.WARNING):
        span = look(source, held).span
        look(replace(source, malformed="dead_letter"), held)
    assert span is not None
    assert held.update(span.upto.value).value == {0: 1, 7: 40}
    messages = [record.getMessage() for record in caplog.records]
    assert [text.count(f"{name}/7") for text in messages if name in text] == [1]


def test_retention_that_passed_the_mark_stops_the_run(kafka: Broker, topic: Topics) -> None:
    """Going on would lose records: exit 5, with the gap and what accepts it."""
    name = topic()
    fill(kafka, name, {0: 10})
    expire(kafka, name, before=6)
    with pytest.raises(SourceGap) as caught:
        look(Kafka(kafka.bootstrap, name), mark(name, {0: 2}))
    assert (caught.value.mark, caught.value.oldest, caught.value.exit_code) == ('{"0": 2}', '{"0": 6}', 5)
    assert "4 records" in caught.value.hint


def test_a_gap_can_be_accepted_from_now_on(kafka: Broker, topic: Topics, caplog: pytest.LogCaptureFixture) -> None:
    """`on_gap: skip` goes on at the oldest record, and says what was lost."""
    name = topic()
    fill(kafka, name, {0: 10})
    expire(kafka, name, before=6)
    with caplog.at_level(logging.WARNING):
        span = look(Kafka(kafka.bootstrap, name, on_gap="skip"), mark(name, {0: 2})).span
    assert span is not None
    assert span.detail["from"] == {name: {"0": 6}}
    assert f"{name}/0: 2 to 5" in caplog.text


def test_a_skipped_gap_with_nothing_behind_it_still_moves_the_mark(kafka: Broker, topic: Topics) -> None:
    """Otherwise the same loss would be reported for ever."""
    name = topic()
    fill(kafka, name, {0: 10})
    expire(kafka, name, before=10)
    assert upto(look(Kafka(kafka.bootstrap, name, on_gap="skip"), mark(name, {0: 2}))) == {0: 10}


def test_a_topic_that_ends_below_the_mark_stops_the_run(kafka: Broker, topic: Topics) -> None:
    """Its records were lost, or the mark is another topic's."""
    name = topic()
    put(kafka, name, "a")
    with pytest.raises(SourceRegressed) as caught:
        look(Kafka(kafka.bootstrap, name), mark(name, {0: 5}))
    assert (caught.value.mark, caught.value.highest) == ('{"0": 5}', '{"0": 1}')


def test_a_topic_that_was_made_anew_is_another_source(kafka: Broker, topic: Topics) -> None:
    """Also when it has grown past the mark, where offsets alone would look fine."""
    name = topic()
    source = Kafka(kafka.bootstrap, name)
    before = source.fingerprint(no_session)
    recreate(kafka, name)
    fill(kafka, name, {0: 10})
    assert source.fingerprint(no_session) != before
    assert before.startswith(f"kafka topic {name} (id ")


def test_an_open_transaction_holds_back_what_follows_it(kafka: Broker, topic: Topics) -> None:
    """It is there and is not passed silently; once it is closed, the mark goes beyond its marker."""
    name = topic()
    source = Kafka(kafka.bootstrap, name)
    put(kafka, name, "a")
    with open_transaction(kafka, name, "b", "c") as transaction:
        put(kafka, name, "d")
        during = look(source)
        transaction.commit_transaction(10)
    until(lambda: look(source).held_back == 0)
    assert upto(during) == {0: 1}
    assert (during.held_back, during.held_reason) == (3, f"an open transaction holds back 3 offsets of {name}/0")
    assert upto(look(source)) == {0: 5}


def test_an_offset_range_is_not_a_row_count(kafka: Broker, topic: Topics) -> None:
    """Markers and compaction leave holes, so nobody is promised a number of rows."""
    name = topic()
    put(kafka, name, "a")
    assert look(Kafka(kafka.bootstrap, name)).expected_rows is None


def test_max_rows_is_split_by_lag(kafka: Broker, topic: Topics) -> None:
    """A partition that is behind catches up as fast as the others."""
    name = topic(3)
    fill(kafka, name, {0: 60, 1: 30, 2: 10})
    assert upto(look(Kafka(kafka.bootstrap, name), max_rows=10)) == {0: 6, 1: 3, 2: 1}


@pytest.mark.parametrize(
    ("lags", "rows", "shares"),
    [
        ((3, 3, 3), 1, (1, 0, 0)),
        ((3, 3, 3), 8, (3, 3, 2)),
        ((0, 0, 5), 2, (0, 0, 2)),
        ((1, 1, 1000), 3, (0, 0, 3)),
        ((5, 5, 5), 100, (5, 5, 5)),
    ],
)
def test_the_shares_are_whole_and_never_more_than_asked(
    lags: tuple[int, ...], rows: int, shares: tuple[int, ...]
) -> None:
    """One row is enough to go on; no partition gives more than it has."""
    places = [("t", 0), ("t", 1), ("t", 2)]
    found = split(dict(zip(places, lags, strict=True)), rows)
    assert found == dict(zip(places, shares, strict=True))


def test_several_topics_have_one_mark_of_offsets_by_topic(kafka: Broker, topic: Topics) -> None:
    """They are committed together."""
    orders, users = topic(2), topic()
    put(kafka, orders, "a", "b")
    put(kafka, users, "c")
    source = Kafka(kafka.bootstrap, [users, orders])
    first = look(source).span
    assert first is not None
    put(kafka, users, "d")
    second = look(source, first.upto).span
    assert second is not None
    assert first.upto.value == {orders: {0: 2, 1: 0}, users: {0: 1}}
    assert second.upto.value == {orders: {0: 2, 1: 0}, users: {0: 2}}
    assert second.detail["from"] == {users: {"0": 1}}


def test_a_broker_that_is_down_is_not_an_empty_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop tries again; it never takes silence for nothing new."""
    monkeypatch.setattr("floodmark.probes.kafka.REQUEST_SECONDS", 1.0)
    with pytest.raises(SourceUnreadable):
        look(Kafka("127.0.0.1:1", "orders"), KeyValueIntHWM("kafka", {0: 1}, topic="orders"))


def test_a_mark_of_another_kind_is_refused(kafka: Broker, topic: Topics) -> None:
    """A number is not a set of offsets."""
    with pytest.raises(MarkKindMismatch):
        look(Kafka(kafka.bootstrap, topic()), ColumnIntHWM("kafka", 5))


def test_a_copy_with_another_setting_keeps_its_connection() -> None:
    """A job makes such a copy at every run; connecting each time would cost more than the look."""
    source = Kafka("127.0.0.1:1", "orders")
    assert replace(source, malformed="dead_letter").probe is source.probe
    assert replace(source, bootstrap="127.0.0.1:2").probe is not source.probe


def test_secrets_are_not_in_the_repr_of_a_source() -> None:
    """Whoever prints a job prints its source."""
    assert "hunter2" not in repr(Kafka("a:1", "orders", options={"sasl.password": "hunter2"}))


@pytest.mark.parametrize("start", ["soon", "group:", "5", {0: -1}, {}, {"orders": {"0": "x"}}])
def test_a_start_that_means_nothing_is_refused_at_once(start: object) -> None:
    """Before the first connection."""
    with pytest.raises(ConfigError):
        Kafka("a:1", "orders", start=start)  # type: ignore[arg-type]


def test_a_start_that_names_a_missing_partition_is_refused(kafka: Broker, topic: Topics) -> None:
    """A typing error must not read the topic from its beginning."""
    with pytest.raises(ConfigError, match="/7"):
        look(Kafka(kafka.bootstrap, topic(), start={7: 1}))


@pytest.mark.parametrize("option", [{"on_gap": "ignore"}, {"columns": ["when"]}, {"malformed": "drop"}])
def test_an_option_that_nobody_knows_is_refused(option: dict[str, object]) -> None:
    """With the known ones in the hint."""
    with pytest.raises(UnknownKind):
        Kafka("a:1", "orders", **option)  # type: ignore[arg-type]


@pytest.mark.parametrize("topics", ["", [], ["a", "a"]])
def test_a_source_without_a_topic_is_refused(topics: str | list[str]) -> None:
    """And one that names a topic twice."""
    with pytest.raises(ConfigError):
        Kafka("a:1", topics)


@pytest.mark.parametrize(
    ("policy", "is_spooled"), [("delete", False), ("compact", True), ("compact,delete", True)], ids=str
)
def test_a_compacted_topic_is_spooled_before_a_sink_that_goes_on_where_it_stopped(
    kafka: Broker, topic: Topics, policy: str, is_spooled: bool
) -> None:
    """Between kill and rerun the broker may remove a record whose key has a newer one: the rows would be others."""
    source = Kafka(kafka.bootstrap, topic(**{"cleanup.policy": policy}))
    work = Work("mirror", (source,), (KafkaSink(kafka.bootstrap, "copy"),))
    assert (work.why_spooled() is not None) is is_spooled


def test_rows_are_kept_where_the_broker_does_not_say_whether_a_topic_is_compacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who may read a topic may not always read its settings; a sink that is all or nothing needs no answer."""
    source = Kafka("127.0.0.1:9", "orders", options={"socket.timeout.ms": "100"})
    source.probe._request_seconds = 0.2
    assert Work("lake", (source,), (Delta("lake"),)).why_spooled() is None
    assert Work("mirror", (source,), (KafkaSink("127.0.0.1:9", "copy"),)).why_spooled() is not None
    assert "compacted" in caplog.text
