"""streamz's own from_kafka with a trivial map, run by a Python that has it: `SERVERS TOPIC RECORDS` → seconds."""

from __future__ import annotations

import sys
import time
import uuid
from threading import Event

from streamz import Stream  # type: ignore[import-not-found]


def main(bootstrap: str, topic: str, records: int) -> None:
    """Time from the first record to the last, so that joining the group is not held against it."""
    times: list[float] = []
    done = Event()

    def taken(value: bytes) -> None:
        times.append(time.monotonic())
        if len(times) == records:
            done.set()

    consumer = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    source = Stream.from_kafka([topic], consumer)
    source.map(lambda value: value).sink(taken)
    source.start()
    if not done.wait(120):
        sys.exit(f"streamz gave {len(times)} of {records} records in two minutes")
    source.stop()
    print(times[-1] - times[0])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
