"""What a turn of a stream leaves to read: its receipt, and which records keep its marks from moving."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from floodmark.hwm import HWM, Json
from floodmark.probes.kafka import Place
from floodmark.step.summary import Clock
from floodmark.step.work import shown
from floodmark.stores.record import JobRecord, Receipt
from floodmark.streams.failures import Failed
from floodmark.streams.outcomes import Range
from floodmark.streams.tries import FailedRecords
from floodmark.streams.turn import Tallied


def receipt_of(
    record: JobRecord,
    marks: Mapping[str, HWM[Any]],
    reads: Mapping[Place, Range],
    tallied: Iterable[Tallied],
    clock: Clock,
    *,
    dead: int,
    notes: Sequence[str],
) -> Receipt:
    """What a turn did."""
    own = tuple(tallied)
    span: dict[str, Json] = {f"{topic}/{part}": [low, high] for (topic, part), (low, high) in sorted(reads.items())}
    return Receipt(
        job=record.job,
        run=uuid.uuid4().hex[:12],
        status="done",
        started=clock.started,
        seconds=clock.elapsed(),
        batches=1,
        number=record.intent.number if record.intent else record.number,
        rows_read=sum(each.taken for each in own),
        rows_written={"healed": sum(each.healed for each in own)},
        rows_refused=sum(each.dropped for each in own),
        rows_dead=dead,
        rows_held_back=sum(each.failed + len(each.held) for each in own),
        mark_before=shown(record.marks),
        mark_after=shown(marks),
        span=span,
        durations=dict(clock.seconds),
        notes=tuple(notes),
    )


def stuck_lines(failed: FailedRecords, now: float) -> list[str]:
    """Which records keep the marks from moving, the first of each partition before the others."""
    every = [(place, each) for place, own in failed.items() for each in own.values()]
    firsts = {place: min(own) for place, own in failed.items() if own}
    ordered = sorted(every, key=lambda entry: (entry[1].offset != firsts[entry[0]], entry[0], entry[1].offset))
    return [stuck_line(place, each, now) for place, each in ordered]


def stuck_line(place: Place, failed: Failed, now: float) -> str:
    """One of them: where it is, since when, how often it was tried, and why it failed."""
    age, times = round(now - failed.first_at), failed.attempts
    tried = f"{times} attempts" if times > 1 else "1 attempt"
    return f"{place[0]}/{place[1]}, offset {failed.offset}, since {age} s, {tried}: {failed}"
