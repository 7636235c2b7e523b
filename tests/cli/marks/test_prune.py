"""`floodmark marks init` and `prune`, on real stores and without a JVM."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pytest

from floodmark import stores
from floodmark.hwm import ColumnIntHWM, Json
from floodmark.stores.contract import MarkStore
from floodmark.stores.extras import RecordExtras
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord, Receipt
from floodmark.testing.laws.records import with_open_intent
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
PROJECT = """\
retention: {history: 10d, keep_at_least: 2, runs: 20d}
jobs:
  - {name: orders, source: {type: files, path: in}, sinks: [{type: files, path: out}]}
"""


@contextmanager
def opened(folder: Path) -> Iterator[MarkStore]:
    store = stores.open("sqlite:///state/marks.db", folder=folder)
    yield store
    store.close()


def aged(folder: Path, job: str, *days: int, **extras: Json) -> None:
    """A job with a commit, and a receipt, that many days ago each."""
    with opened(folder) as store, hold(store, job) as held:
        for number, ago in enumerate(days, start=1):
            moment = datetime.now(timezone.utc) - timedelta(days=ago)
            record = JobRecord(
                job, number, {"src": ColumnIntHWM("src", number)}, extras=RecordExtras(extras), modified_time=moment
            )
            receipt = Receipt(job, f"r{number}", "done", moment)
            store.commit(record, expected=number - 1, lease=held.lease, receipt=receipt)


def sizes(folder: Path, job: str) -> tuple[int, int]:
    with opened(folder) as store:
        return len(store.history(job, 100)), len(store.runs(job, 100))


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "in").mkdir()
    (folder / "floodmark.yaml").write_text(PROJECT)
    return folder


def test_what_is_older_than_the_retention_is_dropped(floodmark: Floodmark, project: Path) -> None:
    """History and runs have limits of their own."""
    aged(project, "orders", 50, 40, 15, 5, 1)
    said = floodmark("marks", "prune", "--yes")
    assert (said.code, said.out) == (0, "orders: 3 of its history, 2 of its runs\n")
    assert sizes(project, "orders") == (2, 3)
    assert floodmark("marks", "prune", "--yes").out == "nothing to prune\n"


def test_a_run_prunes_by_itself(floodmark: Floodmark, project: Path) -> None:
    """What it wrote is not what it drops; one that finds nothing new, as here, leaves all as it is."""
    aged(project, "orders", 50, 40, 15, 5, 1)
    floodmark("run")
    assert sizes(project, "orders") == (5, 5)
    (project / "floodmark.yaml").write_text(PROJECT.replace("type: files, path: in", "type: files, path: gone"))
    floodmark("run")  # it fails: the folder is not there
    assert sizes(project, "orders") == (2, 4)


def test_the_newest_are_kept_however_old(floodmark: Floodmark, project: Path) -> None:
    """`keep_at_least` is stronger than the age, and the mark is still there."""
    aged(project, "orders", 400, 399, 398)
    floodmark("marks", "prune", "--yes")
    assert sizes(project, "orders") == (2, 2)
    assert json.loads(floodmark("marks", "show", "--json").out)["marks"][0]["value"] == 3


def test_a_dry_run_counts_and_drops_nothing(floodmark: Floodmark, project: Path) -> None:
    """As one JSON document, too."""
    aged(project, "orders", 50, 40, 15, 5, 1)
    said = floodmark("marks", "prune", "--dry-run", "--json")
    assert json.loads(said.out) == {
        "pruned": [{"job": "orders", "history": 3, "runs": 2}],
        "forgotten": [],
        "open": [],
        "dry_run": True,
    }
    assert sizes(project, "orders") == (5, 5)


def test_prune_asks_and_takes_no_for_an_answer(
    floodmark: Floodmark, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is dropped."""
    aged(project, "orders", 50, 40, 15)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert floodmark("marks", "prune").code == 1
    assert sizes(project, "orders") == (3, 3)


def test_a_job_that_the_project_no_longer_has_is_forgotten_if_asked(floodmark: Floodmark, project: Path) -> None:
    """Otherwise its mark stays: a renamed job may still need it."""
    aged(project, "orders", 1)
    aged(project, "gone", 1)
    floodmark("marks", "prune", "--yes")
    assert sizes(project, "gone") == (1, 1)
    assert floodmark("marks", "prune", "--orphans", "--yes").out == "gone: everything; the project has no such job\n"
    assert (sizes(project, "gone"), sizes(project, "orders")) == ((0, 0), (1, 1))


@pytest.mark.parametrize("kept", ["workflow", "health", "healing"])
def test_what_is_no_jobs_record_is_no_orphan_and_its_history_is_cut_like_any_other(
    floodmark: Floodmark, project: Path, kept: str
) -> None:
    """A workflow's tasks, open alerts, a stream's marks: no project file names them."""
    aged(project, "billing", 50, 40, 15, 5, 1, **{kept: {}})
    said = floodmark("marks", "prune", "--orphans", "--yes")
    assert (said.out, sizes(project, "billing")) == ("billing: 3 of its history, 2 of its runs\n", (2, 3))


def test_an_orphan_with_an_open_batch_stays(floodmark: Floodmark, project: Path) -> None:
    """Rows of it may be half written: somebody has to look."""
    with opened(project) as store, hold(store, "gone") as held:
        begun = replace(with_open_intent(JobRecord("gone")), modified_time=datetime.now(timezone.utc))
        store.intend(begun, expected=0, lease=held.lease)
    said = floodmark("marks", "prune", "--orphans", "--yes")
    assert said.out.splitlines()[0] == "gone: stays, although the project has no such job: a batch of it is open"
    with opened(project) as store:
        assert store.read("gone") == begun


def test_a_running_orphan_is_not_forgotten(floodmark: Floodmark, project: Path) -> None:
    """Another project may use this namespace: exit 4."""
    aged(project, "gone", 1)
    with opened(project) as store, hold(store, "gone"):
        assert floodmark("marks", "prune", "--orphans", "--yes").code == 4
    assert sizes(project, "gone") == (1, 1)


@pytest.mark.usefixtures("project")
def test_a_store_without_tables_needs_no_preparation(floodmark: Floodmark) -> None:
    """And says so."""
    assert floodmark("marks", "init").out.endswith("nothing to prepare; the first run makes it\n")
    assert floodmark("marks", "init", "--print").code == 2


def test_the_statements_of_a_postgresql_store_are_printed_without_a_connection(
    floodmark: Floodmark, folder: Path
) -> None:
    """For somebody who may create tables; the password is not among them."""
    (folder / "floodmark.yaml").write_text("store: postgresql://u:s3cr3t@127.0.0.1:1/db?table=ops.marks\n")
    said = floodmark("marks", "init", "--print")
    assert (said.code, said.out.splitlines()[0]) == (0, 'create schema if not exists "ops";')
    assert "s3cr3t" not in said.out + said.err


def test_a_postgresql_store_is_prepared(floodmark: Floodmark, folder: Path, database: str) -> None:
    """Also as the truth below a memory; a second time changes nothing."""
    (folder / "floodmark.yaml").write_text(f"store: [memory, '{database}']\n")
    said = [floodmark("marks", "init"), floodmark("marks", "init")]
    assert [each.code for each in said] == [0, 0]
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from floodmark_marks").fetchone() == (0,)
    assert floodmark("marks", "show").out == "no marks yet\n"
