"""Which Java is used, and what is said where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import JavaMissing, SparkUnavailable
from floodmark.spark import java as finding
from tests.spark.conftest import make_java

if TYPE_CHECKING:
    from tests.spark.conftest import FakeJava


def test_java_home_is_honoured_before_the_path(java: FakeJava) -> None:
    """JAVA_HOME is how users choose."""
    assert finding.find_java() == finding.Java(java.home, 17)


def test_java_on_the_path_is_found(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual case after a package manager's install."""
    make_java(tmp_path / "jdk21").is_version("21")
    monkeypatch.setenv("PATH", f"{tmp_path / 'jdk21' / 'bin'}:/usr/bin:/bin")
    assert finding.find_java() == finding.Java(tmp_path / "jdk21", 21)


def test_a_java_home_that_is_too_old_gives_way_to_one_that_fits(java: FakeJava, cache: Path) -> None:
    """`make java` beside an old system Java just works."""
    java.is_version("1.8")
    make_java(cache / "jdk" / "jdk-21")
    programs = list(finding._programs())
    assert java.home / "bin" / "java" in programs
    assert finding.find_java().version == 17


def test_a_fetched_java_is_found_by_itself(no_java: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later commands need no JAVA_HOME after `make java`; macOS archives have one level more."""
    make_java(cache / "jdk" / "jdk-21" / "Contents" / "Home").is_version("21")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("floodmark.spark.java.shutil.which", lambda _: None)
    assert finding.find_java() == finding.Java(cache / "jdk" / "jdk-21" / "Contents" / "Home", 21)


def test_without_java_the_platforms_command_is_named(no_java: Path) -> None:
    """One message, with the command to type."""
    (no_java / "apt-get").write_text("#!/bin/sh\n")
    (no_java / "apt-get").chmod(0o755)
    with pytest.raises(JavaMissing) as caught:
        finding.find_java()
    assert caught.value.found is None
    assert caught.value.command.startswith("sudo apt-get install openjdk-21-jre-headless")
    assert "floodmark java --install" in caught.value.command


def test_a_java_of_a_wrong_version_is_named(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may not know that there is one."""
    make_java(tmp_path / "old").is_version("11")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr("floodmark.spark.java.shutil.which", lambda _: None)
    with pytest.raises(JavaMissing) as caught:
        finding.find_java()
    assert caught.value.found == f"Java 11 in {tmp_path / 'old'}"


def test_a_java_that_describes_itself_is_not_started(tmp_path: Path) -> None:
    """Every command that needs Spark would pay for a JVM more."""
    java = make_java(tmp_path / "jdk-21")
    (java.home / "release").write_text('IMPLEMENTOR="Somebody"\nJAVA_VERSION="21.0.2"\n')
    (java.home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java").symlink_to(java.home / "bin" / "java")
    assert finding.ask(tmp_path / "java") == finding.Java(java.home, 21)


def test_a_java_that_does_not_run_counts_as_none(tmp_path: Path) -> None:
    """macOS ships a `java` that only asks to be installed."""
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    assert finding.ask(stub) is None


def test_a_fetched_jdk_is_put_into_the_cache_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The downloader unpacks aside; the finished JDK is moved in by one rename."""

    def unpack(version: str, path: str) -> str:
        return str(make_java(Path(path) / f"jdk-{version}.0.1").home)

    monkeypatch.setitem(sys.modules, "jdk", SimpleNamespace(install=unpack))
    finding.install()
    assert [folder.name for folder in (cache / "jdk").iterdir()] == ["jdk-21.0.1"]


def test_a_jdk_that_cannot_be_fetched_leaves_nothing_to_be_found(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half download is never taken for a Java."""

    def fail(version: str, path: str) -> str:
        make_java(Path(path) / f"jdk-{version}")
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "jdk", SimpleNamespace(install=fail))
    with pytest.raises(SparkUnavailable, match="no route to host"):
        finding.install()
    assert list((cache / "jdk").glob("[!.]*")) == []
