"""The project file as values: what is accepted, and how a mistake is reported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from floodmark import rules
from floodmark.errors import ConfigError, FieldInvalid, UnknownField, UnknownKind, VariableMissing
from floodmark.project.file import Document, StoreSettings, Variables, find_project, read_document, store_settings
from floodmark.project.kinds import Site
from floodmark.project.loading import JOB_SCHEMA_FILE, SCHEMA_FILE, examine, load, renew_schemas, schema_files
from floodmark.project.models import Project

JOB = """\
store: sqlite:///state/marks.db
jobs:
  - name: orders
    source: {type: files, path: in}
    sinks:
      - {type: delta, path: lake/orders}
"""


def document(folder: Path, text: str, env: Mapping[str, str] | None = None, target: str | None = None) -> Document:
    file = folder / "floodmark.yaml"
    file.write_text(text)
    return read_document(file, Variables(env or {}), target=target)


def project(folder: Path, text: str, env: Mapping[str, str] | None = None, target: str | None = None) -> Project:
    return load(document(folder, text, env, target))


def test_a_project_is_loaded_with_its_defaults(tmp_path: Path) -> None:
    """A source, a sink and a name are enough."""
    [job] = project(tmp_path, JOB).jobs
    assert (job.name, job.source.type, job.sinks[0].ledger_name(), job.on_schema_change) == (
        "orders",
        "files",
        "delta",
        "fail",
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{type: sqlite, path: db, table: o, cursor: id, types: {price: decimal(38,10)}}", "price"),
        ("{type: sqlite, path: db, table: o, cursor: id, types: {price: decimal(38, 10)}}", "price"),
        ("{type: files, path: in, schema: id long, name string}", "schema"),
    ],
)
def test_a_value_that_yaml_cut_at_a_comma_is_to_be_quoted(tmp_path: Path, source: str, name: str) -> None:
    """What follows the comma looks like a field without a value; nobody wrote one."""
    with pytest.raises(ConfigError) as refused:
        project(tmp_path, JOB.replace("{type: files, path: in}", source))
    assert refused.value.hint == f"YAML ends the value of {name} at its first comma: put it in quotes"


@pytest.mark.parametrize(
    ("old", "new", "field", "line", "nearest"),
    [
        ("store:", "stroe:", "stroe", 1, "store"),
        ("{type: files, path: in}", "{type: files, path: in, formt: csv}", "formt", 4, "format"),
        ("{type: files, path: in}", "{type: files, path: in, schem: x}", "schem", 4, "schema"),
        ("path: lake/orders}", "path: lake/orders, moed: merge}", "moed", 6, "mode"),
        ("path: lake/orders}", "path: lake/orders, xyzzy: 1}", "xyzzy", 6, None),
        ("  - name: orders", "  - name: orders\n    retries: {atempts: 3}", "atempts", 4, "attempts"),
        ("jobs:", "zebra: {}\njobs:", "zebra", 2, None),
    ],
)
def test_an_unknown_field_is_refused_with_line_and_nearest_name(
    tmp_path: Path, old: str, new: str, field: str, line: int, nearest: str | None
) -> None:
    """A misspelt field never goes unnoticed, however deep it stands."""
    with pytest.raises(UnknownField) as refused:
        project(tmp_path, JOB.replace(old, new))
    assert (refused.value.field, refused.value.where, refused.value.nearest) == (
        field,
        f"floodmark.yaml:{line}",
        nearest,
    )


@pytest.mark.parametrize(
    ("old", "new", "field", "line"),
    [
        ("name: orders", "name: 5", "jobs.0.name", 3),
        ("name: orders", "name: or ders", "jobs.0.name", 3),
        ("name: orders", "label: orders", "jobs.0.name", 3),
        ("path: in}", "path: in, settle: soon}", "jobs.0.source.settle", 4),
        ("path: in}", "path: in, read: {max_rows: 0}}", "jobs.0.source.read.max_rows", 4),
        ("type: files, ", "", "jobs.0.source.type", 4),
        ("type: delta, path: lake/orders", "type: delta", "jobs.0.sinks.0", 6),
        ("type: delta, path: lake/orders", "type: delta, path: a, table: b", "jobs.0.sinks.0", 6),
        ("path: lake/orders}", "path: lake/orders, mode: upsert}", "jobs.0.sinks.0.mode", 6),
        ("store: sqlite:///state/marks.db", "store: 5", "store", 1),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, field: str, line: int
) -> None:
    """The field by its path, the place by file and line."""
    found = examine(document(tmp_path, JOB.replace(old, new)))[1]
    wrong = [error for error in found if isinstance(error, FieldInvalid)]
    assert (field, f"floodmark.yaml:{line}") in [(error.field, error.where) for error in wrong]


@pytest.mark.parametrize(
    ("old", "new", "line", "hint"),
    [
        ("path: lake/orders}", "path: lake/orders, mode: marge}", 6, "did you mean merge?"),
        ("path: lake/orders}", "path: lake/orders, on_conflict: quarantin}", 6, "did you mean quarantine?"),
        ("path: in}", "path: in, format: JSONL}", 4, "did you mean jsonl?"),
        ("  - name: orders", "  - name: orders\n    on_schema_change: evolv", 4, "did you mean evolve?"),
        ("jobs:", "alerts: [{to: log, min_severity: criticl}]\njobs:", 2, "did you mean critical?"),
        ("jobs:", "alerts: [{to: log, on: [lag, stael]}]\njobs:", 2, "did you mean stale?"),
        ("path: lake/orders}", "path: lake/orders, mode: '${M:marge}'}", 6, "fix that line; floodmark schema shows"),
        ("{type: files, path: in}", "{type: kafka, bootstrap: h, topic: t, value: txt}", 4, "did you mean text?"),
        (
            "{type: files, path: in}",
            "{type: kafka, bootstrap: h, topic: t, value: {format: jsn, schema: id long}}",
            4,
            "did you mean json?",
        ),
    ],
)
def test_a_word_of_a_few_is_compared_with_them(tmp_path: Path, old: str, new: str, line: int, hint: str) -> None:
    """One mistake is told, at its line; what a variable holds is compared with nothing that is shown."""
    [wrong] = examine(document(tmp_path, JOB.replace(old, new)))[1]
    assert isinstance(wrong, FieldInvalid)
    assert (wrong.where, wrong.hint[: len(hint)]) == (f"floodmark.yaml:{line}", hint)


def test_an_unknown_type_lists_the_known_ones(tmp_path: Path) -> None:
    """The user sees what there is."""
    with pytest.raises(UnknownKind) as refused:
        project(tmp_path, JOB.replace("type: delta", "type: deltta"))
    assert (refused.value.kind, refused.value.known) == ("deltta", ("delta", "kafka", "postgres", "files", "console"))


def test_all_mistakes_are_found_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """One round of fixing is enough."""
    text = JOB.replace("store:", "stroe:").replace("path: in", "path: 1").replace("type: delta", "type: deltta")
    _, found = examine(document(tmp_path, text))
    assert [type(error) for error in found] == [UnknownField, FieldInvalid, UnknownKind]


def test_two_sinks_of_one_type_need_names(tmp_path: Path) -> None:
    """A sink's name is what its ledger is known by, so it may not be shared."""
    two = JOB + "      - {type: delta, path: lake/copy}\n"
    with pytest.raises(FieldInvalid, match="two sinks are called 'delta'"):
        project(tmp_path, two)


