"""Values show themselves: a table in a notebook, one line at the prompt, every text escaped, no secret told."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import floodmark as fm
from floodmark.hwm import ColumnIntHWM, FileListHWM
from floodmark.jobs import Plan
from floodmark.jobs.display import Preview
from floodmark.stores.record import Receipt, RuleOutcome

HOSTILE = "<script>alert(1)</script>"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def job_of(name: str = "orders") -> fm.Job:
    source = fm.sources.Postgres("postgresql://me:hunter2@host/db", table="public.orders", cursor="id", key=["id"])
    return fm.Job(name=name, source=source, sinks=[fm.sinks.Delta("/lake/orders")], rules=[fm.rules.not_null("id")])


def test_a_job_says_in_one_line_where_from_and_where_to() -> None:
    """And keeps the password of its source for itself."""
    assert repr(job_of()) == "Job(orders: Postgres public.orders → delta table /lake/orders)"


def test_a_job_in_a_notebook_names_its_rules_and_no_secret() -> None:
    """What a reader of the notebook wants to know."""
    html = job_of()._repr_html_()
    assert "not_null" in html
    assert "hunter2" not in html


def test_a_receipt_says_what_was_done() -> None:
    """At the prompt on one line."""
    receipt = Receipt("orders", "abc", "done", NOON, 2.04, 1, 7, 1200, {"lake": 1200}, mark_before=100, mark_after=1300)
    assert repr(receipt) == "Receipt(orders: done, 1200 rows read, lake 1,200, mark 100 → 1300, 2.0 s)"


def test_a_receipt_in_a_notebook_escapes_what_it_shows() -> None:
    """An error may quote a row, and a row may be anything."""
    rules = (RuleOutcome(HOSTILE, "warn", 3, 1200),)
    html = Receipt("orders", "abc", "failed", NOON, error=HOSTILE, rules=rules)._repr_html_()
    assert (HOSTILE in html, html.count("&lt;script&gt;"), "3 of 1,200 broke it" in html) == (False, 2, True)


def test_a_plan_says_what_the_next_run_would_do() -> None:
    """Or that there is nothing to do."""
    assert repr(Plan("orders", 3, 9, 6, has_work=True)) == "Plan(orders: work to do, mark 3 → 9, 6 rows)"
    assert repr(Plan("orders", 3, 3, 0)) == "Plan(orders: nothing new)"
    assert "nothing new" in Plan("orders", 3, 3, 0)._repr_html_()


def test_a_mark_shows_its_value_and_of_what_it_is() -> None:
    """Escaped as everything."""
    html = ColumnIntHWM(name="id", value=7, entity=HOSTILE, modified_time=NOON)._repr_html_()
    assert (HOSTILE in html, "7" in html, "2026-01-01 12:00:00 UTC" in html) == (False, True, True)


def test_a_mark_of_very_many_files_is_cut() -> None:
    """A notebook is no place for a megabyte."""
    mark = FileListHWM(name="files", value=[f"/data/{place}.json" for place in range(10_000)], entity="/data")
    assert len(mark._repr_html_()) < 2_000


def test_a_store_says_where_it_is_and_shows_its_marks(tmp_path: Path) -> None:
    """With its namespace: two stores of one file are not the same."""
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path, namespace="prod")
    store.set_hwm(ColumnIntHWM(name="orders", value=7))
    assert repr(store) == f"SqliteMarkStore({store.describe()}, namespace 'prod')"
    assert all(word in store._repr_html_() for word in ("orders", "column_int", ">7<"))


def test_a_preview_is_a_sequence_of_rows_that_shows_itself_as_a_table() -> None:
    """NULL is told from an empty text."""
    preview = Preview("orders", ("id", "note"), ({"id": 1, "note": None}, {"id": 22, "note": HOSTILE}))
    assert (len(preview), preview[0], preview[-1]["id"]) == (2, {"id": 1, "note": None}, 22)
    assert repr(preview).splitlines()[:3] == ["orders: 2 rows", "id  note", "1   NULL"]
    assert HOSTILE not in preview._repr_html_()
