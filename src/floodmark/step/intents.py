"""The intent of a batch: how it is made, what becomes of one that was not committed, and how its kind changes the work.

A backfill, a repair and a replay of dead letters leave the mark where it is. They go through the step as every batch
does, under the job's own numbers, so a kill at any point is finished by whoever comes next: `run`, or the act itself.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timezone
from typing import TypeVar

from floodmark.errors import BatchClosed, CodeChanged, ConfigError, SinkGone, SpoolLost
from floodmark.hwm import Json
from floodmark.locations import is_remote, path_in_marks
from floodmark.logs import get_logger
from floodmark.machine import file_name
from floodmark.rules import Rule, RuleSet
from floodmark.sinks.contract import AtOnce, Batch, EndsTransactions, Forgetting, Freezing, Sink, ledger_id
from floodmark.sinks.modes import TableSink
from floodmark.sources.contract import Session
from floodmark.step.batch import expected_size, frozen_dead
from floodmark.step.looking import Ledgers, Outlook, has_batch, read_ledgers, with_ledger
from floodmark.step.refused import SavedRecords
from floodmark.step.set_aside import Letters
from floodmark.step.spool import Spool
from floodmark.step.transform import Identity
from floodmark.step.work import ASIDE, KEY_OF_ASIDE, OUTSIDE_KINDS, SOURCE, RunRequest, Work
from floodmark.stores.extras import IntentExtras, OutsideBatch, SinkLedger
from floodmark.stores.record import Intent, IntentKind, JobRecord

log = get_logger(__name__)
Part = TypeVar("Part")
HOST = "@"
"""In the name of a local spool it stands before the host that has it."""
GONE = "_fm_gone"
"""Tells a repair's rows that delete their key from those that are put in place."""


def new_intent(
    work: Work, record: JobRecord, outlook: Outlook, ledgers: Ledgers, request: RunRequest, session: Session
) -> Intent:
    """A batch over what the look saw. Its number lies above everything that any sink has recorded."""
    number, attempt = max(record.number, ledgers.highest) + 1, new_attempt()
    at_once = at_once_options(work, outlook, session)
    return Intent(
        number=number,
        kind="refresh" if request.full_refresh else "batch",
        spans=outlook.spans,
        batch_time=datetime.now(timezone.utc),
        attempt=attempt,
        spool=spool_folder(work, number, attempt) if not at_once and work.why_spooled() else None,
        fingerprints=work.fingerprints(),
        extras=IntentExtras(
            sources=outlook.sources,
            remember=outlook.extras_after(record.extras),
            frozen_options=at_once or frozen_options(work, session),
        ),
    )


def frozen_options(work: Work, session: Session) -> dict[str, dict[str, Json]]:
    """What sinks have to find again at every attempt, as it is now."""
    return {sink.name: dict(sink.freeze(session)) for sink in work.sinks if isinstance(sink, Freezing)}


def at_once_options(work: Work, outlook: Outlook, session: Session) -> dict[str, dict[str, Json]] | None:
    """What the only sink settles for a batch so small that it takes it in one transaction, as others are taken always.

    Then nobody compares two attempts, and rows that may be others the second time need not be kept. None else.
    """
    sink = work.sinks[-1] if len(work.sinks) == 1 else None  # a mill may have none
    if not isinstance(sink, AtOnce) or work.why_spooled(at_once=True):
        return None
    frozen = sink.freeze_at_once(session, expected_size(work, outlook))
    return None if frozen is None else {sink.name: dict(frozen)}


