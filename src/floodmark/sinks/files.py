"""Files on a local disk as a sink: each batch is a folder that appears whole, by one rename, with its ledger in it.

The ledger is a small manifest inside the folder of each batch. Rows are counted in what was written, exactly.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from floodmark.errors import ConfigError
from floodmark.formats import with_format, without_format
from floodmark.locations import local_path
from floodmark.machine import file_lock
from floodmark.sinks.contract import Atomic, Batch, Recorded, Session, is_ledger, without_own

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FileFormat = Literal["jsonl", "json", "csv", "parquet", "text"]
CHUNK_BYTES = 1 << 20
MANIFEST = "_floodmark.json"
FOLDER = "batch="
WORK = "_floodmark"
"""Where attempts are written; begins with an underscore, so no reader looks into it."""


@dataclass(frozen=True)
class Files(Atomic):
    """Rows as files below `path`, one folder `batch=<number>` per batch; `json` files hold a JSON list each."""

    path: str
    format: FileFormat = "jsonl"
    name: str = "files"
    mode: Literal["append"] = "append"

    def __post_init__(self) -> None:
        self._folder  # noqa: B018 (now: it may be refused, and a relative path is of today's folder)
        if self.format not in get_args(FileFormat):
            raise ConfigError(
                f"format: {self.format!r} is not known.", hint=f"one of: {', '.join(get_args(FileFormat))}"
            )
        if self.mode != "append":
            raise ConfigError(f"mode: {self.mode!r} is not known to the files sink.", hint="leave it out: it appends")

    @cached_property
    def _folder(self) -> Path:
        folder = local_path(self.path)
        if folder is None:
            raise ConfigError(
                f"the files sink writes to local disks only, not to {self.path}.",
                hint="use a sink of type delta there: a rename does not publish a folder at once on an object store",
            )
        return folder

    def describe(self) -> str:
        return f"{self.format} files in {self._folder}"

    def fingerprint(self) -> str:
        return f"files {self._folder} {self.format}"

    def recorded(self, ledger: str, session: Session) -> Recorded | None:
        newest = self._newest(ledger)
        return Recorded(newest.number, newest.digest) if newest else None

    def holds_rows(self, session: Session) -> bool:
        """Files that others put there count: a reader sees them too."""
        self._finish_swap()
        if any(manifest_of(self._folder, number).rows for number in batch_numbers(self._folder)):
            return True
        there = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
        return any(not name.startswith(("_", ".", FOLDER)) for name in there)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        ledger = batch.ledger(self.name)
        newest = self._newest(ledger)
        if newest is None or newest.number < batch.number:
            self._write(rows, batch)
        self._clean()
        return manifest_of(self._folder, batch.number).rows if batch.number in batch_numbers(self._folder) else None

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Publish an empty batch: whoever is paused with this number or a lower one finds it, and publishes nothing."""
        staged = self._folder / WORK / f"{number}-fence-{uuid.uuid4().hex}"
        staged.mkdir(parents=True)
        Manifest(ledger, number).write(staged)
        self._publish(staged, ledger, number)

    def _write(self, rows: DataFrame, batch: Batch) -> None:
        label = f"{batch.number}-{batch.attempt}-{uuid.uuid4().hex[:8]}"
        staged = self._folder / WORK / label
        write_files(without_own(rows), staged, self.format)
        self._sign(staged, batch)
        if batch.kind == "refresh":
            self._swap(staged, batch.number, label)
        else:
            self._publish(staged, batch.ledger(self.name), batch.number)

    def _sign(self, staged: Path, batch: Batch) -> None:
        """Leave only data files, count them, and put the manifest beside them."""
        counts: dict[str, int] = {}
        for file in sorted(staged.iterdir()):
            if not file.name.startswith("part-") or is_empty_list_file(file, self.format):
                file.unlink()
            else:
                counts[file.name] = count_rows(file, self.format)
        ledger, rows = batch.ledger(self.name), sum(counts.values())
        Manifest(ledger, batch.number, batch.digest, batch.job, rows, counts).write(staged)

    def _publish(self, staged: Path, ledger: str, number: int) -> None:
        """One rename, unless this number or a higher one was published meanwhile."""
        make_durable(staged)
        with self._alone():
            newest = self._newest(ledger)
            if newest is not None and newest.number >= number:
                shutil.rmtree(staged)
                return
            staged.rename(batch_folder(self._folder, number))
            make_durable(self._folder, contents=False)

    def _swap(self, staged: Path, number: int, label: str) -> None:
        """Exchange the whole target; a crash between the two renames is finished by whoever opens it next."""
        new, old = (self._beside(f"{what}-{label}") for what in ("new", "old"))
        building = self._beside(f"building-{label}")
        building.mkdir()
        make_durable(staged)
        staged.rename(batch_folder(building, number))
        make_durable(building, contents=False)
        with self._alone():
            building.rename(new)
            self._folder.rename(old)
            new.rename(self._folder)
            make_durable(self._folder.parent, contents=False)
        shutil.rmtree(old)

    def _finish_swap(self) -> None:
        """A folder called new is complete, so where the target is gone it takes its place."""
        if self._folder.exists() or not self._complete_swaps():
            return
        with self._alone():
            swaps = self._complete_swaps()
            if swaps and not self._folder.exists():
                swaps[-1].rename(self._folder)

    def _complete_swaps(self) -> list[Path]:
        return sorted(self._folder.parent.glob(f".{self._folder.name}.new-*"))

    def _clean(self) -> None:
        """What older attempts left behind; only called by a run that holds the job's lease."""
        shutil.rmtree(self._folder / WORK, ignore_errors=True)
        for leftover in self._folder.parent.glob(f".{self._folder.name}.*-*"):
            if leftover.name.startswith(tuple(f".{self._folder.name}.{what}-" for what in ("building", "new", "old"))):
                shutil.rmtree(leftover, ignore_errors=True)

    def _newest(self, ledger: str) -> Manifest | None:
        self._finish_swap()
        return newest_manifest(self._folder, ledger)

    def _beside(self, what: str) -> Path:
        return self._folder.parent / f".{self._folder.name}.{what}"

    def _alone(self) -> AbstractContextManager[int]:
        """Between the check and the rename nobody else publishes here."""
        return file_lock(self._beside("lock"))


