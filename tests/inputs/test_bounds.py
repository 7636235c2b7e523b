"""Texts from outside that are too large, too deep or no text at all are refused by name, and quickly."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from sqlglot.errors import SqlglotError

from floodmark.errors import ConfigError, ElementInvalid, FloodmarkError, MarkInvalid
from floodmark.hwm import ColumnIntHWM, KeyValueIntHWM
from floodmark.inputs import LARGEST_DOCUMENT, parse_json, parse_sql, read_text
from floodmark.inputs.yaml import parse, plain_values
from floodmark.jobs.workflow.schedule import parse_schedule
from floodmark.lineage.datasets import Relation
from floodmark.lineage.queries import columns_of
from floodmark.logs import redact
from floodmark.medallion.dates import require_zone
from floodmark.mill.codec import Codec
from floodmark.project.file import read_env_file
from floodmark.project.lint.parts import lint_expression, lint_sql
from floodmark.stores import open as open_store

LETTERS = "abcdefghij"
SECONDS = 2.0
"""Of CPU, for what has to cost less than one on a machine that does nothing else."""


def bomb(first: str, line: str) -> str:
    """Ten anchors, each of which names the one before nine times."""
    return first + "".join(line.format(new=new, old=old) for old, new in pairwise(LETTERS))


ALIASES = bomb("a: &a [x, x, x]\n", "{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n")
MERGES = bomb(
    "a: &a {{x: 1}}\n".replace("{{", "{").replace("}}", "}"),
    "{new}: &{new}\n  <<: [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n  k{new}: 1\n",
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 5000))


@pytest.mark.parametrize("read", [parse, plain_values])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(ALIASES, "more than 200,000 values", id="aliases"),
        pytest.param(MERGES, "more than 200,000 values", id="merges"),
        pytest.param(CHAIN, "more than 64 levels", id="chain"),
        pytest.param("a: " + "[" * 100_000, "more than 64 levels", id="lists"),
        pytest.param("".join(" " * level + "a:\n" for level in range(1000)), "more than 64 levels", id="mappings"),
        pytest.param("a: &a [*a]", "inside its own anchor", id="cycle"),
        pytest.param("a: " + "x" * LARGEST_DOCUMENT, "larger than 1 MiB", id="size"),
    ],
)
def test_a_yaml_text_that_grows_is_refused_with_its_name(
    read: Callable[[str, str], object], text: str, reason: str
) -> None:
    """A text of a few lines may stand for gigabytes, or for more levels than Python can walk."""
    begun = time.process_time()
    with pytest.raises(ConfigError, match=reason) as refused:
        read(text, "it.yaml")
    assert refused.value.message.startswith("it.yaml")
    assert time.process_time() - begun < SECONDS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: " + "9" * 5000, "is not a kind of value this file can hold"),
        ("a: {<<: 5}", "expected a mapping"),
        ("? [a]\n: 1", "a field name has to be text"),
    ],
)
def test_a_value_that_no_file_can_hold_is_refused_with_its_line(text: str, reason: str) -> None:
    """And is never a list index that is out of range, or a number that Python will not read."""
    with pytest.raises(ConfigError, match=reason) as refused:
        parse(f"first: 1\n{text}", "it.yaml")
    assert "it.yaml:2" in refused.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\ue00012\ue001", "\ue00012\ue001"),
        (r'"\ue0000\ue001"', "\ue0000\ue001"),
        ("\ue0000\ue001 ${A}", "\ue0000\ue001 ${A}"),
    ],
)
def test_characters_that_no_alphabet_has_are_text_like_any_other(text: str, value: str) -> None:
    """References are put aside by such a character, and by a word that no text can hold."""
    assert parse(f"a: {text}\nb: {{c: ${{B}}}}", "it.yaml")[0] == {"a": value, "b": {"c": "${B}"}}


@pytest.mark.slow
def test_many_fields_of_one_mapping_are_read_in_time() -> None:
    """Whether a field stands twice is counted once, not once for each of them."""
    begun = time.process_time()
    values, lines = parse("".join(f"k{number}: 1\n" for number in range(20_000)), "it.yaml")
    assert isinstance(values, dict)
    assert (len(values), lines["k19999",]) == (20_000, 20_000)
    assert time.process_time() - begun < SECONDS


def test_a_byte_that_is_not_utf_8_is_named_with_file_and_line(tmp_path: Path) -> None:
    """Which byte it is, is what an editor needs."""
    file = tmp_path / "latin1.txt"
    file.write_bytes(b"\xef\xbb\xbfone\ncaf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin1.txt cannot be read: byte 11 \(0xE9, on line 2\) is not UTF-8"):
        read_text(file, hint="save it")


@pytest.mark.parametrize("place", ["/nowhere/at/all", "/", "a\0b"])
def test_what_is_no_file_of_text_is_refused(place: str) -> None:
    """Whatever the system says of it is in the message."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_text(Path(place), hint="name a file", largest=LARGEST_DOCUMENT)


