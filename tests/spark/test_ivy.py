"""What the real Ivy says when a registry misbehaves, and what we make of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConnectorsMissing
from floodmark.spark.connectors import IVY_FILE, Resolution, TryAgain, judge
from floodmark.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
