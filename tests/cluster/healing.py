"""A stream that is healed on a cluster, as a program: python healing.py MASTER BOOTSTRAP TOPIC STATE CALLS

Its step notes every call in a file of the folder CALLS, which all machines share; records that hold `bad` fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

import floodmark as fm
from floodmark.streams import from_kafka, healing


def step_into(calls: str):  # noqa: ANN201 (what a stream takes)
    """The step, with what it needs inside: it goes to machines that have no module of this name."""

    def step(row):  # noqa: ANN001, ANN202
        import os
        import time
        from pathlib import Path

        uuid, value = row
        Path(calls, f"{uuid['partition']}-{uuid['offset']}-{os.getpid()}-{time.time_ns()}").touch()
        time.sleep(0.05)
        if b"bad" in value:
            raise ValueError(value.decode())
        return row

    return step


def main(master: str, bootstrap: str, topic: str, state: str, calls: str) -> None:
    is_connect = master.startswith("sc://")
    place = {"remote": master} if is_connect else {"master": master, "executor.memory": "512m", "cores.max": "2"}
    options = {"bootstrap.servers": bootstrap, "group.id": f"heal-{topic}", "auto.offset.reset": "earliest"}
    store = fm.stores.open(f"sqlite:///{Path(state).parent}/marks.db")
    spark = fm.spark_session({**place, "ui.enabled": "false"})
    source = from_kafka([topic], options, store=store, spark=spark, state=state)
    source.map(step_into(calls)).sink(healing, stream=source)
    source.run_once()


if __name__ == "__main__":
    main(*sys.argv[1:])