def test_what_never_ends_is_read_up_to_the_bound_and_no_further() -> None:
    """A pipe that is always full stands for every device: what a machine has as /dev/zero may be a file."""
    reading, writing = os.pipe()
    endless = subprocess.Popen(["yes"], stdout=writing)
    os.close(writing)
    try:
        with pytest.raises(ConfigError, match="larger than 1 MiB"):
            read_text(Path(f"/dev/fd/{reading}"), hint="name a file", largest=LARGEST_DOCUMENT)
    finally:
        os.close(reading)
        endless.kill()
        endless.wait()


def test_an_env_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """With its own name, as every text."""
    (tmp_path / "my.env").write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match=r"env file .*my.env cannot be read: byte 3"):
        read_env_file(tmp_path / "my.env")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 65 + "1" + "}" * 65, '{"a": ' + "9" * 5000 + "}", "{"])
def test_json_that_cannot_be_used_is_a_value_error(text: str) -> None:
    """One error for all of it: neither a recursion that is too deep, nor one that waits for whoever walks it."""
    with pytest.raises(ValueError, match=r"stand in each other|digits|Expecting"):
        parse_json(text)


@pytest.mark.parametrize(
    "text", ["{" * 50_000, "[" * 50_000, '{"a": {"b": ' * 40, '{"0": 1, "0": 2}', '{"0": ' + "9" * 5000]
)
def test_a_mark_in_json_that_cannot_be_used_is_refused_as_a_mark(text: str) -> None:
    """In a message that can be read."""
    with pytest.raises(MarkInvalid) as refused:
        KeyValueIntHWM("topic", text)
    assert len(str(refused.value)) < 1000


def test_a_mark_that_is_refused_is_shown_shortly() -> None:
    """A million digits are no message; a number that Python cannot even print is named by its type."""
    with pytest.raises(MarkInvalid) as text:
        ColumnIntHWM("id", "x" * 1_000_000)
    with pytest.raises(MarkInvalid) as number:
        ColumnIntHWM("id", [10**5000])
    assert max(len(str(text.value)), len(str(number.value))) < 1000


