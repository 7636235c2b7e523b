"""A dimension in the project file: the same value that Python gives, and its mistakes told with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.errors import FieldInvalid
from floodmark.lineage import lineage_of
from floodmark.lineage.flows import Parts
from floodmark.medallion.dimensions import dimension
from floodmark.project import build_jobs
from floodmark.project.kinds import Site
from floodmark.project.lint import lint
from floodmark.project.models import load
from tests.jobs.test_facts import document

DIMENSION = """\
jobs:
  - name: dim_cluster
    source: {type: delta, path: silver/clusters, changes: feed}
    transform:
      dimension: {key: cluster_sk, natural: cluster_id, columns: {cluster_id: id, cores: size * 4}}
    sinks:
      - {type: delta, mode: dimension, path: gold/dim_cluster, key: cluster_sk, name: dim_cluster}
"""


def test_a_dimension_of_the_file_is_the_dimension_of_the_library(tmp_path: Path) -> None:
    """Source, transform and sink, with the guard against keys that collide; whatever runs the one runs the other."""
    [job] = build_jobs(load(document(tmp_path, DIMENSION)), Site(tmp_path))
    same = dimension(
        "dim_cluster",
        source=str(tmp_path / "silver/clusters"),
        path=str(tmp_path / "gold/dim_cluster"),
        key="cluster_sk",
        natural=["cluster_id"],
        columns={"cluster_id": "id", "cores": "size * 4"},
    )
    assert (job.source, job.transform, list(job.sinks)) == (same.source, same.transform, list(same.sinks))


def test_lint_finds_nothing_in_it_but_bad_sql(tmp_path: Path) -> None:
    """With the line of the column."""
    report = lint(document(tmp_path, DIMENSION))
    assert (report.findings, [each.words[:42] for each in report.guarantees]) == (
        (),
        ["each row is merged by its surrogate key ex"],
    )
    [found] = lint(document(tmp_path, DIMENSION.replace("size * 4", '"(size * 4"'))).findings
    assert (found.rule, found.where) == ("FM101", "floodmark.yaml:5")
    [found] = lint(document(tmp_path, DIMENSION.replace("size * 4", "rand()"))).findings
    assert found.rule == "FM103"


def test_its_lineage_is_read_from_its_columns(tmp_path: Path) -> None:
    """The key comes from what it is a hash of."""
    project = load(document(tmp_path, DIMENSION))
    found = lineage_of([Parts.of_model(job, Site(tmp_path)) for job in project.jobs])
    point = found.point("dim_cluster.cluster_sk")
    assert [(hop.point.column, hop.how) for hop in found.upstream(point)] == [
        ("id", "computed"),
        ("valid_from", "computed"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("natural: cluster_id", "natural: who", "`natural` names 'who'"),
        ("columns: {cluster_id: id,", "columns: {cluster_sk: id, cluster_id: id,", "which is the surrogate key"),
        ("mode: dimension", "mode: append", "sinks with `mode: dimension`"),
        ("changes: feed", "changes: append", "a Delta source with `changes: feed`"),
        ("key: cluster_sk, name", "key: sk, name", "need `key: cluster_sk`"),
        ("dimension: {key", "sql: select 1\n      dimension: {key", "give either sql or python, or dimension"),
    ],
)
def test_a_dimension_that_is_not_whole_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Before anything runs."""
    with pytest.raises(FieldInvalid, match=said):
        load(document(tmp_path, DIMENSION.replace(old, new)))


def test_a_table_of_members_belongs_to_a_dimension(tmp_path: Path) -> None:
    """Other rows have no surrogate key."""
    text = "jobs: [{name: a, source: {type: files, path: in}, sinks: [{type: delta, mode: dimension, path: out}]}]"
    with pytest.raises(FieldInvalid, match=r"`transform: \{dimension"):
        load(document(tmp_path, text))
