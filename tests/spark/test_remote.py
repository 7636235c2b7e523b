"""Names of sessions of a Spark Connect server; what is done with them, `tests/cluster/test_connect.py` tells."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from floodmark.spark.remote import RemoteSession, end_work, session_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("user", ["ann", ""])
def test_an_address_names_a_session_and_nothing_else(user: str) -> None:
    """It is what PySpark's own client takes; a token is not in it."""
    session = RemoteSession("spark.example:15002", user, "0b0f4ea9-3a54-4b3c-8f3e-8f6a8b6f9a3e")
    assert RemoteSession.parse(str(session)) == session
    assert str(session).startswith("sc://spark.example:15002/;")


def test_a_session_with_a_jvm_here_has_no_address(spark: SparkSession) -> None:
    """Its process is what is known of it."""
    assert session_address(spark) is None


def test_what_another_server_may_go_on_with_is_said(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be reached from here, and the number of the batch keeps it from every sink."""
    with caplog.at_level(logging.WARNING):
        end_work(spark, ["sc://elsewhere:15002/;session_id=1"], "orders")
    assert "worked on another server" in caplog.text
