"""What to do next where a mill needs a decision: the command line of jobs does not know it."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.errors import (
    FloodmarkError,
    MarkMissing,
    SinkAhead,
    SinkDisagrees,
    SinkUndecided,
    SourceChanged,
    SourceGap,
    SourceRegressed,
    SourceRewritten,
)

AGAIN = "`mill.reset()` to read every stream from its beginning (its output comes once more)"
HINTS: Mapping[type[FloodmarkError], str] = {
    MarkMissing: f"open the store that has its marks, give the mill another output, or {AGAIN}",
    SinkAhead: f"bring back the newer store, or {AGAIN}",
    SinkDisagrees: f"find out which store is the right one, or {AGAIN}",
    SinkUndecided: f"look into the output, then {AGAIN}",
    SourceChanged: f"give the mill another name, or {AGAIN}",
    SourceGap: f"keep the stream for longer than the mill may rest; now {AGAIN}",
    SourceRegressed: f"bring the stream back as it was, or {AGAIN}",
    SourceRewritten: f"bring the stream back as it was and run again, or {AGAIN}",
}


def advise(error: FloodmarkError) -> None:
    """Give the error a next step that a mill has."""
    error.hint = HINTS.get(type(error), error.hint)
