"""Definitions of Dagster: one asset for each table, made by `floodmark run`, with rows and mark as its metadata.

Start it with `dagster dev -f dagster_definitions.py`; the project lies in SHOP.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from dagster import (
    AssetsDefinition,
    Definitions,
    Failure,
    MaterializeResult,
    RetryPolicy,
    ScheduleDefinition,
    asset,
    define_asset_job,
)

SHOP = os.environ.get("SHOP", "/opt/shop")
FLOODMARK = os.environ.get("FLOODMARK", f"{SHOP}/.venv/bin/floodmark")
TABLES = {"orders_bronze": [], "orders_silver": ["orders_bronze"], "revenue_gold": ["orders_silver"]}
"""By job, those whose tables it reads."""
WRONG_CALL, NEEDS_A_PERSON = 2, 5


def run_job(job: str) -> dict[str, Any]:
    """Run one job, and give its receipt. What a person has to fix or decide is not tried again."""
    call = [FLOODMARK, "run", "--select", job, "--json"]
    ran = subprocess.run(call, cwd=SHOP, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Failure(ran.stderr[-2000:], allow_retries=ran.returncode not in (WRONG_CALL, NEEDS_A_PERSON))
    [receipt] = json.loads(ran.stdout)["runs"]
    return receipt


def table_of(job: str, needs: list[str]) -> AssetsDefinition:
    """The asset that a job fills."""

    @asset(name=job, deps=needs, retry_policy=RetryPolicy(max_retries=3, delay=60))
    def table() -> MaterializeResult:
        receipt = run_job(job)
        numbers = {name: receipt[name] for name in ("rows_read", "rows_refused", "seconds")}  # Dagster plots them
        texts = {name: str(receipt[name]) for name in ("status", "mark_after")}
        return MaterializeResult(metadata={**numbers, **texts})

    return table


assets = [table_of(job, needs) for job, needs in TABLES.items()]
shop = define_asset_job("shop", selection="*")
defs = Definitions(assets=assets, jobs=[shop], schedules=[ScheduleDefinition(job=shop, cron_schedule="*/15 * * * *")])
