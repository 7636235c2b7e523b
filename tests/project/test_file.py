"""The project file as text: YAML with lines, and variables that never reach an output."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import ConfigError, VariableMissing
from floodmark.project.file import Variables, parse, read_env_file


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
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: field 'a' stands here again, after line 1."),
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


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOST}", "db1"),
        ("${HOST:other}", "db1"),
        ("${NOT_THERE:other}", "other"),
        ("${NOT_THERE:}", ""),
        ("${NOT_THERE:a:b}", "a:b"),
        ("pg://${HOST}/${NAME:shop}", "pg://db1/shop"),
        ("$${HOST}", "${HOST}"),
        ("$HOST {HOST}", "$HOST {HOST}"),
        ("${EMPTY:default}", ""),
    ],
)
def test_references_are_filled_in(text: str, expanded: str) -> None:
    """The environment wins over the default, also when it is empty; `$$` keeps a reference as it is."""
    assert Variables({"HOST": "db1", "EMPTY": ""}).expand(text, where="f.yaml:1") == expanded


def test_a_value_is_not_expanded_again() -> None:
    """What a variable holds is a value, never a template."""
    assert Variables({"A": "${B}", "B": "x"}).expand("${A}", where="f.yaml:1") == "${B}"


def test_a_missing_variable_is_named_with_its_place() -> None:
    """The error says which, and where it is asked for."""
    with pytest.raises(VariableMissing) as missing:
        Variables({}).expand("x ${PG_URL}", where="f.yaml:7")
    assert (missing.value.variable, missing.value.where) == ("PG_URL", "f.yaml:7")


def test_values_that_were_given_away_are_scrubbed_from_text() -> None:
    """Values never appear in output, wherever a message got them from."""
    variables = Variables({"TOKEN": "s3cret", "UNUSED": "plain"})
    variables.expand("${TOKEN}", where="f.yaml:1")
    assert variables.scrub("got s3cret, plain") == "got ${TOKEN}, plain"


def test_an_env_file_has_name_value_lines(tmp_path: Path) -> None:
    """Comments, `export`, quotes and signs of equality inside a value are as in a shell."""
    file = tmp_path / ".env"
    file.write_text("# hello\n\nA=1\nexport B='two words'\nC=x=y\nD=\n")
    assert read_env_file(file) == {"A": "1", "B": "two words", "C": "x=y", "D": ""}


def test_a_broken_env_file_is_told_by_line_and_without_its_text(tmp_path: Path) -> None:
    """The line may hold a secret, so only its number is shown."""
    file = tmp_path / ".env"
    file.write_text("A=1\nhunter2\n")
    with pytest.raises(ConfigError, match=r"\.env:2 is not NAME=value") as refused:
        read_env_file(file)
    assert "hunter2" not in str(refused.value)
