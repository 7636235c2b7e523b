"""What a failed read of files really met, told from Spark's error: a malformed record, or an unexpected CSV header."""

from __future__ import annotations

import re
from urllib.parse import unquote

from floodmark.errors import RecordMalformed
from floodmark.sources.file_reading import MARKER, FileReading

CSV_HEADER = re.compile(
    r"(?:CSV header does not conform to the schema|Number of column in CSV header).*?"
    r"Header(?: length)?: (?P<header>[^\n]*)\n.*?CSV file: (?P<file>[^\n]*)",
    re.DOTALL,
)


def first_malformed(error: Exception, files: FileReading, *, source: str) -> RecordMalformed | None:
    """The first malformed record of these files, if that is what the error is about."""
    text = str(error)
    header = CSV_HEADER.search(text)
    if header:
        file = unquote(header["file"]).removeprefix("file://")
        return RecordMalformed(source, file=file, line=1, text=header["header"].strip())
    if MARKER not in text:
        return None
    first = files.dead().orderBy("file", "line").limit(1).collect()
    return RecordMalformed(source, file=first[0].file, line=first[0].line, text=first[0].text) if first else None
