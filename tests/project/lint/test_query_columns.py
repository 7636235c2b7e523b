"""Columns that a query names: what is known to be missing is said with its line, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.project.file import Variables, read_document
from floodmark.project.lint import lint
from floodmark.project.lint.queries import query_mistakes, selected_columns

KNOWN = frozenset({"id", "name", "at", "s1"})


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select idd from source", ["there is no column 'idd': the source has at, id, name, s1"]),
        ("select s.idd from source s", ["there is no column 'idd': the source has at, id, name, s1"]),
        (
            "select s.idd, d.x from source s join dim d on d.id = s.idx",
            [
                "there is no column 'idd': the source has at, id, name, s1",
                "there is no column 'idx': the source has at, id, name, s1",
            ],
        ),
        (
            "select a.id, b.nmae from source a left join source b on a.id = b.id",
            ["there is no column 'nmae': the source has at, id, name, s1"],
        ),
        (
            "with t as (select id, name as n from source) select t.id, nn from t",
            ["there is no column 'nn': t has id, n"],
        ),
        ("with t(a, b) as (select id, name from source) select id from t", ["there is no column 'id': t has a, b"]),
        (
            "with t as (select * from source) select q.nmae from t q",
            ["there is no column 'nmae': q has at, id, name, s1"],
        ),
        ("select q.x from (select id from source) q", ["there is no column 'x': q has id"]),
        (
            "with t as (select id as k from source) select kk, name from source join t on t.k = source.id",
            ["there is no column 'kk': source and t have at, id, k, name, s1"],
        ),
        (
            "select x from (select id from source union all select name from source)",
            ["there is no column 'x': the query in brackets has id"],
        ),
        ("select /*+ broadcast(d) */ s.idd from source s join d on s.id = d.id", ["there is no column 'idd': the"]),
    ],
)
def test_a_column_that_nothing_has_is_found(sql: str, said: list[str]) -> None:
    """In joins by the alias of the source, in named queries and queries in brackets by what they give."""
    assert [each.message[: len(wanted)] for each, wanted in zip(query_mistakes(sql, KNOWN), said, strict=True)] == said


def test_what_a_named_query_gives_is_known_though_the_source_is_not() -> None:
    """A table of a database has columns that only the server knows; the list of a query says its own."""
    sql = "with t as (select anything as a from source) select b, whatever.x from t"
    assert [each.message for each in query_mistakes(sql, None)] == [
        "there is no column 'b': t has a",
        "there is no column 'whatever': t has a",
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "select d.anything, other from source s join dim d on s.id = d.key",
        "select name.first, s1.deep.field from source",
        "select source.id, SOURCE.Name from Source",
        "select id as k, k + 1 as kk from source order by kk",
        "select transform(array(id), x -> x + 1) as v from source",
        "select x from source lateral view explode(array(id)) t as x",
        "select t.x from source, lateral (select source.id as x) t",
        "select x, y from (select explode(map(id, name)) from source)",
        "select x from (values (1), (2)) as v(x)",
        "select v.x, w from source s join (values (1, 2)) as v on true",
        "select id from source where exists (select 1 from dim where dim.k = id and other = source.name)",
        "select id from source where id in (select k from dim union select source.id from dim)",
        "select * from (select id from source union all select id from source order by id) q",
        "select * from source pivot (count(name) for at in ('a', 'b'))",
        "select a from source pivot (count(name) for at in ('a', 'b'))",
        "with recursive r as (select 1 as n union all select n + 1 from r) select n, m from r join source on true",
        "with t as (select count(*) from source) select anything from t",
        "with t as (select *, explode(array(id)) from source) select col from t",
        "select n.x from source n join lateral (select n.id as x) m on true",
        "select * except (id), current_date, _metadata.file_path from source",
        "select x.a, b from source as x(a, b, c, d)",
        "select o.idd from other.source o",
        "with source as (select 1 as idd) select idd from source",
        "select id, sum(id) over w as total from source window w as (partition by name order by at)",
        "select s.id from source s left semi join dim using (id)",
        "select a from range(10) r(a)",
        "select col1 from values (1)",
        "select timestampdiff(DAY, at, now()) as days from source",
        "with t as (select id from source), u as (select t.id, d.x from t join d on d.k = t.id) select x, id from u",
    ],
)
def test_nothing_is_said_where_spark_may_find_the_column(sql: str) -> None:
    """A run is stopped by what lint says, so a doubt is no mistake."""
    assert query_mistakes(sql, KNOWN) == []


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select id, name as n from source s join dim d on d.k = s.id", {"id", "n"}),
        ("select s.* from source s join dim d on d.k = s.id", KNOWN),
        ("with t as (select id from source) select *, 1 as one from t", {"id", "one"}),
        ("select id from source union all select name from source", {"id"}),
        ("select * from source s join dim d on d.k = s.id", None),
        ("select count(*) from source", None),
    ],
)
def test_what_a_query_gives_is_known_through_joins_and_named_queries(sql: str, columns: set[str] | None) -> None:
    """Sinks and rules name columns of it."""
    assert selected_columns(sql, KNOWN) == columns


PROJECT = """\
store: memory
jobs:
  - name: orders
    source: {source}
    transform: {transform}
    sinks: [{{type: delta, path: lake/orders, mode: merge, key: [id]}}]
