"""Which of the listed files the next batch reads: pure decisions over what was seen and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from floodmark.errors import ConfigError, MarkInvalid, SourceRewritten
from floodmark.hwm import HWM, FileListHWM, FileModifiedTimeHWM, FileMoment, FileStat, Json, Span
from floodmark.probes.files import SeenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

OnRewritten = Literal["fail", "reread"]
NANOSECONDS = 10**9
SEEN = "seen"


@dataclass(frozen=True)
class Choice:
    """The files of the next batch in reading order, its span, and what to remember beside the mark."""

    files: tuple[SeenFile, ...]
    span: Span | None
    extras: Mapping[str, Json]


@dataclass(frozen=True)
class Chooser:
    """What both ways of choosing share: the source's words, its folder, and how many rows fit."""

    source: str
    name: str
    directory: str
    on_rewritten: OnRewritten
    start: str | None
    fitting: Callable[[list[SeenFile]], list[SeenFile]]

    def by_list(self, settled: Iterable[SeenFile], mark: HWM[Any] | None) -> Choice:
        """Every file the mark does not know. Under `--from` older files count as read, known ones are read again."""
        known: Mapping[str, FileStat | None] = mark.value if mark and not self.start else {}
        fresh = [seen for seen in settled if seen.path not in known or self._is_rewritten(seen, known[seen.path])]
        chosen = self._chosen(seen for seen in fresh if seen.mtime_ns >= self._start_ns)
        if not chosen:
            return Choice((), None, {})
        passed = [seen for seen in fresh if seen.mtime_ns < self._start_ns]
        upto = FileListHWM(self.name, _stats_of((*passed, *chosen)), directory=self.directory)
        return Choice(tuple(chosen), Span(None, upto, _detail_of(chosen) if passed else {}), {})

    def by_modified(
        self, settled: Iterable[SeenFile], mark: HWM[Any] | None, lag_seconds: float, extras: Mapping[str, Json]
    ) -> Choice:
        """Every file after the mark, and those within the lag before it that are not remembered as read.

        Without anything remembered (a mark that somebody set) the mark alone decides.
        """
        lag_ns, seen_before = int(lag_seconds * NANOSECONDS), _remembered(extras)
        chosen = self._chosen(self._due(settled, mark, lag_ns, seen_before))
        if not chosen:
            return Choice((), None, {})
        last = FileMoment(chosen[-1].mtime_ns, chosen[-1].path)
        upto = mark.update(last) if mark else FileModifiedTimeHWM(self.name, last, directory=self.directory)
        keep_from_ns = (upto.value or last).modified_ns - lag_ns
        known = {**(seen_before or {}), **_stats_of(chosen)}
        kept: dict[str, Json] = {path: list(stat) for path, stat in known.items() if stat.modified_ns >= keep_from_ns}
        return Choice(tuple(chosen), Span(mark, upto, _detail_of(chosen)), {SEEN: kept})

    def _chosen(self, due: Iterable[SeenFile]) -> list[SeenFile]:
        return self.fitting(sorted(due, key=_in_order))

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
