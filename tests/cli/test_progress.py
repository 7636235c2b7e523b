"""What a run shows while it works: lines for what takes long, a moving line on a terminal, colour where it means."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from floodmark import stores
from floodmark.cli.invocation import LazySession, Tools
from floodmark.cli.output import painted
from floodmark.cli.progress import LONG_SECONDS, Progress, said_in_lines
from floodmark.errors import ConfigError
from floodmark.hwm import ColumnIntHWM
from floodmark.phases import Phase, heard_by, phase
from floodmark.spark.status import WorkInSpark
from floodmark.stores.lease import hold
from floodmark.stores.record import JobRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.cli.conftest import CommandResult


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_a_phase_is_heard_and_what_was_around_it_goes_on() -> None:
    """Spark is started in the middle of a read."""
    heard: list[Phase] = []
    with heard_by(heard.append), phase("reading", "orders"), phase("starting Spark"):
        pass
    assert [(each.words, each.job) for each in heard] == [
        ("reading", "orders"),
        ("starting Spark", "orders"),
        ("reading", "orders"),
        ("", "orders"),
    ]


def test_what_takes_long_is_a_plain_line_within_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no terminal; what is over at once is not worth one."""
    with said_in_lines():
        with phase("looking", "orders"):
            pass
        with phase("starting Spark", "orders"):
            time.sleep(LONG_SECONDS + 0.25)
    assert capsys.readouterr().err == "orders: starting Spark …\n"


def test_a_line_has_rows_rate_and_the_time_that_is_left() -> None:
    """From Spark's own figures: a quarter of the tasks took ten seconds."""
    now = [100.0]
    progress = Progress(lambda: WorkInSpark(tasks=8, tasks_done=2, rows=5_000), lambda: now[0])
    progress.hear(Phase("writing sink 'lake' (1 of 2)", "orders"))
    now[0] += 10
    progress.ask()
    assert progress.lines() == ["orders: writing sink 'lake' (1 of 2), 5,000 rows, 500 a second, about 30 s left, 10 s"]


def test_a_phase_that_counts_for_itself_is_asked_each_time() -> None:
    """Bytes that are fetched are nothing that Spark would know of."""
    fetched = iter(["1.0 MB", "2.5 MB"])
    progress = Progress(clock=lambda: 0.0)
    with heard_by(progress.hear), phase("fetching connectors", amount=lambda: next(fetched)):
        assert progress.lines() == ["fetching connectors, 1.0 MB, 0 s"]
        assert progress.lines() == ["fetching connectors, 2.5 MB, 0 s"]


def test_each_of_several_jobs_has_its_line() -> None:
    """Whose tasks Spark's figures are, nobody knows then."""
    progress = Progress(lambda: WorkInSpark(tasks=8, tasks_done=2, rows=5_000), lambda: 0.0)
    progress.hear(Phase("reading", "orders"))
    progress.hear(Phase("looking", "returns"))
    progress.ask()
    assert progress.lines() == ["orders: reading, 0 s", "returns: looking, 0 s"]


def test_a_display_does_not_fail_with_spark() -> None:
    """It may be about to end."""
    progress = Progress(lambda: 1 / 0, lambda: 0.0, "looping")  # type: ignore[arg-type,return-value]
    progress.ask()
    assert progress.lines() == ["looping"]


def test_colour_is_for_terminals_whose_user_does_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is obeyed, and a pipe gets none."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("Error:", "red", Terminal()) == "\x1b[31mError:\x1b[0m"
    assert painted("Error:", "red", io.StringIO()) == "Error:"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("Error:", "red", Terminal()) == "Error:"


def test_log_lines_go_where_stderr_is_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A display puts itself in the place of stderr, so that both do not collide."""
    from floodmark.logs import configure, get_logger

    configure("info")
    instead = io.StringIO()
    monkeypatch.setattr("sys.stderr", instead)
    get_logger("test").info("a line")
    assert "a line" in instead.getvalue()


PROJECT = """\
jobs:
  - name: orders
    source: {type: sqlite, path: shop.db, table: o, cursor: seq}
    sinks: [{type: delta, name: lake, table: main.shop.orders, mode: merge, key: [id]}]
"""
WORKFLOW = {"name": "nightly", "tasks": [{"task_key": "orders"}]}


def slow_start() -> SparkSession:
    """Spark takes its time, and then there is none."""
    with phase("starting Spark"):
        time.sleep(LONG_SECONDS + 0.3)
        raise ConfigError("there is no Spark here.", hint="-")


@pytest.fixture
def shop(folder: Path) -> Path:
    """A job that has read one of two rows."""
    (folder / "floodmark.yaml").write_text(PROJECT)
    (folder / "nightly.json").write_text(json.dumps(WORKFLOW))
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("create table o (id integer not null, seq integer primary key)")
        connection.executemany("insert into o values (?, ?)", [(1, 1), (2, 2)])
    connection.close()
    store = stores.open("sqlite:///state/marks.db", folder=folder)
    with hold(store, "orders") as held:
        mark = ColumnIntHWM("sqlite", 1)
        store.commit(JobRecord("orders", 1, {"sqlite": mark}, {}), expected=0, lease=held.lease)
    store.close()
    return folder


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "command",
    [
        ("run",),
        ("plan",),
        ("backfill", "orders", "--from", "1", "--to", "2"),
        ("reconcile", "orders"),
        ("optimize",),
        ("quarantine", "replay", "orders", "--yes"),
        ("workflow", "run", "nightly.json"),
    ],
)
def test_whatever_starts_spark_says_so_and_beside_a_document_nothing(
    floodmark: Callable[..., CommandResult], command: tuple[str, ...]
) -> None:
    """In a line, where there is no terminal."""
    tools = Tools(session=lambda _settings: LazySession(slow_start))
    assert "starting Spark …" in floodmark(*command, tools=tools).err
    assert "starting Spark …" not in floodmark(*command, "--json", tools=tools).err
