"""Tables as streams: rows are elements, columns are fields, and the output has typed columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.errors import ConfigError
from floodmark.mill import JoinWith, SourceMessageBroker, WaterMill, get_field, join_streams
from floodmark.mill.brokers import elements_of
from floodmark.sinks import Delta
from floodmark.sources import Delta as DeltaSource
from floodmark.testing import RowsSource
from tests.mill.cases import Joined, L, R, join_names
from tests.tables import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=timezone.utc)


@dataclass
class Order:
    """What was ordered."""

    id: int
    amount: Decimal
    placed: datetime


@dataclass
class Payment:
    """What was paid."""

    order_id: int
    day: date


@dataclass
class Paid:
    """An order with its payments."""

    id: int
    amount: Decimal
    placed: datetime
    days: list[date]


def settle(order: Order, payments: Mapping[Order, list[Payment]]) -> Paid:
    return Paid(order.id, order.amount, order.placed, [payment.day for payment in payments[order]])


@pytest.mark.spark
def test_two_tables_are_joined_into_a_third(spark: SparkSession, tmp_path: Path) -> None:
    """In the order of their keys, whatever order they lie in; decimals and times keep every digit."""
    amount = Decimal("12345678901234567890.123456789")
    orders = [{"id": number, "amount": amount, "placed": MOMENT} for number in (3, 1, 2)]
    payments = [{"order_id": number, "day": date(2026, 2, number)} for number in (3, 1, 1)]
    sink = Delta(str(tmp_path / "paid"), name="paid")
    broker = SourceMessageBroker(
        {
            Order: RowsSource(orders, "id bigint, amount decimal(38,9), placed timestamp", name="orders"),
            Payment: RowsSource(payments, "order_id bigint, day date", name="payments"),
        },
        {Paid: sink},
    )
    tree = join_streams(Order, JoinWith(Payment, get_field("id"), get_field("order_id")))
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    WaterMill(broker, settle, join_tree=tree, spark=spark, store=store).run()
    found = sorted(rows_of(tmp_path / "paid"), key=lambda row: row.id)
    assert [(row.id, row.amount, row.placed.astimezone(timezone.utc), sorted(row.days)) for row in found] == [
        (1, amount, MOMENT, [date(2026, 2, 1), date(2026, 2, 1)]),
        (3, amount, MOMENT, [date(2026, 2, 3)]),
    ]
    assert set(found[0].asDict()) == {"id", "amount", "placed", "days"}  # the end of the stream leaves no column


@pytest.mark.spark
def test_the_elements_of_tables_are_counted_too(spark: SparkSession, tmp_path: Path) -> None:
    """Offsets tell how many a turn reads of a topic or a file; the rows of a table are counted as they are read."""
    orders = [{"id": number, "amount": Decimal(1), "placed": MOMENT} for number in range(7)]
    payments = [{"order_id": number, "day": date(2026, 2, 1)} for number in (1, 1, 6)]
    broker = SourceMessageBroker(
        {
            Order: RowsSource(orders, "id bigint, amount decimal(38,9), placed timestamp", name="orders"),
            Payment: RowsSource(payments, "order_id bigint, day date", name="payments"),
        },
        {Paid: Delta(str(tmp_path / "paid"), name="paid")},
    )
    tree = join_streams(Order, JoinWith(Payment, get_field("id"), get_field("order_id")))
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    progress = WaterMill(broker, settle, join_tree=tree, spark=spark, store=store).run()
    assert {name: own.elements for name, own in progress.streams.items()} == {"Order": 7, "Payment": 3}
    (receipt,) = store.runs()
    assert receipt.rows_read == 10


@pytest.mark.spark
def test_a_row_is_one_json_object_wherever_it_is_read(spark: SparkSession) -> None:
    """Nulls are said, names need no quoting, and its offset does not depend on the order of reading."""
    rows = spark.createDataFrame([(1, None), (2, "b")], "`a.b` bigint, t string")
    found = elements_of(rows).collect()
    again = elements_of(rows.repartition(3)).collect()
    assert [json.loads(row.value) for row in found] == [{"a.b": 1, "t": None}, {"a.b": 2, "t": "b"}]
    assert {row.value: row.offset for row in found} == {row.value: row.offset for row in again}
    assert [row.offset >= 0 for row in found] == [True, True]


def test_a_class_without_a_source_is_named() -> None:
    """And those that have one."""
    broker = SourceMessageBroker({L: RowsSource([])}, {})
    with pytest.raises(ConfigError, match=r"SourceMessageBroker has no place for R.*there are: L"):
        broker.inlet(R)
    with pytest.raises(ConfigError, match=r"no place for Joined.*none"):
        broker.outlet(Joined)
    with pytest.raises(ConfigError, match="ends='later'"):
        SourceMessageBroker({}, ends="later")  # type: ignore[arg-type]  # the fault


@pytest.mark.spark
def test_tables_that_go_on_are_joined_as_they_grow(spark: SparkSession, tmp_path: Path) -> None:
    """Their marks stand still, before rows that are needed, and yet all of what was looked at is read."""
    paths = {stream: str(tmp_path / stream.__name__) for stream in (L, R, Joined)}

    def grow(*keys: int) -> None:
        for stream in (L, R):
            rows = [(key, f"{stream.__name__}{key}") for key in keys]
            spark.createDataFrame(rows, "k long, name string").write.format("delta").mode("append").save(paths[stream])

    broker = SourceMessageBroker(
        {stream: DeltaSource(paths[stream], start=0) for stream in (L, R)},
        {Joined: Delta(paths[Joined], name="joined")},
        ends="never",
    )
    store = stores.open("sqlite:///marks.db", folder=tmp_path)
    tree = join_streams(L, JoinWith(R, get_field("k"), get_field("k")))
    grow(2, 1)
    mill = WaterMill(broker, join_names, join_tree=tree, spark=spark, store=store, name="mill")
    assert [mill.turn().status for _ in range(2)] == ["done", "nothing_new"]
    grow(3)
    mill.turn()
    assert sorted((row.k, row.names) for row in rows_of(tmp_path / "Joined")) == [(1, ["R1"]), (2, ["R2"])]
