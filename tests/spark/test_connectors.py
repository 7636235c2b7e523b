"""The JVM connectors are resolved once by Ivy, again after a pause where that may help, then taken from the cache."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, ConnectorsMissing, JavaMissing
from floodmark.spark.connectors import (
    IVY_FILE,
    MANIFEST,
    Resolution,
    TryAgain,
    brings_connectors,
    check_spark_version,
    connectors,
    connectors_folder,
    judge,
    package_jars,
)
from floodmark.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.spark.conftest import FakeJava


BUSY = "CLIENT ERROR: Too Many Requests url=somewhere\n\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found\n"
OFFLINE = "Server access error at url somewhere (java.net.UnknownHostException: somewhere)\n"
ABSENT = "\t:: UNRESOLVED DEPENDENCIES ::\n\t:: io.delta#delta-spark_4.2_2.13;4.4.0: not found\n"
JAR = "delta-spark_4.2_2.13-4.4.0.jar"


def names(jars: tuple[Path, ...]) -> list[str]:
    return [jar.name for jar in jars]


def test_the_first_call_resolves_and_later_calls_start_nothing(java: FakeJava) -> None:
    """Once the cache is complete, the network is never asked again."""
    assert names(connectors()) == [JAR]
    assert names(connectors()) == [JAR]
    assert java.calls() == 1


def test_a_complete_cache_needs_no_java_at_all(java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the cache is a matter of files."""
    connectors()
    monkeypatch.setattr("floodmark.spark.connectors.find_java", pytest.fail)
    assert names(connectors()) == [JAR]


def test_a_busy_registry_is_asked_again_with_one_line_per_pause(
    java: FakeJava, caplog: pytest.LogCaptureFixture
) -> None:
    """429 is an answer to be waited out; the user sees why it takes longer."""
    java.answers(BUSY, OFFLINE)
    with caplog.at_level(logging.WARNING):
        assert names(connectors(pause_seconds=0)) == [JAR]
    assert java.calls() == 3
    assert [record.getMessage() for record in caplog.records] == [
        'connectors: the registry answered "CLIENT ERROR: Too Many Requests"; attempt 2 of 5 in 0 s',
        'connectors: the registry answered "Server access error"; attempt 3 of 5 in 0 s',
    ]


def test_a_registry_that_stays_busy_names_what_is_missing_and_where_else_to_look(java: FakeJava) -> None:
    """After the last attempt the error carries the module and the ways out."""
    java.answers(BUSY, BUSY, BUSY, BUSY, BUSY)
    with pytest.raises(ConnectorsMissing) as caught:
        connectors(pause_seconds=0)
    assert caught.value.missing == ("io.delta:delta-spark_4.2_2.13:4.4.0",)
    assert "Too Many Requests" in caught.value.reason
    assert "FLOODMARK_IVY_SETTINGS" in caught.value.hint
    assert java.calls() == 5


def test_a_module_that_does_not_exist_is_not_asked_for_twice(java: FakeJava) -> None:
    """Waiting does not help against a wrong name."""
    java.answers(ABSENT)
    with pytest.raises(ConnectorsMissing) as caught:
        connectors(pause_seconds=0)
    assert caught.value.missing == ("io.delta:delta-spark_4.2_2.13:4.4.0",)
    assert java.calls() == 1


def test_a_failed_resolution_leaves_nothing_that_counts(java: FakeJava) -> None:
    """The next call starts over."""
    java.answers(ABSENT)
    with pytest.raises(ConnectorsMissing):
        connectors()
    assert names(connectors()) == [JAR]
    assert java.calls() == 2


def test_jars_without_a_manifest_do_not_count(java: FakeJava) -> None:
    """The manifest is written last: a killed resolution has none."""
    connectors()
    (connectors_folder() / MANIFEST).unlink()
    connectors()
    assert java.calls() == 2


def test_a_jar_of_another_size_is_fetched_again(java: FakeJava) -> None:
    """A truncated jar would fail deep inside Spark."""
    (jar,) = connectors()
    jar.write_text("")
    connectors()
    assert jar.read_text() == "jar\n"
    assert java.calls() == 2


def test_two_processes_at_once_resolve_once(java: FakeJava) -> None:
    """The second waits for the first, and then finds everything there."""
    java.takes("1")
    command = [sys.executable, "-m", "floodmark.spark.connectors"]
    first, second = subprocess.Popen(command), subprocess.Popen(command)
    assert (first.wait(), second.wait()) == (0, 0)
    assert java.calls() == 1


