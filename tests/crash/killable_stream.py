"""A stream to be killed: each record says what becomes of it, attempt by attempt, and every call is noted in a file.

python killable_stream.py RUN      a run as JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import floodmark as fm
from floodmark.errors import RecordsFailed
from floodmark.streams import from_kafka, healing, retry

if TYPE_CHECKING:
    from collections.abc import Callable

    from floodmark.streams import Stream
    from floodmark.streams.kafka import KafkaStream

GROUP = "killable"
STUCK = 3
"""The exit code of a run that ends at failed records: none that Python has for other troubles."""


@dataclass(frozen=True)
class StreamRun:
    """One run of the stream; those of one folder share the marks, and differ in all that a restart may change."""

    home: str
    bootstrap: str
    topic: str
    number: int
    cores: int = 2
    together: int = 1
    """How many records are in a worker's hands at once."""
    tries: int = 1
    seconds: float = 0.02

    def stream(self) -> KafkaStream:
        """The stream, ready to run."""
        params = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        policy, store = retry(self.tries - 1, 0) if self.tries > 1 else "stop", f"sqlite:///{self.home}/marks.db"
        source = from_kafka([self.topic], params, on_error=policy, store=store)
        kept = self._with_step(source).filter(lambda row: row[1].split()[-1] != b"dropped")
        kept.sink(healing, stream=source)
        return source

    def _with_step(self, source: KafkaStream) -> Stream:
        step = self._step()
        return source.map(step) if self.together == 1 else source.partition(self.together).foreach_async(step).flatten()

    def _step(self) -> Callable[[Any], object]:
        notes, number, seconds = Path(self.home) / "notes", self.number, self.seconds

        def note(where: Any, word: str) -> None:  # noqa: ANN401 (a uuid)
            place = f"{where['partition']} {where['offset']} {where['attempt']}"
            with notes.open("ab", buffering=0) as file:
                file.write(f"{number} {os.getpid()} {place} {word}\n".encode())

        def step(row: Any) -> object:  # noqa: ANN401 (a row)
            where, fates = row[0], row[1].decode().split()
            fate = fates[where["attempt"] - 1]
            note(where, "begins")
            time.sleep(seconds)
            note(where, fate)
            if fate == "failed":
                raise ValueError("not yet")
            return row

        return step

    def serialize(self) -> str:
        return json.dumps(asdict(self))


if __name__ == "__main__":
    run = StreamRun(**json.loads(sys.argv[1]))
    fm.spark_session({"spark.master": f"local[{run.cores}]", "spark.driver.memory": "1g"})
    try:
        run.stream().run_once()
    except RecordsFailed:
        sys.exit(STUCK)
