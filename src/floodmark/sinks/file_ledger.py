"""The ledger of the files sink: one small page inside the folder of each batch, published together with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from floodmark.errors import ConfigError

PAGE = "_floodmark.json"
FOLDER = "batch="


@dataclass(frozen=True)
class Page:
    """Which batch a folder holds, for which ledger, and the rows of each of its files."""

    ledger: str
    number: int
    digest: str | None = None
    job: str | None = None
    rows: int = 0
    files: Mapping[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        (folder / PAGE).write_text(json.dumps(asdict(self), sort_keys=True), encoding="utf-8")


def batch_folder(folder: Path, number: int) -> Path:
    """Where a batch is published."""
    return folder / f"{FOLDER}{number}"


def numbers(folder: Path) -> tuple[int, ...]:
    """The batches that were published here."""
    if not folder.exists():
        return ()
    with os.scandir(folder) as entries:
        labels = [entry.name.removeprefix(FOLDER) for entry in entries if entry.name.startswith(FOLDER)]
    return tuple(int(label) for label in labels if label.isdigit())


def newest_page(folder: Path, ledger: str) -> Page | None:
    """The highest batch. Numbers mean nothing across jobs, so a folder belongs to one ledger: raises ConfigError."""
    newest = max(numbers(folder), default=None)
    page = page_of(folder, newest) if newest is not None else None
    if page is not None and page.ledger != ledger:
        raise ConfigError(
            f"{folder} belongs to {page.ledger}, and {ledger} would write into it.", hint="give each job its own folder"
        )
    return page


def make_durable(folder: Path, *, contents: bool = True) -> None:
    """Bring a folder, and what is directly in it, from the system's memory to the disk."""
    for path in (*(folder.iterdir() if contents else ()), folder):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def page_of(folder: Path, number: int) -> Page:
    """What the batch's own page says; raises ConfigError if it has none, for then it is not this sink's."""
    published = batch_folder(folder, number)
    try:
        return Page(**json.loads((published / PAGE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{published} has no readable {PAGE}: it was not published by this sink, or was damaged ({error}).",
            hint="move that folder away, or give the sink a folder of its own",
        ) from error
