"""Numbers agree: rows read, kept, refused, dead and written add up, or the batch is not done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

import floodmark as fm
from floodmark.errors import FloodmarkError, NumbersDisagree, SourceRewritten, StoreUnreachable
from floodmark.rules import Tally
from floodmark.sinks.contract import Batch
from floodmark.step.batch import PreparedBatch, require_as_many_as_read
from floodmark.step.spool import RowCounts
from floodmark.step.transform import Function, Sql, Transform
from floodmark.step.work import Work
from floodmark.stores.memory import MemoryMarkStore
from floodmark.testing import FailingStore, ListSink, RowsSource
from tests.step.unsparked import Code, LedgerSink, PlainJudgement, PlainPrepared, PlainStep, no_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.sources.contract import Session, Source
    from floodmark.stores.contract import MarkStore
    from floodmark.stores.record import Intent, Receipt


@dataclass
class CountingSink(LedgerSink):
    """Keeps every row, but for those that it loses, or writes twice; with `is_silent` it does not say how many."""

    lost: int = 0
    doubled: int = 0
    is_silent: bool = False

    def counts_every_row(self) -> bool:
        return True

    def write(self, rows: DataFrame, batch: Batch) -> int:
        taken = cast("list[Any]", rows)
        written = super().write(cast("Any", taken[self.lost :] + taken[: self.doubled]), batch)
        return cast("int", None) if self.is_silent else written


class CountsPrepared(PlainPrepared):
    """A batch whose rows were observed to be some number, and are another one when they are counted."""

    observed: int | None = None

    def row_counts(self, *, was_executed: bool) -> RowCounts:
        exact = super().row_counts(was_executed=was_executed)
        return RowCounts(self.observed) if was_executed and self.observed is not None else exact


@dataclass(frozen=True)
class CountsStep(PlainStep):
    """A step whose observation may be wrong, and whose spool has a number of rows."""

    observed: int | None = None
    spooled: int | None = None

    def prepare(self, intent: Intent) -> PreparedBatch:
        plain = super().prepare(intent)
        prepared = CountsPrepared(plain.judgement, (), None, {}, spool=cast("Any", self.spool()))
        object.__setattr__(prepared, "observed", self.observed)
        return prepared

    def spool(self) -> RowsInSpool | None:
        return RowsInSpool(self.spooled) if self.spooled is not None else None


@dataclass(frozen=True)
class RowsInSpool:
    """A spool of which only the number of its rows is asked."""

    count: int

    def rows(self) -> int:
        return self.count


@dataclass(frozen=True)
class ChangingRows:
    """A source that may give other rows when it is read again."""

    name: str = "rows"


@pytest.fixture
def store() -> MarkStore:
    return MemoryMarkStore()


def step_into(
    store: MarkStore, *sinks: CountingSink, transform: Transform | None = None, **numbers: int | None
) -> CountsStep:
    source: list[Any] = [1, 2, 3, 4]
    work = Work("numbers", (RowsSource(source),), sinks, transform or Code(), spool_folder="/nonexistent")
    return CountsStep(store, no_session, work, **cast("dict[str, Any]", numbers))


def mark_in(store: MarkStore) -> Any:  # noqa: ANN401
    record = store.read("numbers")
    return record.marks if record else None


@pytest.mark.parametrize(("lost", "doubled", "taken"), [(3, 0, 1), (0, 1, 5)])
def test_a_sink_that_took_another_number_of_rows_keeps_the_mark_down(
    store: MarkStore, lost: int, doubled: int, taken: int
) -> None:
    """Read 4, written 1: exit 1, and the batch stays open; the next run says so again."""
    lake = CountingSink("lake", lost=lost, doubled=doubled)
    for _ in range(2):
        with pytest.raises(NumbersDisagree) as stop:
            step_into(store, lake).run()
    assert (stop.value.expected, stop.value.found, stop.value.exit_code) == (4, {"sink 'lake'": taken}, 1)
    record = store.read("numbers")
    assert record is not None
    assert record.intent is not None
    assert record.marks == {}


def test_an_observation_that_counted_tasks_twice_fails_no_batch(store: MarkStore) -> None:
    """Spark runs tasks of a shuffle again and counts them again; the source has as many rows as the sink took."""
    lake = CountingSink("lake")
    receipt = step_into(store, lake, observed=8).run()
    assert (receipt.status, lake.rows) == ("done", [1, 2, 3, 4])


class SecludedSink(CountingSink):
    """Writes in a session of its own, where nothing is observed."""

    def is_secluded(self, batch: Batch, session: Session) -> bool:
        return True


def test_what_was_observed_beside_a_sink_with_a_session_of_its_own_says_nothing(store: MarkStore) -> None:
    """Its rows are counted by themselves."""
    changing = Function(lambda f: f)
    secluded = step_into(store, SecludedSink("lake"), observed=8, transform=changing).run()
    observed = step_into(MemoryMarkStore(), CountingSink("lake"), observed=8, transform=changing).run()
    assert (secluded.rows_read, observed.rows_read) == (4, 8)


def test_a_loss_that_an_observation_hides_is_found_by_the_spool(store: MarkStore) -> None:
    """The footers of its parts are exact, whatever was observed."""
    with pytest.raises(NumbersDisagree) as stop:
        step_into(store, CountingSink("lake", lost=1), observed=3, spooled=4, transform=Function(lambda f: f)).run()
    assert (stop.value.expected, stop.value.found) == (4, {"sink 'lake'": 3})


def test_two_sinks_of_one_batch_have_as_many_rows(store: MarkStore) -> None:
    """A filter changes the number; both got the same rows all the same."""
    query = Sql("select * from source where n > 0")
    with pytest.raises(NumbersDisagree) as stop:
        step_into(store, CountingSink("lake"), CountingSink("copy", lost=1), transform=query).run()
    assert stop.value.found == {"sink 'copy'": 3}


def test_what_a_sink_does_not_know_is_not_compared(store: MarkStore) -> None:
    """A count that is not there says nothing; and one sink behind a filter has nothing to be compared with."""
    assert step_into(store, CountingSink("lake", is_silent=True, lost=1)).run().status == "done"
    other, query = MemoryMarkStore(), Sql("select * from source where n > 0")
    assert step_into(other, CountingSink("lake", lost=2), transform=query).run().status == "done"


@pytest.mark.parametrize(
    ("source", "observed", "again", "taken", "agrees"),
    [
        (RowsSource([]), 4, 4, 4, True),
        (RowsSource([]), 8, 4, 4, True),
        (RowsSource([]), 4, 4, 3, False),
        (RowsSource([]), 8, 4, 3, False),
        (ChangingRows(), 8, 4, 4, True),
        (ChangingRows(), 4, 4, 3, False),
        (ChangingRows(), 5, 4, 3, True),
    ],
)
def test_a_difference_is_believed_if_the_source_confirms_it(
    source: Source, observed: int, again: int, taken: int, agrees: bool
) -> None:
    """A source that changes can only confirm it while it has as many rows as were observed."""
    judgement = cast("Any", PlainJudgement(list(range(again))))
    prepared = PlainPrepared(judgement, (), None, {})
    work = Work("numbers", (source,), (LedgerSink("lake"),))
    raised: list[FloodmarkError] = []
    try:
        require_as_many_as_read(work, 1, prepared, RowCounts(observed), {"sink 'lake'": taken})
    except NumbersDisagree as error:
        raised.append(error)
    assert (not raised) is agrees


@dataclass(frozen=True)
class ChangingTable(RowsSource):
    """Rows that may be others when they are read again."""

    def gives_same_rows(self) -> bool:
        return False


def finish_over_fewer_rows(transform: Transform) -> Receipt:
    """A run is killed between its one sink and the mark; the next one finds one of the four rows left."""
    store, lake = MemoryMarkStore(), CountingSink("lake")
    rows: list[Any] = [1, 2, 3, 4]
    work = Work("numbers", (ChangingTable(rows),), (lake,), transform)
    with pytest.raises(StoreUnreachable):
        CountsStep(FailingStore(store, {"commit": 1}), no_session, work).run()
    del rows[1:]
    return CountsStep(store, no_session, work).run()


def test_a_batch_that_its_one_sink_had_is_not_counted_by_the_rows_of_now() -> None:
    """Every row goes on, so as many were read as the sink has."""
    receipt = finish_over_fewer_rows(Code())
    assert (receipt.rows_read, receipt.rows_written, receipt.recovered) == (4, {"lake": 4}, True)


def test_where_rows_of_then_cannot_be_counted_the_receipt_says_so() -> None:
    """A filter stands between what was read and what was written: only the rows of now can be counted."""
    receipt = finish_over_fewer_rows(Sql("select * from source where n > 0"))
    assert (receipt.rows_read, receipt.rows_written) == (1, {"lake": 4})
    assert any("counted anew" in note for note in receipt.notes)


def test_rows_that_were_refused_or_could_not_be_parsed_are_accounted_for() -> None:
    """Read = kept + quarantined + dropped + dead."""
    work = Work("numbers", (RowsSource([]),), (LedgerSink("lake"),))
    counts = RowCounts(10, 2, Tally(8, 1, 3))
    assert require_as_many_as_read(work, 1, cast("Any", None), counts, {"sink 'lake'": 4}) is None


@dataclass
class LossySink(ListSink):
    """Loses its first row."""

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        return super().write(rows.where("id > 1"), batch)


@pytest.mark.spark
@pytest.mark.parametrize("transform", [None, lambda rows: rows], ids=["straight", "spooled"])
def test_rows_lost_in_a_sink_fail_the_batch(spark: SparkSession, tmp_path: Path, transform: Any) -> None:  # noqa: ANN401
    """By what was read where every row goes on; by the spool where code of the user's stands between."""
    sinks = [LossySink("lossy"), ListSink("whole")]
    job = fm.Job("orders", RowsSource([{"id": 1}, {"id": 2}]), sinks, transform)
    store = fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    with pytest.raises(NumbersDisagree) as stop:
        job.run(spark, store)
    assert (stop.value.expected, stop.value.found["sink 'lossy'"]) == (2, 1)
    record = store.read("orders")
    assert record is not None
    assert record.marks == {}


@dataclass
class RewritingSink(ListSink):
    """Takes its rows; while it does, somebody adds a line to the file that they come from."""

    path: str = ""
    times: list[int] = field(default_factory=list)

    def write(self, rows: DataFrame, batch: Batch) -> int | None:
        written = super().write(rows, batch)
        with open(self.path, "a") as file:  # noqa: PTH123
            file.write('{"id": 9}\n')
        return written


@pytest.mark.spark
def test_a_listed_file_that_changes_while_it_is_read_keeps_the_mark_down(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody knows which of its lines were read: a decision, which says what is in the sinks."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"id": 1}\n')
    source = fm.sources.Files(str(folder), schema="id long", settle=0)
    sink, store = RewritingSink(path=str(folder / "a.jsonl")), fm.stores.open("sqlite:///marks.db", folder=tmp_path)
    with pytest.raises(SourceRewritten, match="while it was read, and batch 1 was written to list"):
        fm.Job("orders", source, [sink]).run(spark, store)
    record = store.read("orders")
    assert record is not None
    assert record.marks == {}
    with pytest.raises(SourceRewritten):
        fm.Job("orders", replace(source), [sink]).run(spark, store)
    assert sink.rows == [{"id": 1}]
