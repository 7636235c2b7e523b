"""Made-up texts for everything that reads text from outside: each is taken, or refused by an error of ours.

`FLOODMARK_FUZZ=20000 pytest tests/inputs/test_fuzzing.py` tries that many for each reader.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from floodmark.cli.marks.transfer import read_export, yaml_marks
from floodmark.errors import FloodmarkError
from floodmark.hwm.mark import kind_of
from floodmark.hwm.parsing import seconds_in, wait_seconds
from floodmark.jobs.workflow.document import read_workflow
from floodmark.lineage.datasets import Relation
from floodmark.lineage.queries import columns_of, expression_origins
from floodmark.project.connect import translate
from floodmark.project.file import Variables, read_document, read_env_file, store_settings
from floodmark.project.lint import lint
from floodmark.project.lint.parts import lint_expression

EXAMPLES = int(os.environ.get("FLOODMARK_FUZZ", "60"))
SECONDS = 3.0
"""Of CPU for one text, which has to take less than one on a machine that does nothing else."""
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="FLOODMARK_FUZZ" not in os.environ,  # the same texts every day; others by hand
    database=None,
    suppress_health_check=list(HealthCheck),
)

PROJECT = {
    "store": ["sqlite:///state/marks.db", "postgresql://${PG_USER:ann}@db/marks"],
    "namespace": "prod",
    "spark": {"master": "local[2]"},
    "targets": {"test": {"namespace": "test"}},
    "jobs": [
        {
            "name": "orders",
            "source": {"type": "files", "path": "in", "format": "json", "schema": "id int, at timestamp"},
            "transform": {"sql": "select id, count(*) over (partition by at) as n from source"},
            "rules": [{"check": "id > 0", "action": "quarantine"}],
            "sinks": [{"type": "delta", "path": "lake/orders", "mode": "merge", "keys": ["id"]}, {"type": "console"}],
        },
        {
            "name": "people",
            "source": {
                "type": "postgres", "url": "postgresql://db/shop", "table": "people", "cursor": {"column": "id"}
            },
            "sinks": [{"type": "kafka", "bootstrap": "localhost:9092", "topic": "people", "key": "id"}],
        },
    ],
}  # fmt: skip
WORKFLOW = {
    "name": "nightly",
    "schedule": {"quartz_cron_expression": "0 0 4 * * ?", "timezone_id": "UTC"},
    "parameters": [{"name": "day", "default": "today"}],
    "tasks": [
        {"task_key": "a", "notebook_task": {"notebook_path": "a", "base_parameters": {"x": "{{job.id}}"}}},
        {
            "task_key": "b",
            "depends_on": [{"task_key": "a"}],
            "condition_task": {"op": "GREATER_THAN", "left": "1", "right": "2"},
        },
        {
            "task_key": "c",
            "depends_on": [{"task_key": "b", "outcome": "true"}],
            "for_each_task": {"inputs": "[1]", "task": {"task_key": "d", "spark_python_task": {"python_file": "d.py"}}},
            "max_retries": 2,
            "timeout_seconds": 60,
        },
    ],
}
POLLED = {"driver": "postgres", "dsn": "postgres://db/shop", "table": "t", "columns": ["id"], "where": "id > ?"}
CONNECT = {
    "input": {"sql_select": POLLED},
    "output": {"kafka_franz": {"seed_brokers": ["localhost:9092"], "topic": "t"}},
}
EXPORT = json.loads((Path(__file__).parent.parent / "formats" / "version_1" / "export.json").read_text())
ONETL = [{"type": "column_int", "name": "orders", "value": "5", "modified_time": "2024-01-01T00:00:00"}]
SQL = """\
with t as (select a.id, b.* from source a join other b using (id) where a.x in (select y from z))
select case when id > 1 then sum(id) over (partition by x order by y) else -1 end as n, explode(xs) as (k, v), t.*,
  cast(a as struct<b: array<int>>), date '2024-01-01', `odd name`, 'text' from t lateral view posexplode(ys) e as p, q
group by all union all select 1, 2 order by 1 limit 5"""

odd_texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "..", "/", "a/../../b", "${", "${X}", "${X:", "\ue0000\ue001", "\0", "NaN", "1e999", "'", "`"]
    ),
)
odd_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), odd_texts, st.just(10**4200)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd_texts, inner, max_size=3)),
    max_leaves=5,
)


def paths_in(value: object, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for step, each in inner for path in paths_in(each, (*before, step)))]


def changed(document: object, path: tuple[Any, ...], value: object) -> object:
    """The document with another value at a place."""
    if not path:
        return value
    made = copy.deepcopy(document)
    around: Any = made
    for step in path[:-1]:
        around = around[step]
    around[path[-1]] = value
    return made


def without(document: object, path: tuple[Any, ...]) -> object:
    """The document without a field or an item."""
    made = copy.deepcopy(document)
    around: Any = made
    for step in path[:-1]:
        around = around[step]
    del around[path[-1]]
    return made


def near(document: object) -> st.SearchStrategy[object]:
    """Documents that differ from this one in one place."""
    places = paths_in(document)
    return st.one_of(
        st.builds(changed, st.just(document), st.sampled_from(places), odd_values),
        st.builds(without, st.just(document), st.sampled_from(places[1:])),
    )


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def spliced(text: str, start: int, length: int, put: str) -> bytes:
    """The text with a piece of it replaced."""
    return (text[:start] + put + text[start + length :]).encode("utf-8", "surrogatepass")


def texts_near(text: str, words: str) -> st.SearchStrategy[bytes]:
    """The text with a piece left out, repeated or put in, and texts of the same words, which stand between `|`."""
    word = st.sampled_from(words.split("|"))
    piece = st.one_of(word, odd_texts, st.builds(lambda each, times: each * times, word, st.integers(1, 400)))
    return st.one_of(
        st.builds(spliced, st.just(text), st.integers(0, len(text)), st.integers(0, 30), piece),
        st.lists(piece, max_size=12).map(lambda pieces: " ".join(pieces).encode("utf-8", "surrogatepass")),
        st.binary(max_size=60),
    )


YAML_WORDS = "a:|- |&a|*a|<<:|[|]|{|}|!!python/object:os.system|>|'|#|%YAML|---|...|? |${A}|\n|  |\t"
SQL_WORDS = (
    "select|from|source|(|)|then|end|not|-|`a`|'|`|/*|--|,|.|*|->|::|[|]|<|>|;|:x|over(|interval|cast(|{{|$$|case when|"
    'with t as (|union all|lateral view|as struct<|\\|"'
)
MARK_KINDS = (
    "column_int",
    "column_decimal",
    "column_date",
    "column_datetime",
    "column_text",
    "key_value_int",
    "file_list",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a text lies while it is read."""
    return tmp_path / "floodmark.yaml"