LONG_QUERIES = {
    "nested case": "select " + "case when a then " * 60 + "1" + " else 0 end" * 60 + " as x from source",
    "brackets": "select " + "(" * 3000 + "1" + ")" * 3000 + " as x from source",
    "signs": "select " + "not " * 900 + "a as x from source",
    "sum": "select " + "a+" * 12_000 + "1 as x from source",
    "characters": "select " + "a+" * 60_000 + "1 as x from source",
    "names": "select " + ",".join(f"`a{number}`.`b`" for number in range(6000)) + " from source",
    "columns": "select " + ",".join(f"c{number}" for number in range(12_000)) + " from source",
    "unions": "select a from source " + "union all select a from source " * 3000,
    "tables": "with t0 as (select 1) "
    + "".join(f", t{number} as (select * from t{number - 1} a, t{number - 1} b)" for number in range(1, 1200))
    + " select * from t1199",
    "open text": "select 'aaa from source",
    "open name": "select " + "`a``b" * 3001 + " from source",
    "nothing": "",
    "semicolons": ";" * 20_000,
    "comments": "select 1 " + "/*" * 40_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("sql", [pytest.param(sql, id=name) for name, sql in LONG_QUERIES.items()])
def test_no_query_takes_long_or_ends_in_an_error_without_a_name(sql: str) -> None:
    """Whoever lints, draws lineage or runs it gets columns, findings or an error of ours."""
    begun = time.process_time()
    findings = [*lint_sql(sql, lambda *finding: finding), *lint_expression(sql, lambda *finding: finding)]  # type: ignore[arg-type,return-value,list-item]
    assert time.process_time() - begun < 2 * SECONDS, findings[:1]
    begun = time.process_time()
    outcome = columns_or_error(sql)
    assert time.process_time() - begun < SECONDS, outcome


def columns_or_error(sql: str) -> Relation | FloodmarkError:
    source = Relation(columns={"a": ()})
    try:
        return columns_of(sql, {"source": source}, lambda name: Relation())
    except FloodmarkError as error:
        return error


def test_sql_that_is_refused_for_its_size_says_so() -> None:
    """As a mistake of sqlglot's, so that whoever parses has one error to know."""
    with pytest.raises(SqlglotError, match="it has 120,016 characters, and at most 100,000 are read"):
        parse_sql(LONG_QUERIES["characters"][:120_016])


@pytest.mark.parametrize(
    "text",
    [
        "store sqlite:///postgresql://ann:S3cret@host/db",
        "sqlite /here/postgresql:/ann:S3cret@host/db",
        "postgresql://ann:S3/cret@host/db",
        "postgresql://ann:p@S3cret@host/db",
        "jdbc:postgresql://host/db?user=ann&password=S3cret",
        "redis://:S3cret@host",
    ],
)
def test_the_password_of_a_url_is_never_shown(text: str) -> None:
    """Not in a log line, not in an error that a program prints by itself."""
    assert "S3" not in redact(text)
    assert "S3" not in str(ConfigError(text, hint=text))


@pytest.mark.parametrize("text", ["http://127.0.0.1:8000/a@b", "s3a://bucket/a:b/c", "http://host:80", "at 12:30 a@b"])
def test_what_only_looks_like_a_password_stays(text: str) -> None:
    """A port is none."""
    assert redact(text) == text


def test_a_long_text_is_searched_for_passwords_in_time() -> None:
    """Every part of what is looked for has a bound."""
    begun = time.process_time()
    redact("a" * 1_000_000 + "://")
    redact("a://b:" * 100_000)
    assert time.process_time() - begun < 2 * SECONDS


@pytest.mark.parametrize("store", ["sqlite:///postgresql://ann:S3cret@h/db", "file:postgresql://ann:S3cret@h/db"])
def test_a_url_in_the_place_of_a_path_is_refused_for_what_it_is(store: str) -> None:
    """It would be a folder whose name holds a password."""
    with pytest.raises(ConfigError, match=r"names a URL and not a path: postgresql://ann:\*\*\*@h/db"):
        open_store(store)


@pytest.mark.parametrize("zone", ["x" * 300, "Europe", "../../etc/passwd", "a\0b"])
def test_a_time_zone_that_is_no_name_is_refused(zone: str) -> None:
    """A zone is a file in Python's own folder: a name that is too long, a folder or a way out is none."""
    with pytest.raises(ConfigError, match="time zone"):
        parse_schedule("0 0 4 * * ?", zone)
    with pytest.raises(ConfigError, match="zone"):
        require_zone(zone)


def test_an_element_that_is_nested_too_deeply_is_refused_as_an_element() -> None:
    """Whatever a topic holds: a message of a few kilobytes may have more levels than Python can walk."""
    codec = Codec(Deep)
    with pytest.raises(ElementInvalid, match="it is no JSON"):
        codec.parse('{"a":' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(ValueError, match="recursion"):
        codec.parse_all(['{"a":' + "[" * 200_000 + "]" * 200_000 + "}"])


@dataclass
class Deep:
    """An element."""

    a: list[int]
