"""A master that cannot be meant, or does not answer, is known before a JVM is started."""

from __future__ import annotations

import socket

import pytest

from floodmark.errors import ConfigError, SparkUnavailable
from floodmark.spark import session
from floodmark.spark.masters import MasterHost, hosts_of, master_mistake, require_answer


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*]", "local[2, 3]", "local-cluster[2,1,1024]", "yarn", "spark://a:7077,b:7077"],
)
def test_what_spark_knows_is_left_alone(master: str) -> None:
    """As Spark itself reads it."""
    assert master_mistake(master) is None


@pytest.mark.parametrize(
    ("master", "hint"), [("lcal[2]", "local"), ("sprk://host:7077", "spark://"), ("mesos://x", "yarn")]
)
def test_another_master_is_refused_with_the_nearest(master: str, hint: str) -> None:
    """Spark would say "Could not parse Master URL" after some seconds."""
    with pytest.raises(ConfigError) as raised:
        require_answer(master)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("master", "word"), [("spark://nohost.invalid", "no host"), ("spark://127.0.0.1:1", "refused")]
)
def test_a_master_that_does_not_answer_is_two_lines(master: str, word: str) -> None:
    """Spark tries for a minute, and prints two hundred lines of Java."""
    with pytest.raises(SparkUnavailable) as raised:
        require_answer(master)
    assert (word in raised.value.message, master in raised.value.message) == (True, True)
    assert "local[*]" in raised.value.hint


def test_one_of_several_masters_is_enough() -> None:
    """The others are standbys."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"
        require_answer(master)
        assert [host.refusal() is None for host in hosts_of(master)] == [False, True]


def test_hosts_have_the_ports_that_are_usual() -> None:
    """Kubernetes is asked through its API server, Spark Connect through its own port."""
    assert hosts_of("k8s://https://api.example:6443") == [MasterHost("api.example", 6443)]
    assert hosts_of("sc://connect.example") == [MasterHost("connect.example", 15002)]
    assert hosts_of("yarn") == []


@pytest.mark.parametrize(
    ("modules", "message", "hint"),
    [
        (("no_such_module",), "the client of Spark Connect is not installed.", "pip install 'pyspark[connect]'"),
        ((), "Spark at sc://127.0.0.1:9 cannot be reached: 127.0.0.1:9: Connection refused.", "fix `remote:`"),
    ],
)
def test_a_connect_server_that_cannot_be_used_is_said_before_anything_is_read(
    modules: tuple[str, ...], message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own client would try for ten minutes, or name one of the packages that it lacks."""
    monkeypatch.setattr(session, "CLIENT_MODULES", modules)
    monkeypatch.setattr(session, "active_session", lambda: None)
    with pytest.raises(SparkUnavailable) as refused:
        session.spark_session({"remote": "sc://127.0.0.1:9"})
    assert refused.value.message == message
    assert hint in str(refused.value.hint)
