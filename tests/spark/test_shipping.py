"""What goes along to the executors of a cluster, and which connectors are asked for."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from floodmark.spark import shipping
from floodmark.spark.connectors import asks_for_s3, connectors_folder
from floodmark.spark.shipping import module_files, ship_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Recorder:
    """A session that keeps the names in every archive it is handed."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []
        self.sparkContext = self

    def addPyFile(self, path: str) -> None:  # noqa: N802 (Spark's name)
        self.names.append(sorted(zipfile.ZipFile(path).namelist()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a module, a package, data, and things that are none of the executors' business."""
    for name in ("steps.py", "pack/__init__.py", "pack/inner/deep.py", "pack/words.txt", "floodmark.yaml", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    for name in ("pack/__pycache__/a.pyc", "in/day1.json", ".venv/lib/other.py", "plain/loose.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    return tmp_path


def test_modules_and_packages_go_along_and_nothing_else(folder: Path) -> None:
    """Neither rows, nor secrets, nor an environment of the user's."""
    found = [str(file.relative_to(folder)) for file in module_files(folder)]
    assert found == ["pack/__init__.py", "pack/words.txt", "pack/inner/deep.py", "steps.py"]


def test_this_package_goes_along_whole_and_once(folder: Path) -> None:
    """Also where it is run from its sources, whose folder is one of the user's then."""
    session = Recorder()
    ship_modules(cast("SparkSession", session), [str(shipping.OWN_PACKAGE.parent), str(folder)])
    own, theirs = session.names
    assert {"floodmark/__init__.py", "floodmark/spark/connectors.ivy.xml", "floodmark/streams/task/journal.py"} <= set(
        own
    )
    assert theirs == ["pack/__init__.py", "pack/inner/deep.py", "pack/words.txt", "steps.py"]


def test_a_folder_of_data_is_not_shipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be copied to every executor at every start; a warning names it."""
    (folder / "pack" / "words.txt").write_text("x" * 10_000_000)
    monkeypatch.setattr(shipping, "MOST_BYTES", 9_000_000)
    session = Recorder()
    ship_modules(cast("SparkSession", session), [str(folder)])
    assert [names[0] for names in session.names] == ["floodmark/__init__.py"]
    assert f"folder={folder}" in caplog.text


@pytest.mark.parametrize(
    ("settings", "is_asked"),
    [
        ({}, False),
        ({"spark.hadoop.fs.s3a.endpoint": "http://here"}, True),
        ({"spark.hadoop.fs.s3a.endpoint": "x", "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}, False),
        ({"spark.hadoop.fs.gs.project.id": "p"}, False),
    ],
)
def test_the_connector_of_s3_is_fetched_for_who_asks(settings: dict[str, str], is_asked: bool) -> None:
    """Nobody else waits for ten megabytes that he does not need."""
    assert asks_for_s3(settings) is is_asked


def test_the_environment_asks_for_s3_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all settings come from the environment, there is none to be seen in the project file."""
    monkeypatch.setenv("FLOODMARK_CONNECTORS", "s3")
    assert asks_for_s3({})


def test_each_list_of_connectors_has_a_folder_of_its_own() -> None:
    """Another list is resolved anew, by itself."""
    from floodmark.spark.connectors import S3_FILE

    assert connectors_folder(S3_FILE) != connectors_folder()
