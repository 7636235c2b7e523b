"""Files as a source: those that the mark does not know yet, or those modified after it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.errors import ConfigError, MarkInvalid, SourceRewritten, SourceUnreadable, UnknownKind
from floodmark.hwm import HWM, FileListHWM, FileModifiedTimeHWM, FileMoment, FileStat, Json, Span
from floodmark.hwm.parsing import seconds_in
from floodmark.locations import is_remote, path_in_marks
from floodmark.logs import without_login
from floodmark.probes.files import SeenFile, current_files, list_files, rows_in
from floodmark.sources.contract import Immutable, Reading, Request, Session, Sight
from floodmark.sources.files.reading import FileReading, Format, Malformed

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


OnRewritten = Literal["fail", "reread"]
NANOSECONDS = 10**9
SEEN = "seen"
By = Literal["list", "modified"]
FOOTERS_READ_FOR_A_PLAN = 100


@dataclass(frozen=True)
class Files(Immutable):
    """Files in a folder, on a local disk or behind a URL (s3://, gs://, hdfs://), or one file.

    `json` is one JSON value per file (an object, or a list of them), `jsonl` one per line; `csv` has a header unless
    `options` say otherwise, and without a schema its columns are text. A `schema` (DDL text or StructType) saves the
    pass that infers one, and keeps batches from differing. `by` list remembers every file; by modified keeps one time
    and the files of the last `lag`. A file younger than `settle` may still be written, and waits.

    >>> Files("incoming", format="jsonl", schema="id long, amount double").by
    'list'
    """

    path: str | os.PathLike[str]
    format: Format = "jsonl"
    schema: str | StructType | None = None
    by: By = "list"
    name: str = "files"
    options: Mapping[str, str] | None = None
    settle: str | float = "5s"
    lag: str | float = "1h"
    on_rewritten: OnRewritten = "fail"
    glob: str | None = None
    recursive: bool = True
    malformed: Malformed = "fail"
    now: Callable[[], float] = field(default=time.time, compare=False, repr=False)

    def __post_init__(self) -> None:
        _require_known("file format", self.format, Format)
        _require_known("way to choose files", self.by, By)
        _require_known("on_rewritten", self.on_rewritten, OnRewritten)
        _require_known("malformed", self.malformed, Malformed)
        seconds_in(self.settle, field="settle")
        seconds_in(self.lag, field="lag")

    def fingerprint(self, session: Session) -> str:
        """Where the files are and how they are read; never with a login."""
        glob = f", only {self.glob}" if self.glob else ""
        return f"files {without_login(path_in_marks(self.path))} ({self.format}, by {self.by}{glob})"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        """One listing of the folder.

        Raises SourceUnreadable if it cannot be listed, SourceRewritten if a file that was read is another one now.
        """
        listed = list_files(path_in_marks(self.path), recursive=self.recursive, glob=self.glob)
        unsettled = UnsettledFiles.among(listed, seconds_in(self.settle, field="settle"), self.now())
        choice = self._choose(unsettled.others_in(listed), mark, request)
        return Sight(
            choice.span,
            held_back=len(unsettled.files),
            held_reason=unsettled.reason(self.settle),
            settles_in_seconds=unsettled.seconds,
            expected_rows=self._expected_rows(choice.files),
            expected_bytes=sum(seen.size for seen in choice.files),
            extras=choice.extras,
        )

    def read(self, spark: SparkSession, span: Span) -> Reading:
        """The rows of the span's files. Raises SourceRewritten if one of them is gone or changed since."""
        files = files_of(span)
        self._require_same(files, "since the batch was begun")
        return self._reading(spark, files).reading(self.malformed)

    def require_unchanged(self, span: Span) -> None:
        """Spark may have read half of a file as it was, and the rest as it is now."""
        self._require_same(files_of(span), "while it was read")

    def without_rows(self, spark: SparkSession) -> Reading:
        """The declared columns, else those of the newest file. Raises ConfigError if there is neither."""
        if self.schema is not None:
            return Reading(spark.createDataFrame([], self.schema))
        listed = list_files(path_in_marks(self.path), recursive=self.recursive, glob=self.glob)
        if not listed:
            raise ConfigError(
                f"source '{self.name}' has no file yet, so nothing tells its columns.",
                hint='declare them: schema: "id long, name string"',
            )
        return self._reading(spark, [max(listed, key=lambda seen: seen.mtime_ns)]).reading(self.malformed)

    def read_saved(self, saved: DataFrame) -> Reading:
        """Lines of JSON from the dead letters. Raises ConfigError if nothing says what they should be."""
        from floodmark.sources.files.reading import saved_lines

        if self.format != "jsonl" or self.schema is None:
            raise ConfigError(
                f"source '{self.name}' cannot parse a line of JSON by itself.",
                hint='it has to be of format jsonl, with a schema: "id long, name string"',
            )
        return saved_lines(saved, self.schema, self._options())

    def explain(self, error: Exception, spark: SparkSession, span: Span) -> SourceUnreadable | None:
        """The malformed record that a failed write met, with its file and line, or the file that Spark does not see."""
        from floodmark.sources.files.malformed import first_malformed, first_unseen

        files, source = self._reading(spark, files_of(span)), self.fingerprint(lambda: spark)
        return first_malformed(error, files, source=source) or first_unseen(error, files, source=source)

    def _choose(self, settled: list[SeenFile], mark: HWM[Any] | None, request: Request) -> FileChoice:
        chooser = FileChooser(
            source=f"files {without_login(path_in_marks(self.path))}",
            name=self.name,
            directory=self._directory(settled),
            on_rewritten=self.on_rewritten,
            start=request.start,
            first_fitting=lambda files: self._first_fitting(files, request.max_rows),
        )
        if self.by == "list":
            return chooser.by_list(settled, mark)
        return chooser.by_modified(settled, mark, seconds_in(self.lag, field="lag"), request.extras)

    def _directory(self, listed: list[SeenFile]) -> str:
        """The folder; for a path that is a file, the folder it lies in."""
        path = path_in_marks(self.path)
        is_file = len(listed) == 1 and listed[0].path == path
        return path.rsplit("/", 1)[0] or "/" if is_file else path

    def _first_fitting(self, files: list[SeenFile], max_rows: int | None) -> list[SeenFile]:
        """Whole files in order while their rows fit, and always the first: half a file has no mark."""
        if max_rows is None or not files:
            return files
        fitting, rows = files[:1], self._rows_in(files[0])
        for seen in files[1:]:
            rows += self._rows_in(seen)
            if rows > max_rows:
                break
            fitting.append(seen)
        return fitting

    def _expected_rows(self, files: tuple[SeenFile, ...]) -> int | None:
        if not files:
            return 0
        is_cheap = self.format == "parquet" and len(files) <= FOOTERS_READ_FOR_A_PLAN
        return sum(map(self._rows_in, files)) if is_cheap else None

    def _rows_in(self, seen: SeenFile) -> int:
        header = (self.options or {}).get("header", "true")
        return rows_in(seen.path, self.format, header=str(header).lower() == "true")

    def _reading(self, spark: SparkSession, files: list[SeenFile]) -> FileReading:
        paths, sizes = tuple(seen.path for seen in files), [seen.size for seen in files]
        size = sum(sizes) if min(sizes, default=-1) >= 0 else None
        return FileReading(spark, paths, self.format, self.schema, self._options(), _times_differ(files), size)

    def _options(self) -> dict[str, str]:
        return {name: _option_text(value) for name, value in (self.options or {}).items()}

    def _require_same(self, files: list[SeenFile], when: str) -> None:
        """Spark would read what is there now; after a crash the batch has to be the one that was begun."""
        found = current_files(seen.path for seen in files)
        for seen in files:
            there = found.get(seen.path)
            if there is None or (seen.size >= 0 and there != seen):
                raise SourceRewritten(
                    f"files {without_login(path_in_marks(self.path))}",
                    what=f"{seen.path} {_difference(seen, there)} {when}",
                    hint="bring the file back as it was and run again, or `floodmark run --abandon` to drop the open "
                    "batch and plan it again from what is there now",
                )


@dataclass(frozen=True)
class UnsettledFiles:
    """Files so young that somebody may still be writing them, and how long until the last of them counts as whole."""

    files: tuple[SeenFile, ...]
    seconds: float | None

    @classmethod
    def among(cls, listed: list[SeenFile], settle_seconds: float, now: float) -> UnsettledFiles:
        """Those of the listed files that changed less than this many seconds before now."""
        now_ns, settle_ns = int(now * NANOSECONDS), int(settle_seconds * NANOSECONDS)
        young = tuple(seen for seen in listed if now_ns - seen.mtime_ns < settle_ns)
        # A time in the future is no reason to wait for it: such a file is shown as held back until its time has come.
        waits = [settle_ns - (now_ns - seen.mtime_ns) for seen in young if seen.mtime_ns <= now_ns + NANOSECONDS]
        return cls(young, max(waits) / NANOSECONDS if waits else None)

    def others_in(self, listed: list[SeenFile]) -> list[SeenFile]:
        """The files that nobody has to wait for."""
        waiting = set(self.files)
        return [seen for seen in listed if seen not in waiting] if waiting else listed

    def reason(self, settle: str | float) -> str | None:
        """Why they wait, in words that name one of them."""
        if not self.files:
            return None
        others = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.files[0].path}{others} changed less than {settle} ago, or has a time in the future"


