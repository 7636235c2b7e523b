"""`${VAR}` and `${VAR:default}`."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import ConfigError, VariableMissing
from floodmark.project.file import Variables, read_env_file


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
