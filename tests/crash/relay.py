"""A job from any of three sources to four sinks, as a program that can be killed.

python relay.py FOLDER        one run; FOLDER/relay.json says from where to where
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import floodmark as fm

SCHEMA = "id long, v string"
SINKS = ("lake", "events", "mart", "out")
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
}


@dataclass(frozen=True)
class Relay:
    """Where rows come from and where they go."""

    home: str
    source: str
    bootstrap: str
    database: str
    topic_in: str
    topic_out: str
    only: str | None = None
    """The one sink that it has, if it does not have all."""

    def save(self) -> None:
        (Path(self.home) / "relay.json").write_text(json.dumps(asdict(self)))

    def job(self) -> fm.Job:
        home = Path(self.home)
        sources = {
            "files": lambda: fm.sources.Files(str(home / "in"), schema=SCHEMA, settle=0),
            "kafka": lambda: fm.sources.Kafka(
                self.bootstrap, self.topic_in, value={"format": "json", "schema": SCHEMA}, columns=()
            ),
            "postgres": lambda: fm.sources.Postgres(self.database, table="public.src", cursor="id"),
        }
        sinks = (
            fm.sinks.Delta(str(home / "lake"), name="lake"),
            fm.sinks.Kafka(self.bootstrap, self.topic_out, key="id", name="events", chunk_rows=20),
            fm.sinks.Postgres(self.database, "public.mart", name="mart"),
            fm.sinks.Files(str(home / "out"), name="out"),
        )
        return fm.Job(
            name="relay",
            source=sources[self.source](),
            transform="select id, v from source",
            sinks=[sink for sink in sinks if self.only in (None, sink.name)],
        )

    def store(self) -> fm.stores.MarkStore:
        return fm.stores.open("sqlite:///marks.db", folder=Path(self.home))


def load(home: Path) -> Relay:
    return Relay(**json.loads((home / "relay.json").read_text()))


if __name__ == "__main__":
    relay = load(Path(sys.argv[1]))
    relay.job().run(fm.spark_session(SETTINGS), relay.store())