def test_the_command_says_in_one_line_where_they_are(java: FakeJava, cache: Path) -> None:
    """`make setup` shows this line."""
    done = subprocess.run(
        [sys.executable, "-m", "floodmark.spark.connectors"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"1 connectors in {connectors_folder()}\n"
    assert done.stderr == ""


def test_packages_of_the_user_are_fetched_once_and_listed_for_ivy(java: FakeJava, cache: Path) -> None:
    """In any order they are the same packages; other ones have a folder of their own."""
    first = package_jars("com.h2database:h2:2.3.232, org.x:y:1.0")
    again = package_jars("org.x:y:1.0,com.h2database:h2:2.3.232")
    [listed] = cache.glob("packages/*/packages.ivy.xml")
    assert (len(first), first, java.calls()) == (1, again, 1)
    assert '<dependency org="com.h2database" name="h2" rev="2.3.232"/>' in listed.read_text()
    package_jars("org.x:y:2.0")
    assert java.calls() == 2


def test_no_packages_need_no_java(no_java: Path) -> None:
    """Nothing is asked for."""
    assert package_jars("") == ()


@pytest.mark.parametrize("packages", ["h2", "org:name", 'org:na"me:1', "a:b:1, c:d"])
def test_what_is_no_package_is_refused(packages: str) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match="is not the name of a package"):
        package_jars(packages)


def test_without_java_the_error_is_about_java(no_java: Path) -> None:
    """Nothing is tried that cannot work."""
    with pytest.raises(JavaMissing):
        connectors()


def test_connectors_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may bring its own."""
    monkeypatch.setenv("FLOODMARK_CONNECTORS", "none")
    assert not brings_connectors()


def test_another_spark_is_refused_by_its_version() -> None:
    """Connectors are built for one version of Spark."""
    with pytest.raises(ConnectorsMissing, match=r"Spark 4\.0\.1"):
        check_spark_version("4.0.1")


def test_the_settings_of_the_user_reach_ivy(java: FakeJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Behind a mirror the user names an ivysettings.xml."""
    monkeypatch.setenv("FLOODMARK_IVY_SETTINGS", str(tmp_path / "mirror.xml"))
    script = java.home / "bin" / "java"
    script.write_text(script.read_text().replace("sleep ", 'echo "$*" >"$home/arguments"\nsleep '))
    connectors()
    assert f"-settings {tmp_path / 'mirror.xml'} " in (java.home / "arguments").read_text()


SETTINGS = """<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="http://127.0.0.1:{port}/"/></resolvers>
</ivysettings>
"""
WANTED = ("io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0")


class Registry(HTTPServer):
    """A registry on a free port of this machine that answers every request alike."""

    status = 404


class Answer(BaseHTTPRequestHandler):
    """Says the status of its registry to everything."""

    def do_GET(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the same

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def resolution(port: int, folder: Path) -> Resolution:
    settings = folder / "settings.xml"
    settings.write_text(SETTINGS.format(port=port))
    return Resolution(IVY_FILE, settings, folder, find_java())


@pytest.mark.spark
def test_too_many_requests_are_worth_another_attempt(registry: Registry, tmp_path: Path) -> None:
    """Registries answer 429 to a fresh machine that asks for many files at once."""
    registry.status = 429
    with pytest.raises(TryAgain, match="Too Many Requests"):
        resolution(registry.server_port, tmp_path).attempt()


@pytest.mark.spark
def test_a_broken_registry_is_worth_another_attempt(registry: Registry, tmp_path: Path) -> None:
    """5xx passes by itself."""
    registry.status = 503
    with pytest.raises(TryAgain, match="Service Unavailable"):
        resolution(registry.server_port, tmp_path).attempt()


@pytest.mark.spark
def test_a_registry_that_is_not_there_is_worth_another_attempt(tmp_path: Path) -> None:
    """A network may come back."""
    with pytest.raises(TryAgain, match=r"Server access error|Connection refused|ConnectException"):
        resolution(1, tmp_path).attempt()


@pytest.mark.spark
def test_a_registry_that_forbids_is_not_asked_again(registry: Registry, tmp_path: Path) -> None:
    """A mirror without the right password says so at once."""
    registry.status = 403
    with pytest.raises(ConnectorsMissing, match="CLIENT ERROR: Forbidden"):
        resolution(registry.server_port, tmp_path).attempt()


@pytest.mark.spark
def test_what_a_registry_does_not_have_is_named(registry: Registry, tmp_path: Path) -> None:
    """404 is an answer: waiting does not change it."""
    with pytest.raises(ConnectorsMissing) as caught:
        resolution(registry.server_port, tmp_path).attempt()
    assert caught.value.missing == (*WANTED, "org.postgresql:postgresql:42.7.7")


def test_success_among_refused_requests_is_no_success() -> None:
    """Ivy takes a module whose POM was refused for one without dependencies: half of the jars would be missing."""
    assert isinstance(judge(0, "CLIENT ERROR: Too Many Requests url=somewhere"), TryAgain)


def test_plain_success_is_success() -> None:
    """The usual case."""
    assert judge(0, ":: retrieving :: floodmark#connectors") is None


def test_how_much_has_been_fetched_is_known_while_it_comes(java: FakeJava, tmp_path: Path) -> None:
    """Also of a file that is still on its way."""
    resolution = Resolution(IVY_FILE, IVY_FILE, tmp_path, find_java())
    assert resolution.fetched() == "0.0 MB"
    (tmp_path / "ivy" / "io.delta").mkdir(parents=True)
    (tmp_path / "ivy" / "io.delta" / "delta.jar").write_bytes(b"x" * 1_200_000)
    (tmp_path / "ivy" / "io.delta" / "storage.jar.part").write_bytes(b"x" * 300_000)
    assert resolution.fetched() == "1.5 MB"
