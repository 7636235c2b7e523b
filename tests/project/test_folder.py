"""A project of several files: what belongs to it, what its defaults are, and where its mistakes stand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from floodmark.errors import ConfigError, FieldInvalid, UnknownField
from floodmark.project import build_jobs
from floodmark.project.file import Document, Variables, read_document
from floodmark.project.kinds import Site
from floodmark.project.lint import lint
from floodmark.project.loading import load
from floodmark.project.models import Project
from floodmark.project.python_jobs import with_python_jobs

ORDERS = "source: {type: files, path: in}\nsinks: [{type: delta, path: lake/orders}]\n"
TWO_JOBS = """\
- {name: a, source: {type: files, path: in/a}, sinks: [{type: delta, path: lake/a}]}
- {name: b, source: {type: files, path: in/b}, sinks: [{type: delta, path: lake/b}]}
"""


def document(folder: Path, files: Mapping[str, str], env: Mapping[str, str] | None = None) -> Document:
    for name, text in {"floodmark.yaml": "namespace: shop\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read_document(folder / "floodmark.yaml", Variables(env or {}))


def project(folder: Path, files: Mapping[str, str], env: Mapping[str, str] | None = None) -> Project:
    return load(document(folder, files, env))


def names(found: Project) -> list[str]:
    return [job.name for job in found.jobs]


def test_a_file_in_the_folder_jobs_is_a_job_of_its_name(tmp_path: Path) -> None:
    """Nothing has to be said for it, and folders below are looked into."""
    assert names(project(tmp_path, {"jobs/sales/orders.yaml": ORDERS, "jobs/customers.yml": ORDERS})) == [
        "customers",
        "orders",
    ]


def test_a_file_may_hold_a_list_of_jobs(tmp_path: Path) -> None:
    """Beside those of the project file, which come first."""
    own = "jobs:\n  - {name: first, source: {type: files, path: in}, sinks: [{type: console}]}\n"
    assert names(project(tmp_path, {"floodmark.yaml": own, "jobs/two.yaml": TWO_JOBS})) == ["first", "a", "b"]


def test_include_says_which_files_belong_to_the_project(tmp_path: Path) -> None:
    """And then the folder jobs is not looked at by itself."""
    files = {"floodmark.yaml": "include: shop/*.yaml\n", "shop/orders.yaml": ORDERS, "jobs/other.yaml": ORDERS}
    assert names(project(tmp_path, files)) == ["orders"]


def test_an_include_without_files_is_a_mistake(tmp_path: Path) -> None:
    """A folder that was renamed must not become a project without jobs."""
    with pytest.raises(FieldInvalid, match=r"floodmark.yaml:2: include matches no file: shop/\*.yaml"):
        project(tmp_path, {"floodmark.yaml": "include:\n  - shop/*.yaml\n"})


def test_defaults_are_what_every_job_says_that_says_nothing_else(tmp_path: Path) -> None:
    """Fields of a field are laid over each other, tags add up, and {job} is the job's own name."""
    defaults = """\
defaults:
  retries: {attempts: 3, backoff: 9s}
  dead_letters: {path: "lake/_dead/{job}"}
  tags: [shop]
  every: 1h
"""
    own = ORDERS + "retries: {backoff: 1s}\ntags: nightly\nevery: 5s\n"
    [job] = project(tmp_path, {"floodmark.yaml": defaults, "jobs/orders.yaml": own}).jobs
    assert (job.retries.attempts, job.retries.backoff, job.every, job.tags) == (3, "1s", "5s", ("shop", "nightly"))
    assert job.places_aside()["dead_letters"] == "lake/_dead/orders"


def test_a_file_may_have_defaults_of_its_own(tmp_path: Path) -> None:
    """They go over those of the project."""
    text = "defaults: {every: 2s}\njobs:\n" + "".join(f"  {line}\n" for line in TWO_JOBS.splitlines())
    found = project(tmp_path, {"floodmark.yaml": "defaults: {every: 1h, tags: [shop]}\n", "jobs/two.yaml": text})
    assert [(job.every, job.tags) for job in found.jobs] == [("2s", ("shop",)), ("2s", ("shop",))]


def test_one_table_for_the_dead_letters_of_all_jobs_is_refused(tmp_path: Path) -> None:
    """Two jobs would each take the other's rows for somebody else's."""
    with pytest.raises(FieldInvalid, match=r"write \{job\} in its path"):
        project(tmp_path, {"floodmark.yaml": "defaults: {dead_letters: {path: lake/dead}}\n"})


def test_the_sql_of_a_transform_may_stand_in_a_file(tmp_path: Path) -> None:
    """It is the same job as with the SQL in its place, variables and all."""
    files = {
        "jobs/orders.yaml": ORDERS + "transform: {file: sql/orders.sql}\n",
        "sql/orders.sql": "select ${N} from source",
    }
    [job] = build_jobs(project(tmp_path, files, {"N": "7"}), Site(tmp_path))
    assert job.transform == "select 7 from source"


def test_a_mistake_is_reported_in_the_file_where_it_stands(tmp_path: Path) -> None:
    """Job, SQL and default alike."""
    files = {
        "jobs/orders.yaml": ORDERS + "transform: {file: sql/orders.sql}\n",
        "sql/orders.sql": "selec",
        "jobs/two.yaml": TWO_JOBS.replace("lake/b}", "lake/b, mode: replace}"),
    }
    errors = [found for found in lint(document(tmp_path, files)).findings if found.severity == "error"]
    assert [(found.where, found.rule) for found in errors] == [
        ("sql/orders.sql:1", "FM104"),
        ("jobs/two.yaml:2", "FM202"),
    ]


