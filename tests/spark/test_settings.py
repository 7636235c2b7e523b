"""What a session is started with: ours below, the user's on top."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.spark.session import (
    DELTA_CATALOG,
    DELTA_EXTENSION,
    full_names,
    is_local,
    local_cores,
    session_settings,
)

JARS = (Path("/cache/a.jar"), Path("/cache/b.jar"))


def test_the_prefix_may_be_left_out() -> None:
    """The project file says `master: local[2]`."""
    assert full_names({"master": "local[2]", "spark.ui.enabled": "true"}) == {
        "spark.master": "local[2]",
        "spark.ui.enabled": "true",
    }


def test_without_settings_the_session_is_local() -> None:
    """Nothing has to be configured to begin."""
    assert session_settings({}, JARS)["spark.master"] == "local[*]"


def test_what_the_user_chose_wins() -> None:
    """Our values are defaults."""
    assert session_settings({"spark.driver.memory": "8g"}, JARS)["spark.driver.memory"] == "8g"


def test_lists_keep_both_values() -> None:
    """A user's own extension stands beside Delta's."""
    merged = session_settings({"spark.sql.extensions": "shop.Extension"}, JARS)
    assert merged["spark.sql.extensions"] == f"{DELTA_EXTENSION},shop.Extension"


def test_a_local_session_has_the_jars_on_its_class_path() -> None:
    """No copy at every start."""
    local = session_settings({"spark.master": "local[2]"}, JARS)
    assert local["spark.driver.extraClassPath"] == "/cache/a.jar:/cache/b.jar"
    assert "spark.jars" not in local


def test_a_cluster_is_sent_the_jars_and_keeps_its_own_settings() -> None:
    """Executors elsewhere cannot see this machine's cache."""
    assert session_settings({"spark.master": "spark://host:7077"}, JARS) == {
        "spark.master": "spark://host:7077",
        "spark.jars": "/cache/a.jar,/cache/b.jar",
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    }


def test_a_cluster_with_its_own_connectors_gets_only_what_the_user_chose() -> None:
    """FLOODMARK_CONNECTORS=none leaves Delta to the cluster."""
    assert session_settings({"spark.master": "yarn"}, ()) == {"spark.master": "yarn"}


def test_shuffles_have_as_many_partitions_as_cores() -> None:
    """200 small tasks would be most of a small batch's time."""
    assert session_settings({"spark.master": "local[3,4]"}, JARS)["spark.sql.shuffle.partitions"] == "3"
    assert session_settings({"spark.master": "local"}, JARS)["spark.sql.shuffle.partitions"] == "1"


def test_lines_of_code_are_noted_for_errors_only_if_somebody_reads_those(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator on columns would cost several calls of the JVM more."""
    noting = "spark.python.sql.dataFrameDebugging.enabled"
    monkeypatch.delenv("FLOODMARK_SPARK_LOG", raising=False)
    assert session_settings({}, JARS)[noting] == "false"
    assert session_settings({noting: "true"}, JARS)[noting] == "true"
    monkeypatch.setenv("FLOODMARK_SPARK_LOG", "info")
    assert session_settings({}, JARS)[noting] == "true"


def test_a_local_cluster_is_not_local() -> None:
    """`local-cluster[…]` has executors in JVMs of their own."""
    assert not is_local("local-cluster[2,1,1024]")


def test_arrow_batches_are_not_measured_after_every_row() -> None:
    """Only the largest bound of all spares the question."""
    assert session_settings({}, JARS)["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_a_local_master_says_how_many_cores_it_has(master: str, cores: int) -> None:
    """The number behind a comma is how often a task may fail."""
    assert local_cores(master) == cores
