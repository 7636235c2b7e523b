"""The look: is there anything above the mark, and may this job go on from it? Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.errors import MarkMissing, SinkAhead, SinkBehind, SinkDisagrees, SinkShared, SourceChanged
from floodmark.hwm import HWM, Span, is_same_batch
from floodmark.sinks.contract import AtLeastOnce, Forgetting, Piecemeal, Recorded, Sink, ledger_id
from floodmark.sources.contract import Request, Session, Sight, Source
from floodmark.step.work import KEY_OF_ASIDE, OUTSIDE_KINDS, RunRequest, Work
from floodmark.stores.extras import RecordExtras, RecordIdentity, SinkLedger, SourceMemory
from floodmark.stores.record import Intent, JobRecord


@dataclass(frozen=True)
class Outlook:
    """What all sources of a job showed: the spans of the next batch, and what has to wait."""

    sights: Mapping[str, Sight]
    sources: Mapping[str, str]

    @property
    def spans(self) -> dict[str, Span]:
        return {name: sight.span for name, sight in self.sights.items() if sight.span}

    @property
    def is_empty(self) -> bool:
        return not self.spans

    @property
    def held_back(self) -> int:
        return sum(sight.held_back for sight in self.sights.values())

    @property
    def held_reason(self) -> str | None:
        return "; ".join(sight.held_reason for sight in self.sights.values() if sight.held_reason) or None

    @property
    def idle_notes(self) -> tuple[str, ...]:
        """Why rows wait, if any do."""
        return (self.held_reason,) if self.held_reason else ()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for sight in self.sights.values() for note in sight.notes)

    @property
    def expected_rows(self) -> int | None:
        known = [sight.expected_rows for sight in self.sights.values() if sight.span]
        return None if None in known else sum(rows for rows in known if rows is not None)

    @property
    def expected_bytes(self) -> int | None:
        """Of all sources; None where one is not of files."""
        known = [sight.expected_bytes for sight in self.sights.values() if sight.span]
        return None if None in known else sum(size for size in known if size is not None)

    @property
    def ahead(self) -> float | None:
        """The largest share that is left for later batches."""
        return max((s.ahead for s in self.sights.values() if s.ahead is not None), default=None)

    @property
    def settles_in_seconds(self) -> float | None:
        return max((s.settles_in_seconds for s in self.sights.values() if s.settles_in_seconds), default=None)

    def extras_after(self, before: RecordExtras) -> RecordExtras:
        """What the record has to know of each source after this look, with the spans committed if there are any."""
        extras = RecordExtras()
        for name, sight in self.sights.items():
            if sight.span or sight.pending:
                known = sight.extras if sight.span else before.source(name).extras
                extras = extras.with_source(name, SourceMemory(known, sight.pending))
        return extras


def look(work: Work, record: JobRecord, request: RunRequest, session: Session) -> Outlook:
    """Every source above its mark, as it is at this moment. Raises SourceChanged."""
    sources = {source.name: source.fingerprint(session) for source in work.sources}
    if not request.full_refresh:
        require_same_sources(work, record, sources)
    marks = {} if request.full_refresh else record.marks
    requests = {source.name: source_request(source, record, request) for source in work.sources}
    sights = {each.name: each.look(marks.get(each.name), requests[each.name], session) for each in work.sources}
    return Outlook(sights, sources)


def source_request(source: Source, record: JobRecord, request: RunRequest) -> Request:
    """What one source is asked, with what the record remembers of it; a refresh looks from the beginning."""
    waits = request.waits_for_settling
    if request.full_refresh:
        return Request(whole=True, waits=waits)
    memory = record.extras.source(source.name)
    pending = memory.pending if request.start is None else {}
    return Request(request.start, request.max_rows, waits=waits, extras=memory.extras, pending=pending)


def require_same_sources(work: Work, record: JobRecord, found: Mapping[str, str]) -> None:
    """A mark of another source says nothing about this one."""
    for source, fingerprint in found.items():
        stored = record.sources.get(source)
        if source in record.marks and stored is not None and stored != fingerprint:
            raise SourceChanged(work.name, stored=stored, found=fingerprint)


@dataclass(frozen=True)
class Ledgers:
    """What every sink has recorded for this job; sinks that keep no ledger are left out.

    A fence took a number without rows: it never means that a sink has a batch.
    """

    by_sink: Mapping[str, Recorded | None]
    parts: Mapping[str, int] = field(default_factory=dict)
    """Sinks that have part of a batch, and which."""
    aside: Mapping[str, Recorded | None] = field(default_factory=dict)
    """The same of dead letters and quarantine, by their keys; they are behind as a rule: few batches put rows aside."""

    @property
    def by_key(self) -> Mapping[str, Recorded | None]:
        """All of them; a sink may be called as the quarantine is."""
        return {**self.by_sink, **self.aside}

    @property
    def entries(self) -> tuple[tuple[str, Recorded | None], ...]:
        """All of them by the names that people know."""
        return tuple((name_of(key), entry) for key, entry in self.by_key.items())

    @property
    def highest(self) -> int:
        """No number up to this is free, fences included: a sink, or the dead letters, would take it for a repeat."""
        return max((entry.number for _, entry in self.entries if entry), default=0)

    def sinks_with(self, number: int) -> list[str]:
        return [sink for sink, entry in self.by_sink.items() if has_batch(entry, number)]

    def sinks_touched_by(self, number: int) -> list[str]:
        """Sinks that have this batch, or part of it; what was put aside counts, for it would be put aside twice."""
        parts = [sink for sink, part in self.parts.items() if part == number]
        aside = [name_of(key) for key, entry in self.aside.items() if has_batch(entry, number)]
        return list(dict.fromkeys([*self.sinks_with(number), *parts, *aside]))

    def sinks_closed_to(self, number: int) -> list[str]:
        """Sinks where a fence took this number: the batch cannot be written there any more."""
        return [sink for sink, entry in self.entries if entry and entry.is_fence and entry.number >= number]

    def sinks_below(self, by_key: Mapping[str, Sink], number: int) -> list[Sink]:
        """Those that have not recorded this number: a paused run that has it, or a lower one, could still write."""
        entries = self.by_key
        return [sink for key, sink in by_key.items() if key in entries and number_in(entries[key]) < number]


def name_of(key: str) -> str:
    """What people call the sink that the record knows by this key."""
    return key.removeprefix(KEY_OF_ASIDE)


def has_batch(entry: Recorded | None, number: int) -> bool:
    """Whether the entry is of this batch, or of a later one."""
    return entry is not None and not entry.is_fence and entry.number >= number


def number_in(entry: Recorded | None) -> int:
    """The number that was recorded; the first batch is 1."""
    return entry.number if entry else 0


def with_ledger(sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Those that can tell a repeat, in the order in which they are written."""
    return tuple(sink for sink in sinks if not isinstance(sink, AtLeastOnce))