def is_taken_or_refused(read: Callable[[], object]) -> bool:
    """Whether the reader takes what it is given, or refuses it by an error of ours, and soon; other errors go on."""
    begun = time.process_time()
    with suppress(FloodmarkError):
        read()
    return time.process_time() - begun < SECONDS


def read_project(file: Path, stored: bytes) -> None:
    file.write_bytes(stored)
    document = read_document(file, Variables({}))
    lint(document)
    store_settings(document)


@pytest.mark.slow
@fuzzed
@given(stored=st.one_of(near(PROJECT).map(as_json), texts_near(yaml.safe_dump(PROJECT, sort_keys=False), YAML_WORDS)))
def test_every_project_file_is_read_or_refused(file: Path, stored: bytes) -> None:
    """Found by `lint` too, which goes through every field."""
    assert is_taken_or_refused(lambda: read_project(file, stored))


@fuzzed
@given(stored=texts_near("export A=1\nB='x y'\n# c\nC=${A}\n", "A|=|export |\n|'|#|\r"))
def test_every_env_file_is_read_or_refused(file: Path, stored: bytes) -> None:
    """Line by line."""

    def read() -> None:
        file.write_bytes(stored)
        read_env_file(file)

    assert is_taken_or_refused(read)


@fuzzed
@given(
    kind=st.sampled_from(MARK_KINDS),
    text=st.one_of(
        odd_texts,
        near(EXPORT["records"]).map(lambda value: as_json(value).decode()),
        st.text('0123456789-+.eE:TZ[]{}",', max_size=40),
    ),
)
def test_every_text_of_a_mark_is_taken_or_refused(kind: str, text: str) -> None:
    """As `marks set` and `--from` take it."""
    assert is_taken_or_refused(lambda: kind_of(kind)("mark", text))


@fuzzed
@given(text=st.one_of(odd_texts, st.text("0123456789.mshd ", max_size=500)))
def test_every_length_of_time_is_taken_or_refused(text: str) -> None:
    """Also one of five hundred digits."""
    assert is_taken_or_refused(lambda: seconds_in(text, field="every"))
    assert is_taken_or_refused(lambda: wait_seconds(text, field="wait"))


@fuzzed
@given(stored=st.one_of(near(EXPORT).map(as_json), texts_near(json.dumps(EXPORT), '{|[|"|,|1|null')))
def test_every_export_of_marks_is_read_or_refused(file: Path, stored: bytes) -> None:
    """A record that lost a field is named with its place, and nothing of the file is taken over."""

    def read() -> None:
        file.write_bytes(stored)
        read_export(file)

    assert is_taken_or_refused(read)


@fuzzed
@given(stored=st.one_of(near(ONETL).map(as_json), texts_near(yaml.safe_dump(ONETL), YAML_WORDS)))
def test_every_file_of_onetl_is_read_or_refused(tmp_path: Path, stored: bytes) -> None:
    """It is YAML of the older kind, with moments and numbers of its own."""

    def read() -> None:
        (tmp_path / "orders.yml").write_bytes(stored)
        yaml_marks(tmp_path)

    assert is_taken_or_refused(read)


@fuzzed
@given(stored=st.one_of(near(WORKFLOW).map(as_json), texts_near(json.dumps(WORKFLOW), '{|[|"|,|1|null')))
def test_every_workflow_is_read_or_refused(file: Path, stored: bytes) -> None:
    """Names, order and schedule."""

    def read() -> None:
        file.write_bytes(stored)
        read_workflow(file)

    assert is_taken_or_refused(read)


@fuzzed
@given(stored=st.one_of(near(CONNECT).map(as_json), texts_near(yaml.safe_dump(CONNECT), YAML_WORDS)))
def test_every_configuration_of_another_system_is_translated_or_refused(file: Path, stored: bytes) -> None:
    """With the line."""

    def read() -> None:
        file.write_bytes(stored)
        translate(file)

    assert is_taken_or_refused(read)


@fuzzed
@given(stored=texts_near(SQL, SQL_WORDS))
def test_every_query_has_a_lineage_or_is_refused(stored: bytes) -> None:
    """And so have expressions of keys, rules and windows."""
    sql = stored.decode("utf-8", "replace")
    row = Relation(columns={"a": (), "id": ()})
    assert is_taken_or_refused(lambda: columns_of(sql, {"source": row}, lambda name: Relation()))
    assert is_taken_or_refused(lambda: expression_origins(sql, row))
    assert is_taken_or_refused(lambda: list(lint_expression(sql, lambda *finding: finding)))  # type: ignore[arg-type,return-value]
