"""`floodmark rollback`: which jobs, to what, and what is said before anything is undone; that needs no JVM.

The Python of a job is not there, and nobody needs it: a deploy that broke it may be what is to be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark import stores
from floodmark.cli.invocation import Invocation, Tools
from floodmark.cli.rollback import RollbackCommand, without_python
from floodmark.errors import SinkFailed
from floodmark.hwm import HWM, ColumnIntHWM, VersionHWM
from floodmark.jobs.rollback import Rollback, Target, WayBack
from floodmark.probes.delta import DeltaProbe, note
from floodmark.step import RunRequest
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord, Receipt, RuleOutcome
from tests.cli.conftest import CommandResult
from tests.docs.running import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Floodmark = Callable[..., CommandResult]
NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
PROJECT = """store: sqlite:///marks.db
jobs:
  - name: gold
    source: {type: delta, path: lake/orders}
    transform: {python: "nowhere:clean"}
    sinks: [{type: delta, path: lake/gold}]
  - name: orders
    source: {type: files, path: in}
    sinks: [{type: delta, path: lake/orders}]
  - name: out
    source: {type: files, path: in}
    sinks: [{type: files, path: out}]
"""
WARNED = RuleOutcome("cents_positive", "warn", 3, 10)


@dataclass(frozen=True)
class Shop:
    """A project folder in which batches are committed as a run would: table, record and receipt."""

    folder: Path

    def batch(self, job: str, number: int, hour: int, mark: int, *rules: RuleOutcome) -> None:
        ledger = f"floodmark.default.{job}.delta"
        properties = CommitProperties(
            custom_metadata={"userMetadata": note(ledger, number, None)}, app_transactions=[Transaction(ledger, number)]
        )
        write_deltalake(
            self.folder / f"lake/{job}", pa.table({"id": [number]}), mode="append", commit_properties=properties
        )
        self.commit(job, number, hour, mark, *rules)

    def commit(self, job: str, number: int, hour: int, mark: int, *rules: RuleOutcome) -> None:
        at = NOON + timedelta(hours=hour)
        table = str(self.folder / "lake/orders")
        made: HWM[object] = VersionHWM("delta", mark, entity=table) if job == "gold" else ColumnIntHWM("seq", mark)  # type: ignore[assignment]
        marks = {"delta" if job == "gold" else "files": made}
        did = Receipt(job, f"{job}{number}", "done", at, 0.0, 1, number, 10, mark_after=mark, rules=rules)
        store = stores.open("sqlite:///marks.db", folder=self.folder)
        with hold(store, job) as held:
            read = {"delta": f"delta {table} (table id {DeltaProbe(table).table_id()})"} if job == "gold" else {}
            record = JobRecord(job, number, marks, read, modified_time=at)
            store.commit(record, expected=number - 1, lease=held.lease, receipt=did)
        store.close()


@pytest.fixture
def shop(folder: Path) -> Shop:
    """Orders came at 1, 2 and 3 o'clock, the last with a rule that warned; gold read all but those."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    made = Shop(folder)
    made.batch("orders", 1, 1, 10)
    made.batch("orders", 2, 2, 20)
    made.batch("gold", 1, 2, 1)
    made.batch("orders", 3, 3, 30, WARNED)
    return made


def test_the_plan_tells_states_marks_tables_and_who_reads_them(shop: Shop, floodmark: Floodmark) -> None:
    """A dry run stops there; without `--select` a run means the job that it is of."""
    said = floodmark("rollback", "--to", "orders2", "--dry-run")
    assert said.code == 0
    assert said.out.splitlines() == [
        "orders: batch 3 (run orders3, 2026-11-15 15:00:00) → batch 2 (run orders2, 2026-11-15 14:00:00)",
        "  mark 30 → 20",
        "  lake/orders: version 2 → 1",
        "  undoes 1 batch, 10 rows read",
        "  batch 3 (run orders3, 2026-11-15 15:00:00): rule cents_positive (warn): 3 of 10 failed",
        "warning: gold has read of lake/orders what stays: `--select gold` lets its mark follow the table",
        "would put orders back; nothing was changed",
    ]
    assert json.loads(floodmark("marks", "show", "orders", "--json").out)["marks"][0]["number"] == 3


def test_a_reader_that_is_ahead_is_told_with_the_run_that_fits(shop: Shop, floodmark: Floodmark) -> None:
    """Its rows came from what goes; by itself it would stay as it is."""
    shop.batch("gold", 2, 4, 2)
    ahead = "is ahead of lake/orders: it has read version 2, and the table goes back to 1"
    remedy = "then `floodmark rollback --select gold --to gold1` puts it back to what it had of it"
    assert f"warning: gold {ahead}; {remedy}\n" in floodmark("rollback", "--to", "orders2", "--dry-run").out


