"""A Java that only pretends: it answers like Ivy would, so that no test here touches the network."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = """#!/bin/sh
home=$(dirname "$(dirname "$0")")
case "$*" in *-version*)
    echo "    java.home = $home" >&2
    echo "    java.specification.version = $(cat "$home/version")" >&2
    exit 0 ;;
esac
echo call >>"$home/calls"
sleep "$(cat "$home/seconds")"
number=$(wc -l <"$home/calls" | tr -d ' ')
if [ -f "$home/answer-$number" ]; then
    cat "$home/answer-$number"
    exit 1
fi
while [ "$1" != -retrieve ]; do shift; done
pattern=$2
mkdir -p "${pattern%/*}"
echo jar >"${pattern%/*}/delta-spark_4.2_2.13-4.4.0.jar"
"""


@dataclass(frozen=True)
class FakeJava:
    """A home with a `java` in it; `answers` make the first calls of Ivy fail with that text."""

    home: Path

    def answers(self, *texts: str) -> None:
        """What Ivy prints when it fails, one text per call; later calls succeed."""
        for number, text in enumerate(texts, start=1):
            (self.home / f"answer-{number}").write_text(text)

    def is_version(self, version: str) -> None:
        """The version it says it is, as `java.specification.version` spells it."""
        (self.home / "version").write_text(version)

    def takes(self, seconds: str) -> None:
        """How long a resolution lasts."""
        (self.home / "seconds").write_text(seconds)

    def calls(self) -> int:
        """How often Ivy was started."""
        log = self.home / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0


def make_java(home: Path) -> FakeJava:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(SCRIPT)
    program.chmod(0o755)
    java = FakeJava(home)
    java.is_version("17")
    java.takes("0")
    return java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no settings of the machine."""
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FLOODMARK_IVY_SETTINGS", raising=False)
    monkeypatch.delenv("FLOODMARK_CONNECTORS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> FakeJava:
    """The pretended Java as JAVA_HOME."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return make_java(tmp_path / "jdk")


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """A machine without any Java: an empty PATH of its own, no JAVA_HOME, none in the usual places."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("floodmark.spark.java.PLACES", ())
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), "/usr/bin/nowhere"]))
    return programs
