"""The bill by hand: what each date costs, from the delivered files alone, in plain Python and without any layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from observability.lake import Lake

FRACTION = Decimal("0.00000001")


def cost_by_date(lake: Lake) -> dict[int, Decimal]:
    """By date_sk the list cost of all usage that counts."""
    prices = delivered(lake, "billing_list_prices")
    costs: dict[int, Decimal] = defaultdict(Decimal)
    for usage in counting(delivered(lake, "billing_usage")):
        price, date = price_of(usage, prices), int(f"{usage['usage_start_time']:%Y%m%d}")
        costs[date] += (usage["usage_quantity"] * (price or 0)).quantize(FRACTION, ROUND_HALF_UP)
    return dict(costs)


def counting(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last word on every record, unless that takes it back; rows that break a rule have no say."""
    last: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["change_time"]):
        if row["record_id"] is not None and row["usage_quantity"] >= 0:
            last[row["record_id"]] = row
    return [row for row in last.values() if row["record_type"] != "RETRACTION"]


def price_of(usage: dict[str, Any], prices: Iterable[dict[str, Any]]) -> Decimal | None:
    """The last price that began before the usage."""
    begun = [
        (price["price_start_time"], price["list_price"])
        for price in prices
        if price["sku_name"] == usage["sku_name"] and price["price_start_time"] <= usage["usage_start_time"]
    ]
    return max(begun)[1] if begun else None


def delivered(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Every row of every file."""
    import pyarrow.parquet as pq

    files = sorted(Path(lake.incoming(table)).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
