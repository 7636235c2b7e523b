"""What becomes of a batch that was begun and not committed: finish it, plan it again, or ask."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timezone

from floodmark.errors import CodeChanged
from floodmark.hwm import Json
from floodmark.logs import get_logger
from floodmark.sinks.contract import Freezing, ledger_id
from floodmark.sources.contract import Session
from floodmark.step.looking import Ledgers, Outlook
from floodmark.step.spool import Spool
from floodmark.step.work import RunRequest, Work
from floodmark.stores.contract import MarkStore
from floodmark.stores.lease import HeldLease
from floodmark.stores.record import Intent, JobRecord

log = get_logger(__name__)


def open_intent(work: Work, record: JobRecord, ledgers: Ledgers, request: RunRequest) -> Intent | None:
    """The open batch, if it is to be finished; None if it is to be dropped and planned again.

    Raises CodeChanged where some sinks have the batch, there is no spool, and other code would write the rest.
    """
    intent = record.intent
    if intent is None or request.drops_open_batch:
        return None
    touched, now = ledgers.touched(intent.number), work.fingerprints()
    changed = [what for what in {**intent.fingerprints, **now} if intent.fingerprints.get(what) != now.get(what)]
    if not changed or request.finish:
        return intent
    if not touched:
        log.info("open batch is dropped: the code changed and no sink has it", job=work.name, number=intent.number)
        return None
    if intent.spool and Spool(intent.spool).counted():
        log.info("open batch is finished from its spool: the code changed since", job=work.name, changed=changed)
        return intent
    raise CodeChanged(work.name, number=intent.number, changed=changed, confirmed=touched)


def drop(record: JobRecord, store: MarkStore, lease: HeldLease) -> JobRecord:
    """Close an open batch without its rows. Its number is used up, so that whoever still holds it is fenced."""
    if record.intent is None:
        return record
    dropped = replace(record, number=record.intent.number, intent=None, modified_time=datetime.now(timezone.utc))
    store.commit(dropped, expected=record.number, lease=lease.lease)
    return dropped


def fence_laggards(work: Work, namespace: str, record: JobRecord, ledgers: Ledgers, session: Session) -> None:
    """Every sink has recorded the last number, or is made to: a paused run with an older one cannot write then."""
    behind = ledgers.behind(record.number)
    for sink in work.sinks:
        if sink.name in behind:
            sink.fence(ledger_id(namespace, work.name, sink.name), record.number, session)


def new_intent(
    work: Work, record: JobRecord, outlook: Outlook, ledgers: Ledgers, request: RunRequest, session: Session
) -> Intent:
    """A batch over what the look saw. Its number lies above everything that any sink has recorded."""
    number, attempt = max(record.number, ledgers.highest) + 1, new_attempt()
    return Intent(
        number=number,
        kind="refresh" if request.full_refresh else "batch",
        spans=outlook.spans,
        batch_time=datetime.now(timezone.utc),
        attempt=attempt,
        spool=spool_folder(work, number, attempt) if work.needs_spool() else None,
        fingerprints=work.fingerprints(),
        extras={
            "sources": dict(outlook.sources),
            "remember": outlook.remembered(record.extras),
            "frozen": frozen(work, session),
        },
    )


def frozen(work: Work, session: Session) -> dict[str, Json]:
    """What sinks have to find again at every attempt, as it is now."""
    return {sink.name: dict(sink.freeze(session)) for sink in work.sinks if isinstance(sink, Freezing)}


def next_attempt(work: Work, intent: Intent) -> Intent:
    """The same batch, tried again: temporary names are new, a finished spool is kept."""
    attempt = new_attempt()
    if intent.spool is None or Spool(intent.spool).counted():
        return replace(intent, attempt=attempt)
    return replace(intent, attempt=attempt, spool=spool_folder(work, intent.number, attempt))


def spool_folder(work: Work, number: int, attempt: str) -> str:
    """A folder that no other attempt writes to."""
    return f"{work.spool_folder}/{work.name}/{number}-{attempt}"


def new_attempt() -> str:
    """Short enough for names of views and folders, and never the same twice."""
    return uuid.uuid4().hex[:12]
