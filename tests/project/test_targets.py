"""Targets that move the tables of a project: what goes along, what stays, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import ConfigError
from floodmark.project.file import Variables, read_document
from floodmark.project.loading import load
from floodmark.project.models import Project

SHOP = """\
jobs:
  - name: orders
    source: {type: files, path: in/orders}
    dead_letters: {}
    sinks:
      - {name: lake, type: delta, path: lake/orders}
      - {name: mart, type: postgres, url: "${PG}", table: mart.orders}
  - name: daily
    source: {type: delta, path: lake/orders}
    sinks: [{type: delta, table: main.gold.daily}]
  - name: report
    source: {type: table, name: main.gold.daily, cursor: day}
    sinks: [{type: files, path: out/report}]
  - name: outside
    source: {type: delta, path: lake/partners}
    sinks: [{type: console}]
targets:
  dev: {namespace: dev, folder: "${HOME_OF_DEV}", schema: dev_shop}
  other: {namespace: other}
  careless: {folder: dev}
"""


def project(folder: Path, target: str | None, text: str = SHOP) -> Project:
    (folder / "floodmark.yaml").write_text(text)
    variables = Variables({"PG": "postgresql://h/d", "HOME_OF_DEV": "dev"})
    return load(read_document(folder / "floodmark.yaml", variables, target=target))


def places(found: Project) -> list[str]:
    """What each job reads and fills."""
    parts = [part for job in found.jobs for part in (job.source, *job.sinks)]
    shown = [{name: getattr(part, name, None) for name in ("path", "table", "name")} for part in parts]
    return [str(each["path"] or each["table"] or each["name"]) for each in shown]


def test_what_jobs_fill_is_moved_and_what_they_read_of_each_other(tmp_path: Path) -> None:
    """What comes from outside is read where it is."""
    assert places(project(tmp_path, "dev")) == [
        "in/orders",
        "dev/lake/orders",
        "dev_shop.orders",
        "dev/lake/orders",
        "main.dev_shop.daily",
        "main.dev_shop.daily",
        "dev/out/report",
        "lake/partners",
        "None",
    ]


def test_rows_put_aside_and_the_spool_are_moved_too(tmp_path: Path) -> None:
    """A test run must not fill the quarantine of the real one."""
    job = project(tmp_path, "dev").jobs[0]
    assert (job.places_aside(), job.spool) == (
        {"quarantine": "dev/state/quarantine/orders", "dead_letters": "dev/state/dead_letters/orders"},
        "dev/state/spool",
    )


@pytest.mark.parametrize("target", [None, "other"])
def test_other_targets_move_nothing(tmp_path: Path, target: str | None) -> None:
    """Only folder and schema do."""
    assert places(project(tmp_path, target))[1:3] == ["lake/orders", "mart.orders"]


@pytest.mark.parametrize(
    ("old", "new", "target", "said"),
    [
        ("", "", "careless", "would move the marks of the others' tables"),
        ("path: lake/orders}", "path: /lake/orders}", "dev", "/lake/orders is not in the project's folder"),
        ("path: out/report", "path: s3a://lake/report", "dev", "s3a://lake/report is not in the project's folder"),
        ("  - name: outside", '  - python: "shop.jobs:all_jobs"\n  - name: outside', "dev", "written in Python"),
        (
            "source: {type: delta, path: lake/partners}",
            "source: {type: delta, path: lake/partners}\n    transform: {sql: 'select * from source, main.gold.daily'}",
            "dev",
            "the SQL of job 'outside' names it",
        ),
    ],
)
def test_a_table_that_would_stay_behind_is_refused(tmp_path: Path, old: str, new: str, target: str, said: str) -> None:
    """A run of the target must never write where the others write."""
    with pytest.raises(ConfigError, match=said):
        project(tmp_path, target, SHOP.replace(old, new) if old else SHOP)
