"""Mistakes that are found before anything is started: each message has the word, the place and the next step.

Those that only Spark or a server can meet are in `test_started`.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import floodmark as fm
from floodmark.cli.invocation import LazySession, Tools
from floodmark.errors import ConfigError, FloodmarkError, StoreUnreachable
from floodmark.rules import NotNull
from floodmark.stores.lease import this_process
from floodmark.stores.sqlite import SqliteMarkStore
from tests.cli.conftest import CommandResult

Floodmark = Callable[..., CommandResult]
FILES = '{type: files, path: in, schema: "id long, name string, at timestamp"}'
LAKE = "[{type: delta, path: lake/orders}]"
NO_SPARK = Tools(session=lambda _: LazySession(lambda: pytest.fail("no session is needed")))
COLOUR = re.compile("\x1b")


def project(source: str = FILES, sinks: str = LAKE, more: str = "") -> str:
    """One job: its source stands in line 3, its sinks in line 4, whatever else in line 5."""
    rest = f"    {more}\n" if more else ""
    return f"jobs:\n  - name: orders\n    source: {source}\n    sinks: {sinks}\n{rest}"


@dataclass(frozen=True)
class Mistake:
    """What somebody did, and what has to stand in the answer."""

    did: str
    error: tuple[str, str]
    next_step: str
    files: Mapping[str, str]
    command: tuple[str, ...] = ("run",)
    code: int = 2

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> Mistake:
        """A row of the table."""
        parts = {name: row[name] for name in ("source", "sinks", "more") if name in row}
        files = {"floodmark.yaml": row.get("file", project(**parts)), **row.get("files", {})}
        command, (word, place) = tuple(row.get("command", "run").split()), row["error"]
        return cls(row["did"], (word, place), row["try"], files, command, row.get("code", 2))


TABLE = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))
MISTAKES = [Mistake.parse(row) for rows in TABLE.values() for row in rows]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.did)
def test_a_mistake_is_named_with_its_place_and_the_next_step(
    folder: Path, floodmark: Floodmark, mistake: Mistake
) -> None:
    """`Error:` says what and where, `Try:` what to do; no traceback, no colour in a pipe, and no JVM."""
    for name, text in mistake.files.items():
        (folder / name).write_text(text)
    said = floodmark(*mistake.command, tools=NO_SPARK)
    error, _, step = said.err.partition("Try: ")
    assert said.code == mistake.code, said.err
    assert [part for part in mistake.error if part not in error] == []
    assert mistake.next_step in step
    assert "Traceback" not in said.err
    assert not COLOUR.search(said.out + said.err)


PARTS = {
    "one sink for a list": (lambda: fm.Job("a", fm.sources.Files("in"), fm.sinks.Delta("x")), "sinks=[Delta(…)]"),
    "a path for a source": (lambda: fm.Job("a", "in", [fm.sinks.Delta("x")]), "fm.sources.Files('in')"),
    "a path for a sink": (lambda: fm.Job("a", fm.sources.Files("in"), ["x"]), "fm.sinks.Delta"),
    "no sink": (lambda: fm.Job("a", fm.sources.Files("in"), []), "at least one sink"),
    "a number for a transform": (lambda: fm.Job("a", fm.sources.Files("in"), [fm.sinks.Delta("x")], 3), "a function"),
    "one rule for a list": (
        lambda: fm.Job("a", fm.sources.Files("in"), [fm.sinks.Delta("x")], rules=NotNull("id")),
        "rules=[NotNull(…)]",
    ),
    "no such policy": (
        lambda: fm.Job("a", fm.sources.Files("in"), [fm.sinks.Delta("x")], on_schema_change="evolv"),
        "did you mean evolve?",
    ),
    "no duration": (lambda: fm.Job("a", fm.sources.Files("in"), [fm.sinks.Delta("x")], every="soon"), "5s"),
    "a name with a space": (lambda: fm.Job("a b", fm.sources.Files("in"), [fm.sinks.Delta("x")]), "letters"),
    "no such format": (lambda: fm.sources.Files("in", format="xml"), "jsonl"),
    "no such mode": (lambda: fm.sinks.Delta("x", mode="merg"), "merge"),
    "a merge without key": (lambda: fm.sinks.Delta("x", mode="merge"), "key"),
}


@pytest.mark.parametrize("made", PARTS.values(), ids=PARTS.keys())
def test_a_wrong_argument_in_python_is_refused_when_it_is_given(made: tuple[Callable[[], object], str]) -> None:
    """With what to write instead, and not by an AttributeError from within."""
    make, step = made
    with pytest.raises(FloodmarkError) as raised:
        make()
    assert step in raised.value.hint
    assert isinstance(raised.value, ConfigError)


def test_several_mistakes_are_shown_at_once_and_counted(folder: Path, floodmark: Floodmark) -> None:
    """Who fixes one should not have to run again for the next; the summary counts what was printed."""
    (folder / "floodmark.yaml").write_text(project("{type: files, pth: in}", "{type: delta, path: x}", "every: soon"))
    ran, linted = floodmark("run", tools=NO_SPARK), floodmark("lint")
    assert (ran.code, ran.err.count("Error: "), ran.err.count("Try: ")) == (2, 3, 3)
    assert (linted.code, linted.out.count(": error FM"), linted.out.splitlines()[-1]) == (
        2,
        3,
        "3 errors, 0 warnings, 0 notes",
    )


def test_a_field_at_the_wrong_depth_is_one_mistake(folder: Path, floodmark: Floodmark) -> None:
    """It is not missing where it belongs as well: who moves it has fixed both."""
    text = "jobs:\n- name: a\n  source:\n    type: files\n    path: in\n    sinks: [{type: delta, path: x}]\n"
    (folder / "floodmark.yaml").write_text(text)
    assert floodmark("run", tools=NO_SPARK).err.count("Error: ") == 1


def test_a_folder_with_a_project_is_the_project(folder: Path, floodmark: Floodmark) -> None:
    """`-p shop` means shop/floodmark.yaml."""
    (folder / "shop").mkdir()
    (folder / "shop" / "floodmark.yaml").write_text(project())
    assert floodmark("lint", "-p", "shop").code == 0


def test_a_mistake_in_a_file_of_one_job_names_the_job(folder: Path, floodmark: Floodmark) -> None:
    """In such a file no job stands at position 1."""
    (folder / "floodmark.yaml").write_text(project())
    (folder / "jobs").mkdir()
    (folder / "jobs" / "customers.yaml").write_text("source: {type: files, path: in}\n")
    said = floodmark("run", tools=NO_SPARK)
    assert "jobs/customers.yaml:1: job 'customers': sinks is missing" in said.err


def test_only_what_is_wrong_with_a_selected_job_stops_it(folder: Path, floodmark: Floodmark) -> None:
    """A colleague's half-written job is no reason to stop the others."""
    other = project(more="transform: {sql: select nmae from source}")[6:].replace("orders", "other")
    (folder / "floodmark.yaml").write_text(project() + other)
    (folder / "in").mkdir()
    assert floodmark("run", "--select", "orders", tools=NO_SPARK).code == 0
    assert floodmark("run", tools=NO_SPARK).code == 2


