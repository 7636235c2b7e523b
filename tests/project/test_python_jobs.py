"""Jobs that are written in Python, as the project knows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark import sinks, sources
from floodmark.errors import ConfigError
from floodmark.jobs.job import Job
from floodmark.lineage import lineage_of
from floodmark.lineage.flows import Parts
from floodmark.medallion import FactRows, Lookup, dimension, fact
from floodmark.project import build_job
from floodmark.project.file import Variables, read_document
from floodmark.project.kinds import DeltaSink, DeltaSource, FilesSource, PythonSource, Site
from floodmark.project.kinds.medallion import FactSource
from floodmark.project.kinds.servers import CatalogSource, KafkaSink, KafkaSource, PostgresSource
from floodmark.project.lint import lint
from floodmark.project.loading import load
from floodmark.project.python_jobs import GivenJob, given_job, with_python_jobs
from floodmark.project.streams import StreamJob
from floodmark.streams import from_kafka
from floodmark.testing.doubles import RowsSource

SITE = Site(Path("/project"))
MODULE = """\
import floodmark as fm

def job(name):
    return fm.Job(name, fm.sources.Files("/in"), [fm.sinks.Delta(f"/lake/{name}")], tags=["own"])

one = job("one")
several = [job("two"), job("three")]

def all_jobs():
    return [*several, one]

def broken():
    raise RuntimeError("no session")

