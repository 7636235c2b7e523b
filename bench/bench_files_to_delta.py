"""jsonl → Delta on 1,000,000 rows, against the plain read-and-write of the same files in the same session."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm

if TYPE_CHECKING:
    from run import Result

ROWS, FILES = 1_000_000, 8
NOON = "2026-11-15T12:00:00Z"
SCHEMA = "id long, customer string, amount double, placed_at timestamp"


def write_input(folder: Path, rows: int) -> None:
    folder.mkdir()
    for part in range(FILES):
        first = part * rows // FILES
        lines = (
            f'{{"id": {i}, "customer": "c{i % 5000}", "amount": {i % 9973 / 100}, "placed_at": "{NOON}"}}\n'
            for i in range(first, first + rows // FILES)
        )
        (folder / f"part-{part}.jsonl").write_text("".join(lines))


def run(rows: int = ROWS) -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_input(home / "in", rows)

        def plain(turn: int) -> None:
            lines = spark.read.schema(SCHEMA).json(str(home / "in"))
            lines.write.format("delta").save(str(home / f"plain-{turn}"))

        def ours(turn: int) -> None:
            job = fm.Job(
                name="bench",
                source=fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0),
                sinks=[fm.sinks.Delta(str(home / f"ours-{turn}"))],
                dead_letters=str(home / f"dead-{turn}"),
            )
            receipt = job.run(spark, fm.stores.open(f"sqlite:///marks-{turn}.db", folder=home))
            assert receipt.rows_written == {"delta": rows}, receipt

        of = f"{rows:,} rows, dead letters on, plain PySpark as reference"
        return [compare("jsonl to Delta", plain, ours, at_most=1.10, rounds=5, of=of)]
