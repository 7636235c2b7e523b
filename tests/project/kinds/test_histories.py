"""Tables with history, and what lies beside tables, in the project file."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from floodmark import sinks
from floodmark.errors import FieldInvalid
from floodmark.project import build_jobs
from floodmark.project.file import Document, Variables, read_document
from floodmark.project.kinds import Site
from floodmark.project.lint import lint
from floodmark.project.loading import load

HISTORY = """\
jobs:
  - name: clusters
    source: {type: delta, path: bronze/clusters}
    sinks:
      - {type: delta, mode: scd2, path: silver/clusters, key: id, sequence: at, MORE}
"""
DIMENSION = """\
jobs:
  - name: dim
    source: {type: delta, path: silver/clusters, changes: feed}
    transform:
      dimension: {key: sk, natural: id, columns: {id: id}MORE}
    sinks:
      - {type: delta, mode: dimension, path: gold/dim, key: sk, cluster_by: sk}
  - name: cost
    source:
      type: fact
      rows: {name: usage, path: silver/usage}
      lookups:
        - {name: dim, path: gold/dim, on: {id: id}, at: at, when_moved: freeze}
    transform: {sql: "SELECT u.date_sk, d.sk FROM usage u JOIN dim d ON d.id = u.id"}
    sinks:
      - {type: delta, mode: dates, path: gold/cost}
"""


def document(folder: Path, text: str) -> Document:
    (folder / "floodmark.yaml").write_text(text)
    return read_document(folder / "floodmark.yaml", Variables({}))


def test_the_layout_and_the_log_of_a_history_are_said_in_the_file(tmp_path: Path) -> None:
    """Every option reaches the sink."""
    more = "partition_by: region, deletion_vectors: true, keep_events: 400d"
    [job] = build_jobs(load(document(tmp_path, HISTORY.replace("MORE", more))), Site(tmp_path))
    assert list(job.sinks) == [
        sinks.Scd2(
            str(tmp_path / "silver/clusters"),
            key="id",
            sequence="at",
            name="delta",
            partition_by="region",
            deletion_vectors=True,
            keep_events=timedelta(days=400),
        )
    ]
    borrowing = load(document(tmp_path, HISTORY.replace("MORE", "events: source, cluster_by: id")))
    [sink] = build_jobs(borrowing, Site(tmp_path))[0].sinks
    assert isinstance(sink, sinks.Scd2)
    assert (sink.events, sink.cluster_by) == ("source", ("id",))


def test_how_long_deleted_keys_are_kept_is_said_in_the_file(tmp_path: Path) -> None:
    """Of a merge into Delta and into PostgreSQL alike; lint says where it does nothing."""
    merge = "mode: merge, key: id, sequence: at, delete_when: gone, keep_deleted: 90d"
    text = HISTORY.replace("mode: scd2, path: silver/clusters, key: id, sequence: at, MORE", f"path: c, {merge}")
    postgres = text.replace("type: delta, path: c", "type: postgres, url: postgresql://h/d, table: c")
    kept = [build_jobs(load(document(tmp_path, each)), Site(tmp_path))[0].sinks[0] for each in (text, postgres)]
    assert [getattr(sink, "keep_deleted", None) for sink in kept] == [timedelta(days=90)] * 2
    findings = lint(document(tmp_path, HISTORY.replace("MORE", "keep_deleted: 90d"))).findings
    [idle] = [each for each in findings if each.severity == "warning"]
    assert (idle.rule, idle.message) == ("FM203", "keep_deleted does nothing with mode scd2")


@pytest.mark.parametrize("option", ["partition_by", "cluster_by"])
def test_a_table_by_dates_is_partitioned_by_its_date_and_by_nothing_else(tmp_path: Path, option: str) -> None:
    """Refused by name, and not left out without a word."""
    text = DIMENSION.replace("MORE", "").replace("path: gold/cost}", f"path: gold/cost, {option}: sku}}")
    with pytest.raises(FieldInvalid, match=f"`{option}` does not go with `mode: dates`"):
        load(document(tmp_path, text))


def test_a_dimension_is_laid_out_and_keeps_superseded_versions_if_it_says_so(tmp_path: Path) -> None:
    """The table of the file is that of the library."""
    text = DIMENSION.replace("MORE", ", keep_superseded: true")
    [dim, _] = build_jobs(load(document(tmp_path, text)), Site(tmp_path))
    [sink] = dim.sinks
    assert isinstance(sink, sinks.Delta)
    assert (sink.cluster_by, getattr(dim.transform, "keep_superseded", None)) == (("sk",), True)


def test_lint_warns_of_a_frozen_fact_over_a_dimension_that_drops_its_keys(tmp_path: Path) -> None:
    """The fact would keep keys that no row of the dimension has."""
    [found] = lint(document(tmp_path, DIMENSION.replace("MORE", ""))).findings
    assert (found.rule, found.where, found.job) == ("FM208", "floodmark.yaml:13", "cost")
    assert lint(document(tmp_path, DIMENSION.replace("MORE", ", keep_superseded: true"))).findings == ()
