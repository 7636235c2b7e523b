"""A DAG of Airflow 3: one task for each job of the project, in their order, then health.

Put it into the DAGs folder. The workers need Floodmark and Java; the project lies in SHOP.
"""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta, timezone

from airflow.sdk import chain, dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

SHOP = os.environ.get("SHOP", "/opt/shop")
FLOODMARK = os.environ.get("FLOODMARK", f"{SHOP}/.venv/bin/floodmark")
JOBS = ("orders_bronze", "orders_silver", "revenue_gold")
WRONG_CALL, LOCKED, NEEDS_A_PERSON = 2, 4, 5


def call(*arguments: str) -> None:
    """One command. Another run that is at work skips the task; what a person has to fix or decide is not retried."""
    code = subprocess.run([FLOODMARK, *arguments], cwd=SHOP, check=False).returncode
    if code == LOCKED:
        raise AirflowSkipException("another run works on this job")
    if code in (WRONG_CALL, NEEDS_A_PERSON):
        raise AirflowFailException("a person has to fix or decide something: the log says what")
    if code != 0:
        raise RuntimeError(f"floodmark {' '.join(arguments)} ended with {code}")


@dag(
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,  # the mark knows what is missing: one run catches up
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=2)},
)
def shop() -> None:
    """The project's jobs, each after those that fill what it reads."""

    @task
    def run(job: str) -> None:
        call("run", "--select", job)

    @task(retries=0)
    def health() -> None:
        call("health")

    # A teardown runs whatever happened before it, and leaves it to the jobs whether the run of the DAG has failed.
    chain(*(run.override(task_id=job)(job) for job in JOBS), health().as_teardown())


shop()
