"""Rows that were put aside, told from their tables without a JVM, whichever version wrote them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.errors import SourceUnreadable
from floodmark.probes.set_aside import SetAsideRow, rows_set_aside

NOON = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
STATES = {"id": ("s:f:3", "s:f:3", "u"), "status": ("open", "replayed", "open"), "attempts": (1, 2, 1)}


def table(folder: Path, columns: dict[str, list[object]]) -> str:
    write_deltalake(folder / "t", pa.table(columns))
    return str(folder / "t")


def test_a_letter_is_what_was_done_about_it_last(tmp_path: Path) -> None:
    """Under the batch that put it aside; letters of other jobs in the table are not this job's."""
    heading = {"job": ["ids", "ids", "other"], "source": ["s"] * 3, "number": [1, 4, 2], "batch_time": [NOON] * 3}
    place = {"file": ["f"] * 3, "line": [3] * 3, "text": ["x"] * 3, "reason": ["bad", "bad", "worse"]}
    saved = {"record": ['{"v":1}', None, None], "shape": ["{}"] * 3, "met_by": ["source"] * 3}
    path = table(tmp_path, {**heading, **place, **{name: list(values) for name, values in STATES.items()}, **saved})
    [letter] = rows_set_aside(path, "ids")
    assert (letter.kind, letter.name, letter.number, letter.status) == ("dead_letter", "1:f:3", 1, "replayed")
    assert (letter.attempts, letter.reasons, letter.source, letter.record) == (2, ("bad",), "s", None)


def test_a_table_of_the_first_version_knows_no_state_of_a_letter(tmp_path: Path) -> None:
    """Then all of them are open, and none can be run again."""
    path = table(
        tmp_path,
        {
            "job": ["ids", "ids"],
            "source": ["s", "s"],
            "number": [2, 1],
            "batch_time": [NOON, NOON],
            "file": ["f", "f"],
            "line": [7, 9],
            "text": ["x", "y"],
            "reason": ["bad", "bad"],
        },
    )
    assert [(each.name, each.status, each.attempts, each.record) for each in rows_set_aside(path, "ids")] == [
        ("1:f:9", "open", 1, None),
        ("2:f:7", "open", 1, None),
    ]


def test_a_quarantined_row_has_the_same_shape(tmp_path: Path) -> None:
    """Its columns had other names; a row without a place is called by the beginning of its id."""
    path = table(
        tmp_path,
        {
            "id": ["0a1b2c3d-44", "99"],
            "job": ["shop", "shop"],
            "number": [3, 3],
            "batch_time": [NOON, NOON],
            "reasons": [["positive", "small"], ["positive"]],
            "row": ['{"id":2}', '{"id":9}'],
            "schema": ["{}", "{}"],
            "status": ["open", "discarded"],
        },
    )
    first, second = rows_set_aside(path, "shop")
    shape = {"record": '{"id":2}', "shape": "{}"}
    reasons = ("positive", "small")
    assert first == SetAsideRow("0a1b2c3d-44", "quarantine", "shop", 3, NOON, reasons, "open", **shape)  # type: ignore[arg-type]
    assert (first.name, second.status) == ("3:0a1b2c3d", "discarded")


def test_no_table_is_no_row_and_one_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    """The two must not be mixed up: rows may be waiting."""
    assert rows_set_aside(str(tmp_path / "nowhere"), "ids") == []


def test_a_table_that_a_fence_made_holds_nothing(tmp_path: Path) -> None:
    """It has no column of a row yet."""
    write_deltalake(str(tmp_path / "dead"), pa.table({"_fm_fence": pa.array([], pa.int32())}))
    assert rows_set_aside(str(tmp_path / "dead"), "ids", "dead_letter") == []
    broken = tmp_path / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("no json")
    with pytest.raises(SourceUnreadable):
        rows_set_aside(str(tmp_path / "broken"), "ids")