def read_ledgers(work: Work, namespace: str, session: Session) -> Ledgers:
    """Ask every sink what it has; a few milliseconds each, and only when there is work."""
    sinks = with_ledger(work.sinks)
    ids = {sink.name: ledger_id(namespace, work.name, sink.name) for sink in work.all_sinks}
    found = {key: sink.recorded(ids[sink.name], session) for key, sink in keyed_ledgers(work).items()}
    recorded, aside = ({key: found[key] for key in found if (key in ids) is is_sink} for is_sink in (True, False))
    parts = {s.name: s.partial_batch(ids[s.name], session) for s in sinks if isinstance(s, Piecemeal)}
    return Ledgers(recorded, {sink: number for sink, number in parts.items() if number is not None}, aside)


def keyed_ledgers(work: Work) -> dict[str, Sink]:
    """Everything of the job that can tell a repeat, by the key under which the record keeps what it confirmed."""
    return {key: sink for key, sink in work.by_key().items() if not isinstance(sink, AtLeastOnce)}


def ledgers_of(work: Work, namespace: str, number: int, aside: Iterable[Sink] = ()) -> dict[str, SinkLedger]:
    """Where the batch of this number is recorded, by key; `aside` are those of dead letters and quarantine with it."""
    sinks = (*work.sinks, *aside)
    known = {key: sink for key, sink in keyed_ledgers(work).items() if any(sink is each for each in sinks)}
    return {k: SinkLedger(ledger_id(namespace, work.name, s.name), s.describe(), number) for k, s in known.items()}


def sinks_behind(work: Work, namespace: str, record: JobRecord, ledgers: Ledgers) -> dict[str, SinkBehind]:
    """By key, sinks that do not have what they had confirmed, dead letters and quarantine among them."""
    entries = ledgers.by_key
    found = {k: sink_behind(sink, namespace, record, entries[k], k) for k, sink in keyed_ledgers(work).items()}
    return {key: behind for key, behind in found.items() if behind is not None}


def sink_behind(sink: Sink, namespace: str, record: JobRecord, entry: Recorded | None, key: str) -> SinkBehind | None:
    """What the sink lost of what it had confirmed. One with another target is a new one, unless it has an entry.

    Behind a fence it is the batch below that counts; where that is not known, a fence at the very number that was
    confirmed came after the batch was lost. Unless we had to make one: for a new target, and for a ledger that the
    server forgot.
    """
    last = last_confirmed(sink, namespace, record, key)
    if last is None:
        return None
    is_same = last.target == sink.describe() and not isinstance(sink, Forgetting)
    number = number_in(entry)
    if is_same and entry is not None and entry.is_fence:
        number = entry.before if entry.before is not None else number - (number == last.number)
    if number >= last.number:
        return None
    if entry is None and (last.target != sink.describe() or is_forgotten(sink, last.id)):
        return None
    found = number if entry and number else None
    return SinkBehind(record.job, sink=sink.name, target=sink.describe(), recorded=found, confirmed=last.number)


