"""Facts and dimensions in the project file."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark import stores
from floodmark.errors import FieldInvalid
from floodmark.lineage import lineage_of
from floodmark.lineage.flows import Parts
from floodmark.medallion import FactRows, Lookup, dimension, fact
from floodmark.project import build_jobs
from floodmark.project.file import Document, Variables, read_document
from floodmark.project.kinds import Site
from floodmark.project.lint import lint
from floodmark.project.loading import load

BUILD = "SELECT u.date_sk, count(p.price) AS n FROM usage u LEFT JOIN prices p ON p.sku = u.sku GROUP BY u.date_sk"
FACT = f"""\
jobs:
  - name: cost
    source:
      type: fact
      rows: {{name: usage, path: silver/usage}}
      lookups:
        - {{name: prices, table: silver.prices, on: {{sku: sku}}, at: at, when_moved: freeze}}
    transform: {{sql: "{BUILD}"}}
    sinks:
      - {{type: delta, mode: dates, path: gold/cost, name: cost}}
"""


def document(folder: Path, text: str) -> Document:
    (folder / "floodmark.yaml").write_text(text)
    return read_document(folder / "floodmark.yaml", Variables({}))


def test_a_fact_of_the_file_is_the_fact_of_the_library(tmp_path: Path) -> None:
    """Source, transform and sink; whatever runs the one runs the other."""
    [job] = build_jobs(load(document(tmp_path, FACT)), Site(tmp_path))
    usage = FactRows("usage", str(tmp_path / "silver/usage"))
    prices = Lookup("prices", table="silver.prices", on={"sku": "sku"}, at="at", when_moved="freeze")
    same = fact("cost", rows=usage, lookups=[prices], build=BUILD, path=str(tmp_path / "gold/cost"))
    store = stores.open("memory")
    assert (job.source, job.sinks, job.work(store).transform) == (same.source, same.sinks, same.work(store).transform)


def test_lint_knows_the_tables_of_a_fact(tmp_path: Path) -> None:
    """They are read at pinned versions, so nothing is to be said of them; a table from elsewhere is."""
    assert lint(document(tmp_path, FACT)).findings == ()
    stray = FACT.replace("LEFT JOIN prices", "LEFT JOIN elsewhere")
    assert [finding.rule for finding in lint(document(tmp_path, stray)).findings] == ["FM105"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: prices", "name: usage", "two tables are called 'usage'"),
        ("on: {sku: sku}", "on: {}", "at least 1 item"),
        ("mode: dates", "mode: append", "sinks with `mode: dates`"),
        (f'    transform: {{sql: "{BUILD}"}}\n', "", "a fact needs a transform"),
        ("path: silver/usage", "date: day", "give either path or table"),
    ],
)
def test_a_fact_that_is_not_whole_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    """Before anything runs."""
    with pytest.raises(FieldInvalid, match=said):
        load(document(tmp_path, FACT.replace(old, new)))


def test_a_table_by_dates_belongs_to_a_fact(tmp_path: Path) -> None:
    """Other rows do not say which dates they stand for."""
    text = "jobs: [{name: a, source: {type: files, path: in}, sinks: [{type: delta, mode: dates, path: out}]}]"
    with pytest.raises(FieldInvalid, match="`type: fact`"):
        load(document(tmp_path, text))


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
        ("dimension: {key", "sql: select 1\n      dimension: {key", "give either sql, file or python, or dimension"),
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
