"""Ten rules on every row of a jsonl → Delta job of 1,000,000 rows, against the same job without rules."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench_files_to_delta import ROWS, SCHEMA, write_input
from timing import compare

import floodmark as fm
from floodmark.rules import check, matches, not_null
from floodmark.rules import range as between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from run import Result

BAD_EVERY = 9973
"""One row in so many has an amount of 0: about a hundred rows are dropped."""
TEN = (
    not_null("id", action="quarantine"),
    not_null(["customer", "placed_at"], action="drop"),
    between("amount", min=0, max=100, action="quarantine"),
    between("id", min=0, action="warn"),
    matches("customer", "^c[0-9]+$", action="quarantine"),
    fm.rules.accepted("customer", [f"c{number}" for number in range(5000)], action="warn"),
    fm.rules.time_order("placed_at", "placed_at", action="warn"),
    check("amount > 0", action="drop"),
    check("length(customer) < 10", action="warn"),
    check("amount < 99.5", action="warn"),
)


def run() -> list[Result]:
    spark = fm.spark_session({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        write_input(home / "in")

        def job(turn: int, word: str, rules: Sequence[fm.rules.Rule]) -> fm.Receipt:
            source = fm.sources.Files(str(home / "in"), format="jsonl", schema=SCHEMA, settle=0)
            sinks = [fm.sinks.Delta(str(home / f"{word}-{turn}"))]
            store = fm.stores.open(f"sqlite:///{word}-{turn}.db", folder=home)
            return fm.Job(name="bench", source=source, sinks=sinks, rules=rules).run(spark, store)

        def judged(turn: int) -> None:
            receipt = job(turn, "judged", TEN)
            assert (receipt.rows_written["delta"] + receipt.rows_dropped, len(receipt.rules)) == (ROWS, 10), receipt
            assert receipt.rows_dropped == -(-ROWS // BAD_EVERY), receipt

        of = f"{ROWS:,} rows, ten rules on each"
        return [compare("rules", lambda turn: job(turn, "plain", ()), judged, at_most=1.25, rounds=5, of=of)]
