"""Errors where going on would lose or repeat rows: a person has to choose."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from floodmark.errors.configuration import FloodmarkError


class DecisionNeeded(FloodmarkError):
    """Going on would lose or repeat rows: a person has to choose."""

    exit_code = 5


class FormatTooNew(DecisionNeeded):
    """Something stored was written by a newer Floodmark: reading it as if it were older could lose rows."""

    def __init__(self, what: str, *, where: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} in {where} has format {found}, and this version of Floodmark knows {known}: a newer one wrote it.",
            hint="upgrade floodmark: pip install --upgrade floodmark",
        )
        self.what, self.where, self.found, self.known = what, where, found, known


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
            "the store was restored from an older copy, a rollback was broken off, or another project with the same "
            "namespace and job writes there too.",
            hint=f"bring back the newer store, or `floodmark marks reset {job}` and `run --full-refresh`",
        )
        self.job, self.sink, self.recorded, self.stored = job, sink, recorded, stored


class SinkBehind(DecisionNeeded):
    """A sink had confirmed a batch and does not have it any more: it was restored, made anew, or lost its end."""

    def __init__(self, job: str, *, sink: str, target: str, recorded: int | None, confirmed: int) -> None:
        found = f"its last batch is {recorded}" if recorded is not None else "it has no batch of this job"
        super().__init__(
            f"sink '{sink}' of job '{job}' ({target}) had confirmed batch {confirmed}, and now {found}: it was "
            "restored from an older copy, made anew, or lost its last writes, and rows are missing there.",
            hint=f"`floodmark run --select {job} --full-refresh` rebuilds the targets; `floodmark rollback {job}` or "
            f"`floodmark marks set {job} VALUE` takes the mark back, so that they come again; `floodmark marks accept "
            f"{job}` goes on without them, and `floodmark backfill {job}` then delivers a range (`floodmark runs --job "
            f"{job} --json` shows which span each batch had)",
        )
        self.job, self.sink, self.target, self.recorded, self.confirmed = job, sink, target, recorded, confirmed


class SinkDisagrees(DecisionNeeded):
    """A sink recorded this batch number for other rows, or for another record of the job."""

    def __init__(self, job: str, *, sink: str, number: int, recorded: str, intended: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' recorded batch {number} for span {recorded}, the store intends {intended} "
            "(behind an @ stands which record of the job began it).",
            hint="find out which store is the right one, give one of two projects another `namespace`, or `floodmark "
            f"run --select {job} --full-refresh`",
        )
        self.job, self.sink, self.number, self.recorded, self.intended = job, sink, number, recorded, intended


class SinkShared(DecisionNeeded):
    """A sink has a batch of another record of this job: of a second project, or of a store that is gone."""

    def __init__(self, job: str, *, sink: str, target: str, number: int, owner: str, own: str) -> None:
        mine = f"this store's is {own}" if own else "this store's has written nothing yet"
        super().__init__(
            f"sink '{sink}' of job '{job}' ({target}) has batch {number} of another record of this job, {owner}; "
            f"{mine}: two projects write there under the same namespace and job, or the store was made anew.",
            hint=f"give one of the two another `namespace`; if the other record is gone for good, `floodmark marks "
            f"accept {job}` takes over what it wrote",
        )
        self.job, self.sink, self.target, self.number, self.owner, self.own = job, sink, target, number, owner, own


class SinkUndecided(DecisionNeeded):
    """A sink lost its own record of a batch that was begun, and the target cannot tell either."""

    def __init__(self, job: str, *, sink: str, number: int, reason: str) -> None:
        super().__init__(
            f"sink '{sink}' of job '{job}' cannot tell how much of batch {number} it has: {reason}.",
            hint=f"look into the target; `floodmark run --select {job} --abandon` reads the span again as a new batch "
            "(rows that did arrive come a second time)",
        )
        self.job, self.sink, self.number, self.reason = job, sink, number, reason


class BatchChanged(DecisionNeeded):
    """Part of a batch is out, and its rows are others when they are read again."""

    def __init__(self, job: str, *, sink: str, number: int, difference: str) -> None:
        super().__init__(
            f"part of batch {number} of job '{job}' is in sink '{sink}', and its rows are others now: {difference}.",
            hint="what the transform reads beside the source (a joined table, a file) has changed: bring it back and "
            f"run again; or `floodmark run --select {job} --abandon` reads the span again as a new batch (rows that "
            "are out come a second time)",
        )
        self.job, self.sink, self.number, self.difference = job, sink, number, difference


class SinkGone(DecisionNeeded):
    """An open batch was begun for a target that the job does not have any more: nobody can say if it is there."""

    def __init__(self, job: str, *, sink: str, target: str, number: int) -> None:
        super().__init__(
            f"batch {number} of job '{job}' was begun for sink '{sink}' ({target}), which the job does not have any "
            "more: it may have the batch, and cannot be asked.",
            hint=f"bring the sink back and run again; or `floodmark run --select {job} --abandon` reads the span again "
            "as a new batch (what that target has of this one stays there)",
        )
        self.job, self.sink, self.target, self.number = job, sink, target, number


class CodeChanged(DecisionNeeded):
    """An open batch was written to some sinks, there is no spool, and the code is another one now."""

    def __init__(self, job: str, *, number: int, changed: Sequence[str], confirmed: Sequence[str]) -> None:
        is_place_alone = all(what.startswith("the place of ") for what in changed)
        effect = (
            "rows may be put aside in both places" if is_place_alone else "the remaining sinks would get other rows"
        )
        super().__init__(
            f"batch {number} of job '{job}' is already in {', '.join(confirmed)}, and {', '.join(changed)} changed "
            f"since: {effect}.",
            hint=f"`floodmark run --select {job} --finish` writes the rest with the new code (the sinks may differ for "
            "this batch); `--abandon` skips the rest and reads the span again as a new batch "
            "(append sinks that confirmed get those rows a second time)",
        )
        self.job, self.number = job, number
        self.changed, self.confirmed = tuple(changed), tuple(confirmed)


class SpoolLost(DecisionNeeded):
    """An open batch was written to some sinks from its spool, which is gone or damaged: its rows are nowhere else."""

    def __init__(self, job: str, *, number: int, spool: str, flaw: str, confirmed: Sequence[str]) -> None:
        super().__init__(
            f"batch {number} of job '{job}' is already in {', '.join(confirmed)}, and its rows cannot be read from "
            f"{spool} on {platform.node()}: {flaw}. Read again, they may be others.",
            hint="bring the folder back, or run where it is; "
            f"`floodmark run --select {job} --finish` reads the span again for the rest (the sinks may differ for this "
            "batch); `--abandon` skips the rest and reads the span again as a new batch (append sinks that confirmed "
            "get those rows a second time)",
        )
        self.job, self.number, self.spool, self.flaw = job, number, spool, flaw
        self.confirmed = tuple(confirmed)


class BatchClosed(DecisionNeeded):
    """An open batch is in some sinks, and others were fenced against it: it cannot be finished there."""

    def __init__(self, job: str, *, number: int, closed: Sequence[str], confirmed: Sequence[str]) -> None:
        super().__init__(
            f"batch {number} of job '{job}' is already in {', '.join(confirmed)}, and {', '.join(closed)} was closed "
            "to it by a run that gave it up and did not get to its end.",
            hint=f"`floodmark run --select {job} --abandon` reads the span again as a new batch "
            "(append sinks that confirmed get those rows a second time); `--full-refresh` rebuilds the targets",
        )
        self.job, self.number = job, number
        self.closed, self.confirmed = tuple(closed), tuple(confirmed)


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
            hint="fill the column, read by `coalesce: [that column, another]`, or set `on_null: exclude` to leave such"
            " rows out (they are counted)",
        )
        self.source, self.column, self.rows = source, column, rows


class FenceBlind(DecisionNeeded):
    """A fence cannot see every transaction that may still write here, so rows that commit late would be lost."""

    def __init__(self, source: str, *, reason: str, hint: str = "") -> None:
        super().__init__(
            f"{source} cannot be read behind a fence: {reason}.",
            hint=f"{hint + ', or ' if hint else ''}choose another safety for the cursor: `safety: {{delay: 30s}}` or "
            "`safety: {lag: 1h}`; a table can be read by `cursor: xmin`",
        )
        self.source, self.reason = source, reason


class TiesTooMany(DecisionNeeded):
    """More rows share a value of the cursor than can be remembered, and nothing says that no more of them will come."""

    def __init__(self, source: str, *, column: str, value: str | None) -> None:
        rows = f"rows where {column} is {value}" if value is not None else f"rows without a {column}"
        more, other = (
            f"read by more columns, as in column: [{column}, id]",
            "read by `coalesce: [that column, another]`",
        )
        choices = more if value is not None else other
        super().__init__(f"{source} has more {rows} than can be told apart from those that come later.", hint=choices)
        self.source, self.column, self.value = source, column, value


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
    """A Delta source does not record its changes, so what comes after a snapshot could not be read.

    `why` says what keeps rows that were only added from being read without it.
    """

    def __init__(self, source: str, *, where: str, since: int | None = None, why: str | None = None) -> None:
        when = f"was off at version {since}, which was not read yet" if since is not None else "is off"
        when = f"{when}, and it is needed: {why}" if why else when
        when = when if since is not None else f"{when}. A Delta sink with `change_feed: true` switches it on"
        turn_on = f"ALTER TABLE {where} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        fix = "`floodmark run --full-refresh` starts again from a snapshot"
        super().__init__(f"the change feed of {source} {when}.", hint=fix if since is not None else turn_on)
        self.source, self.where, self.since, self.why = source, where, since, why


class SchemaChanged(DecisionNeeded):
    """The batch does not fit the target, and nothing was written."""

    def __init__(self, job: str, *, sink: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"the rows of job '{job}' do not fit sink '{sink}': {'; '.join(differences)}. Nothing was written.",
            hint="set `on_schema_change: evolve` to add new columns, `ignore` to leave them out, or fix the transform",
        )
        self.job, self.sink, self.differences = job, sink, tuple(differences)


class RangeAboveMark(DecisionNeeded):
    """A range that begins above the mark: its rows were never delivered, and come by themselves."""

    def __init__(self, source: str, *, start: str, mark: str) -> None:
        super().__init__(
            f"{start} lies above the mark {mark} of source '{source}': those rows were not delivered yet, and outside "
            "the mark they would be delivered twice.",
            hint="floodmark run brings them",
        )
        self.source, self.start, self.mark = source, start, mark


class BackfillOpen(DecisionNeeded):
    """Another range of the job was begun and not finished."""

    def __init__(self, job: str, *, start: str, stop: str) -> None:
        super().__init__(
            f"the backfill of job '{job}' from {start} to {stop} is not finished.",
            hint=f"`floodmark backfill {job} --from '{start}' --to '{stop}'` finishes it; `--restart` with the new "
            "range gives it up (what it delivered stays)",
        )
        self.job, self.start, self.stop = job, start, stop


class NoGoodRun(DecisionNeeded):
    """Of no batch of a job that is kept it is known that it was good, so there is no last good one to go back to."""

    def __init__(self, job: str, *, looked: int, newest: int, flaw: str) -> None:
        kept = f"none of the {looked} states that are kept of it is" if looked > 1 else "nothing else is kept of it"
        super().__init__(
            f"job '{job}' has no good run to go back to: batch {newest} is not ({flaw}), and {kept}.",
            hint=f"`floodmark runs --job {job}` shows what is kept; name the one you accept by `--to RUN`, or rebuild "
            f"by `floodmark run --select {job} --full-refresh`",
        )
        self.job, self.looked, self.newest, self.flaw = job, looked, newest, flaw
