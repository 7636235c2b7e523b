"""What the record learns although nothing was read: a fence that is waited for has to outlive this process.

It is kept in the record, for a loop as for a run by itself, so that there is one place to look and a restart forgets
nothing. It is written only when a source says that there is something else to remember, so an idle tick writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from floodmark.errors import LeaseHeld
from floodmark.stores.lease import hold

if TYPE_CHECKING:
    from floodmark.step.looking import Outlook
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import JobRecord


def keep_pending(store: MarkStore, record: JobRecord, outlook: Outlook) -> None:
    """Lay what is pending over the extras of the record; marks and number stay as they are.

    A run that holds the lease looks for itself, and so does the next one if the record is another by now: both know
    better, so nothing is kept then.
    """
    extras = {**record.extras, **outlook.remembered(record.extras)}
    if extras == record.extras:
        return
    try:
        with hold(store, record.job) as lease:
            if (store.read(record.job, record) or replace(record, extras={})) == record:
                store.intend(replace(record, extras=extras), expected=record.number, lease=lease.lease)
    except LeaseHeld:
        return