@pytest.mark.usefixtures("shop")
def test_a_selected_reader_follows_the_table_of_which_it_has_read_what_stays(floodmark: Floodmark) -> None:
    """It is where it should be but for its mark; whatever the order of the file, the table goes back first."""
    lines = floodmark("rollback", "gold", "--select", "orders", "--to", "orders2", "--dry-run").out.splitlines()
    assert lines[-3:] == [
        "gold: follows, batch 1 (run gold1, 2026-11-15 14:00:00) is what it has",
        "  mark 1 → 1, then behind the restore of lake/orders",
        "would put orders, gold back; nothing was changed",
    ]


def test_a_selected_reader_that_is_behind_is_told_what_its_next_run_meets(shop: Shop, floodmark: Floodmark) -> None:
    """It takes added rows only, and the restore is a commit that takes rows away."""
    shop.batch("orders", 4, 4, 40)
    said = floodmark("rollback", "--select", "gold", "--select", "orders", "--to", "orders3", "--dry-run")
    meets = "its next run meets rows that came and went, and stops there (changes: append)"
    assert f"warning: gold has read lake/orders up to version 1 of 2: {meets}\n" in said.out


@pytest.mark.usefixtures("shop")
def test_the_last_good_state_of_every_job_that_ran_is_what_last_good_means(floodmark: Floodmark) -> None:
    """One that is good stays, or follows a table that it read; one that never ran is not asked."""
    said = floodmark("rollback", "--to", "last-good", "--dry-run", "--json")
    document = json.loads(said.out)
    assert (said.code, document["to"], document["dry_run"], document["warnings"]) == (0, "last-good", True, [])
    orders, gold = document["jobs"]
    assert (orders["job"], orders["status"], orders["from"]["flaw"], orders["to"]["run"]) == (
        "orders",
        "planned",
        "rule cents_positive (warn): 3 of 10 failed",
        "orders2",
    )
    assert (orders["from"]["mark"], orders["to"]["mark"], orders["number"], orders["mark"]) == (30, 20, None, 30)
    assert orders["tables"] == [{"table": "lake/orders", "from_version": 2, "to_version": 1}]
    assert (gold["job"], gold["follows"], gold["from"]["batch"], gold["to"]["batch"]) == ("gold", ["lake/orders"], 1, 1)


def test_a_job_whose_newest_state_is_good_stays_and_what_is_beneath_is_told(shop: Shop, floodmark: Floodmark) -> None:
    """A batch is judged, not the table: rows that an earlier one let in may still be there."""
    shop.batch("orders", 4, 4, 40)
    said = floodmark("rollback", "orders", "--to", "last-good", "--yes")
    flaw = "batch 3 (run orders3, 2026-11-15 15:00:00): rule cents_positive (warn): 3 of 10 failed"
    assert (said.code, said.out.splitlines()) == (
        0,
        [
            "orders: stays, batch 4 (run orders4, 2026-11-15 16:00:00) is good",
            f"  beneath it, {flaw}; its rows may still be there: `--to RUN` goes further back",
            "nothing to put back",
        ],
    )


def test_without_a_good_run_a_person_decides(shop: Shop, floodmark: Floodmark) -> None:
    """Exit 5, with where to look and what else can be done."""
    shop.commit("out", 1, 5, 1, WARNED)
    said = floodmark("rollback", "--select", "out", "--to", "last-good", "--yes")
    assert (said.code, said.out) == (5, "")
    assert said.err.splitlines()[0].startswith("Error: job 'out' has no good run to go back to: batch 1 is not (rule ")
    assert "`floodmark runs --job out`" in said.err


def test_one_job_that_cannot_go_back_stops_all(shop: Shop, floodmark: Floodmark) -> None:
    """Before anything is asked or changed."""
    shop.commit("out", 1, 1, 1)
    shop.commit("out", 2, 5, 2, WARNED)
    said = floodmark("rollback", "--to", "last-good", "--yes")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("Error: sink 'files' of job 'out' cannot be put back: what it wrote is out.")


def test_files_that_vacuum_took_are_missed_before_anything_is_done(shop: Shop, floodmark: Floodmark) -> None:
    """RESTORE itself would find out when other tables are back already."""
    properties = CommitProperties(custom_metadata={"userMetadata": note("floodmark.default.orders.delta", 4, None)})
    write_deltalake(shop.folder / "lake/orders", pa.table({"id": [4]}), mode="overwrite", commit_properties=properties)
    shop.commit("orders", 4, 4, 40)
    [data, *_] = sorted((shop.folder / "lake/orders").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    data.unlink()
    said = floodmark("rollback", "--to", "orders2", "--yes")
    what = f"cannot be as batch 2 left it (version 1): 1 of its files are gone (vacuum), as {data.name}."
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"Error: delta table {shop.folder}/lake/orders {what}\n"
        "Try: choose a later one, or rebuild with --full-refresh\n"
    )


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nobody", "--to", "1"], "no job 'nobody'"),
        (["orders", "--to", "9"], "job 'orders' has no batch or run '9' to go back to (kept: 1, 2, 3)"),
        (["--to", "2"], "'2' is the number of a batch, and 2 jobs have batches"),
        (["--to", "nothing"], "there is no run 'nothing'"),
        (["--select", "out", "--to", "orders2"], "job 'out' has no batch or run 'orders2' (it ended 2026-11-15 14:00"),
        (["orders"], "Missing option '--to'"),
    ],
)
def test_what_is_not_there_is_not_gone_back_to(floodmark: Floodmark, arguments: list[str], named: str) -> None:
    """Exit 2, with what there is."""
    said = floodmark("rollback", *arguments, "--yes")
    assert (said.code, named in said.err) == (2, True), said.err


