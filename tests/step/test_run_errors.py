"""What a person is told when a part of the step fails, and rows that a sink cannot take; without Spark."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from floodmark.errors import ColumnMissing, FloodmarkError, SinkFailed, SourceUnreadable, TransformFailed
from floodmark.errors.causes import Cause
from floodmark.patience import Interrupted
from floodmark.sinks.contract import Batch
from floodmark.step.run import Step
from floodmark.step.transform import Function, Identity, Transform
from floodmark.step.work import Work
from floodmark.stores.memory import MemoryMarkStore
from floodmark.testing import RowsSource
from tests.step.unsparked import LedgerSink, Rows, step_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.stores.record import Intent

OTHER, CODE, VALUES, DISK = (Cause("it broke", "", blame) for blame in ("other", "code", "values", "disk"))


def step_with(transform: Transform | None = None, *sinks: LedgerSink) -> Step:
    work = Work("numbers", (RowsSource([{"n": 1}]),), sinks or (LedgerSink("lake"),), transform or Identity())
    return Step(MemoryMarkStore(), lambda: cast("Any", None), work)


@pytest.mark.parametrize(
    ("cause", "transform", "sink", "told"),
    [
        pytest.param(CODE, Identity(), "lake", TransformFailed, id="a line of the user's is to blame, whoever writes"),
        pytest.param(VALUES, Function(lambda f: f), "lake", TransformFailed, id="values that a transform made"),
        pytest.param(VALUES, Identity(), "lake", SinkFailed, id="values as they came"),
        pytest.param(OTHER, Function(lambda f: f), "lake", SinkFailed, id="not the transform's fault"),
        pytest.param(OTHER, Identity(), None, SourceUnreadable, id="before the first write"),
        pytest.param(DISK, Identity(), None, SinkFailed, id="a disk that takes no spool"),
    ],
)
def test_a_cause_is_told_of_the_part_it_belongs_to(
    cause: Cause, transform: Transform, sink: str | None, told: type[FloodmarkError]
) -> None:
    """And of no other: a hint about the sink is of no use where the transform is wrong."""
    assert type(step_with(transform).failure(cause, sink)) is told


def test_a_source_that_cannot_be_read_has_the_hint_of_its_cause_or_one_that_asks_it() -> None:
    """The better one first."""
    step = step_with()
    known = step.failure(Cause("it broke", "start the server"), None)
    assert known.hint == "start the server"
    assert step.failure(OTHER, None).hint == "floodmark check asks the source itself"


@pytest.mark.parametrize(("sink", "words"), [("lake", "write failed"), (None, "read failed")])
def test_the_whole_error_is_in_the_debug_log(sink: str | None, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a person sees is one line of it."""
    step, intent = step_with(), cast("Intent", _NoSpool())
    with caplog.at_level(logging.DEBUG):
        step.error_for(ValueError("it broke"), sink, intent, cast("Any", None))
    assert words in caplog.text


def interrupted_write() -> Exception:
    """A signal stops a write, and what lets go of a lock on the way out finds no JVM any more."""
    try:
        try:
            raise Interrupted(signal.SIGTERM)
        finally:
            raise OSError("Answer from Java side is empty")
    except OSError as error:
        return error


def test_a_signal_goes_before_what_fails_on_the_way_out() -> None:
    """Else the run says that a sink has failed, and ends with another code."""
    step, intent = step_with(), cast("Intent", _NoSpool())
    with pytest.raises(Interrupted) as stop:
        step.error_for(interrupted_write(), "lake", intent, cast("Any", None))
    assert stop.value.exit_code == 143


@dataclass(frozen=True)
class _NoSpool:
    """As much of an intent as an error is told by."""

    spool: str | None = None
    spans: dict[str, Any] = field(default_factory=dict)


@dataclass
class KeyedSink(LedgerSink):
    """A sink that is told by which column rows are the same."""

    key: tuple[str, ...] = ("id",)


class NamedRows(Rows):
    """Rows of which only the names of their columns are asked."""

    columns = ("n",)


def batch_of_kind(kind: str) -> Batch:
    return cast("Batch", type("Kind", (), {"kind": kind}))


def test_rows_without_a_column_that_the_sink_needs_are_refused_before_they_are_written() -> None:
    """By the column's name, and also where the whole table is written anew."""
    sink, rows = KeyedSink("lake"), cast("DataFrame", NamedRows([1]))
    for kind in ("batch", "refresh"):
        with pytest.raises(ColumnMissing) as stop:
            step_with(None, sink).fit(rows, sink, batch_of_kind(kind))
        assert "'id'" in str(stop.value)


def test_rows_of_a_table_that_is_written_anew_need_not_fit_the_old_one() -> None:
    """They are taken as they are, and nobody is asked what the table looks like."""
    sink, rows = KeyedSink("lake", key=("n",)), cast("DataFrame", NamedRows([1]))
    assert step_with(None, sink).fit(rows, sink, batch_of_kind("refresh")) is rows


def test_an_error_in_the_reading_is_told_as_one_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the batch stays open."""
    store, lake = MemoryMarkStore(), LedgerSink("lake")
    plain = step_of(store, [1, 2], lake)
    step = Step(store, lambda: cast("Any", None), plain.work)
    monkeypatch.setattr("floodmark.step.run.Meter.begin", lambda spark, attempt: None)
    with pytest.raises(SourceUnreadable):
        step.prepare(plain.plan(plain.read(), plain.look(plain.read())).intent)
