"""Files on a local disk as a sink: each batch is a folder that appears whole, by one rename, with its ledger in it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from floodmark.errors import ConfigError
from floodmark.probes.places import local_path
from floodmark.sinks.contract import Atomic, Batch, Recorded, Session
from floodmark.sinks.file_formats import FileFormat, count_rows, is_empty_list_file, write_files
from floodmark.sinks.file_ledger import FOLDER, Page, batch_folder, make_durable, newest_page, numbers, page_of
from floodmark.sinks.own_columns import without_own

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WORK = "_floodmark"
"""Where attempts are written; begins with an underscore, so no reader looks into it."""


@dataclass(frozen=True)
class Files(Atomic):
    """Rows as files below `path`, one folder `batch=<number>` per batch; `json` files hold a JSON list each."""

    path: str
    format: FileFormat = "jsonl"
    name: str = "files"
    mode: Literal["append"] = "append"
    _folder: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folder = local_path(self.path)
        if folder is None:
            raise ConfigError(
                f"the files sink writes to local disks only, not to {self.path}.",
                hint="use a sink of type delta there: a rename does not publish a folder at once on an object store",
            )
        if self.format not in get_args(FileFormat):
            raise ConfigError(
                f"format: {self.format!r} is not known.", hint=f"one of: {', '.join(get_args(FileFormat))}"
            )
        if self.mode != "append":
            raise ConfigError(f"mode: {self.mode!r} is not known to the files sink.", hint="leave it out: it appends")
        object.__setattr__(self, "_folder", folder)

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
        if any(page_of(self._folder, number).rows for number in numbers(self._folder)):
            return True
        there = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
        return any(not name.startswith(("_", ".", FOLDER)) for name in there)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        ledger = batch.ledger(self.name)
        newest = self._newest(ledger)
        if newest is None or newest.number < batch.number:
            self._write(rows, batch)
        self._clean()
        return page_of(self._folder, batch.number).rows if batch.number in numbers(self._folder) else None

    def fence(self, ledger: str, number: int, session: Session) -> None:
        """Publish an empty batch: whoever is paused with this number or a lower one finds it, and publishes nothing."""
        staged = self._folder / WORK / f"{number}-fence-{uuid.uuid4().hex}"
        staged.mkdir(parents=True)
        Page(ledger, number).write(staged)
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
        """Leave only data files, count them, and put the ledger page beside them."""
        counts: dict[str, int] = {}
        for file in sorted(staged.iterdir()):
            if not file.name.startswith("part-") or is_empty_list_file(file, self.format):
                file.unlink()
            else:
                counts[file.name] = count_rows(file, self.format)
        page = Page(batch.ledger(self.name), batch.number, batch.digest, batch.job, sum(counts.values()), counts)
        page.write(staged)

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
        if self._folder.exists() or not self._complete():
            return
        with self._alone():
            waiting = self._complete()
            if waiting and not self._folder.exists():
                waiting[-1].rename(self._folder)

    def _complete(self) -> list[Path]:
        return sorted(self._folder.parent.glob(f".{self._folder.name}.new-*"))

    def _clean(self) -> None:
        """What older attempts left behind; only called by a run that holds the job's lease."""
        shutil.rmtree(self._folder / WORK, ignore_errors=True)
        for leftover in self._folder.parent.glob(f".{self._folder.name}.*-*"):
            if leftover.name.startswith(tuple(f".{self._folder.name}.{what}-" for what in ("building", "new", "old"))):
                shutil.rmtree(leftover, ignore_errors=True)

    def _newest(self, ledger: str) -> Page | None:
        self._finish_swap()
        return newest_page(self._folder, ledger)

    def _beside(self, what: str) -> Path:
        return self._folder.parent / f".{self._folder.name}.{what}"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Between the check and the rename nobody else publishes here; the system lets go when a process dies."""
        import fcntl

        handle = os.open(self._beside("lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
