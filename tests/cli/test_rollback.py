"""`floodmark rollback`: what is asked before anything is undone; the undoing itself is tested with the job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.hwm import ColumnIntHWM
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord
from tests.cli.conftest import Said

Floodmark = Callable[..., Said]
PROJECT = """store: sqlite:///marks.db
jobs:
  - name: orders
    source: {type: files, path: in}
    sinks: [{type: delta, path: lake/orders}]
"""


@pytest.fixture
def project(folder: Path) -> Path:
    """A job that committed one batch."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    store = stores.open("sqlite:///marks.db", folder=folder)
    with hold(store, "orders") as held:
        mark = {"files": ColumnIntHWM(name="seq", value=3)}
        record = JobRecord("orders", 1, mark, modified_time=datetime.now(timezone.utc))
        store.commit(record, expected=0, lease=held.lease)
    store.close()
    return folder


def test_a_dry_run_says_what_would_be_undone(project: Path, floodmark: Floodmark) -> None:
    """And starts no JVM to say it."""
    said = floodmark("rollback", "orders", "--to", "1", "--dry-run")
    assert (said.code, said.out) == (0, "would undo what job 'orders' did since 1, in its tables and its marks\n")
    assert project.exists()


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("job", "to", "named"),
    [("nobody", "1", "no job 'nobody'"), ("orders", "9", "no batch or run '9' to go back to (kept: 1)")],
)
def test_what_is_not_there_is_not_gone_back_to(floodmark: Floodmark, job: str, to: str, named: str) -> None:
    """Exit 2, with what there is."""
    said = floodmark("rollback", job, "--to", to, "--yes")
    assert (said.code, named in said.err) == (2, True)
