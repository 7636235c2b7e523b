"""What a user gives to from_kafka, before any broker is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import ConfigError
from floodmark.streams import from_kafka, from_kafka_batched, healing, retry
from floodmark.streams.kafka import KafkaSettings

PARAMS = {"bootstrap.servers": "nowhere:1", "group.id": "billing"}


@pytest.mark.parametrize(
    ("topics", "params", "message"),
    [
        ([], PARAMS, "has no topic"),
        ([""], PARAMS, "has no topic"),
        (["orders"], {"bootstrap.servers": "nowhere:1"}, "has no group.id"),
        (["orders"], {"group.id": "billing"}, "names no broker"),
        (["orders"], {**PARAMS, "auto.offset.reset": "middle"}, "auto.offset.reset is 'middle'"),
    ],
)
def test_a_source_that_cannot_be_is_refused(topics: list[str], params: dict[str, object], message: str) -> None:
    """At once, and not when the first poll fails."""
    with pytest.raises(ConfigError, match=message):
        from_kafka(topics, params)


@pytest.mark.parametrize(
    "options", [{"maxlen": 0}, {"partitions": 0}, {"poll_interval": "soon"}, {"on_error": "shrug"}]
)
def test_options_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    """Each with what may stand there."""
    with pytest.raises(ConfigError):
        from_kafka_batched(["orders"], PARAMS, **options)  # type: ignore[arg-type]


def test_the_options_of_the_seed_are_understood() -> None:
    """Seconds or text, Kafka's old words, and options of a consumer that are answered here and go to no client."""
    given = {**PARAMS, "auto.offset.reset": "smallest", "enable.auto.commit": True, "security.protocol": "SSL"}
    settings = KafkaSettings.of("orders", given, "2s", retry(2, 1), debug=True)
    assert (settings.topics, settings.group, settings.reset) == (("orders",), "billing", "earliest")
    assert (settings.poll_seconds, settings.options.options) == (2.0, {"security.protocol": "SSL"})


def test_no_secret_is_shown() -> None:
    """Settings end up in tracebacks."""
    given = {**PARAMS, "sasl.password": "hush"}
    assert "hush" not in repr(KafkaSettings.of(["orders"], given, 1, "stop", debug=False))


def test_the_state_of_a_stream_lies_beside_its_marks_or_where_its_user_says(tmp_path: Path) -> None:
    """Names of groups become names of folders."""
    beside = from_kafka(["orders"], {**PARAMS, "group.id": "a/b"}, store=f"sqlite:///{tmp_path}/marks.db")
    chosen = from_kafka(["orders"], PARAMS, store="memory", state=tmp_path / "mine")
    assert beside.state.root == tmp_path / "streams" / "a%2fb"
    assert chosen.state.root == tmp_path / "mine"


def test_a_stream_says_whether_it_heals() -> None:
    """Without healing its mark never moves."""
    source = from_kafka(["orders"], PARAMS, store="memory")
    source.sink(print)
    assert not source.program().heals
    source.sink(healing, stream=source)
    assert source.program().heals
