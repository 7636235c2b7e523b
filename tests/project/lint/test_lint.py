"""Lint: every rule on a line that breaks it, and the guarantee of every pair."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.project.file import Variables, read_document
from floodmark.project.findings import RULES, Finding
from floodmark.project.lint import Report, lint

CLEAN = """\
jobs:
  - name: orders
    source: {type: files, path: in}
    transform: {sql: "select * from source"}
    sinks:
      - {type: delta, path: lake/orders}
"""
POLLED = "{type: postgres, url: 'postgresql://db/shop', table: orders, cursor: id}"


def linted(folder: Path, text: str) -> Report:
    (folder / "floodmark.yaml").write_text(text)
    return lint(read_document(folder / "floodmark.yaml", Variables({})))


def brief(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.where) for finding in findings]


def test_a_clean_project_has_no_findings(tmp_path: Path) -> None:
    """Silence means that nothing was found."""
    assert linted(tmp_path, CLEAN).findings == ()


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("select * frm source whre", "FM101"),
        ("select 1 as x", "FM102"),
        ("with source as (select 1 as id) select * from source", "FM102"),
        ("select *, current_timestamp() as t from source", "FM103"),
        ("select *, now() as t from source", "FM103"),
        ("select *, current_date as d from source", "FM103"),
        ("select *, unix_timestamp() as d from source", "FM103"),
        ("select *, rand() as r from source", "FM103"),
        ("select *, random(3) as r from source", "FM103"),
        ("select *, uuid() as u from source", "FM103"),
        ("select *, monotonically_increasing_id() as n from source", "FM103"),
        ("select * from source; select 1", "FM104"),
        ("delete from source", "FM104"),
        ("select s.* from source s join dims d on s.id = d.id", "FM105"),
        ("select s.* from source s join shop.source d on s.id = d.id", "FM105"),
    ],
)
def test_sql_that_would_go_wrong_is_found(tmp_path: Path, sql: str, rule: str) -> None:
    """Found by parsing alone: nothing runs."""
    report = linted(tmp_path, CLEAN.replace("select * from source", sql))
    assert brief(report.findings) == [(rule, "floodmark.yaml:4")]


@pytest.mark.parametrize(
    "sql",
    [
        "select *, :batch_time as t from source",
        "with s as (select * from source) select * from s",
        "select * from SOURCE",
        "select id, upper(name) as n from source where amount > 0 union all select id, 'x' from source",
        "select `now` from source",
    ],
)
def test_sql_that_is_fine_is_left_alone(tmp_path: Path, sql: str) -> None:
    """No false alarms: they teach people to look away."""
    assert linted(tmp_path, CLEAN.replace("select * from source", sql)).findings == ()


@pytest.mark.parametrize(
    ("sink", "rule", "severity"),
    [
        ("{type: delta, path: x, mode: merge}", "FM201", "error"),
        ("{type: delta, path: x, mode: replace}", "FM202", "error"),
        ("{type: delta, path: x, key: [id]}", "FM203", "warning"),
        ("{type: delta, path: s3a://b/x}", "FM205", "warning"),
    ],
)
def test_a_sink_that_would_go_wrong_is_found(tmp_path: Path, sink: str, rule: str, severity: str) -> None:
    """With the sink's own line and the rule's severity."""
    found = linted(tmp_path, CLEAN.replace("{type: delta, path: lake/orders}", sink)).findings
    assert [(f.rule, f.where, f.severity) for f in found] == [(rule, "floodmark.yaml:6", severity)]


@pytest.mark.parametrize(
    ("sink", "rules"),
    [
        ("{type: console}", ["FM302", "FM301"]),
        ("{type: kafka, bootstrap: 'localhost:9092', topic: orders}", []),
        ("{type: postgres, url: 'postgresql://db/shop', table: orders}", []),
    ],
)
def test_a_sink_that_takes_only_some_rows_is_spooled(tmp_path: Path, sink: str, rules: list[str]) -> None:
    """Sinks with a ledger need no such help where the rows can be read again."""
    found = linted(tmp_path, CLEAN.replace("{type: delta, path: lake/orders}", sink)).findings
    assert [finding.rule for finding in found] == rules


@pytest.mark.parametrize(
    ("sink", "rules"),
    [
        ("{type: kafka, bootstrap: 'localhost:9092', topic: orders}", ["FM301"]),
        ("{type: postgres, url: 'postgresql://db/shop', table: orders}", []),
    ],
)
def test_a_sink_that_takes_a_batch_piece_by_piece_is_spooled_if_rows_may_change(
    tmp_path: Path, sink: str, rules: list[str]
) -> None:
    """A broken-off batch goes on after its last piece, so the rows must be the same; a transaction starts again."""
    text = CLEAN.replace("{type: delta, path: lake/orders}", sink).replace("{type: files, path: in}", POLLED)
    found = linted(tmp_path, text).findings
    assert [finding.rule for finding in found] == rules


def test_options_that_the_sink_itself_refuses_are_found(tmp_path: Path) -> None:
    """The files sink writes to local disks only, and says so before anything runs."""
    report = linted(tmp_path, CLEAN.replace("{type: delta, path: lake/orders}", "{type: files, path: 's3://b/x'}"))
    assert brief(report.findings) == [("FM206", "floodmark.yaml:6")]


def test_two_sinks_on_one_place_are_found(tmp_path: Path) -> None:
    """With or without a slash at the end."""
    report = linted(tmp_path, CLEAN + "      - {type: delta, path: lake/orders/, name: again}\n")
    assert brief(report.findings) == [("FM204", "floodmark.yaml:7")]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("shop.transforms:clean", []),
        ("shop.transforms:alias", []),
        ("shop.transforms:cleen", ["FM110"]),
        ("shop.nothing:clean", ["FM110"]),
        ("nowhere:clean", ["FM110"]),
    ],
)
def test_a_missing_python_function_is_found_without_running_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rules: list[str]
) -> None:
    """Importing the user's module might connect to something; reading it is enough."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")
    (tmp_path / "shop" / "transforms.py").write_text("alias = len\nraise SystemExit\ndef clean(df):\n    return df\n")
    report = linted(tmp_path, CLEAN.replace('sql: "select * from source"', f'python: "{name}"'))
    assert [finding.rule for finding in report.findings] == rules


