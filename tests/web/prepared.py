"""A shop with three tables, made without Spark: commits of Delta's own client, receipts as a run would leave them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from floodmark import stores
from floodmark.formats import with_format
from floodmark.hwm import ColumnIntHWM
from floodmark.jobs.workflow.memory import TaskOutcome, WorkflowState, hold_memory
from floodmark.logs import get_logger
from floodmark.sinks.contract import ledger_id
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.record import RECEIPT_FORMAT, JobRecord, Receipt, RestatedDates, RuleOutcome
from floodmark.stores.run_logs import begin_log, keeping_log
from floodmark.stores.wire import compact

HOSTILE = "<img src=x onerror=alert(1)>"
PROJECT = """\
store: sqlite:///state/marks.db
jobs:
  - name: orders_bronze
    source: {type: files, path: incoming, format: jsonl, schema: "id long, amount double, note string"}
    rules:
      - {name: amount_positive, check: "amount > 0", action: quarantine}
    quarantine: {path: lake/aside/orders}
    sinks: [{name: lake, type: delta, path: lake/bronze/orders}]
    dead_letters: {path: lake/aside/letters}
  - name: orders_silver
    source: {type: delta, path: lake/bronze/orders}
    transform: {sql: "select id, amount * 100 as cents from source"}
    sinks: [{name: lake, type: delta, path: lake/silver/orders}]
  - name: revenue_gold
    source: {type: delta, path: lake/silver/orders}
    transform: {sql: "select sum(cents) as cents from source"}
    sinks: [{name: lake, type: delta, path: lake/gold/revenue, mode: replace}]
"""
ROWS = {1: 100, 2: 120, 3: 90}
"""Read by orders_bronze in each batch; the last one found 3 rows that broke its rule."""


def prepare_shop(folder: Path) -> Path:
    """The project in this folder: three batches, a failure in the middle, rows in the quarantine and dead letters."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    now = datetime.now(timezone.utc)
    store = stores.open("sqlite:///state/marks.db", folder=folder)
    for number, rows in ROWS.items():
        begun = now - timedelta(hours=4 - number)
        for place, job in enumerate(("orders_bronze", "orders_silver", "revenue_gold")):
            _batch(folder, store, job, number, rows, begun + timedelta(seconds=3 * place))
    with keeping_log(store, "orders_bronze", "run3orders_bronze"):
        begin_log()
        get_logger("test").info("sink has the batch", sink="lake", note=HOSTILE)
    store.add_run(Receipt("orders_silver", "", "failed", now - timedelta(minutes=90), 2.0, error=f"broken {HOSTILE}"))
    _stream(store, now)
    _workflow(store, now)
    store.close()
    put_aside(folder / "lake/aside/orders", "quarantine", ['{"id": 7, "amount": -1}', f'{{"note": "{HOSTILE}"}}'])
    put_aside(folder / "lake/aside/letters", "dead_letter", ['{"id": broken'])
    return folder


def _batch(folder: Path, store: MarkStore, job: str, number: int, rows: int, begun: datetime) -> None:
    """One committed batch of a job: its Delta commit, its record and its receipt."""
    place = {"orders_bronze": "bronze/orders", "orders_silver": "silver/orders", "revenue_gold": "gold/revenue"}[job]
    column = "id" if job == "orders_bronze" else "cents"
    ledger = ledger_id(store.namespace, job, "lake")
    write_deltalake(
        folder / "lake" / place,
        pa.table({column: list(range(rows))}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(ledger, number)]),
    )
    broken = RuleOutcome("amount_positive", "quarantine", 3 if number == len(ROWS) else 0, rows, ('{"amount": -1}',))
    receipt = Receipt(
        job, f"run{number}{job}", "done", begun, 2.5, 1, number, rows, {"lake": rows},
        mark_before=(number - 1) * 100 or None, mark_after=number * 100,
        durations={"read": 0.5, "write": 2.0}, rules=(broken,) if job == "orders_bronze" else (),
        restated={"lake": RestatedDates.of([20260130, 20260131])} if (job, number) == ("revenue_gold", 3) else {},
    )  # fmt: skip
    with hold(store, job) as held:
        marks = {"files": ColumnIntHWM(name="seq", value=number * 100)}
        record = JobRecord(job, number, marks, modified_time=begun)
        store.commit(record, expected=number - 1, lease=held.lease, receipt=receipt)


def _stream(store: MarkStore, now: datetime) -> None:
    """A stream of some program that keeps its marks here; its name is what the program says, HTML too."""
    with hold(store, HOSTILE) as held:
        record = JobRecord(HOSTILE, 1, modified_time=now, extras=RecordExtras({"healing": {}}))
        receipt = Receipt(HOSTILE, "runstream", "done", now - timedelta(hours=5), 1.0, 1, 1, 7)
        store.commit(record, expected=0, lease=held.lease, receipt=receipt)


def _workflow(store: MarkStore, now: datetime) -> None:
    """A workflow whose second task failed, so that the third was skipped."""
    load = TaskOutcome("load", "SUCCESS", 1, 30.0)
    check = TaskOutcome("check", "FAILED", 2, 10.0, error=f"broken {HOSTILE}")
    publish = TaskOutcome("publish", "SKIPPED", note="check did not end well")
    begun = now - timedelta(hours=6)
    run = WorkflowState("runnightly", begun).with_outcome(load, begun)
    run = run.with_outcome(check, begun + timedelta(seconds=30)).with_outcome(publish)
    with hold_memory(store, "nightly", 1) as memory:
        memory.keep(run)


def put_aside(path: Path, kind: str, records: list[str]) -> None:
    """Open rows of orders_bronze in the shape that the step writes."""
    count = len(records)
    write_deltalake(
        path,
        pa.table(
            {
                "id": [f"{kind}{place}" for place in range(count)],
                "kind": [kind] * count,
                "job": ["orders_bronze"] * count,
                "number": [3] * count,
                "batch_time": pa.array([datetime.now(timezone.utc)] * count, pa.timestamp("us", "UTC")),
                "file": ["incoming/day3.jsonl"] * count,
                "line": [4] * count,
                "reasons": [["amount_positive"] if kind == "quarantine" else ["not valid JSON"]] * count,
                "status": ["open"] * count,
                "record": records,
            }
        ),
    )


def insert_receipts(database: Path, receipts: Iterable[Receipt]) -> None:
    """Receipts by the thousand, as a store would keep them."""
    rows = ((receipt.job, compact(with_format(receipt.serialize(), RECEIPT_FORMAT))) for receipt in receipts)
    with sqlite3.connect(database) as connection:
        connection.executemany("insert into floodmark_runs (namespace, job, val) values ('default', ?, ?)", rows)
    connection.close()
