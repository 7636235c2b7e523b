"""Class data sharing: an archive that fits is used, any other changes nothing, and a run never fails over it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from floodmark.spark import sharing
from floodmark.spark.connectors import connectors
from floodmark.spark.java import Java, find_java
from floodmark.spark.session import session_settings
from floodmark.spark.sharing import QUIET, archive_file, make_later, sharing_options

JAVA = Java(Path("/jdk"), 17)
JARS = (Path("/cache/a.jar"),)
OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of this test's Java would be, and none of the user's settings."""
    monkeypatch.setenv("FLOODMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(sharing.SWITCH, raising=False)
    return archive_file(JAVA, JARS)


@pytest.fixture
def made_archive(archive: Path) -> Path:
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    return archive


def test_an_archive_is_of_one_java_and_one_class_path(archive: Path) -> None:
    """Another Java, other connectors: another file, so that none is ever written over."""
    others = {archive_file(Java(Path("/other"), 17), JARS), archive_file(JAVA, (*JARS, Path("/cache/b.jar")))}
    assert archive_file(JAVA, JARS) == archive
    assert archive not in others
    assert len(others) == 2


@pytest.mark.usefixtures("archive")
def test_without_an_archive_nothing_is_asked_of_the_jvm(archive: Path) -> None:
    """The first run starts as any Spark does."""
    assert sharing_options(archive) == ()


def test_an_archive_is_used_and_the_jvm_says_nothing_of_it(made_archive: Path) -> None:
    """One that does not fit is left aside without a word."""
    assert sharing_options(made_archive) == (f"-XX:SharedArchiveFile={made_archive}", *QUIET)


def test_the_users_own_java_options_stand_behind_ours(made_archive: Path) -> None:
    """They are added to, not replaced, and the last one counts."""
    options = session_settings({OPTIONS: "-Dx=1"}, JARS, sharing_options(made_archive))[OPTIONS].split(" ")
    assert options[0].startswith("-Dlog4j2.")
    assert (options[1], options[-1]) == (f"-XX:SharedArchiveFile={made_archive}", "-Dx=1")


@pytest.mark.parametrize("chosen", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=m.jsa"])
def test_who_decides_on_sharing_is_left_alone(made_archive: Path, chosen: str) -> None:
    """Two archives at once would keep the JVM from starting."""
    assert sharing_options(made_archive, chosen) == ()


def test_it_can_be_switched_off(made_archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOODMARK_CLASS_SHARING=none neither uses nor makes one."""
    monkeypatch.setenv(sharing.SWITCH, "none")
    assert sharing_options(made_archive) == ()


def test_a_folder_with_a_space_is_quoted_as_spark_takes_options_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's home may be called anything."""
    monkeypatch.delenv(sharing.SWITCH, raising=False)
    archive = tmp_path / "my cache.jsa"
    archive.touch()
    assert sharing_options(archive)[0] == f'"-XX:SharedArchiveFile={archive}"'


def test_an_archive_is_made_once_and_after_the_program(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not wait for it, and one that cannot be made is not tried at every start."""
    registered: list[object] = []
    monkeypatch.setattr(sharing.atexit, "register", registered.append)
    make_later(archive)
    make_later(archive)
    assert registered == [sharing._start_maker]


def test_a_cache_that_cannot_be_written_makes_none(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And costs no process at every start."""
    registered: list[object] = []
    monkeypatch.setattr(sharing.atexit, "register", registered.append)
    archive.parent.parent.parent.mkdir(exist_ok=True)
    archive.parent.parent.write_text("no folder")
    make_later(archive)
    assert registered == []


def test_old_archives_go_when_a_new_one_comes(tmp_path: Path) -> None:
    """Each is as large as all jars together."""
    for name in "abcdef":
        (tmp_path / f"{name}.jsa").touch()
    sharing._forget_old(tmp_path)
    assert len(list(tmp_path.glob("*.jsa"))) == sharing.MOST_ARCHIVES


@pytest.mark.spark
@pytest.mark.parametrize("content", [b"", b"no archive", b"\xde\xad\xbe\xef" * 4096])
def test_a_broken_archive_is_ignored_without_a_word(tmp_path: Path, content: bytes) -> None:
    """A disk that was full, a file of another version: Spark starts all the same."""
    archive = tmp_path / "broken.jsa"
    archive.write_bytes(content)
    java, jars = find_java(), ":".join(map(str, connectors()))
    command = [java.program, *sharing_options(archive), "-cp", jars, "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, "cds" in done.stderr.lower()) == (0, "", False)
