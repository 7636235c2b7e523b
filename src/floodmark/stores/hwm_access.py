"""Marks by their own name, for users of etl-entities: a record with one mark, named as the mark is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from floodmark.hwm import HWM
    from floodmark.stores.contract import MarkStore


class HwmAccess:
    """Gives a store `get_hwm` and `set_hwm`."""

    def get_hwm(self: MarkStore, name: str) -> HWM[Any] | None:
        """The mark of that name, or the only mark of the job of that name; None if there is none."""
        record = self.read(name)
        if record is None:
            return None
        only = next(iter(record.marks.values())) if len(record.marks) == 1 else None
        return record.marks.get(name, only)

    def set_hwm(self: MarkStore, mark: HWM[Any]) -> None:
        """Save the mark under its own name, under a new number; raises LeaseHeld while a run works with it."""
        with hold(self, mark.name) as held:
            record = self.read(mark.name) or JobRecord(mark.name)
            newest = max(record.number, record.intent.number if record.intent else 0)
            marks = {**record.marks, mark.name: mark} if len(record.marks) != 1 else {next(iter(record.marks)): mark}
            changed = replace(
                record, number=newest + 1, marks=marks, intent=None, origin="set", modified_time=mark.modified_time
            )
            self.commit(changed, expected=record.number, lease=held.lease)
