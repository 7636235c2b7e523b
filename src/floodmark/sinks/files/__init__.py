"""Files on a local disk as a sink: each batch is a folder that appears whole, by one rename, with its ledger in it.

The ledger is a small manifest inside the folder of each batch. Rows are counted in what was written, exactly.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from floodmark.errors import ConfigError, SinkUnreachable
from floodmark.locations import local_path
from floodmark.machine import ensure_folder, file_lock, sync_folder
from floodmark.sinks.contract import Atomic, Batch, Recorded, Session, is_written, without_own
from floodmark.sinks.files.folders import (
    FOLDER,
    FileFormat,
    Manifest,
    as_written,
    batch_folder,
    batch_numbers,
    count_rows,
    is_empty_list_file,
    last_batch,
    make_durable,
    manifest_of,
    newest_manifest,
    numbered_folders,
    write_files,
)
from floodmark.sinks.values import refusals_of_values
from floodmark.spark.faults import FolderMarker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORK = "_floodmark"
"""Where attempts are written; begins with an underscore, so no reader looks into it."""
LOCK_SECONDS = 60.0
"""Nobody holds the lock for longer than it takes to rename folders, unless the process was stopped within it."""


@dataclass(frozen=True)
class Files(Atomic):
    """Rows as files below `path`, one folder `batch=<number>` per batch; `json` files hold a JSON list each.

    >>> Files("out/orders", format="parquet").mode
    'append'
    """

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
        self._finish_open_swap()
        newest = newest_manifest(self._folder, ledger)
        if newest is None:
            return None
        recorded = newest.recorded()
        return replace(recorded, before=last_batch(self._folder)) if recorded.is_fence else recorded

    def holds_rows(self, session: Session) -> bool:
        """Files that others put there count: a reader sees them too."""
        self._finish_open_swap()
        if any(manifest_of(self._folder, number).rows for number in batch_numbers(self._folder)):
            return True
        there = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
        return any(not name.startswith(("_", ".", FOLDER)) for name in there)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        written = as_written(without_own(rows), self.format)
        staged = self._folder / WORK / f"{batch.number}-{batch.attempt}-{uuid.uuid4().hex[:8]}"
        with self._alone():
            published = self._published(batch)
            if published is not None:
                return published.rows
            marker = FolderMarker.put_into(staged)
        try:
            with refusals_of_values(batch.job, self.name):
                write_files(marker.guard(written), staged, self.format)
            marker.require()
            manifest = self._sign(staged, batch)
        except Exception:
            with self._alone():
                self._discard(staged)
                published = self._published(batch)  # whoever published the number may have removed these files
            if published is None:
                raise
            return published.rows
        return self._publish(staged, manifest, batch)

    def counts_every_row(self) -> bool:
        """The manifest has what was counted in the files themselves."""
        return True

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Publish an empty batch: whoever is paused with this number or a lower one finds it, and publishes nothing."""
        with self._alone():
            newest = newest_manifest(self._folder, ledger)
            if newest is not None and newest.number >= number:
                return
            staged = self._folder / WORK / f"{number}-fence-{uuid.uuid4().hex[:8]}"
            staged.mkdir(parents=True)
            Manifest(ledger, number).write(staged)
            make_durable(staged)
            self._name(staged, number)
            self._discard(staged)

    def _sign(self, staged: Path, batch: Batch) -> Manifest:
        """Leave only data files, count them, and put the manifest beside them."""
        counts: dict[str, int] = {}
        for file in sorted(staged.iterdir()):
            if not file.name.startswith("part-") or is_empty_list_file(file, self.format):
                file.unlink()
            else:
                counts[file.name] = count_rows(file, self.format)
        ledger, rows = batch.ledger(self.name), sum(counts.values())
        manifest = Manifest(ledger, batch.number, batch.digest, batch.job, rows, counts)
        manifest.write(staged)
        return manifest

    def _publish(self, staged: Path, manifest: Manifest, batch: Batch) -> int:
        """One rename, or one swap; unless the number was taken meanwhile, by this batch or by somebody else."""
        make_durable(staged)
        old = None
        with self._alone():
            try:
                published = self._published(batch)
                if published is None and batch.kind == "refresh":
                    old = self._swap(staged, batch.number)
                elif published is None:
                    self._name(staged, batch.number)
            finally:
                self._discard(staged)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        return published.rows if published else manifest.rows

    def _published(self, batch: Batch) -> Manifest | None:
        """This very batch, if it is there; asked under the lock. Raises Overtaken, SinkBehind and SinkDisagrees."""
        newest = newest_manifest(self._folder, batch.ledger(self.name))
        recorded = newest.recorded() if newest else None
        return newest if is_written(recorded, batch, self.name, self.describe()) else None

    def _name(self, staged: Path, number: int) -> None:
        """Give a complete folder the name that readers look for; under the lock."""
        staged.rename(batch_folder(self._folder, number))
        sync_folder(self._folder)
        self._remove_leftovers(number)

    def _swap(self, staged: Path, number: int) -> Path:
        """Exchange the whole target, under the lock; a crash between the two renames is finished by the next look."""
        new, old, building = (self._beside(f"{what}-{staged.name}") for what in ("new", "old", "building"))
        building.mkdir()
        staged.rename(batch_folder(building, number))
        sync_folder(building)
        self._remove_leftovers(number, but=building)  # an older `new` could be taken for this one after a crash
        building.rename(new)
        sync_folder(new.parent)  # the new folder is there for good before the old one goes
        self._folder.rename(old)
        new.rename(self._folder)
        sync_folder(new.parent)
        if any(numbered_folders(old / WORK)):  # an attempt with a higher number is at work in it
            (old / WORK).rename(self._folder / WORK)
        return old

    def _finish_open_swap(self) -> None:
        """For who only looks; one that has no swap to finish takes no lock and makes no file."""
        if not self._folder.exists() and self._beside_numbers("new"):
            with self._alone():
                return

    def _finish_swap(self) -> None:
        """A folder called new is complete, so where the target is gone it takes its place."""
        swaps = self._beside_numbers("new") if not self._folder.exists() else {}
        if swaps:
            max(swaps, key=swaps.__getitem__).rename(self._folder)
            sync_folder(self._folder.parent)

    def _remove_leftovers(self, number: int, but: Path | None = None) -> None:
        """What attempts of this number and lower ones left; under the lock, where none of them can publish any more.

        An attempt that is still at work finds its folder gone as a whole, never half of it: it is renamed first.
        """
        left = numbered_folders(self._folder / WORK)
        left |= self._beside_numbers("building") | self._beside_numbers("new") | self._beside_numbers("old")
        for path in (path for path, owner in left.items() if owner <= number and path != but):
            gone = path.with_name(f"{path.name}-gone")
            with suppress(FileNotFoundError):  # its owner may be removing it too
                path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _discard(self, staged: Path) -> None:
        """Remove this attempt's own folder, if it has not become a batch, and the one around it, if nobody needs it."""
        shutil.rmtree(staged, ignore_errors=True)
        with suppress(OSError):  # an attempt with a higher number is at work in it
            staged.parent.rmdir()

    def _beside_numbers(self, what: str) -> dict[Path, int]:
        """Folders that swaps left beside the target, and the batch of each."""
        return numbered_folders(self._folder.parent, self._beside(f"{what}-").name)

    def _beside(self, what: str) -> Path:
        return self._folder.parent / f".{self._folder.name}.{what}"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between the question for the number and the rename nobody else publishes, swaps or removes here."""
        ensure_folder(self._folder.parent)
        lock = self._beside("lock")
        try:
            with file_lock(lock, patience_seconds=LOCK_SECONDS):
                self._finish_swap()
                ensure_folder(self._folder)
                yield
        except TimeoutError as error:
            raise SinkUnreachable(
                self.describe(),
                reason=f"another process has held {lock} for {LOCK_SECONDS:g} s",
                hint="it may have been stopped within its write: let it go on, or end it; then run again",
            ) from error
