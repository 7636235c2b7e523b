"""A store with very many receipts: a page parses those that it shows, and not what else is kept."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from floodmark import stores
from floodmark.lineage.queries import query_tree
from floodmark.stores.record import Receipt
from floodmark.stores.run_index import receipt_in
from tests.web.conftest import Site, serving
from tests.web.prepared import insert_receipts

JOBS, RUNS = 20, 1000
JOB = """\
  - name: job{number}
    source: {{type: files, path: incoming, format: jsonl, schema: "id long"}}
    sinks: [{{name: lines, type: console}}]
"""


@pytest.fixture(scope="module")
def busy_site(tmp_path_factory: pytest.TempPathFactory) -> Site:  # type: ignore[misc]
    """Pages over twenty jobs with a thousand receipts each: the last run of each is done, every tenth failed."""
    folder = tmp_path_factory.mktemp("busy")
    jobs = "".join(JOB.format(number=number) for number in range(JOBS))
    (folder / "floodmark.yaml").write_text(f"store: sqlite:///marks.db\njobs:\n{jobs}")
    store = stores.open("sqlite:///marks.db", folder=folder)
    begun = datetime.now(timezone.utc) - timedelta(minutes=RUNS)
    store.add_run(Receipt("job0", "first", "done", begun - timedelta(days=1)))
    store.close()
    insert_receipts(
        folder / "marks.db",
        (
            Receipt(
                f"job{job}", f"{turn:04}of{job}", "done" if turn % 10 else "failed",
                begun + timedelta(minutes=turn, seconds=job), 0.5, 1, turn, 10,
            )
            for turn in range(1, RUNS)
            for job in range(JOBS)
        ),
    )  # fmt: skip
    with serving(folder) as served:
        yield served


def parsed_for(site: Site, path: str, words: str) -> int:
    """How many receipts were parsed anew for a page that has these words."""
    before = receipt_in.cache_info().misses
    answer = site.get(path)
    assert (answer.status, words in answer.text) == (200, True), answer.text[:500]
    return receipt_in.cache_info().misses - before


def test_a_page_parses_only_the_receipts_that_it_shows(busy_site: Site) -> None:
    """All of 20,000 would take seconds."""
    receipt_in.cache_clear()
    assert parsed_for(busy_site, "/", "20 jobs, none failed") <= 31 * JOBS  # the newest 300 of all jobs, twice
    assert parsed_for(busy_site, "/runs", "What the last run changed") <= 2
    assert parsed_for(busy_site, "/metrics", 'pipeline_error_count{job="job7"} 99.0') <= JOBS
    assert parsed_for(busy_site, "/runs/0002of7", "Run 0002of7") == 1


MANY_JOBS, FEW_RUNS = 200, 20
SQL_JOB = """\
  - name: job{number}
    source: {{type: files, path: incoming, format: jsonl, schema: "id long"}}
    transform: {{sql: "select id + {number} as next from source where id > 0"}}
    sinks: [{{name: lines, type: console}}]
"""


@pytest.mark.parametrize("store", ["sqlite:///marks.db", "file:marks"])
@pytest.mark.slow
def test_the_first_page_of_many_jobs_reads_the_newest_receipts_and_each_sql_once(tmp_path: Path, store: str) -> None:
    """The overview has the last run of each job and the newest of all; older runs are compared without being parsed."""
    jobs = "".join(SQL_JOB.format(number=number) for number in range(MANY_JOBS))
    (tmp_path / "floodmark.yaml").write_text(f"store: {store}\njobs:\n{jobs}")
    add_runs(tmp_path, store)
    with serving(tmp_path) as site:
        receipt_in.cache_clear()
        query_tree.cache_clear()
        assert parsed_for(site, "/", "200 jobs, none failed") <= 6 * MANY_JOBS
        assert query_tree.cache_info().misses == MANY_JOBS
        assert parsed_for(site, "/metrics", 'pipeline_error_count{job="job7"} 2.0') == 0


def add_runs(folder: Path, store: str) -> None:
    """Twenty receipts of each job; every tenth failed."""
    begun = datetime.now(timezone.utc) - timedelta(minutes=FEW_RUNS)
    receipts = (
        Receipt(
            f"job{job}", f"{turn}of{job}", "failed" if turn % 10 == 5 else "done",
            begun + timedelta(minutes=turn, milliseconds=job), 0.5, 1, turn, 10,
        )
        for turn in range(FEW_RUNS)
        for job in range(MANY_JOBS)
    )  # fmt: skip
    opened = stores.open(store, folder=folder)
    for receipt in receipts:
        opened.add_run(receipt)
    opened.close()


def test_the_first_page_draws_the_last_runs_of_every_job(busy_site: Site) -> None:
    """The newest runs of all jobs together would leave most of them without a bar."""
    strips = re.findall(r'<svg class="strip" role="img" aria-label="([^"]*)"', busy_site.get("/").text)
    assert strips == ["30 runs, 3 failed"] * JOBS


def test_numbers_that_are_asked_for_again_are_counted_once(busy_site: Site) -> None:
    """A job that did not run in between has the same numbers."""
    first = busy_site.get("/metrics").text
    assert 'pipeline_start_count{job="job7"} 999.0' in first
    assert 'pipeline_retry_count{job="job7"} 99.0' in first
    assert parsed_for(busy_site, "/metrics", 'pipeline_start_count{job="job7"} 999.0') == 0


def test_any_run_that_is_kept_is_found_by_its_id(busy_site: Site) -> None:
    """Also one that is older than ten thousand others; what is not there is said with runs that are."""
    assert busy_site.get("/runs/first").status == 200
    missing = busy_site.get("/runs/0999of99")
    assert (missing.status, "0999of" in missing.text) == (404, True)