def test_a_batch_that_has_to_be_frozen_is_noted(tmp_path: Path) -> None:
    """Several sinks and SQL that is not known to repeat itself: the note says why."""
    text = CLEAN.replace("select * from source", "select id, sum(v) as v from source group by id")
    report = linted(tmp_path, text + "      - {type: files, path: out}\n")
    assert [finding.rule for finding in report.findings] == ["FM301"]


def test_mistakes_in_the_file_are_findings_too(tmp_path: Path) -> None:
    """One command tells all, with the line of each."""
    report = linted(tmp_path, CLEAN.replace("type: files", "typ: files").replace("path: lake", "pth: lake"))
    assert {rule for rule, _ in brief(report.findings)} == {"FM100"}
    assert {where for _, where in brief(report.findings)} == {"floodmark.yaml:3", "floodmark.yaml:6"}
    assert report.has_errors


def test_every_pair_of_source_and_sink_has_its_guarantee(tmp_path: Path) -> None:
    """Exactly once, except for the console, and the words say so."""
    report = linted(tmp_path, CLEAN + "      - {type: files, path: out}\n      - {type: console}\n")
    assert [(each.source, each.sink, each.guarantee) for each in report.guarantees] == [
        ("files", "delta", "exactly once"),
        ("files", "files", "exactly once"),
        ("files", "console", "at least once"),
    ]
    assert "printed again" in report.guarantees[2].words


def test_every_rule_is_documented() -> None:
    """docs/lint.md has a line for each id, with its severity."""
    page = (Path(__file__).parents[3] / "docs" / "lint.md").read_text()
    lines = [f"| {rule} | {severity} |" for rule, (severity, _) in RULES.items()]
    assert [line for line in lines if line not in page] == []