@pytest.mark.parametrize(
    ("files", "error", "said"),
    [
        ({"jobs/a.yaml": ORDERS + "tansform: {}\n"}, UnknownField, "jobs/a.yaml:3"),
        ({"jobs/a.yaml": "jobs: []\nstore: memory\n"}, UnknownField, "jobs/a.yaml:2"),
        ({"jobs/a.yaml": "a: [1\n"}, ConfigError, "jobs/a.yaml:2 is not YAML"),
        ({"jobs/a.yaml": "just text\n"}, ConfigError, "jobs/a.yaml:1 holds no job"),
        ({"jobs/a.yaml": ORDERS + "transform: {file: no.sql}\n"}, FieldInvalid, "jobs/a.yaml:3: transform.file"),
        ({"floodmark.yaml": "defaults: {evry: 5s}\n"}, UnknownField, "floodmark.yaml:1"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(
    tmp_path: Path, files: Mapping[str, str], error: type[ConfigError], said: str
) -> None:
    """In a folder of two hundred files that is half of the answer."""
    with pytest.raises(error, match=said):
        project(tmp_path, files)


def test_two_jobs_of_one_name_are_refused_in_whatever_files_they_stand(tmp_path: Path) -> None:
    """Marks and ledgers are known by the name."""
    with pytest.raises(FieldInvalid, match="two jobs are called 'a'"):
        project(tmp_path, {"jobs/one/a.yaml": ORDERS, "jobs/two/a.yaml": ORDERS})


def test_what_is_said_of_many_jobs_is_shown_once(tmp_path: Path) -> None:
    """With the first of them by name; for programs each finding stays its own."""
    files = {f"jobs/j{number}.yaml": ORDERS.replace("orders", f"t{number}") for number in range(5)}
    report = lint(document(tmp_path, files))
    assert (len(report.guarantees), len(report.limits)) == (5, 10)
    together = report.together()
    assert [each.job for each in together.limits] == ["5 jobs (j0, j1, j2, …)"] * 2
    assert [each.job for each in together.guarantees] == ["5 jobs (j0, j1, j2, …)"]


def test_an_empty_include_takes_in_no_file(tmp_path: Path) -> None:
    """For folders called jobs that hold something else."""
    assert names(project(tmp_path, {"floodmark.yaml": "include: []\n", "jobs/other.yaml": "resources: {}\n"})) == []


def errors_of(folder: Path, files: Mapping[str, str]) -> list[tuple[str, str, str | None]]:
    report = lint(document(folder, files))
    return [(each.where, each.rule, each.job) for each in report.findings if each.severity == "error"]


def test_two_jobs_of_one_name_hide_no_other_mistake(tmp_path: Path) -> None:
    """Each at its own line; the second job is looked into as well, under its own name."""
    one = "- name: a\n  source: {type: files, path: in, schema: id lnog}\n  sinks: [{type: delta, path: lake/a}]\n"
    two = "- name: a\n  source: {type: files, path: in}\n  sinks:\n    - {type: delta, path: lake/b, mode: merge}\n"
    assert errors_of(tmp_path, {"jobs/a.yaml": one, "jobs/b.yaml": two}) == [
        ("jobs/b.yaml:1", "FM100", None),
        ("jobs/a.yaml:2", "FM107", "a"),
        ("jobs/b.yaml:4", "FM201", "a"),
    ]


def test_a_file_that_cannot_be_read_hides_no_other_mistake(tmp_path: Path) -> None:
    """No YAML, no SQL file, no such field, no such variable, no pattern that matches: all are told at once."""
    files = {
        "floodmark.yaml": "include:\n  - jobs/*.yaml\n  - none/*.yaml\nstroe: memory\n",
        "jobs/a.yaml": "a: [1\n",
        "jobs/b.yaml": ORDERS + "transform: {file: no.sql}\n",
        "jobs/c.yaml": ORDERS.replace("path: in", "pth: '${NOWHERE}'"),
        "jobs/d.yaml": ORDERS.replace("lake/orders", "'${NOWHERE}/orders'"),
        "jobs/e.yaml": ORDERS + "transform: {sql: selec}\n",
    }
    assert errors_of(tmp_path, files) == [
        ("floodmark.yaml:3", "FM100", None),
        ("jobs/a.yaml:2", "FM100", None),
        ("jobs/b.yaml:3", "FM100", None),
        ("floodmark.yaml:4", "FM100", None),
        ("jobs/c.yaml:1", "FM100", None),
        ("jobs/c.yaml:1", "FM100", None),
        ("jobs/d.yaml:2", "FM100", None),
        ("jobs/e.yaml:3", "FM104", "e"),
    ]


def test_a_job_of_python_with_the_name_of_another_hides_no_other_mistake(tmp_path: Path) -> None:
    """The jobs of the files are looked into all the same."""
    (tmp_path / "twice_named.py").write_text(
        "import floodmark as fm\njob = fm.Job('e', source=fm.sources.Files('in'), sinks=[fm.sinks.Delta('lake/f')])\n"
    )
    files = {
        "floodmark.yaml": "jobs: {python: 'twice_named:job'}\n",
        "jobs/e.yaml": ORDERS + "transform: {sql: selec}\n",
    }
    given = document(tmp_path, files)
    report = lint(given, lambda project: with_python_jobs(project, Site(tmp_path), lambda: tmp_path))
    assert [(each.where, each.rule) for each in report.findings if each.severity == "error"] == [
        ("floodmark.yaml", "FM100"),
        ("jobs/e.yaml:3", "FM104"),
    ]
