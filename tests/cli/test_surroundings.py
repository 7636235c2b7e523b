"""`floodmark java` and `floodmark servers`: what users without a checkout type where a checkout has make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from floodmark.cli.app import run
from tests.spark.conftest import cache as cache  # noqa: PLC0414 - fixtures are found by their names here
from tests.spark.conftest import java as java  # noqa: PLC0414
from tests.spark.conftest import make_java
from tests.spark.conftest import no_java as no_java  # noqa: PLC0414

if TYPE_CHECKING:
    import pytest

    from tests.spark.conftest import FakeJava


def test_the_java_that_is_used_is_said(java: FakeJava, capsys: pytest.CaptureFixture[str]) -> None:
    """Also with --install: nothing is fetched where one is there."""
    assert run(["java", "--install"]) == 0
    assert capsys.readouterr().out == f"Java 17 in {java.home}\n"


def test_without_a_java_the_command_that_fetches_one_is_named(
    no_java: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It works without an administrator and without a checkout."""
    assert run(["java"]) == 1
    said = capsys.readouterr().err
    assert "Spark needs Java 17 or 21, and none was found." in said
    assert "`floodmark java --install`" in said


def unpack(version: str, path: str) -> str:
    home = make_java(Path(path) / f"jdk-{version}").home
    (home / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    return str(home)


def test_a_java_is_fetched_into_the_cache_folder(
    no_java: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is the one that is used from then on; only the download itself is a double."""
    monkeypatch.setitem(sys.modules, "jdk", SimpleNamespace(install=unpack))
    assert run(["java", "--install"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Java 21 in {cache / 'jdk' / 'jdk-21'}"


def test_the_extra_that_fetches_a_java_is_named_where_it_is_missing(
    no_java: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain installation does not have it."""
    monkeypatch.setitem(sys.modules, "jdk", None)
    assert run(["java", "--install"]) == 1
    assert "pip install 'floodmark[java]'" in capsys.readouterr().err


def test_servers_are_started_in_place_of_the_command() -> None:
    """So that whoever stops the command stops them; a name that it does not know is refused with those that it does."""
    command = [sys.executable, "-m", "floodmark", "servers", "oracle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Error: no server 'oracle'.\nTry: one of: kafka, postgres\n")
