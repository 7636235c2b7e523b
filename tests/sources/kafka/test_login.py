"""A broker that lets in nobody without a login: Spark's Java client and librdkafka both come in by the same options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import floodmark as fm
from floodmark.errors import SourceUnreadable
from floodmark.testing.servers.kafka import LOGIN
from tests.sinks.kafka.messages import values
from tests.sources.kafka.topics import JSON, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.testing.servers import Broker

    Topics = Callable[..., str]


@pytest.mark.spark
def test_a_login_opens_source_and_sink(kafka: Broker, topic: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """The probe and the writers are librdkafka's, the rows are read by Java's client; the words differ."""
    source, target, at = topic(), topic(), kafka.login_bootstrap
    put(kafka, source, '{"id": 1}', '{"id": 2}')
    orders = fm.sources.Kafka(at, source, value=JSON, columns=("offset",), options=LOGIN)
    copies = fm.sinks.Kafka(at, target, value="text:id", options=LOGIN)
    receipt = fm.Job("orders", orders, [copies], spool=str(tmp_path)).run(spark, fm.stores.open("memory"))
    assert receipt.rows_written == {"kafka": 2}
    assert values(kafka.bootstrap, target) == ["1", "2"]


def test_a_wrong_password_is_refused_and_not_repeated(
    kafka: Broker, topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker's own words say what is wrong."""
    monkeypatch.setattr("floodmark.probes.kafka.REQUEST_SECONDS", 2.0)
    source = fm.sources.Kafka(kafka.login_bootstrap, topic(), options={**LOGIN, "sasl.password": "hunter2"})
    with pytest.raises(SourceUnreadable, match="Authentication failed") as refused:
        source.fingerprint(lambda: pytest.fail("this needs no Spark"))
    assert "hunter2" not in f"{refused.value!r} {refused.value} {source!r}"