def open_intent(
    work: Work, intent: Intent, ledgers: Ledgers, request: RunRequest, session: Session, flaw: str | None
) -> Intent | None:
    """The open batch, if it is to be finished; None if it is to be dropped and planned again. `flaw` is its spool's.

    Raises CodeChanged where some sinks have the batch, there is no spool, and other code would write the rest;
    BatchClosed where some have it and others were fenced against it, since nobody can write it there any more;
    SinkGone where it would be dropped and a sink that may have it is not in the job any more.
    """
    touched, closed = ledgers.sinks_touched_by(intent.number), ledgers.sinks_closed_to(intent.number)
    if closed and touched:
        raise BatchClosed(work.name, number=intent.number, closed=closed, confirmed=touched)
    changed = work.changes_since(intent, session)
    if not closed and (not changed or request.finish) and has_rows(work, intent, touched, request, flaw):
        return intent
    if not touched:
        require_all_asked(work, intent, ledgers)
        reason = "the code changed" if changed else "its spool is lost"
        why = "it was fenced to be dropped" if closed else f"{reason} and no sink has it"
        log.info("open batch is dropped", job=work.name, number=intent.number, why=why)
        return None
    if has_rows(work, intent, touched, request, flaw) and is_whole_in_spool(intent, changed):
        log.info("open batch is finished from its spool: the code changed since", job=work.name, changed=changed)
        return intent
    raise CodeChanged(work.name, number=intent.number, changed=changed, confirmed=touched)


def spool_flaw(intent: Intent) -> str | None:
    """Why the spool of the batch cannot stand for it; None if it can, or has none. Every part of it is looked at."""
    return Spool(intent.spool).flaw() if intent.spool else None


def has_rows(work: Work, intent: Intent, touched: Sequence[str], request: RunRequest, flaw: str | None) -> bool:
    """Whether the rows of the open batch can still be had: from its spool, or from the source if no sink has them yet.

    Sinks are written only from a finished spool, so one that is not what it was while a sink has the batch is lost:
    raises SpoolLost, unless somebody accepts that the rest is read again. While none has it, a spool that was never
    finished is made anew. One that was, or that is gone or may lie on another host, may be in the hands of a run that
    is paused: such a batch is dropped, which fences it. So is a repair, whose rows are nowhere else.
    """
    if intent.spool is None or flaw is None:
        return True
    is_repair = intent.kind == "repair"
    if touched and (is_repair or not request.finish):
        raise SpoolLost(work.name, number=intent.number, spool=intent.spool, flaw=flaw, confirmed=touched)
    is_kept = bool(touched) or not (is_repair or lies_elsewhere(intent.spool) or Spool(intent.spool).may_be_in_use())
    log.info("the spool of the open batch is given up", job=work.name, number=intent.number, flaw=flaw, kept=is_kept)
    return is_kept


def is_whole_in_spool(intent: Intent, changed: Sequence[str]) -> bool:
    """Whether the spool is all that finishing it takes: records that could not be parsed may have to be read again.

    Rows that are put aside elsewhere since may lie in the first place already, and cannot be asked for there.
    """
    counts = Spool(intent.spool).stored_counts() if intent.spool else None
    if counts is None or any(what.startswith(ASIDE) for what in changed):
        return False
    is_other_source = any(what.startswith(SOURCE) for what in changed)
    return not (counts.dead and is_other_source) or frozen_dead(intent).has_counts()


def require_all_asked(work: Work, intent: Intent, ledgers: Ledgers) -> None:
    """Every sink that may have the batch is in the job. Raises SinkGone.

    Sinks are written in order: one that is asked and does not have the batch answers for all behind it.
    """
    now = {sink.name: sink.describe() for sink in work.sinks}
    for name, ledger in (intent.extras.sinks or {}).items():
        if now.get(name) != ledger.target:
            raise SinkGone(work.name, sink=name, target=ledger.target, number=intent.number)
        if not has_batch(ledgers.by_sink.get(name), intent.number):
            return


def next_attempt(work: Work, intent: Intent, flaw: str | None) -> Intent:
    """The same batch, tried again: temporary names are new, a finished spool is kept."""
    attempt = new_attempt()
    if intent.spool is None or flaw is None:
        return replace(intent, attempt=attempt)
    return replace(intent, attempt=attempt, spool=spool_folder(work, intent.number, attempt))


