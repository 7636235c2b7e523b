"""`floodmark marks import --from checkpoint:FOLDER`: a stream of Spark's is taken over without a gap or a repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.marks.checkpoint import END_INDEX, Checkpoint
from floodmark.errors import ConfigError
from floodmark.hwm import VersionHWM
from floodmark.sources import Delta


class NamedDelta(Delta):
    """A table whose id is known without one."""

    def fingerprint(self, session: object) -> str:
        return "delta t (table id abc)"


def written(folder: Path, *batches: dict[str, Any], committed: int | None = None) -> Checkpoint:
    """A checkpoint with the offset of one source for each batch, of which so many are committed."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    for number, offset in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{}}}}\n{json.dumps(offset)}'
        (folder / "offsets" / str(number)).write_text(text)
    for number in range(len(batches) if committed is None else committed):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint(str(folder))


def delta_offset(version: int, index: int, *, is_snapshot: bool = False) -> dict[str, Any]:
    place = {"reservoirVersion": version, "index": index, "isStartingVersion": is_snapshot}
    return {"sourceVersion": 1, "reservoirId": "abc", **place}


def read_upto(checkpoint: Checkpoint) -> object:
    value = checkpoint.value_for(NamedDelta("t"), lambda: None)  # type: ignore[arg-type, return-value]
    assert isinstance(value, VersionHWM)
    return value.value


@pytest.mark.parametrize(
    ("version", "index", "read"), [(5, -1, 4), (5, -100, 4), (5, -20, 4), (5, END_INDEX, 5), (1, -1, 0)]
)
def test_a_version_counts_once_all_of_its_files_were_read(tmp_path: Path, version: int, index: int, read: int) -> None:
    """An index below zero is before the first file, in each of Delta's formats."""
    assert read_upto(written(tmp_path, delta_offset(version, index))) == read


def test_only_committed_batches_count(tmp_path: Path) -> None:
    """The last one was planned, and nobody knows what its sink has of it: that is said."""
    checkpoint = written(tmp_path, delta_offset(2, -1), delta_offset(4, -1), delta_offset(9, -1), committed=2)
    assert (read_upto(checkpoint), checkpoint.uncommitted()) == (3, 2)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (delta_offset(3, 7), "read a part of version 3"),
        (delta_offset(3, 1, is_snapshot=True), "read a part of its snapshot of version 3"),
        (delta_offset(0, -1), "read nothing yet"),
        ({**delta_offset(3, -1), "reservoirId": "other"}, "has no source of delta t"),
    ],
)
def test_what_no_mark_can_say_is_refused(tmp_path: Path, offset: dict[str, Any], reason: str) -> None:
    """A repeat or a gap would follow from any mark."""
    with pytest.raises(ConfigError, match=reason):
        read_upto(written(tmp_path, offset))


def test_a_folder_without_a_committed_batch_is_no_checkpoint(tmp_path: Path) -> None:
    """Nothing read and could not look are never the same."""
    with pytest.raises(ConfigError, match="has no committed batch"):
        read_upto(written(tmp_path, delta_offset(1, -1), committed=0))
