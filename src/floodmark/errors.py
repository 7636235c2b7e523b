"""Every error Floodmark raises: the class is the condition, the attributes are the facts, the hint is the next step.

FloodmarkError
├── ConfigError                 exit 2: the project file, an option or an argument is wrong
│   ├── UnknownField            a field nobody knows, with the nearest known name
│   ├── FieldInvalid            a field that is missing, or whose value does not fit
│   ├── VariableMissing         ${NAME} without a value
│   ├── ColumnUnmapped          a column whose values Spark would change without a word
│   ├── UnknownKind             a store, source, sink or mark type nobody registered
│   ├── RuleInvalid             a quality rule that Spark cannot read
│   ├── JoinTreeInvalid         streams that cannot be joined in this way
│   ├── SignatureInvalid        a process function that does not fit what it would be given
│   └── JobNotFound             --select named no job
├── MarkError
│   ├── MarkInvalid             a value this kind of mark refuses
│   ├── MarkFieldUnknown        a mark was made with a field it does not have
│   └── MarkKindMismatch        two marks that cannot be compared
├── StoreError
│   ├── StoreUnreachable        the store could not be read or written: never taken for "first run"
│   │   └── StoreNotPrepared    its tables are not there, and this user may not make them
│   ├── MarkUnreadable          a record is there but cannot be parsed
│   ├── MarkMoved               another run committed first
│   └── LeaseLost               this run's lease expired or was taken over
├── LeaseHeld                   exit 4: another run works on this job
├── DecisionNeeded              exit 5: going on would lose or repeat rows; a person has to choose
│   ├── MarkMissing             no mark, but the target already holds rows
│   ├── SinkAhead               a sink has recorded a batch that the store has not
│   ├── SinkDisagrees           a sink recorded this number for other rows
│   ├── SinkUndecided           a sink cannot tell any more whether it has a batch
│   ├── CodeChanged             an open batch is half written and the code is another one now
│   ├── SourceChanged           the mark belongs to another source
│   ├── SourceRegressed         the source ends below the mark
│   ├── SourceGap               what follows the mark is no longer there
│   ├── CursorNull              rows without a cursor value would never be read
│   ├── SourceRewritten         something below the mark was changed
│   ├── ChangeFeedOff           a Delta source whose changes are not recorded
│   ├── SourceEmpty             a full refresh of an empty source would empty the targets
│   └── SchemaChanged           the batch does not fit the target
├── SourceUnreadable            the source could not be looked at: never taken for "no rows"
│   └── RecordMalformed         a record that cannot be parsed, with file and line
├── ElementInvalid              an element of a stream that does not fit its class, with its position
├── TransformFailed             the user's SQL or function raised
├── RuleBroken                  a rule with the action `fail` does not hold: nothing was written
├── TaskFailed                  the program of a workflow's task ended badly
│   └── TaskTimedOut            it did not end within its time
├── SinkFailed                  a sink could not be written
│   ├── ConflictingEvents       two events of one key and moment say different things
│   └── SnapshotRefused         a snapshot that would delete everything, or is older than the last
├── KeysCollide                 two rows of a dimension got the same surrogate key
├── SinkUnreachable             a sink's server could not be reached: never taken for "nothing recorded"
├── RecordsFailed               records of a stream failed: its mark stops at the first of them
├── HealingFailed               the steps of a stream could not be run on Spark at all
├── PublicationFailed           the group's offsets could not be published to Kafka; our own mark has moved
└── SparkUnavailable            no session could be started
    ├── JavaMissing             no Java 17 or 21
    └── ConnectorsMissing       the JVM connectors could not be resolved
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class FloodmarkError(Exception):
    """An error with a next step; `exit_code` is what the command line returns for it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} Try: {self.hint}" if self.hint else self.message


class ConfigError(FloodmarkError):
    """The project file, an option or an argument is wrong."""

    exit_code = 2


class UnknownField(ConfigError):
    """A field nobody knows."""

    def __init__(self, field: str, *, where: str, nearest: str | None) -> None:
        hint = f"did you mean '{nearest}'?" if nearest else "floodmark schema shows every field"
        super().__init__(f"unknown field '{field}' at {where}.", hint=hint)
        self.field, self.where, self.nearest = field, where, nearest