def spool_folder(work: Work, number: int, attempt: str) -> str:
    """A folder that no other attempt writes to; on a local disk with the host in its name, since others have theirs."""
    folder = path_in_marks(f"{work.spool_folder}/{work.name}/{number}-{attempt}")
    return folder if is_remote(folder) else f"{folder}{HOST}{file_name(platform.node())}"


def lies_elsewhere(spool: str) -> bool:
    """Whether another host made this spool, on a disk that is not seen from here."""
    _, mark, host = spool.rpartition("/")[2].partition(HOST)
    return bool(mark) and host != file_name(platform.node())


def new_attempt() -> str:
    """Short enough for names of views and folders, and never the same twice."""
    return uuid.uuid4().hex[:12]


def make_ledgers_good(work: Work, batch: Batch, session: Session) -> None:
    """Half a batch must not be taken for none because its ledger was forgotten meanwhile."""
    for sink in work.sinks:
        if isinstance(sink, Forgetting):
            sink.make_good(batch, session)


def end_transactions(work: Work, namespace: str, session: Session) -> None:
    """A run that was killed in the middle of a write may have left something open that hides what a sink has."""
    for sink in work.sinks:
        if isinstance(sink, EndsTransactions):
            sink.end_transactions(ledger_id(namespace, work.name, sink.name), session)


def fence_below(work: Work, namespace: str, number: int, session: Session) -> Ledgers:
    """What every sink has recorded, once each has this number, or a fence: a paused run with it cannot write then.

    Where every entry is as expected the ledgers are read once and nothing is written. Dead letters and quarantine are
    left out, which are behind as a rule.
    """
    return _fence_those_below({sink.name: sink for sink in work.sinks}, work, namespace, number, session)


def fence_all_below(work: Work, namespace: str, number: int, session: Session) -> Ledgers:
    """The same, dead letters and quarantine included: for a batch that is given up although sinks may have it."""
    return _fence_those_below(work.by_key(), work, namespace, number, session)


def _fence_those_below(
    by_key: Mapping[str, Sink], work: Work, namespace: str, number: int, session: Session
) -> Ledgers:
    ledgers = read_ledgers(work, namespace, session)
    below = ledgers.sinks_below(by_key, number)
    fence_each(below, work.name, namespace, number, session)
    return read_ledgers(work, namespace, session) if below else ledgers


def fence_each(sinks: Sequence[Sink], job: str, namespace: str, number: int, session: Session) -> None:
    """Take the number in each of these sinks of a job, in their order."""
    for sink in sinks:
        sink.fence(ledger_id(namespace, job, sink.name), number, session)


def fence_open_batch(work: Work, record: JobRecord, namespace: str, session: Session) -> Ledgers:
    """What the sinks have once nobody can write any more what the record knows of: for who decides where to go on.

    A batch that is open is given up, under the names that its sinks had then, and with what it would put aside.
    """
    if record.intent is None:
        return fence_below(work, namespace, record.number, session)
    begun = named_as_begun(work, record.intent)
    end_transactions(begun, namespace, session)
    return fence_all_below(begun, namespace, record.highest_number, session)


def fence_until_found(work: Work, namespace: str, number: int, session: Session) -> Ledgers:
    """Fence the sinks against a batch that is to be dropped, up to the first that turns out to have it; then ask all.

    Sinks are written in order, and a run that finds its number fenced stops: the first fence closes all that follow,
    dead letters and quarantine too. One that has the batch means that it may have to be finished, so those behind it
    stay open to it.
    """
    for sink in with_ledger(work.sinks) or with_ledger(work.aside_sinks):
        ledger = ledger_id(namespace, work.name, sink.name)
        sink.fence(ledger, number, session)
        if has_batch(sink.recorded(ledger, session), number):
            break
    return read_ledgers(work, namespace, session)