def test_columns_come_from_the_log_of_a_table(folder: Path, floodmark: Floodmark) -> None:
    """A Delta table on this machine is asked without a JVM."""
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(folder / "bronze"), pa.table({"id": [1], "name": ["ada"]}))
    wrong = project("{type: delta, path: bronze}", more="transform: {sql: select nmae from source}")
    (folder / "floodmark.yaml").write_text(wrong)
    said = floodmark("run", tools=NO_SPARK)
    assert (said.code, "no column 'nmae': the source has id, name" in said.err) == (2, True)


NEEDS_SPARK = """\
from pyspark.sql.functions import udf

@udf("long")
def double(x):
    return 2 * x

def clean(rows):
    return rows.withColumn("id", double("id"))
"""


def test_a_module_that_needs_spark_is_named_by_plan_which_goes_on(folder: Path) -> None:
    """`run` imports it once Spark has started; a look without a JVM says that it could not look inside.

    In a process of its own: in this one, another test may have started the session that the module asks for.
    """
    needy = project(more="transform: {python: 'shop_e:clean'}")[6:].replace("orders", "needy")
    (folder / "floodmark.yaml").write_text(project() + needy)
    (folder / "shop_e.py").write_text(NEEDS_SPARK)
    (folder / "in").mkdir()
    command = [sys.executable, "-m", "floodmark", "plan"]
    planned = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "could not look inside shop_e: it needs Spark" in planned.stderr
    assert planned.stdout.startswith("orders: nothing new")


@pytest.mark.slow
def test_a_locked_store_is_waited_for_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits without a word is taken for dead; the error says who may know more."""
    path = tmp_path / "marks.db"
    SqliteMarkStore(path).take_lease("other", this_process(), over=None)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    with pytest.raises(StoreUnreachable) as raised:
        SqliteMarkStore(path, patience_seconds=8).read("orders")  # the word comes after two, later on a busy machine
    holder.close()
    assert "waiting for the store" in caplog.text
    assert ("locked" in raised.value.reason, "fuser" in raised.value.hint) == (True, True)
