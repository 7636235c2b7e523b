"""What health remembers between two looks: the tables' row counts, and which alerts are open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.hwm import Json
    from floodmark.stores.contract import MarkStore

RECORD = "floodmark.health"
EXTRA = "health"


@dataclass(frozen=True)
class Remembered:
    """`counts` by table; `alerts` by alert id: their severity."""

    counts: Mapping[str, int] = field(default_factory=dict)
    alerts: Mapping[str, str] = field(default_factory=dict)


def recall(store: MarkStore) -> Remembered:
    """What the last examination left; nothing, if there was none."""
    stored = (store.read(RECORD) or JobRecord(RECORD)).extras.get(EXTRA)
    return Remembered(**stored) if isinstance(stored, dict) else Remembered()  # type: ignore[arg-type]


def remember(store: MarkStore, remembered: Remembered) -> None:
    """Keep it for the next one; unchanged, nothing is written."""
    with hold(store, RECORD) as held:
        record = store.read(RECORD) or JobRecord(RECORD)
        counts: dict[str, Json] = dict(remembered.counts)
        alerts: dict[str, Json] = dict(remembered.alerts)
        extras: dict[str, Json] = {EXTRA: {"counts": counts, "alerts": alerts}}
        if record.extras == extras:
            return
        later = replace(record, number=record.number + 1, extras=extras, modified_time=datetime.now(timezone.utc))
        store.commit(later, expected=record.number, lease=held.lease)