@dataclass(frozen=True)
class Manifest:
    """Which batch a folder holds, for which ledger, and the rows of each of its files."""

    ledger: str
    number: int
    digest: str | None = None
    job: str | None = None
    rows: int = 0
    files: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(with_format(asdict(self)), sort_keys=True), encoding="utf-8")


def batch_folder(folder: Path, number: int) -> Path:
    """Where a batch is published."""
    return folder / f"{FOLDER}{number}"


def batch_numbers(folder: Path) -> tuple[int, ...]:
    """The batches that were published here."""
    if not folder.exists():
        return ()
    with os.scandir(folder) as entries:
        labels = [entry.name.removeprefix(FOLDER) for entry in entries if entry.name.startswith(FOLDER)]
    return tuple(int(label) for label in labels if label.isdigit())


def manifest_of(folder: Path, number: int) -> Manifest:
    """What the batch's own manifest says; raises ConfigError if it has none, for then it is not this sink's."""
    published = batch_folder(folder, number)
    try:
        stored = json.loads((published / MANIFEST).read_text(encoding="utf-8"))
        return Manifest(**without_format(stored, MANIFEST, where=str(published)))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{published} has no readable {MANIFEST}: it was not published by this sink, or was damaged ({error}).",
            hint="move that folder away, or give the sink a folder of its own",
        ) from error


def newest_manifest(folder: Path, ledger: str) -> Manifest | None:
    """The highest batch. Numbers mean nothing across jobs, so a folder belongs to one ledger: raises ConfigError."""
    newest = max(batch_numbers(folder), default=None)
    manifest = manifest_of(folder, newest) if newest is not None else None
    if manifest is not None and not is_ledger(manifest.ledger, ledger):
        raise ConfigError(
            f"{folder} belongs to {manifest.ledger}, and {ledger} would write into it.",
            hint="give each job its own folder",
        )
    return manifest


def make_durable(folder: Path, *, contents: bool = True) -> None:
    """Bring a folder, and what is directly in it, from the system's memory to the disk."""
    for path in (*(folder.iterdir() if contents else ()), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_files(rows: DataFrame, folder: Path, file_format: FileFormat) -> None:
    """Part files below the folder; columns that are NULL are written too, so that every record has the same fields."""
    target = f"file:{folder}"
    if file_format == "parquet":
        rows.write.parquet(target)
    elif file_format == "csv":
        # A quote within a value is doubled, as RFC 4180 has it: Spark's backslash is read by few others.
        rows.write.option("header", True).option("escape", '"').csv(target)
    elif file_format == "jsonl":
        rows.write.option("ignoreNullFields", False).json(target)
    elif file_format == "text":
        rows.write.text(target)  # one column, whose values hold no line break
    else:
        _as_lists(rows).write.text(target)


def _as_lists(rows: DataFrame) -> DataFrame:
    """One JSON list per partition, a line per record, without holding more than a batch of them."""
    from pyspark.sql import functions as F

    from floodmark.locations import quote

    record = F.to_json(F.struct(*map(quote, rows.columns)), {"ignoreNullFields": "false"})
    return rows.select(record.alias("value")).mapInArrow(_bracketed, "value string")


def _bracketed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    def lines(texts: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"value": texts}, schema=pa.schema([("value", pa.string())]))

    yield lines(["["])
    comma = ""
    for batch in batches:
        texts = []
        for text in batch.column(0).to_pylist():
            texts.append(comma + text)
            comma = ","
        yield lines(texts)
    yield lines(["]"])


def is_empty_list_file(file: Path, file_format: FileFormat) -> bool:
    """Without any partition Spark's text writer leaves a file without a byte, which is no JSON."""
    return file_format == "json" and file.stat().st_size == 0


def count_rows(file: Path, file_format: FileFormat) -> int:
    """The rows of one file that `write_files` wrote."""
    return COUNTERS[file_format](file)


def _lines(file: Path) -> int:
    """Our writers end every line, and JSON has no line break within a record."""
    with file.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""))


def _csv_rows(file: Path) -> int:
    """Line ends outside quotes, less the header; every quote is a bound or doubled, so their parity tells."""
    records, outside = 0, True
    with file.open("rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            for place, piece in enumerate(chunk.split(b'"')):
                outside = outside if place == 0 else not outside
                records += piece.count(b"\n") if outside else 0
    return max(records - 1, 0)


def _parquet_rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


COUNTERS: dict[str, Callable[[Path], int]] = {
    "jsonl": _lines,
    "text": _lines,
    "json": lambda file: max(_lines(file) - 2, 0),
    "csv": _csv_rows,
    "parquet": _parquet_rows,
}
