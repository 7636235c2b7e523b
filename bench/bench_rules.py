"""Ten rules on every row of a jsonl → Delta job of 1,000,000 rows, against the same job without rules."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from timing import compare

import floodmark as fm
from floodmark import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from run import Result

ROWS, FILES = 1_000_000, 8
SCHEMA = "id long, customer string, state string, amount double, placed_at timestamp, paid_at timestamp"
STATES = ("new", "paid", "sent", "done")
ZERO_EVERY = 9973
"""One row in so many has an amount of 0 and is dropped."""
TEN = (
    rules.not_null("id", action="quarantine"),
    rules.not_null(["customer", "placed_at"], action="drop"),
    rules.range("amount", min=0, max=100, action="quarantine"),
    rules.range("id", min=0, action="warn"),
    rules.matches("customer", "^c[0-9]+$", action="quarantine"),
    rules.accepted("state", STATES, action="quarantine"),
    rules.time_order("placed_at", "paid_at", action="warn"),
    rules.check("amount > 0", action="drop"),
    rules.check("length(customer) < 10", action="warn"),
    rules.check("state <> 'done' or paid_at is not null", action="warn"),
)


def line(number: int) -> str:
    facts = f'"id": {number}, "customer": "c{number % 5000}", "state": "{STATES[number % 4]}"'
    times = '"placed_at": "2026-11-15T12:00:00Z", "paid_at": "2026-11-15T13:00:00Z"'
    return f'{{{facts}, "amount": {number % ZERO_EVERY / 100}, {times}}}\n'


def write_input(folder: Path, rows: int) -> None:
    folder.mkdir()
    for part in range(FILES):
        numbers = range(part * rows // FILES, (part + 1) * rows // FILES)
        (folder / f"part-{part}.jsonl").write_text("".join(map(line, numbers)))


def run(rows: int = ROWS) -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_input(home / "in", rows)

        def job(word: str, judges: Sequence[rules.Rule]) -> fm.Receipt:
            source = fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0)
            store = fm.stores.open(f"sqlite:///{word}.db", folder=home)
            return fm.Job("bench", source, [fm.sinks.Delta(str(home / word))], rules=judges).run(spark, store)

        def judged(turn: int) -> None:
            receipt, zeros = job(f"judged-{turn}", TEN), -(-rows // ZERO_EVERY)
            assert (receipt.rows_written, receipt.rows_dropped) == ({"delta": rows - zeros}, zeros), receipt

        of = f"{rows:,} rows, ten rules on each"
        return [compare("rules", lambda turn: job(f"plain-{turn}", ()), judged, at_most=1.25, rounds=5, of=of)]