"""


def findings(
    folder: Path, transform: str, source: str = "{type: files, path: in, schema: 'id long, v string'}"
) -> list[str]:
    (folder / "floodmark.yaml").write_text(PROJECT.format(source=source, transform=transform))
    report = lint(read_document(folder / "floodmark.yaml", Variables({})))
    return [f"{each.where} {each.rule} {each.message}" for each in report.findings if each.severity != "note"]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select id,\n  vv\nfrom source\n", ["sql/o.sql:2 FM106 there is no column 'vv': the source has id, v"]),
        (
            "-- orders\nselect id, v,\n  rand() as chance\nfrom source\n",
            ["sql/o.sql:3 FM103 rand gives other values when a batch is repeated"],
        ),
        (
            "select s.id, s.v\nfrom source s\njoin main.dim d\n  on d.id = s.id\n",
            ["sql/o.sql:3 FM105 main.dim is read as it is at that moment: no mark covers it, and a repeat may see"],
        ),
        ("select id, v\nfrom source\nwhere (v = 'a'\n", ["sql/o.sql:3 FM101 the SQL cannot be parsed"]),
    ],
)
def test_a_mistake_in_a_file_of_sql_has_the_line_of_that_file(tmp_path: Path, sql: str, found: list[str]) -> None:
    """An editor jumps there."""
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "o.sql").write_text(sql)
    said = findings(tmp_path, "{file: sql/o.sql}")
    assert [each[: len(wanted)] for each, wanted in zip(said, found, strict=True)] == found


@pytest.mark.parametrize(
    ("value", "sql", "found"),
    [
        ("text", "select key as id, value, topic, partition, offset, timestamp, headers from source", []),
        ("text", "select kafka_key as id from source", ["there is no column 'kafka_key'"]),
        ("{format: json, schema: 'id long'}", "select id, kafka_offset, kafka_headers from source", []),
        ("{format: json, schema: 'id long'}", "select id, value from source", ["there is no column 'value'"]),
        ("text, columns: [key]", "select key as id, value from source", []),
        ("text, columns: [key]", "select key as id, offset from source", ["there is no column 'offset'"]),
        ("{python: 'a:b', schema: 'id long'}", "select idd as id from source", ["there is no column 'idd'"]),
    ],
)
def test_the_columns_of_a_topic_are_known(tmp_path: Path, value: str, sql: str, found: list[str]) -> None:
    """Kafka's own, and those of the schema beside them."""
    (tmp_path / "a.py").write_text("def b(value):\n    return {}\n")
    source = f"{{type: kafka, bootstrap: localhost, topic: t, value: {value}}}"
    said = findings(tmp_path, f'{{sql: "{sql}"}}', source)
    assert [each.partition(" FM106 ")[2][: len(wanted)] for each, wanted in zip(said, found, strict=True)] == found
