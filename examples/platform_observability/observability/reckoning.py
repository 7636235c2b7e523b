"""The bill by hand: what each date costs, from the system tables alone, in plain Python and without any layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from observability.lake import Lake

FRACTION = Decimal("0.00000001")


def cost_by_date(lake: Lake) -> dict[int, Decimal]:
    """By date_sk the list cost of all usage that counts."""
    prices = delivered(lake, "billing.list_prices")
    costs: dict[int, Decimal] = defaultdict(Decimal)
    for usage in counting(delivered(lake, "billing.usage")):
        price, date = price_of(usage, prices), int(f"{usage['usage_start_time']:%Y%m%d}")
        costs[date] += (usage["usage_quantity"] * (price or 0)).quantize(FRACTION, ROUND_HALF_UP)
    return dict(costs)


def counting(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every record once, originals, retractions and restatements alike; rows that break a rule have no say."""
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        is_sound = row["usage_quantity"] >= 0 or row["record_type"] == "RETRACTION"
        if row["record_id"] is not None and is_sound:
            known[row["record_id"], row["record_type"]] = row
    return list(known.values())


def price_of(usage: dict[str, Any], prices: Iterable[dict[str, Any]]) -> Decimal | None:
    """The last price that began before the usage ended."""
    begun = [
        (price["price_start_time"], price["pricing"]["effective_list"]["default"])
        for price in prices
        if price["sku_name"] == usage["sku_name"] and price["price_start_time"] <= usage["usage_end_time"]
    ]
    return max(begun)[1] if begun else None


def delivered(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Every row of a system table."""
    from deltalake import DeltaTable

    return DeltaTable(lake.system(table)).to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]