JUDGED = CLEAN.replace("path: in}", 'path: in, schema: "id long, at timestamp, tags map<string,string>"}')


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("{check: 'id > 0', action: warn}", []),
        ("{check: 'exists(map_keys(tags), t -> length(t) > 2)', action: warn}", []),
        ("{check: 'timestampdiff(DAY, at, at) < 2', action: warn}", []),
        ("{range: {column: ID, min: 1}, action: drop}", []),
        ("{check: 'id >', action: warn}", ["FM121"]),
        ("{check: 'at < now()', action: warn}", ["FM122"]),
        ("{check: 'ident > 0', action: warn}", ["FM123"]),
        ("{not_null: [id, nobody], action: warn}", ["FM123"]),
        ("{time_order: {earlier: at, later: until}, action: warn}", ["FM123"]),
        ("{range: {column: id}, action: warn}", ["FM206"]),
        ("{row_count: {min: 1}, action: drop}", ["FM206", "FM301"]),
        ("{not_null: id, action: fail}", ["FM301"]),
        ("{unique: id, action: warn}", ["FM301"]),
    ],
)
def test_a_rule_that_would_go_wrong_is_found(tmp_path: Path, rule: str, found: list[str]) -> None:
    """Where the file tells the columns, a rule on another one is a mistake; a rule on the batch costs a spool."""
    report = linted(tmp_path, f"{JUDGED}    rules:\n      - {rule}\n")
    assert [finding.rule for finding in report.findings] == found


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select id as nobody from source", []),
        ("select *, 1 as nobody from source", []),
        ("select * except (at) from source", ["FM123"]),
        ("select s.* from source s", ["FM123"]),
        ("select s.*, d.* from source s join dim d on d.id = s.id", ["FM105", "FM301"]),
        ("select id from source", ["FM123"]),
        ("select * from source", ["FM123"]),
    ],
)
def test_the_columns_of_the_transform_count(tmp_path: Path, sql: str, found: list[str]) -> None:
    """Rules judge what the transform gives; where only Spark could tell, lint says nothing."""
    rule = "    rules:\n      - {not_null: nobody, action: warn}\n"
    report = linted(tmp_path, JUDGED.replace("select * from source", sql) + rule)
    assert [finding.rule for finding in report.findings] == found


def test_two_rules_of_one_name_are_found(tmp_path: Path) -> None:
    """Their results could not be told apart."""
    twice = "      - {not_null: id, action: warn}\n      - {not_null: id, action: drop}\n"
    report = linted(tmp_path, f"{JUDGED}    rules:\n{twice}")
    assert [finding.message for finding in report.findings] == ["two rules are called 'not_null_id'"]


LIMITED = """\
jobs:
  - name: orders
    source: {type: %s}
    sinks: [{type: %s}]
"""
TABLE = "postgres, url: 'postgresql://db/shop', table: orders, cursor: {column: updated_at, safety: none}"
LAKE = "delta, name: lake, path: lake/orders"


@pytest.mark.parametrize(
    ("source", "sink", "rules"),
    [
        (TABLE, f"{LAKE}, mode: merge, key: [id], sequence: [updated_at]", ["FM311"]),
        (TABLE, f"{LAKE}, mode: merge, key: [id]", ["FM311", "FM312"]),
        (TABLE, LAKE, ["FM311", "FM313"]),
        ("delta, path: bronze", f"{LAKE}, mode: merge, key: [id], sequence: [at]", ["FM314", "FM315"]),
        ("delta, path: bronze, changes: feed", "kafka, bootstrap: 'b:1', topic: t", ["FM315", "FM317"]),
        (
            "kafka, bootstrap: 'b:1', topic: t, value: {format: json, schema: 'id long, at timestamp'}",
            f"{LAKE}, mode: merge, key: [id], sequence: [at]",
            ["FM315"],
        ),
        ("files, path: in", "files, path: out", ["FM316"]),
    ],
)
def test_what_a_job_does_not_promise_is_said_with_a_rule(
    tmp_path: Path, source: str, sink: str, rules: list[str]
) -> None:
    """The limits stand beside the guarantees, and are no mistakes of the file."""
    report = linted(tmp_path, LIMITED % (source, sink))
    assert ([limit.rule for limit in report.limits], report.has_errors) == (rules, False)


REBUILD = "floodmark run --select orders --full-refresh delivers every row again"


@pytest.mark.parametrize(
    ("sink", "hint"),
    [
        (f"{LAKE}, mode: merge, key: id", "floodmark reconcile orders finds them, --repair puts them right"),
        (LAKE, f"floodmark reconcile orders --key COLUMN finds them; {REBUILD}"),
        (f"{LAKE}, mode: scd2, key: id, sequence: updated_at", REBUILD),
        ("files, path: out", REBUILD),
    ],
)
def test_a_limit_names_the_cursor_and_the_command_that_helps(tmp_path: Path, sink: str, hint: str) -> None:
    """In plain words, and only a command that does not refuse for such a sink."""
    [unseen, *_] = linted(tmp_path, LIMITED % (TABLE, sink)).limits
    assert unseen.message == "updates without a new updated_at are not seen, and deletes never"
    assert unseen.hint == hint


SPOOLED = """\
jobs:
  - name: orders
    source: {type: files, path: in}
    transform: {python: "flow:orders"}
    sinks:
      - {type: files, path: out}
      - {type: delta, path: lake/orders}
"""