number = 7
"""


def given(job: Job) -> GivenJob:
    return given_job(job, (), lambda: Path("/marks"))


def write_project(folder: Path, jobs: str, module: str) -> Path:
    (folder / f"{module}.py").write_text(MODULE)
    file = folder / "floodmark.yaml"
    file.write_text(f"store: memory\njobs: {jobs}\n")
    return file


@pytest.mark.parametrize(
    ("jobs", "names"),
    [
        ('{python: "MODULE:all_jobs"}', ["two", "three", "one"]),
        ('{python: "MODULE:one"}', ["one"]),
        ('[{python: "MODULE:several"}, {python: "MODULE:one"}]', ["two", "three", "one"]),
    ],
)
def test_a_name_is_a_job_several_or_a_function_that_gives_them(
    tmp_path: Path, request: pytest.FixtureRequest, jobs: str, names: list[str]
) -> None:
    """Found beside the project file, in the order in which they are given."""
    module = f"given_{abs(hash(request.node.name))}"
    file = write_project(tmp_path, jobs.replace("MODULE", module), module)
    project, unseen = with_python_jobs(load(read_document(file, Variables({}))), Site(tmp_path), Path)
    assert ([job.name for job in project.jobs], unseen) == (names, [])


def test_tags_of_the_file_and_of_the_job_add_up(tmp_path: Path) -> None:
    """So that --select tag:python finds them."""
    file = write_project(tmp_path, '[{python: "given_tags:one", tags: python}]', "given_tags")
    project, _ = with_python_jobs(load(read_document(file, Variables({}))), Site(tmp_path), Path)
    assert project.jobs[0].tags == ("python", "own")


@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        ("given_wrong:nobody", "FM110", "nothing called 'nobody' is defined there"),
        ("given_wrong:broken", "FM112", "could not look inside given_wrong:broken: given_wrong:broken: calling it"),
        ("given_wrong:number", "FM113", "gives int, and not jobs"),
    ],
)
def test_lint_says_what_it_could_not_look_into_and_goes_on(tmp_path: Path, name: str, rule: str, said: str) -> None:
    """A name that is not there, or gives no jobs, is an error; code that needs Spark may do well with it."""
    own = '[{name: a, source: {type: files, path: in}, sinks: [{type: console}]}, {python: "NAME"}]'
    file = write_project(tmp_path, own.replace("NAME", name), "given_wrong")
    report = lint(read_document(file, Variables({})), lambda project: with_python_jobs(project, Site(tmp_path), Path))
    [finding] = [each for each in report.findings if each.rule == rule]
    assert said in finding.message
    assert [each.job for each in report.guarantees] == ["a"]


def test_lint_knows_the_columns_that_a_source_in_python_declares(tmp_path: Path) -> None:
    """A misspelt column of the transform is found, as it is in a file."""
    module = 'import floodmark as fm\nsource = fm.sources.Files("/in", schema="id long")\n'
    module += 'sinks = [fm.sinks.Delta("/lake/a", mode="merge", key="id")]\n'
    module += 'one = fm.Job("one", source, sinks, transform="select idd from source")\n'
    file = write_project(tmp_path, "[{python: 'given_columns:one'}]", "given_columns")
    (tmp_path / "given_columns.py").write_text(module)
    report = lint(read_document(file, Variables({})), lambda project: with_python_jobs(project, Site(tmp_path), Path))
    assert "idd" in " ".join(each.message for each in report.findings if "source" in each.message)


SOURCES: list[tuple[object, type, dict[str, object]]] = [
    (sources.Files("/in", schema="id long"), FilesSource, {"schema_": "id long"}),
    (sources.Files("/in", format="csv"), FilesSource, {"path": "/in", "format": "csv"}),
    (sources.Delta("/lake/a", changes="feed"), DeltaSource, {"path": "/lake/a", "changes": "feed"}),
    (sources.Kafka("b:1", topic="t"), KafkaSource, {"topic": ("t",), "bootstrap": ("b:1",)}),
    (sources.Table("c.s.t", snapshot=True, key="id"), CatalogSource, {"snapshot": True, "cursor": None}),
    (RowsSource([]), PythonSource, {"object": "floodmark.testing.doubles:RowsSource"}),
]


@pytest.mark.parametrize(("source", "kind", "fields"), SOURCES, ids=lambda each: type(each).__name__)
def test_a_source_is_known_as_if_the_file_had_said_it(source: object, kind: type, fields: dict[str, object]) -> None:
    """And builds the very same source again."""
    model = given(Job("a", source, [sinks.Console()])).source  # type: ignore[arg-type]
    assert isinstance(model, kind)
    assert {name: getattr(model, name) for name in fields} == fields
    assert model.build(SITE) is source  # type: ignore[attr-defined]


def test_the_cursor_of_a_database_is_known(tmp_path: Path) -> None:
    """Lint judges it as it does one of the file."""
    source = sources.Postgres("postgresql://h/d", table="t", cursor=sources.Cursor("at", safety="none"))
    model = given(Job("a", source, [sinks.Console()])).source
    assert isinstance(model, PostgresSource)
    assert (model.cursor.column, model.cursor.safety) == (("at",), "none")


@pytest.mark.parametrize(
    ("sink", "kind", "mode"),
    [
        (sinks.Delta("/lake/a", mode="merge", key="id"), DeltaSink, "merge"),
        (sinks.Scd2("/lake/a", key="id", sequence="at"), DeltaSink, "scd2"),
        (sinks.Kafka("b:1", topic="t"), KafkaSink, None),
    ],
    ids=["delta", "scd2", "kafka"],
)
def test_a_sink_is_known_as_if_the_file_had_said_it(sink: object, kind: type, mode: str | None) -> None:
    """With its mode, its name and its place."""
    [model] = given(Job("a", sources.Files("/in"), [sink])).sinks  # type: ignore[list-item]
    assert (isinstance(model, kind), getattr(model, "mode", None)) == (True, mode)
    assert model.ledger_name() == sink.name  # type: ignore[attr-defined]
    assert model.build(SITE) is sink


def test_facts_and_dimensions_are_known() -> None:
    """The tables of a fact by their names, the members of a dimension by their key."""
    rows, prices = FactRows("usage", "/silver/usage"), Lookup("prices", "/silver/prices", on={"sku": "sku"})
    cost = given(fact("cost", rows=rows, lookups=[prices], build="select 1", path="/gold/cost"))
    members = dimension("dim", source="/silver/a", path="/gold/dim", key="a_sk", natural=("a",), columns={"a": "a"})
    assert isinstance(cost.source, FactSource)
    assert cost.source.names() == ["usage", "prices"]
    known = given(members).transform
    assert known is not None
    assert known.dimension is not None
    assert known.dimension.key == "a_sk"


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({}, {"quarantine": "/marks/quarantine/a"}),
        ({"quarantine": "/q"}, {"quarantine": "/q"}),
        ({"dead_letters": True}, {"quarantine": "/marks/quarantine/a", "dead_letters": "/marks/dead_letters/a"}),
        ({"dead_letters": "/d"}, {"quarantine": "/marks/quarantine/a", "dead_letters": "/d"}),
    ],
)
def test_rows_are_put_aside_where_the_job_itself_puts_them(fields: dict[str, object], places: dict[str, str]) -> None:
    """Beside the marks, if it says nothing: `quarantine` and the pages look there too."""
    make: Callable[..., Job] = Job
    assert given(make("a", sources.Files("/in"), [sinks.Console()], **fields)).places_aside() == places


def test_the_job_itself_is_what_runs() -> None:
    """No copy of it: a transform is any function, also one without a name."""
    job = Job("a", sources.Files("/in"), [sinks.Console()], transform=lambda rows: rows)
    assert build_job(given(job), SITE) is job


def test_a_stream_is_known_by_its_group_and_its_topics() -> None:
    """To health, lineage, marks, plan and run; its steps are Python, so what they fill is not known."""
    stream = from_kafka(["a", "b"], {"bootstrap.servers": "b:1", "group.id": "heal_orders"})
    model = given_job(StreamJob(stream), ("nightly",), Path)
    assert (model.name, model.tags, model.sinks) == ("heal_orders", ("nightly",), ())
    assert isinstance(model.source, KafkaSource)
    assert model.source.topic == ("a", "b")
    [flow] = lineage_of([Parts.of_model(model, SITE)]).flows
    assert [str(each) for each in flow.inputs] == ["kafka://b:1/a", "kafka://b:1/b"]


@pytest.mark.parametrize("act", ["reset", "set_mark", "backfill", "reconcile", "rollback", "step"])
def test_what_moves_marks_of_jobs_refuses_a_stream(act: str) -> None:
    """Its records are healed one by one."""
    stream = from_kafka("a", {"bootstrap.servers": "b:1", "group.id": "heal_orders"})
    with pytest.raises(ConfigError, match="'heal_orders' is a stream"):
        getattr(StreamJob(stream), act)("x")