@dataclass(frozen=True)
class FileChoice:
    """The files of the next batch in reading order, its span, and what to remember beside the mark."""

    files: tuple[SeenFile, ...]
    span: Span | None
    extras: Mapping[str, Json]


@dataclass(frozen=True)
class FileChooser:
    """Decides which of the listed files the next batch reads, over what was seen and what is remembered.

    Both ways of choosing share the source's words, its folder, and how many rows fit.
    """

    source: str
    name: str
    directory: str
    on_rewritten: OnRewritten
    start: str | None
    first_fitting: Callable[[list[SeenFile]], list[SeenFile]]

    def by_list(self, settled: Iterable[SeenFile], mark: HWM[Any] | None) -> FileChoice:
        """Every file the mark does not know. Under `--from` older files count as read, known ones are read again."""
        known: Mapping[str, FileStat | None] = mark.value if mark and not self.start else {}
        fresh = [seen for seen in settled if seen.path not in known or self._is_rewritten(seen, known[seen.path])]
        chosen = self._choose(seen for seen in fresh if seen.mtime_ns >= self._start_ns)
        if not chosen:
            return FileChoice((), None, {})
        passed = [seen for seen in fresh if seen.mtime_ns < self._start_ns]
        upto = FileListHWM(self.name, _stats_of((*passed, *chosen)), directory=self.directory)
        return FileChoice(tuple(chosen), Span(None, upto, _detail_of(chosen) if passed else {}), {})

    def by_modified(
        self, settled: Iterable[SeenFile], mark: HWM[Any] | None, lag_seconds: float, extras: Mapping[str, Json]
    ) -> FileChoice:
        """Every file after the mark, and those within the lag before it that are not remembered as read.

        Without anything remembered (a mark that somebody set) the mark alone decides.
        """
        lag_ns, seen_before = int(lag_seconds * NANOSECONDS), _remembered(extras)
        chosen = self._choose(self._due(settled, mark, lag_ns, seen_before))
        if not chosen:
            return FileChoice((), None, {})
        last = FileMoment(chosen[-1].mtime_ns, chosen[-1].path)
        upto = mark.update(last) if mark else FileModifiedTimeHWM(self.name, last, directory=self.directory)
        keep_from_ns = (upto.value or last).modified_ns - lag_ns
        known = {**(seen_before or {}), **_stats_of(chosen)}
        kept: dict[str, Json] = {path: list(stat) for path, stat in known.items() if stat.modified_ns >= keep_from_ns}
        return FileChoice(tuple(chosen), Span(mark, upto, _detail_of(chosen)), {SEEN: kept})

    def _choose(self, due: Iterable[SeenFile]) -> list[SeenFile]:
        return self.first_fitting(sorted(due, key=_in_order))

    def _due(
        self,
        settled: Iterable[SeenFile],
        mark: HWM[Any] | None,
        lag_ns: int,
        seen_before: Mapping[str, FileStat] | None,
    ) -> Iterator[SeenFile]:
        if self.start or mark is None or mark.value is None:
            return (seen for seen in settled if seen.mtime_ns >= self._start_ns)
        if seen_before is None:
            return (seen for seen in settled if not mark.covers(FileMoment(seen.mtime_ns, seen.path)))
        floor_ns = mark.value.modified_ns - lag_ns
        return (
            seen
            for seen in settled
            if seen.mtime_ns >= floor_ns
            and (seen.path not in seen_before or self._is_rewritten(seen, seen_before[seen.path]))
        )

    def _is_rewritten(self, seen: SeenFile, known: FileStat | None) -> bool:
        """Whether a file that was read is another one now; stops the run where the source says `fail`."""
        if known is None or known == (seen.size, seen.mtime_ns):
            return False
        if self.on_rewritten == "reread":
            return True
        raise SourceRewritten(
            self.source,
            what=f"{seen.path} was {known.size} bytes when it was read and has {seen.size} bytes now"
            + (", written anew" if known.size == seen.size else ""),
            hint="`on_rewritten: reread` reads such files again (a merge sink then keeps one row per key), "
            "or put new rows into new files and restore this one",
        )

    @property
    def _start_ns(self) -> int:
        return moment_ns(self.start) if self.start else -(2**63)


