"""The YAML that a project file is written in."""

from __future__ import annotations

import pytest

from floodmark.errors import ConfigError
from floodmark.project.file import parse


def test_every_value_knows_its_line() -> None:
    """Errors are told with file:line, also for what stands deep inside."""
    _, lines = parse("a: 1\njobs:\n  - name: x\n    sinks:\n      - {type: console}\n", "f.yaml")
    assert lines["jobs", 0, "sinks", 0, "type"] == 5


def test_a_reference_may_stand_unquoted_inside_braces() -> None:
    """YAML would take the brace of ${NAME} for its own; users write `{url: ${PG_URL}, table: t}` all the same."""
    values, _ = parse("sink: {url: ${PG_URL}, table: t, to: ${DIR:out}/x}\n", "f.yaml")
    assert values == {"sink": {"url": "${PG_URL}", "table": "t", "to": "${DIR:out}/x"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("007", "007"),
        ("1_000", 1000),
        ("true", True),
        ("1.5", 1.5),
        ("~", None),
        ("", None),
        ("5s", "5s"),
    ],
)
def test_plain_words_are_what_people_think(text: str, value: object) -> None:
    """YAML 1.1's surprises (no is false, 12:30 is 750, dates are objects) stay out."""
    assert parse(f"a: {text}\n", "f.yaml")[0] == {"a": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:1: field 'a' stands here twice."),
        ("a: 1\nb: [1\nc: 2\n", "f.yaml:3 is not YAML"),
        ("a: &x\n  b: *x\n", "an alias stands inside its own anchor"),
        ("a: !!python/object/apply:os.system [ls]\n", "f.yaml:1"),
        ("a: !!python/name:os.system\n", "f.yaml:1"),
        ("? [1, 2]\n: 3\n", "a field name has to be text"),
        ("a: b\x00c\n", "f.yaml is not YAML"),
    ],
)
def test_what_a_project_file_may_not_hold_is_refused_with_its_line(text: str, said: str) -> None:
    """A key twice, broken YAML, loops, and tags that would run code."""
    with pytest.raises(ConfigError) as refused:
        parse(text, "f.yaml")
    assert said in refused.value.message


def test_merge_keys_work_and_own_fields_win() -> None:
    """`<<` is the usual way to share settings between jobs."""
    values, _ = parse("base: &b {x: 1, y: 2}\njob: {<<: *b, y: 3}\n", "f.yaml")
    assert values == {"base": {"x": 1, "y": 2}, "job": {"x": 1, "y": 3}}