def test_a_run_of_no_job_of_the_project_is_a_moment_for_selected_ones(shop: Shop, floodmark: Floodmark) -> None:
    """Of a stream, or of a job that was taken out."""
    store = stores.open("sqlite:///marks.db", folder=shop.folder)
    store.add_run(Receipt("clicks", "c1", "done", NOON + timedelta(hours=1, minutes=30), number=7))
    store.close()
    refused = floodmark("rollback", "--to", "c1", "--dry-run")
    assert (refused.code, "run 'c1' is of clicks: no job of this project took part in it" in refused.err) == (2, True)
    assert "→ batch 1 (run orders1," in floodmark("rollback", "--select", "orders", "--to", "c1", "--dry-run").out


@pytest.mark.usefixtures("shop")
def test_nothing_is_done_without_a_yes(floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is shown, and a person is asked."""
    monkeypatch.setattr("typer.confirm", refusing)
    said = floodmark("rollback", "--to", "orders2")
    assert (said.code, said.err.splitlines()[0]) == (1, "Error: stopped, nothing was changed.")
    assert "put orders back, tables and marks?" in said.out


def refusing(question: str, **_options: object) -> bool:
    import typer

    print(question)
    raise typer.Abort


def test_a_job_that_runs_is_left_alone(shop: Shop, floodmark: Floodmark) -> None:
    """Exit 4, as everywhere."""
    store = stores.open("sqlite:///marks.db", folder=shop.folder)
    with hold(store, "orders"):
        said = floodmark("rollback", "--to", "orders2", "--yes")
    store.close()
    assert (said.code, "job 'orders'" in said.err) == (4, True), said.err


class Breaking(Rollback):
    """Whose first job goes back, and whose second one cannot."""

    def carry_out(self, shown: Sequence[WayBack]) -> Iterator[JobRecord]:
        yield replace(shown[0].goal, number=4, origin="rollback")
        raise SinkFailed(shown[1].job, sink="delta", reason="disk full")


@pytest.mark.usefixtures("shop")
def test_a_failure_after_the_first_job_is_back_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3; the same command again does the rest."""
    invocation = Invocation()
    steps = [job.step(None, invocation.store(), RunRequest()) for job in without_python(invocation, ["gold", "orders"])]
    breaking = Breaking(tuple(steps), Target.parse("last-good", invocation.store()))
    code = RollbackCommand(invocation, breaking, as_json=True).go(yes=True, dry_run=False)
    invocation.close()
    out, err = capsys.readouterr()
    assert (code, [(each["job"], each["status"], each["number"]) for each in json.loads(out)["jobs"]]) == (
        3,
        [("orders", "back", 4), ("gold", "planned", None)],
    )
    assert "disk full" in err
    assert err.endswith("orders went back before.\nTry: the same rollback again puts back the rest\n")


@pytest.mark.spark
def test_tables_and_marks_are_back_and_a_reader_follows(spark: SparkSession, shop: Shop, floodmark: Floodmark) -> None:
    """Called again it finds nothing to do: what went back is as good as the batch it went back to."""
    tools = Tools(session=lambda settings: SharedSession(lambda: spark))
    said = floodmark("rollback", "--to", "last-good", "--yes", tools=tools)
    assert (said.code, said.out.splitlines()[-2:]) == (
        0,
        [
            "orders: back as batch 2 (run orders2, 2026-11-15 14:00:00) left it, mark 20, number 4",
            "gold: back as batch 1 (run gold1, 2026-11-15 14:00:00) left it, mark 4, number 2",
        ],
    )
    orders = DeltaTable(shop.folder / "lake/orders")
    assert (sorted(orders.to_pyarrow_table()["id"].to_pylist()), orders.version()) == ([1, 2], 4)
    again = floodmark("rollback", "--to", "last-good", "--yes", tools=tools)
    assert (again.code, again.out.splitlines()) == (
        0,
        [
            "orders: stays, batch 4, a rollback to 2 (run orders2, 2026-11-15 14:00:00) is good",
            "gold: stays, batch 2, a rollback to 1 (run gold1, 2026-11-15 14:00:00) is good",
            "nothing to put back",
        ],
    )