def test_two_sinks_of_one_type_with_names_are_fine(tmp_path: Path) -> None:
    """The second one is called otherwise."""
    two = JOB + "      - {type: delta, path: lake/copy, name: copy}\n"
    assert [sink.ledger_name() for sink in project(tmp_path, two).jobs[0].sinks] == ["delta", "copy"]


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    """They would share a mark."""
    again = JOB + "  - name: orders\n    source: {type: files, path: b}\n    sinks: [{type: console}]\n"
    with pytest.raises(FieldInvalid, match="two jobs are called 'orders'"):
        project(tmp_path, again)


def test_a_job_without_sinks_is_refused(tmp_path: Path) -> None:
    """It would move its mark past rows that went nowhere."""
    with pytest.raises(FieldInvalid, match="at least one sink"):
        project(tmp_path, "jobs:\n  - {name: a, source: {type: files, path: b}, sinks: []}\n")


def test_the_rules_of_a_job_are_those_of_python(tmp_path: Path) -> None:
    """The file and the API are two spellings of the same thing; a fraction is taken as it is written."""
    spelled = """\
    rules:
      - {name: id_there, not_null: [id], action: fail}
      - {check: "amount > 0", action: quarantine}
      - {not_null: id}
      - {range: {column: amount, min: 0.1}, action: drop}
      - {accepted: {column: state, values: [new, 1]}, action: warn}
      - {matches: {column: state, pattern: "^[a-z]+$"}}
      - {time_order: {earlier: begun, later: ended}}
      - {unique: id}
      - {name: new, unique: {columns: [id], path: lake/orders}}
      - {references: {columns: customer, key: name, table: main.customers}}
      - {row_count: {min: 5}}
      - {fresh: {column: at, within: 24h}, action: warn}
"""
    [job] = project(tmp_path, JOB + spelled).jobs
    assert [rule.build(Site(tmp_path)) for rule in job.rules] == [
        rules.not_null("id", name="id_there"),
        rules.check("amount > 0", action="quarantine"),
        rules.not_null("id"),
        rules.range("amount", min=Decimal("0.1"), action="drop"),
        rules.accepted("state", ["new", 1], action="warn"),
        rules.matches("state", "^[a-z]+$"),
        rules.time_order("begun", "ended"),
        rules.unique("id"),
        rules.unique("id", path=str(tmp_path / "lake/orders"), name="new"),
        rules.references("customer", key="name", table="main.customers"),
        rules.row_count(min=5),
        rules.fresh("at", within=timedelta(hours=24), action="warn"),
    ]