def confirmed_numbers(by_key: Mapping[str, Sink], record: JobRecord, namespace: str) -> dict[str, int]:
    """What each sink of today had confirmed in the same target; one that may forget its ledger is not held to it."""
    lasting = {key: sink for key, sink in by_key.items() if not isinstance(sink, Forgetting)}
    found = [(sink, last_confirmed(sink, namespace, record, key)) for key, sink in lasting.items()]
    return {sink.name: last.number for sink, last in found if last and last.target == sink.describe()}


def last_confirmed(sink: Sink, namespace: str, record: JobRecord, key: str) -> SinkLedger | None:
    """The last batch that the sink confirmed under the id of today, in whichever target.

    What was put aside stood under its plain name once, which may be that of a sink.
    """
    known = record.extras.sinks
    last = known.get(key) or known.get(sink.name)
    if last is None or last.id != ledger_id(namespace, record.job, sink.name):
        return None
    return last if key in known or last.target == sink.describe() else None


def is_forgotten(sink: Sink, ledger: str) -> bool:
    """Whether the sink may have lost the ledger alone, and none of the rows."""
    return isinstance(sink, Forgetting) and sink.may_have_forgotten(ledger)


def require_agreement(work: Work, namespace: str, record: JobRecord, ledgers: Ledgers) -> None:
    """A sink may never know more than the store, nor less than it confirmed, nor something else under a number.

    A fence above the store's number is more, too: it hides whether batches below it are in the sink. Our own are never
    above it, except while a rollback is under way.
    Without a record there is nothing to agree with: then `require_a_beginning` decides by what the target holds.
    """
    if replace(record, extras=RecordExtras()) == JobRecord(work.name):  # a first look may leave a fence and no mark
        return
    for shared in sinks_shared(work, record, ledgers).values():
        raise shared
    expected = record.highest_number
    for sink, entry in ledgers.entries:
        if entry and entry.number > expected:
            raise SinkAhead(work.name, sink=sink, recorded=entry.number, stored=record.number)
        if entry and record.intent and entry.number == expected:
            require_same_digest(work.name, sink, entry, record.intent)
    for behind in sinks_behind(work, namespace, record, ledgers).values():
        raise behind


def sinks_shared(work: Work, record: JobRecord, ledgers: Ledgers) -> dict[str, SinkShared]:
    """Sinks whose last batch is of another record of this job: of a second project, or of a store that is gone.

    What was put aside is not asked: such a table may belong to several jobs, and few batches write to it.
    """
    identity = record.extras.identity or RecordIdentity("")
    targets = {sink.name: sink.describe() for sink in work.sinks}
    found = {name: entry for name, entry in ledgers.by_sink.items() if entry and not identity.owns(entry.owner)}
    return {
        name: SinkShared(
            work.name, sink=name, target=targets[name], number=entry.number, owner=str(entry.owner), own=identity.id
        )
        for name, entry in found.items()
    }


def require_same_digest(job: str, sink: str, entry: Recorded, intent: Intent) -> None:
    """The same number has to stand for the same rows."""
    intended = intent.digest
    if not is_same_batch(entry.digest, intended):
        raise SinkDisagrees(job, sink=sink, number=entry.number, recorded=str(entry.digest), intended=intended)


def require_a_beginning(work: Work, record: JobRecord, request: RunRequest, session: Session, ledgers: Ledgers) -> None:
    """Without a mark, a target that already holds rows would get them twice: somebody has to decide.

    So one has where they would not, but another record writes there: its rows would be mixed with this one's.
    """
    asked = request.full_refresh or request.abandon or request.start is not None
    decided = asked or record.origin in ("reset", "set", "import")
    if decided or any(source.name in record.marks for source in work.sources):
        return
    for sink in work.sinks:
        if sink.holds_rows(session):
            raise MarkMissing(work.name, sink=sink.name, target=sink.describe())
    for shared in sinks_shared(work, record, ledgers).values():
        raise shared


def identified(record: JobRecord, ledgers: Ledgers) -> JobRecord:
    """The record with an identity, under which it has taken over whatever the sinks hold: nobody objected."""
    identity = record.extras.identity or RecordIdentity.new()
    identity = identity.accepting(entry.owner for entry in ledgers.by_sink.values() if entry)
    return replace(record, extras=record.extras.with_identity(identity))


def marks_after(record: JobRecord, intent: Intent) -> dict[str, HWM[Any]]:
    """A batch raises marks and never lowers them; a refresh puts new ones in their place; some leave them alone."""
    if intent.kind in OUTSIDE_KINDS:
        return dict(record.marks)
    marks = {} if intent.kind == "refresh" else dict(record.marks)
    for source, span in intent.spans.items():
        mark = marks.get(source)
        marks[source] = mark.update(span.upto.value) if mark is not None else replace(span.upto)
    return marks