class FieldInvalid(ConfigError):
    """A field that is missing, or whose value does not fit; the value itself may be a secret and is not shown."""

    def __init__(self, field: str, *, where: str, reason: str) -> None:
        super().__init__(f"{where}: {field} {reason}.", hint="mend that line; floodmark schema shows every field")
        self.field, self.where, self.reason = field, where, reason


class VariableMissing(ConfigError):
    """`${NAME}` stands in the project file and has no value."""

    def __init__(self, variable: str, *, where: str) -> None:
        super().__init__(
            f"variable {variable} has no value ({where}).",
            hint=f"export {variable}=…, give --env-file, or write ${{{variable}:default}}",
        )
        self.variable, self.where = variable, where


class ColumnUnmapped(ConfigError):
    """A column of a type that Spark cannot hold as it is: reading it would change values without a word."""

    def __init__(self, source: str, *, column: str, type_name: str) -> None:
        super().__init__(
            f"column '{column}' of {source} is of type {type_name or '(none)'}, which Spark would change.",
            hint=f"say what it shall be, as in `types: {{{column}: string}}` or `decimal(38,10)`, or leave it out",
        )
        self.source, self.column, self.type_name = source, column, type_name


class UnknownKind(ConfigError):
    """A store, source, sink or mark type that nobody registered."""

    def __init__(self, thing: str, kind: str, *, known: Sequence[str]) -> None:
        super().__init__(f"unknown {thing} '{kind}'.", hint=f"one of: {', '.join(sorted(known))}")
        self.thing, self.kind, self.known = thing, kind, tuple(known)


class RuleInvalid(ConfigError):
    """A quality rule that Spark cannot read: a column that is not there, or SQL that is none."""

    def __init__(self, rule: str, *, reason: str) -> None:
        super().__init__(f"rule '{rule}' cannot be judged: {reason}", hint="mend the rule; its SQL is Spark's dialect")
        self.rule, self.reason = rule, reason


class JobNotFound(ConfigError):
    """`--select` named no job of this project."""

    def __init__(self, job: str, *, known: Sequence[str]) -> None:
        super().__init__(f"no job '{job}'.", hint=f"one of: {', '.join(known) or '(the project has no jobs)'}")
        self.job, self.known = job, tuple(known)


class JoinTreeInvalid(ConfigError):
    """Streams that cannot be joined in this way."""

    def __init__(self, stream: str, *, reason: str, hint: str) -> None:
        super().__init__(f"join of {stream}: {reason}.", hint=hint)
        self.stream, self.reason = stream, reason


class SignatureInvalid(ConfigError):
    """A process function asks for something that it cannot be given, or gives what cannot be sent."""

    def __init__(self, function: str, *, argument: str, reason: str, hint: str) -> None:
        super().__init__(f"{function}, {argument}: {reason}.", hint=hint)
        self.function, self.argument, self.reason = function, argument, reason


class MarkError(FloodmarkError):
    """Something is wrong with a mark itself."""


class MarkInvalid(MarkError, ValueError):
    """A value that this kind of mark refuses."""

    def __init__(self, kind: str, value: object, *, reason: str) -> None:
        super().__init__(f"{kind} refuses {value!r}: {reason}.", hint="pass a value of the kind's own type")
        self.kind, self.value, self.reason = kind, value, reason


class MarkFieldUnknown(MarkError, TypeError):
    """A mark was made with a field that it does not have."""

    def __init__(self, kind: str, field: str, *, known: Sequence[str]) -> None:
        super().__init__(f"{kind} has no field '{field}'.", hint=f"one of: {', '.join(known)}")
        self.kind, self.field, self.known = kind, field, tuple(known)


class MarkKindMismatch(MarkError, TypeError):
    """Two marks (or a mark and a value) that cannot be compared."""

    def __init__(self, left: object, right: object, *, reason: str) -> None:
        super().__init__(
            f"cannot compare {left!r} with {right!r}: {reason}.",
            hint="compare marks of the same kind, name and entity",
        )
        self.left, self.right, self.reason = left, right, reason


class StoreError(FloodmarkError):
    """Something is wrong with the store or with what is in it."""


class StoreUnreachable(StoreError):
    """The store could not be read or written; the run stops and never starts from the beginning."""

    def __init__(
        self, store: str, *, reason: str, hint: str = "check that the store is there and may be written"
    ) -> None:
        super().__init__(f"store {store} cannot be used: {reason}.", hint=hint)
        self.store, self.reason = store, reason