@pytest.mark.parametrize("rule", ["{action: drop}", "{check: 'a > 0', not_null: a}"], ids=["none", "two"])
def test_a_rule_is_one_condition(tmp_path: Path, rule: str) -> None:
    """With two, nobody could say which one was broken."""
    with pytest.raises(FieldInvalid, match="give one condition: check, not_null, range"):
        project(tmp_path, f"{JOB}    rules:\n      - {rule}\n")


def test_variables_are_filled_in_everywhere(tmp_path: Path) -> None:
    """Also where a number is wanted."""
    text = JOB.replace("path: in}", "path: ${IN}, read: {max_rows: ${N:7}}}")
    source = project(tmp_path, text, {"IN": "inbox"}).jobs[0].source
    assert (source.model_dump()["path"], source.read.max_rows) == ("inbox", 7)


def test_a_missing_variable_is_told_with_its_line(tmp_path: Path) -> None:
    """By name, where it is asked for."""
    with pytest.raises(VariableMissing) as missing:
        project(tmp_path, JOB.replace("path: in}", "path: ${IN}}"))
    assert (missing.value.variable, missing.value.where) == ("IN", "floodmark.yaml:4")


@pytest.mark.parametrize(
    "field", ["type: ${S}, path: x", "type: delta, path: x, mode: ${S}", "type: delta, path: x, key: {a: ${S}}"]
)
def test_what_a_variable_holds_is_in_no_error(tmp_path: Path, field: str) -> None:
    """pydantic likes to show its input; an error here shows only what the file says."""
    text = JOB.replace("type: delta, path: lake/orders", field)
    _, found = examine(document(tmp_path, text, {"S": "hunter2"}))
    assert found
    assert "hunter2" not in " ".join(map(str, found))


def test_a_target_goes_over_the_file(tmp_path: Path) -> None:
    """Only what it names is replaced."""
    text = JOB + "namespace: base\ntargets: {dev: {namespace: dev}, prod: {store: 'file:marks/'}}\n"
    chosen = document(tmp_path, text, target="dev")
    assert store_settings(chosen) == StoreSettings("sqlite:///state/marks.db", "dev", tmp_path)
    assert load(chosen).namespace == "dev"


def test_the_variables_of_another_target_are_not_asked_for(tmp_path: Path) -> None:
    """A developer has no password of production."""
    text = JOB + "targets: {dev: {namespace: dev}, prod: {store: '${PROD_STORE}'}}\n"
    assert project(tmp_path, text, target="dev").namespace == "dev"


def test_an_unknown_target_lists_the_known_ones(tmp_path: Path) -> None:
    """A wrong target never means the default one."""
    with pytest.raises(ConfigError) as refused:
        document(tmp_path, JOB + "targets: {dev: {}, prod: {}}\n", target="prd")
    assert (refused.value.message, refused.value.hint) == ("no target 'prd' in floodmark.yaml.", "one of: dev, prod")


def test_the_store_needs_none_of_the_jobs_variables(tmp_path: Path) -> None:
    """`marks show` answers although a job's password is not at hand."""
    text = JOB.replace("path: in}", "path: ${IN}}").replace("sqlite:///state/marks.db", "[memory, 'file:marks/']")
    assert store_settings(document(tmp_path, text)).store == ("memory", "file:marks/")


def test_spark_settings_get_their_full_names(tmp_path: Path) -> None:
    """`master` is spark.master; numbers and booleans become the text that Spark wants."""
    text = JOB + "spark: {master: 'local[2]', spark.ui.enabled: false, spark.sql.shuffle.partitions: 4}\n"
    assert project(tmp_path, text).spark_settings() == {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }


def test_the_file_is_found_in_a_parent_folder(tmp_path: Path) -> None:
    """As git finds its repository."""
    (tmp_path / "floodmark.yaml").write_text(JOB)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_project(None, tmp_path / "a" / "b") == tmp_path / "floodmark.yaml"


def test_no_file_says_how_to_get_one(tmp_path: Path) -> None:
    """The next step is one command."""
    with pytest.raises(ConfigError) as missing:
        find_project(None, tmp_path)
    assert "floodmark init" in missing.value.hint


def test_the_schemas_for_editors_are_written_anew_by_a_newer_program(tmp_path: Path) -> None:
    """Where there is one; what this program wrote stays as it is."""
    file = tmp_path / JOB_SCHEMA_FILE
    renew_schemas(tmp_path)
    assert list(tmp_path.iterdir()) == []
    file.parent.mkdir()
    file.write_text('{"$comment": "floodmark 0.0.1"}')
    renew_schemas(tmp_path)
    assert (file.read_text(), (tmp_path / SCHEMA_FILE).exists()) == (schema_files()[str(JOB_SCHEMA_FILE)], False)
    os.utime(file, (1, 1))
    renew_schemas(tmp_path)
    assert file.stat().st_mtime == 1
