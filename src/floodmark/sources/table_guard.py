"""Words that a guard within a read fails with, and how they are found again in Spark's long error."""

from __future__ import annotations

import re

from floodmark.errors import SourceUnreadable

BEGIN, END = "[floodmark] ", " [/floodmark]"
GUARDED = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)


def explained(error: Exception, source: str) -> SourceUnreadable | None:
    """What one of our guards met, if that is what failed."""
    found = GUARDED.search(str(error))
    if not found:
        return None
    hint = "say how the column shall be read, as in `types: {column: string}`, or mend the row"
    return SourceUnreadable(source, reason=found[1], hint=hint)