class StoreNotPrepared(StoreUnreachable):
    """The store's tables are not there, and this user may not make them."""

    def __init__(self, store: str, *, reason: str, ddl: str) -> None:
        hint = f"let somebody who may create tables run this once, and grant their use:\n{ddl}"
        super().__init__(store, reason=reason, hint=hint)
        self.ddl = ddl


class MarkUnreadable(StoreError):
    """A record is there but cannot be parsed; it is never taken for "no mark"."""

    def __init__(self, job: str, *, where: str, reason: str) -> None:
        super().__init__(
            f"the record of job '{job}' in {where} cannot be read: {reason}.",
            hint=f"restore it from a backup, or `floodmark marks reset {job}` to read everything again",
        )
        self.job, self.where, self.reason = job, where, reason


class MarkMoved(StoreError):
    """Another run committed first: nothing was saved."""

    def __init__(self, job: str, *, stored: int, expected: int) -> None:
        super().__init__(
            f"mark '{job}' is at number {stored}, this run started from {expected}. "
            "Another run finished first, so this run's mark was not saved.",
            hint=f"floodmark marks history {job}",
        )
        self.job, self.stored, self.expected = job, stored, expected


class LeaseLost(StoreError):
    """This run's lease expired or was taken over: it stopped before it wrote."""

    def __init__(self, job: str, *, holder: str | None) -> None:
        now = f"it is held by {holder}" if holder else "nobody holds it now"
        super().__init__(
            f"the lease on job '{job}' is gone ({now}); this run stopped before writing.",
            hint=f"floodmark runs --job {job}; the next run finishes what is open",
        )
        self.job, self.holder = job, holder


class LeaseHeld(FloodmarkError):
    """Another run works on this job."""

    exit_code = 4

    def __init__(self, job: str, *, holder: str, since: str) -> None:
        super().__init__(
            f"job '{job}' is being run by {holder} since {since}.",
            hint="wait for it to finish; if it is dead, its lease expires by itself",
        )
        self.job, self.holder, self.since = job, holder, since


class DecisionNeeded(FloodmarkError):
    """Going on would lose or repeat rows: a person has to choose."""

    exit_code = 5


class MarkMissing(DecisionNeeded):
    """The store has no mark, but the target already holds rows."""

    def __init__(self, job: str, *, sink: str, target: str) -> None:
        super().__init__(
            f"job '{job}' has no mark, but its sink '{sink}' ({target}) already holds rows: "
            "reading from the beginning would write them twice.",
            hint=f"`floodmark run --select {job} --full-refresh` to rebuild the target, `--from VALUE` to go on from "
            f"a place you know, or `floodmark marks reset {job}` to deliver everything again",
        )
        self.job, self.sink, self.target = job, sink, target


class SinkAhead(DecisionNeeded):
    """A sink has recorded a batch that the store has not: the store is older than the sink."""

    def __init__(self, job: str, *, sink: str, recorded: int, stored: int) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' has recorded batch {recorded}, the store knows only {stored}: "
            "the store was restored from an older copy, or belongs to another run of this job.",
            hint=f"bring back the newer store, or `floodmark marks reset {job}` and `run --full-refresh`",
        )
        self.job, self.sink, self.recorded, self.stored = job, sink, recorded, stored


class SinkDisagrees(DecisionNeeded):
    """A sink recorded this batch number for other rows."""

    def __init__(self, job: str, *, sink: str, number: int, recorded: str, intended: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' recorded batch {number} for span {recorded}, the store intends {intended}.",
            hint=f"find out which store is the right one, or `floodmark run --select {job} --full-refresh`",
        )
        self.job, self.sink, self.number, self.recorded, self.intended = job, sink, number, recorded, intended


class SinkUndecided(DecisionNeeded):
    """A sink lost its own record of a batch that was begun, and the target cannot tell either."""

    def __init__(self, job: str, *, sink: str, number: int, reason: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' cannot tell how much of batch {number} it has: {reason}.",
            hint=f"look into the target; `floodmark run --select {job} --abandon` reads the span again as a new batch "
            "(rows that did arrive come a second time)",
        )
        self.job, self.sink, self.number, self.reason = job, sink, number, reason


class CodeChanged(DecisionNeeded):
    """An open batch was written to some sinks, there is no spool, and the code is another one now."""

    def __init__(self, job: str, *, number: int, changed: Sequence[str], confirmed: Sequence[str]) -> None:
        super().__init__(
            f"batch {number} of job '{job}' is already in {', '.join(confirmed)}, and {', '.join(changed)} changed "
            "since: the remaining sinks would get other rows.",
            hint=f"`floodmark run --select {job} --finish` writes the rest with the new code (the sinks may differ for "
            "this batch); `--abandon` skips the rest and reads the span again as a new batch "
            "(append sinks that confirmed get those rows a second time)",
        )
        self.job, self.number = job, number
        self.changed, self.confirmed = tuple(changed), tuple(confirmed)


class SourceChanged(DecisionNeeded):
    """The stored mark belongs to another source."""

    def __init__(self, job: str, *, stored: str, found: str) -> None:
        super().__init__(
            f"the mark of job '{job}' was made for {stored}, the job now reads {found}.",
            hint=f"give the job another name, or `floodmark marks reset {job}` to read the new one from its beginning",
        )
        self.job, self.stored, self.found = job, stored, found


class SourceRegressed(DecisionNeeded):
    """The source ends below the mark: truncated, restored or recreated."""

    def __init__(self, source: str, *, mark: str, highest: str) -> None:
        super().__init__(
            f"{source} ends at {highest}, below the mark {mark}: it was truncated or restored.",
            hint="`floodmark marks set` to go on from a place you know, or `floodmark run --full-refresh`",
        )
        self.source, self.mark, self.highest = source, mark, highest


class SourceGap(DecisionNeeded):
    """What follows the mark is no longer there to be read."""

    def __init__(self, source: str, *, mark: str, oldest: str, hint: str | None = None) -> None:
        super().__init__(
            f"{source} no longer has what follows the mark {mark}; the oldest it has is {oldest}.",
            hint=hint or f"`floodmark run --from {oldest}` accepts the gap, `--full-refresh` rebuilds the target",
        )
        self.source, self.mark, self.oldest = source, mark, oldest


class CursorNull(DecisionNeeded):
    """Rows have no value in the column that a table is read by: no mark would ever reach them."""

    def __init__(self, source: str, *, column: str, rows: int) -> None:
        super().__init__(
            f"{source} has {rows} rows without a {column}, which would never be read.",
            hint="fill the column, or set `on_null: exclude` to leave such rows out (they are counted)",
        )
        self.source, self.column, self.rows = source, column, rows


class SourceRewritten(DecisionNeeded):
    """Something at or below the mark was changed, so what was read is no longer what is there."""

    def __init__(self, source: str, *, what: str, hint: str) -> None:
        super().__init__(f"{source}: {what}.", hint=hint)
        self.source, self.what = source, what