@pytest.mark.parametrize(
    ("top", "rules"),
    [
        ("", ["FM301"]),
        ("store: postgresql://db/marks\n", ["FM301", "FM303"]),
        ("store: [sqlite:///marks.db, postgresql://db/marks]\n", ["FM301", "FM303"]),
        ("spark: {master: 'local[4]'}\n", ["FM301"]),
        ("spark: {master: yarn}\n", ["FM301", "FM207", "FM207", "FM207"]),
        ("spark: {spark.master: 'spark://head:7077'}\n", ["FM301", "FM207", "FM207", "FM207"]),
    ],
)
def test_disks_that_other_machines_may_not_see_are_named(tmp_path: Path, top: str, rules: list[str]) -> None:
    """A shared store beside a spool of one host; tasks elsewhere beside sinks and a spool on this machine's disks."""
    (tmp_path / "flow.py").write_text("def orders(rows):\n    return rows\n")
    assert [finding.rule for finding in linted(tmp_path, top + SPOOLED).findings] == rules


DRIVEN = CLEAN.replace(
    "{type: files, path: in}", "{type: jdbc, url: 'jdbc:mysql://db/shop', table: o, cursor: [at, id]}"
)


@pytest.mark.parametrize(
    ("spark", "rules"),
    [("", ["FM209"]), ("spark: {jars.packages: 'a:b:1'}\n", []), ("spark: {master: yarn}\n", [])],
)
def test_a_driver_that_nothing_brings_is_warned_about(tmp_path: Path, spark: str, rules: list[str]) -> None:
    """With the line that brings it; a cluster may have drivers of its own."""
    found = [each for each in linted(tmp_path, DRIVEN + spark).findings if each.rule == "FM209"]
    assert [each.rule for each in found] == rules
    assert ["com.mysql:mysql-connector-j" in each.hint for each in found] == [True for _ in rules]


KNOWN = CLEAN.replace("{type: files, path: in}", '{type: files, path: in, schema: "id long, at timestamp"}')


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ("mode: merge, key: id, sequence: at, partition_by: at", []),
        ("mode: merge, key: ID", []),
        ("mode: merge, key: idd", ["FM124"]),
        ("mode: append, partition_by: day", ["FM124"]),
        ("mode: scd2, key: id, sequence: at, partition_by: is_current", []),
        ("mode: scd2, key: id, sequence: when", ["FM124"]),
    ],
)
def test_columns_of_a_sink_are_looked_for_where_they_are_known(tmp_path: Path, options: str, rules: list[str]) -> None:
    """A table with history has columns that its rows do not have."""
    report = linted(tmp_path, KNOWN.replace("path: lake/orders}", f"path: lake/orders, {options}}}"))
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == rules


def test_a_name_that_a_delta_table_does_not_take_is_an_error_with_the_line_that_renames_it(tmp_path: Path) -> None:
    """As headers of CSV files have it; a table that is there with such a column maps its names."""
    sql = '    transform: {sql: "select * from source"}\n'
    text = KNOWN.replace("id long,", "id long, `Unit Price` double,").replace(sql, "")
    [found] = [each for each in linted(tmp_path, text).findings if each.severity == "error"]
    renamed = "select * except (`unit price`), `unit price` as unit_price from source"
    assert (found.rule, found.hint) == ("FM125", f'transform: {{sql: "{renamed}"}}')
    with_it = text.replace("    sinks:", f"    {found.hint}\n    sinks:")
    assert [each.rule for each in linted(tmp_path, with_it).findings if each.severity == "error"] == []
    write_deltalake(str(tmp_path / "lake" / "orders"), pa.table({"id": [1], "Unit Price": [1.0]}))
    assert [each.rule for each in linted(tmp_path, text).findings if each.severity == "error"] == []


@pytest.mark.parametrize(
    "sql",
    [
        "select id, at as moment, moment + interval 1 day as later from source where later > at",
        "select s.id, source_of.at from source s join dims source_of on s.id = source_of.id",
        "with recent as (select id from source) select id, n from recent lateral view explode(array(1)) t as n",
        "select transform(array(id), x -> x + 1) as xs, row_number() over w as n from source window w as (order by at)",
        "select id from source where id in (select k from dims) and exists (select 1 from dims d where k = source.id)",
        "select *, _metadata.file_name as file, current_user as who from source",
    ],
)
def test_a_column_that_sql_may_know_is_not_missed(tmp_path: Path, sql: str) -> None:
    """Only what is certain is an error, since it stops a run."""
    report = linted(tmp_path, KNOWN.replace("select * from source", sql))
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == []
