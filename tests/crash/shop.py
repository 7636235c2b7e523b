"""The job that the crash tests kill: four sinks that are each written in another way. Run it as a program to be killed.

python shop.py FOLDER [SINKS]      one run of the job in FOLDER; SINKS picks some, as "lake,keyed"
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import floodmark as fm

SCHEMA = "id long, day string, amount long"
SINKS = ("lake", "keyed", "days", "out")
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
}


def shop(home: Path, sinks: Sequence[str] = SINKS) -> fm.Job:
    every = {
        "lake": fm.sinks.Delta(str(home / "lake"), name="lake"),
        "keyed": fm.sinks.Delta(str(home / "keyed"), name="keyed", mode="merge", key=["id"]),
        "days": fm.sinks.Delta(str(home / "days"), name="days", mode="replace", by=["day"]),
        "out": fm.sinks.Files(str(home / "out"), name="out", format="jsonl"),
    }
    return fm.Job(
        name="shop",
        source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
        sinks=[every[name] for name in sinks],
    )


def deliver(home: Path, day: str, ids: range) -> None:
    """A file of one day's rows, put in place in one act."""
    folder = home / "in"
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{day}.jsonl"
    hidden.write_text("".join(json.dumps({"id": i, "day": day, "amount": i * 10}) + "\n" for i in ids))
    hidden.rename(folder / f"{day}.jsonl")


def open_store(home: Path) -> fm.stores.MarkStore:
    return fm.stores.open("sqlite:///marks.db", folder=home)


def main() -> None:
    home = Path(sys.argv[1])
    sinks = sys.argv[2].split(",") if len(sys.argv) > 2 else SINKS
    spark = fm.spark_session(SETTINGS)
    shop(home, sinks).run(spark, open_store(home))


if __name__ == "__main__":
    main()