class SourceEmpty(DecisionNeeded):
    """A full refresh found nothing to read: it would leave every target empty."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"the source of job '{job}' is empty: a full refresh would empty every target.",
            hint=f"check the source; to begin anew with the next rows, `floodmark marks reset {job}`",
        )
        self.job = job


class ChangeFeedOff(DecisionNeeded):
    """A Delta source does not record its changes, so what comes after a snapshot could not be read."""

    def __init__(self, source: str, *, where: str, since: int | None = None) -> None:
        when = f"was off at version {since}, which was not read yet" if since is not None else "is off"
        turn_on = f"ALTER TABLE {where} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        mend = "`floodmark run --full-refresh` starts again from a snapshot"
        super().__init__(f"the change feed of {source} {when}.", hint=mend if since is not None else turn_on)
        self.source, self.where, self.since = source, where, since


class SchemaChanged(DecisionNeeded):
    """The batch does not fit the target, and nothing was written."""

    def __init__(self, job: str, *, sink: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"the rows of job '{job}' do not fit sink '{sink}': {'; '.join(differences)}. Nothing was written.",
            hint="set `on_schema_change: evolve` to add new columns, `ignore` to leave them out, or mend the transform",
        )
        self.job, self.sink, self.differences = job, sink, tuple(differences)


class SourceUnreadable(FloodmarkError):
    """The source could not be looked at; this is never taken for "no rows"."""

    def __init__(self, source: str, *, reason: str, hint: str = "check that it is there and may be read") -> None:
        super().__init__(f"{source} cannot be read: {reason}.", hint=hint)
        self.source, self.reason = source, reason


class RecordMalformed(SourceUnreadable):
    """A record that cannot be parsed, and no dead letters to keep it in."""

    def __init__(self, source: str, *, file: str, line: int | None, text: str) -> None:
        place = f"{file}, line {line}" if line else file
        super().__init__(
            source,
            reason=f"malformed record in {place}: {text[:120]!r}",
            hint="mend the record, or add `dead_letters: {path: …}` to the job to put such records aside",
        )
        self.file, self.line, self.text = file, line, text


class ElementInvalid(FloodmarkError):
    """An element of a stream does not fit its class; `position` is empty while nobody has said where it stands."""

    def __init__(self, stream: str, *, field: str, reason: str, position: str = "") -> None:
        where = f" at {position}" if position else ""
        what = f", field {field}" if field else ""
        super().__init__(
            f"element of {stream}{where}{what}: {reason}.",
            hint="mend the element, change the class, or give WaterMill a deserializer for it",
        )
        self.stream, self.field, self.reason, self.position = stream, field, reason, position

    def at(self, position: str) -> ElementInvalid:
        """The same error, told where the element stands."""
        return ElementInvalid(self.stream, field=self.field, reason=self.reason, position=position)

    def __reduce__(self) -> tuple[object, ...]:
        """It is raised beside the data and has to come back to the driver."""
        return _element_invalid, (self.stream, self.field, self.reason, self.position)


def _element_invalid(stream: str, field: str, reason: str, position: str) -> ElementInvalid:
    return ElementInvalid(stream, field=field, reason=reason, position=position)


class ElementFailed(FloodmarkError):
    """A process function raised; nothing of this turn was written."""

    def __init__(self, stream: str, *, position: str, reason: str) -> None:
        super().__init__(
            f"the process function failed on the element of {stream} at {position}: {reason}.",
            hint="mend the function, or the element, and run again: the same turn is tried anew",
        )
        self.stream, self.position, self.reason = stream, position, reason


class KeyDecreased(FloodmarkError):
    """A key is lower than one before it in its partition: what it belongs to was joined already."""

    def __init__(self, stream: str, *, position: str, key: str, before: str) -> None:
        super().__init__(
            f"element of {stream} at {position}: its key {key} is lower than {before} before it.",
            hint="keys must not decrease within a partition: order the stream by its key, or join by another one",
        )
        self.stream, self.position, self.key, self.before = stream, position, key, before


class TransformFailed(FloodmarkError):
    """The user's SQL or function raised; nothing was written."""

    def __init__(self, job: str, *, reason: str) -> None:
        super().__init__(
            f"the transform of job '{job}' failed: {reason}",
            hint=f"mend it and run again; `floodmark plan --select {job}`",
        )
        self.job, self.reason = job, reason


class RuleBroken(FloodmarkError):
    """A rule with the action `fail` does not hold for a batch; nothing was written and the mark did not move."""

    def __init__(
        self,
        job: str,
        *,
        rule: str,
        failed: int,
        checked: int,
        samples: Sequence[str],
        results: Sequence[Mapping[str, object]] = (),
    ) -> None:
        such = f", such as {'; '.join(samples)}" if samples else ""
        count = f"{failed} of {checked} rows break it" if checked != 1 or failed != 1 else "it does not hold"
        super().__init__(
            f"rule '{rule}' of job '{job}' fails the batch: {count}{such}. Nothing was written.",
            hint="mend the rows at their source, or the rule, and run again; `action: quarantine` puts such rows aside",
        )
        self.job, self.rule, self.failed, self.checked, self.samples = job, rule, failed, checked, tuple(samples)
        self.results = tuple(results)
        """What every rule of the job gave, as a receipt keeps it."""


class TaskFailed(FloodmarkError):
    """The program that a task of a workflow runs ended badly."""

    def __init__(self, task: str, *, reason: str) -> None:
        super().__init__(
            f"task '{task}' failed: {reason}.", hint="mend it and run the workflow again: it takes what is missing"
        )
        self.task, self.reason = task, reason


class TaskTimedOut(TaskFailed):
    """A task did not end within its time; `lives` if its code could not be stopped and still runs in this process."""

    def __init__(self, task: str, *, seconds: float, lives: bool) -> None:
        still = ", and its code still runs until this process ends" if lives else ""
        super().__init__(task, reason=f"it did not end within {seconds:g} s{still}")
        self.seconds, self.lives = seconds, lives


