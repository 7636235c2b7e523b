"""Lines of JSON that are read for less, where nobody asks for their place: the same are rows, or malformed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import floodmark as fm
from floodmark.sources.files import reading
from floodmark.sources.files.reading import MANY_BYTES, FileReading, Format
from floodmark.sources.values import CORRUPT
from tests.sources.files.folder import files, put
from tests.sources.files.test_malformed import MALFORMED_LINES
from tests.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLAT = "id long, v string"
NESTED = "id long, v struct<id: long, v: string>, w array<map<string, long>>"
CASES = [
    *MALFORMED_LINES,
    '{"id":1}',
    '{"id":1} ',
    ' \t{"id":1}',
    " \t ",
    "",
    "{}",
    "}",
    "{",
    "{}}",
    '{"id":1}}',
    '{"id":1}]}',
    '{"id":1},{"id":2}',
    '[{"id":1}',
    '[{"id":1}]',
    '"}"',
    "1 }",
    "null }",
    '{"v":"}"}',
    '{"v":"a}',
    '{"v":"{"}',
    '{"v":"\\u007d"}',
    '{"v":"ä€😀"}',
    '{"v":"ä€😀}"}',
    '{"id":1,"id":2}',
    '{"ID":3}',
    '{"id":null}',
    '{"id":1,"v":{"id":2,"v":"x"}}',
    '{"id":1,"v":{"id":2,"v":"x"}} }',
    '{"id":1,"v":{"id":2,"v":"x"}',
    '{"id":1,"w":[{"a":1},{"b":2}]}',
    '{"id":1,"w":[{"a":1},{"b":"x"}]}',
    '{"id":1 // }',
    '{"id":1} // x',
    '{"id":1} /* } */',
    '/* { */ {"id":1}',
    "{'id':1}",
    "{id:1}",
    '{"id":01}',
    '{"v":"a\tb"}',
    '\ufeff{"id":1}',
]


@pytest.mark.parametrize("schema", [FLAT, NESTED, None], ids=["flat", "nested", "found"])
@pytest.mark.parametrize(
    "options", [{}, {"allowComments": "true", "allowSingleQuotes": "false", "allowUnquotedFieldNames": "true"}]
)
def test_the_same_lines_are_rows_and_the_same_are_malformed(
    spark: SparkSession, tmp_path: Path, schema: str | None, options: Mapping[str, str]
) -> None:
    """Whatever may stand behind an object, within it, or in its place; and bytes that are no text."""
    two_names = ('{"id":1,"id":2}', '{"ID":3}')  # in which Spark finds no schema
    lines = [line.encode() for line in CASES if schema or line not in two_names]
    lines += [b'{"v":"\xff"}', b'{"v":"a"}\xff', b"\xff"]
    require_the_same(spark, tmp_path, lines, schema, options)


@pytest.mark.parametrize("schema", [FLAT, NESTED], ids=["flat", "nested"])
def test_it_is_so_for_lines_by_dice(spark: SparkSession, tmp_path: Path, schema: str) -> None:
    """Pieces of JSON in any order, and good lines with some of their characters gone or doubled."""
    dice, pieces = (
        random.Random(20261118),
        ['{"id":', "1", '"v":', '"a"', "{", "}", "[", "]", ",", ":", " ", '"', "nul", "ä"],
    )
    loose = ["".join(dice.choices(pieces, k=dice.randrange(1, 9))) for _ in range(2500)]
    good = ['{"id":1,"v":"a"}', '{"id":1,"v":{"id":2,"v":"a}"},"w":[{"a":1}]}']
    for _ in range(2500):
        line, at = dice.choice(good), dice.randrange(16)
        loose.append(line[:at] + dice.choice(["", line[at] * 2, "}", " "]) + line[at + 1 :])
    require_the_same(spark, tmp_path, [line.encode() for line in loose], schema, {})


def require_the_same(
    spark: SparkSession, folder: Path, lines: list[bytes], schema: str | None, options: Mapping[str, str]
) -> None:
    path = folder / "a.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    found = FileReading(spark, (str(path),), "jsonl", schema, options, size=MANY_BYTES).reading("dead_letter")
    assert found.placed is not None
    assert found.reason is not None
    unplaced, placed = found.rows, found.placed()
    assert unplaced.schema == placed.rows.schema
    assert (found.position is None, placed.position is None) == (True, False)
    names = [name for name in unplaced.columns if name != CORRUPT]
    # One task reads the lines in their order. What could be read of a malformed one is nobody's.
    both = [
        [(row[CORRUPT] is None, *(row[name] for name in names if row[CORRUPT] is None)) for row in rows.collect()]
        for rows in (placed.rows, unplaced)
    ]
    assert both[0] == both[1]
    assert {row[0] for row in both[0]} == {True, False}
    assert unplaced.where(found.reason.isNotNull()).count() == sum(not row[0] for row in both[0])


@pytest.mark.parametrize(
    ("kind", "options", "size"),
    [
        ("jsonl", {}, MANY_BYTES - 1),
        ("jsonl", {}, None),
        ("jsonl", {"encoding": "UTF-16"}, MANY_BYTES),
        ("jsonl", {"multiLine": "true"}, MANY_BYTES),
        ("json", {}, MANY_BYTES),
        ("csv", {}, MANY_BYTES),
        ("parquet", {}, MANY_BYTES),
    ],
)
def test_it_is_for_many_lines_of_json_alone(
    spark: SparkSession, tmp_path: Path, kind: Format, options: Mapping[str, str], size: int | None
) -> None:
    """Few are read sooner in one query; other formats have readers that see all of a record."""
    path = put(tmp_path / "a.jsonl", '{"id":1}\n')
    found = FileReading(spark, (str(path),), kind, FLAT, options, size=size)
    assert not found.is_worth_less_parsing()


@pytest.mark.parametrize(
    ("transform", "sink", "is_less"),
    [
        (None, {}, True),
        ("SELECT id FROM source", {}, True),
        (lambda source: source.select("id", "_metadata.file_name"), {}, False),
        (None, {"mode": "merge", "key": "id"}, False),
    ],
)
def test_a_job_takes_it_where_nobody_asks_for_the_place_of_a_row(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transform: Any,  # noqa: ANN401 - as a user gives it
    sink: dict[str, Any],
    is_less: bool,
) -> None:
    """A merge has to know which of two rows came later, and a function may show the file of a row."""
    asked: list[str] = []
    place = FileReading._position
    monkeypatch.setattr(reading, "MANY_BYTES", 1)
    monkeypatch.setattr(FileReading, "_position", lambda own, rows: asked.append(own.format) or place(own, rows))
    put(tmp_path / "in" / "a.jsonl", '{"id":1}\n{"id":2} x\n{"id":3}\n')
    job = fm.Job(
        name="lines",
        source=files(tmp_path / "in", format="jsonl", schema="id long"),
        transform=transform,
        sinks=[fm.sinks.Delta(str(tmp_path / "out"), **sink)],
        dead_letters=str(tmp_path / "dead"),
    )
    receipt = job.run(spark, fm.stores.open("memory://"))
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_dead) == (3, {"delta": 2}, 1)
    assert asked == ([] if is_less else ["jsonl"])
    [letter] = rows_of(tmp_path / "dead")
    assert (letter.line, letter.text) == (2, '{"id":2} x')
