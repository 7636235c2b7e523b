"""What a platform costs, from files to a bill, on a laptop and without a server. `make demo-platform` runs it.

Two days of made-up system tables arrive, in Databricks' own shapes; the daily workflow builds bronze, silver and gold
from them. Then rows of the first day come late, one of them a correction; the attempt to read them is killed in the
middle of a write, and the next run finishes it: only the date that was touched is built again. The end is compared with
a sum over the system tables in plain Python.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

PLATFORM = Path(__file__).parent
sys.path.insert(0, str(PLATFORM))

import floodmark as fm  # noqa: E402 - the example's folder has to be known first
from floodmark.errors import FloodmarkError  # noqa: E402
from floodmark.jobs.workflow import Library, Surroundings, WorkflowRun, read_workflow  # noqa: E402
from observability.arrivals import Arrivals, deliver  # noqa: E402
from observability.lake import HOME, Lake  # noqa: E402
from observability.reckoning import cost_by_date  # noqa: E402
from observability.tasks import all_jobs  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.jobs.workflow import TaskEnd

WORKFLOW = PLATFORM / "jobs" / "daily_observability_workflow.json"
FACT = "fact_usage_priced_day"
STEPS = 6
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Hundreds of small queries and no big one: code is not worth optimising, and there is much of it."""
SMALL = {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    # None is run often enough to be worth compiling: else Spark makes Java of every new query.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def saying(number: int, what: str) -> Iterator[None]:
    """What a step does, what it found, and how long it took."""
    print(f"[{number}/{STEPS}] {what}", flush=True)
    begun = time.monotonic()
    yield
    print(f"      {time.monotonic() - begun:.1f} s\n", flush=True)


def say(line: str) -> None:
    print(f"      {line}", flush=True)


def run_workflow(lake: Lake) -> bool:
    """The same file that Databricks would run, in this process and on one session."""
    workflow = read_workflow(WORKFLOW)
    around = Surroundings(lambda: fm.spark_session(SMALL), lake.store())
    run = WorkflowRun(workflow, Library((WORKFLOW.parent, PLATFORM)), around, report=tell, given={"home": lake.home})
    return run.go().exit_code == 0


def tell(ended: TaskEnd) -> None:
    outcome = ended.outcome
    say(f"{outcome.task:<25} {outcome.state:<8} {outcome.seconds:5.1f} s  {outcome.note or outcome.error or ''}")


def killed_attempt() -> int:
    """The first task in a process of its own, which dies by SIGKILL when half of the rows are out."""
    script = str(PLATFORM / "notebooks" / "bronze_hwm_ingest_job.py")
    environment = {**os.environ, "FLOODMARK_CRASH_AT": "during_sink:1", "JDK_JAVA_OPTIONS": SHORT_LIVED}
    return subprocess.run([sys.executable, script], env=environment, check=False).returncode


def files_by_date(lake: Lake) -> dict[str, frozenset[str]]:
    folders = sorted(Path(lake.gold(FACT)).glob("date_sk=*"))
    return {folder.name: frozenset(file.name for file in folder.glob("*.parquet")) for folder in folders}


def show_touched(before: dict[str, frozenset[str]], after: dict[str, frozenset[str]]) -> bool:
    """Which dates of the fact have files that were not there before."""
    rewritten = [date for date in after if after[date] != before.get(date)]
    for date in after:
        say(f"{date}: {'built again' if date in rewritten else 'not touched'}")
    return rewritten == ["date_sk=20261102"]


def show_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left", title_style="bold")
    for heading in headings:
        shown.add_column(
            heading, justify="right" if heading in ("cost", "broken", "of", "in the system tables") else "left"
        )
    for row in rows:
        shown.add_row(*map(str, row))
    Console(width=100).print(shown)


def read(path: str) -> DataFrame:
    return fm.spark_session().read.format("delta").load(path)


def show_chargeback(lake: Lake) -> None:
    view = read(f"{lake.views()}/chargeback_by_line_of_business").orderBy("line_of_business").collect()
    rows = [(row.line_of_business, f"{row.year}-{row.month:02}", f"{row.list_cost:,.2f}") for row in view]
    show_table("chargeback_by_line_of_business", ("line of business", "month", "cost"), rows)


def show_rules(lake: Lake) -> None:
    """Every rule that a row has broken; the others held."""
    store = lake.store()
    outcomes = [(job.name, rule) for job in all_jobs(lake) for run in store.runs(job.name, 9) for rule in run.rules]
    broken = [(job, rule.name, rule.action, rule.failed, rule.checked) for job, rule in outcomes if rule.failed]
    show_table(f"rules: {len(outcomes)} judged, broken:", ("job", "rule", "action", "broken", "of"), broken)


def show_health(lake: Lake) -> None:
    import json

    report = json.loads(Path(lake.home, "health.json").read_text())
    rows = []
    for name, check in report["checks"].items():
        found = [each["status"] for each in check["subjects"].values()]
        rows.append((name, check["status"], f"{found.count('HEALTHY')} of {len(found)} healthy"))
    show_table(f"health: {report['overall_status']}", ("check", "status", ""), rows)


def show_sums(lake: Lake) -> bool:
    """The fact against the system tables, by a sum that knows no layer."""
    expected = cost_by_date(lake)
    found = read(lake.gold(FACT)).groupBy("date_sk").sum("list_cost").collect()
    counted: dict[int, Decimal] = {row[0]: row[1] for row in found}
    rows = [(date, counted.get(date), expected[date], "equal" if counted.get(date) == expected[date] else "DIFFERENT")
            for date in sorted(expected)]  # fmt: skip
    show_table("the cost of each date", ("date", "cost", "in the system tables", ""), rows)
    good = counted == expected
    print("Nothing was lost, nothing was doubled." if good else "Something is wrong: please report this.")
    return good


def demo(lake: Lake) -> bool:
    shutil.rmtree(lake.home, ignore_errors=True)
    arrivals = Arrivals()
    with saying(1, "Two days of thirteen system tables arrive; some of their rows are bad on purpose."):
        for number in (0, 1):
            say(f"{arrivals.first.day + number} November: {deliver(lake, arrivals.day(number))} rows")
    with saying(2, "The daily workflow runs; it starts Spark, and makes 37 Delta tables and 20 views."):
        good = run_workflow(lake)
    before = files_by_date(lake)
    with saying(3, "Four rows of the first day come late. Reading them is killed (SIGKILL) in the middle of a write."):
        deliver(lake, arrivals.late(0))
        died = killed_attempt()
        say("killed, as asked" if died == -signal.SIGKILL else f"ended with {died}")
    with saying(4, "The workflow runs again: it finishes the open batch and takes what is new above every mark."):
        good = run_workflow(lake) and good
    with saying(5, f"Which dates of {FACT} have new files? The late rows touch one."):
        good = show_touched(before, files_by_date(lake)) and good
    with saying(6, "What the platform costs, what the rules found, and how it does."):
        show_chargeback(lake)
        show_rules(lake)
        show_health(lake)
        good = show_sums(lake) and good
    print(f"Look around in {Path(lake.home).name}: system, bronze, silver, gold, views, marks.db, health.json")
    return good and died == -signal.SIGKILL


def main() -> int:
    lake = Lake.at(Path(".demo-platform"))
    os.environ[HOME] = lake.home
    logging.getLogger("floodmark").setLevel("ERROR")  # what the rules found is shown at the end
    try:
        return 0 if demo(lake) else 1
    except FloodmarkError as error:
        print(f"\nError: {error.message}\nTry: {error.hint}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