class SinkFailed(FloodmarkError):
    """A sink could not be written; the mark did not move."""

    def __init__(self, job: str, *, sink: str, reason: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' could not be written: {reason}",
            hint="mend the cause and run again: the same batch is finished, nothing is written twice",
        )
        self.job, self.sink, self.reason = job, sink, reason


class ConflictingEvents(SinkFailed):
    """Two events of one key and moment say different things; nothing was written."""

    def __init__(self, job: str, *, sink: str, key: str, sequence: str) -> None:
        super().__init__(job, sink=sink, reason=f"events of key {key} at {sequence} contradict each other")
        self.hint = "mend them, name one more column in `sequence`, or set `on_conflict` to quarantine or last_arrival"
        self.key, self.sequence = key, sequence


class SnapshotRefused(SinkFailed):
    """A snapshot that would delete every row, or that is older than the last one; nothing was written."""

    def __init__(self, job: str, *, sink: str, reason: str) -> None:
        super().__init__(job, sink=sink, reason=f"a snapshot is refused: {reason}")
        self.hint = "deliver snapshots in their order; `allow_empty: true` takes an empty one for the deletion of all"


class KeysCollide(FloodmarkError):
    """Two rows of a dimension got the same surrogate key."""

    def __init__(self, column: str, *, key: int, rows: int) -> None:
        super().__init__(
            f"{rows} rows have the surrogate key {key} in column '{column}'.",
            hint="check that the natural key tells all rows apart; if it does, add a column to it",
        )
        self.column, self.key, self.rows = column, key, rows


class SinkUnreachable(FloodmarkError):
    """The server of a sink could not be reached, or the connection broke; never taken for "nothing recorded"."""

    def __init__(self, target: str, *, reason: str) -> None:
        super().__init__(
            f"{target} cannot be used: {reason}.",
            hint="check that the server runs and lets this role in; then run again: nothing is written twice",
        )
        self.target, self.reason = target, reason


class RecordsFailed(FloodmarkError):
    """Records of a stream failed and were not given up: the mark stops at the first of them, the others went on."""

    def __init__(self, stream: str, *, records: Sequence[str]) -> None:
        others = f" and {len(records) - 1} more" if len(records) > 1 else ""
        super().__init__(
            f"stream '{stream}' is stuck at {records[0]}{others}.",
            hint="mend the cause and run again: only the failed records run; or choose on_error='dead_letter'",
        )
        self.stream, self.records = stream, tuple(records)


class HealingFailed(FloodmarkError):
    """A turn of a stream could not be run to its end; what was settled until then stays settled."""

    def __init__(self, stream: str, *, reason: str) -> None:
        super().__init__(
            f"the steps of stream '{stream}' could not be run on Spark: {reason}",
            hint="mend the cause and run again: what is settled does not run again",
        )
        self.stream, self.reason = stream, reason


class PublicationFailed(FloodmarkError):
    """A consumer group's offsets could not be published: lag tools see old ones, and no record is lost or repeated."""

    def __init__(self, group: str, *, reason: str) -> None:
        super().__init__(
            f"the offsets of group '{group}' could not be published: {reason.rstrip('.')}. The mark has moved.",
            hint="let no other consumer be a member of this group, or heal with ignore=True",
        )
        self.group, self.reason = group, reason


class SparkUnavailable(FloodmarkError):
    """No Spark session could be started."""


class JavaMissing(SparkUnavailable):
    """No Java 17 or 21 was found."""

    def __init__(self, *, found: str | None, command: str) -> None:
        what = (
            f"found {found}, but Spark needs Java 17 or 21"
            if found
            else "Spark needs Java 17 or 21, and none was found"
        )
        super().__init__(f"{what}.", hint=command)
        self.found, self.command = found, command


class ConnectorsMissing(SparkUnavailable):
    """The JVM connectors could not be resolved."""

    def __init__(self, *, missing: Sequence[str], reason: str) -> None:
        super().__init__(
            f"could not resolve {', '.join(missing)}: {reason}.",
            hint="run again with a network; behind a mirror set FLOODMARK_IVY_SETTINGS to an ivysettings.xml; "
            "on a cluster that brings its own connectors set FLOODMARK_CONNECTORS=none",
        )
        self.missing, self.reason = tuple(missing), reason
