"""What all tests share: one local Spark session with Delta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from floodmark.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The suite's session: small, local, started by the first test that asks for it."""
    session = spark_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            # A suite is over before code is worth optimising.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
        app_name="floodmark-tests",
    )
    yield session
    session.stop()