def _in_order(seen: SeenFile) -> tuple[int, str]:
    return seen.mtime_ns, seen.path


def moment_ns(text: str) -> int:
    """The user's `--from` as nanoseconds; a time without a zone is UTC."""
    try:
        value = FileModifiedTimeHWM("from", text).value
    except MarkInvalid as error:
        hint = "a time such as 2026-01-31 or 2026-01-31T12:00:00Z"
        raise ConfigError(f"--from {text}: {error.reason}.", hint=hint) from error
    return value.modified_ns if value else 0


def _remembered(extras: Mapping[str, Json]) -> dict[str, FileStat] | None:
    seen: Any = extras.get(SEEN)
    return None if seen is None else {path: FileStat(*stat) for path, stat in seen.items()}


def _stats_of(files: Iterable[SeenFile]) -> dict[str, FileStat]:
    return {seen.path: FileStat(seen.size, seen.mtime_ns) for seen in files}


def _detail_of(files: Iterable[SeenFile]) -> dict[str, Json]:
    return {"files": [list(seen) for seen in files]}


def files_of(span: Span) -> list[SeenFile]:
    """The files that a span reads, as they were when it was fixed; a size below zero was not known."""
    listed: Any = span.detail.get("files")
    if listed is not None:
        return [SeenFile(*each) for each in listed]
    stats: Mapping[str, FileStat | None] = span.upto.value
    return [SeenFile(path, *(stat or (-1, -1))) for path, stat in stats.items()]


def _times_differ(files: list[SeenFile]) -> bool:
    """Whether modification times differ as Spark sees them: in milliseconds on a disk, and who knows elsewhere."""
    times = {seen.mtime_ns // (NANOSECONDS // 1000) for seen in files}
    return len(times) == len(files) and not any(is_remote(seen.path) for seen in files)


def _difference(seen: SeenFile, there: SeenFile | None) -> str:
    if there is None:
        return "is gone"
    if there.size != seen.size:
        return f"went from {seen.size} to {there.size} bytes"
    return f"was written again, with the same {seen.size} bytes"


def _option_text(value: object) -> str:
    """Spark's options are text, and its true is lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _require_known(thing: str, value: str, kinds: object) -> None:
    if value not in get_args(kinds):
        raise UnknownKind(thing, value, known=get_args(kinds))
