"""A job with dead letters, whose replay is to be killed. Run it as a program: one replay of the job in FOLDER.

python -m tests.crash.letters FOLDER BOOTSTRAP TOPIC
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import floodmark as fm
from floodmark.jobs.dead_letters import replay_letters
from tests.crash.shop import SETTINGS, open_store

VALUE = {"format": "json", "schema": "id long, v string"}


def strict(record: Any) -> dict[str, Any]:  # noqa: ANN401 (a record)
    """Fails on every third record."""
    if record["id"] % 3 == 0:
        raise ValueError("every third")
    return {"id": record["id"]}


def corrected(record: Any) -> dict[str, Any]:  # noqa: ANN401 (a record)
    """Fails on every ninth record."""
    if record["id"] % 9 == 0:
        raise ValueError("every ninth")
    return {"id": record["id"]}


def letters(home: Path, bootstrap: str, topic: str, function: Callable[[Any], dict[str, Any]]) -> fm.Job:
    """From a topic to two tables, record by record."""
    return fm.Job(
        name="letters",
        source=fm.sources.Kafka(bootstrap, topic, value=VALUE),
        sinks=[fm.sinks.Delta(str(home / "lake"), name="lake"), fm.sinks.Delta(str(home / "mart"), name="mart")],
        transform=fm.heal(function, schema="id long", on_error="dead_letter"),
        dead_letters=str(home / "dead"),
    )


def main() -> None:
    home, bootstrap, topic = sys.argv[1:]
    job = letters(Path(home), bootstrap, topic, corrected)
    replay_letters(job, (), lambda: fm.spark_session(SETTINGS), open_store(Path(home)))


if __name__ == "__main__":
    main()
