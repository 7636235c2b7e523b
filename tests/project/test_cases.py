"""Test cases of a project: how they are written, and when a row is the one that a case expects."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from floodmark.errors import ConfigError
from floodmark.project.cases import Difference, compare, matches, read_cases
from floodmark.project.file import Variables, read_document

ONE = """\
name: one batch
job: orders
given: [{id: 1}, "{broken"]
expect:
  lake: [{id: 1}]
  dead_letters: [{_text: "{broken"}]
"""


def cases(folder: Path, text: str) -> list[str]:
    (folder / "tests").mkdir()
    (folder / "tests" / "orders.yaml").write_text(text)
    (folder / "floodmark.yaml").write_text("store: memory\n")
    return [
        f"{each.where} {each.case.name}" for each in read_cases(read_document(folder / "floodmark.yaml", Variables({})))
    ]


def test_a_file_holds_one_case_or_a_list(tmp_path: Path) -> None:
    """Each is known by its line."""
    listed = "- {name: a, job: x, given: []}\n- name: b\n  job: x\n  batches: [{given: []}, {given: []}]\n"
    assert cases(tmp_path, listed) == ["tests/orders.yaml:1 a", "tests/orders.yaml:2 b"]


def test_given_and_expect_alone_are_a_story_of_one_batch(tmp_path: Path) -> None:
    """Sinks are named beside quarantine and dead letters."""
    assert cases(tmp_path, ONE) == ["tests/orders.yaml:1 one batch"]
    [placed] = read_cases(read_document(tmp_path / "floodmark.yaml", Variables({})))
    [batch] = placed.case.batches
    assert dict(batch.expect.tables()) == {
        "lake": ({"id": 1},),
        "quarantine": (),
        "dead_letters": ({"_text": "{broken"},),
    }


@pytest.mark.parametrize("text", ["name: a\n", "- {name: a, job: x, gven: []}\n", "{name: a, job: x, given: 7}\n"])
def test_a_wrong_case_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    """Before Spark is started."""
    with pytest.raises(ConfigError, match=r"^tests/orders.yaml:1: "):
        cases(tmp_path, text)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (1, 1),
        (1.0, 1),
        (None, None),
        (Decimal("19.90"), 19.9),
        (Decimal("19.90"), "19.9"),
        (datetime(2026, 1, 1, 9, tzinfo=timezone.utc), "2026-01-01T09:00:00Z"),
        (datetime(2026, 1, 1, 9, tzinfo=timezone.utc), "2026-01-01 09:00:00"),
        (date(2026, 1, 1), "2026-01-01"),
        (b"abc", "abc"),
        ({"a": 1, "b": 2}, {"a": 1}),
        ([1, 2], [1, 2]),
    ],
)
def test_a_value_is_what_a_file_can_write_of_it(actual: object, expected: object) -> None:
    """YAML has neither moments nor decimals, so their text stands for them; of a row, the named columns count."""
    assert matches(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(True, 1), (1, True), ("1", 1), (None, ""), (Decimal(1), True), ([1], [1, 1]), (date(2026, 1, 1), "x"), (1, None)],
)
def test_values_of_other_kinds_differ(actual: object, expected: object) -> None:
    """A text is no number, and nothing is null but null."""
    assert not matches(actual, expected)


def test_rows_are_compared_in_whatever_order_and_by_the_columns_that_are_named() -> None:
    """What is left on either side is the difference; a row that is there twice has to be expected twice."""
    actual = [{"id": 2, "v": "b"}, {"id": 1, "v": "a"}, {"id": 1, "v": "a"}]
    assert compare(1, "lake", [{"id": 1}, {"id": 2}, {"id": 1}], actual) is None
    assert compare(2, "lake", [{"id": 1}, {"id": 3}], actual) == Difference(
        2, "lake", ({"id": 3},), ({"id": 2}, {"id": 1})
    )


def test_a_difference_reads_like_a_diff() -> None:
    """Minus was expected, plus is there."""
    assert list(Difference(2, "lake", ({"id": 3},), ({"id": 2},)).lines()) == [
        "batch 2, lake:",
        '  - {"id": 3}',
        '  + {"id": 2}',
    ]