def outside_intent(intent: Intent, kind: IntentKind, extras: IntentExtras, work: Work) -> Intent:
    """The batch as one that leaves the mark alone; it is held to the code of the work as that kind does it."""
    outside = replace(intent, kind=kind, extras=extras)
    return replace(outside, fingerprints=work_of(outside, work).fingerprints())


def named_as_begun(work: Work, intent: Intent | None) -> Work:
    """The work with the names that its sinks had when the batch was begun: a sink is known by its target.

    Under another name it would be asked in a ledger that it never wrote, and would get the batch again.
    """
    return named_by_target(work, (intent.extras.sinks or {}) if intent else {})


def named_by_target(work: Work, ledgers: Mapping[str, SinkLedger]) -> Work:
    """The work with each sink under the name that its target has here; the work itself if no name is another."""
    targets = {ledger.target: name for name, ledger in ledgers.items() if not name.startswith(KEY_OF_ASIDE)}
    known = [sink for sink in work.sinks if targets.get(sink.describe(), sink.name) != sink.name]
    if not known:
        return work
    renamed = {sink.name: with_options(sink, name=targets[sink.describe()]) for sink in known}
    taken = {sink.name for sink in renamed.values()}
    # A new sink that has the old name of another one begins with the next batch.
    others = [sink.name for sink in work.sinks if sink.name not in renamed and sink.name not in taken]
    sinks = tuple(renamed.get(s.name, s) for s in work.sinks if s.name in renamed or s.name in others)
    return replace(work, sinks=sinks)


def work_of(intent: Intent, work: Work) -> Work:
    """The job's work as this batch does it; the work itself for a batch that raises the mark."""
    work = named_as_begun(work, intent)
    if intent.kind not in OUTSIDE_KINDS:
        return work
    outside = intent.extras.outside or OutsideBatch()
    ordered = tuple(
        with_options(sink, sequence=outside.sequences[sink.name]) if outside.sequences.get(sink.name) else sink
        for sink in work.sinks
    )
    if intent.kind == "backfill":
        return replace(work, sinks=ordered)
    if intent.kind == "replay":
        again = replace(work, sinks=ordered, sources=(replay_source(intent, outside, work),))
        return as_written(again) if outside.kind == "quarantine" else again
    # A repair's rows were read from the source again: the sink believes them, whatever is stored.
    chosen = tuple(repairing(sink) for sink in work.sinks if sink.name == outside.sink)
    if not chosen:
        raise ConfigError(
            f"a repair of sink '{outside.sink}' of job '{work.name}' is open, and the job has no such sink any more.",
            hint=f"bring the sink back, or `floodmark run --select {work.name} --abandon`",
        )
    return replace(work, sinks=chosen, rules=RuleSet())


def repairing(sink: Sink) -> Sink:
    """The sink as it believes the rows of a repair; one that keeps deleted keys keeps those of the repair, too."""
    sequence = sink.sequence if isinstance(sink, TableSink) and sink.delete_when else ()
    return with_options(with_options(sink, _deleted_by=sequence), sequence=(), delete_when=GONE)


def replay_source(intent: Intent, outside: OutsideBatch, work: Work) -> SavedRecords:
    """What a replay reads: the rows that were put aside, as they were when it was begun."""
    letters, unread = Letters.of(work, intent.number, outside.kind), Spool(f"{intent.spool}-unread")
    return SavedRecords(work.sources[0], letters, outside.letters, unread, outside.where, outside.changes, work.rules)


def as_written(work: Work) -> Work:
    """The work for rows that are past the transform and judged already: their rules have nothing left but to warn."""
    rules: tuple[Rule, ...] = tuple(with_options(rule, action="warn") for rule in work.rules.rules)
    return replace(work, transform=Identity(), rules=RuleSet(rules))


def with_options(part: Part, **options: object) -> Part:
    """A copy of a sink or rule with other options; one that does not have them stays as it is."""
    if not is_dataclass(part) or isinstance(part, type) or not options.keys() <= {each.name for each in fields(part)}:
        return part
    return replace(part, **options)
