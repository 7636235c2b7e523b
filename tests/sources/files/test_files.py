"""Which files a look chooses, without Spark."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.errors import ConfigError, SourceRewritten, SourceUnreadable, UnknownKind
from floodmark.hwm import FileListHWM, FileModifiedTimeHWM, FileMoment, Span
from floodmark.sources import Files
from floodmark.sources.contract import Explaining, Immutable, Request, Sight
from floodmark.sources.files import files_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from floodmark.hwm import HWM

SECOND = 10**9
NOW = 1_800_000_000


def no_session() -> SparkSession:
    """A look must answer without Spark."""
    raise AssertionError("the look asked for Spark")


def put(path: Path, text: str = '{"id":1}\n', *, age: float = 3600) -> str:
    """A file that was modified so many seconds before NOW."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    mtime_ns = NOW * SECOND - int(age * SECOND)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return str(path)


def files(folder: Path | str, **options: Any) -> Files:  # noqa: ANN401 (passed on)
    return Files(folder, now=lambda: float(NOW), **options)


def look(source: Files, mark: HWM[Any] | None = None, **request: Any) -> Sight:  # noqa: ANN401 (passed on)
    return source.look(mark, Request(**request), no_session)


def chosen(sight: Sight) -> list[str]:
    """The names of the files of the sight's span, in order."""
    assert sight.span is not None
    return [seen.path.rsplit("/", 1)[-1] for seen in files_of(sight.span)]


def after(sight: Sight, mark: HWM[Any] | None = None) -> HWM[Any]:
    """The mark once the span is committed."""
    assert sight.span is not None
    return mark.update(sight.span.upto.value) if mark else sight.span.upto


def test_the_first_look_finds_every_file(tmp_path: Path) -> None:
    """No mark means from the beginning."""
    path = put(tmp_path / "a.jsonl", "abc", age=10)
    sight = look(files(tmp_path))
    stat = {path: (3, (NOW - 10) * SECOND)}
    assert sight == Sight(Span(None, FileListHWM("files", stat, directory=str(tmp_path))), expected_bytes=3)


def test_files_that_the_mark_knows_are_not_found_again(tmp_path: Path) -> None:
    """The span names only what is new; the mark keeps both."""
    put(tmp_path / "a.jsonl")
    source = files(tmp_path)
    mark = after(look(source))
    put(tmp_path / "b.jsonl")
    sight = look(source, mark)
    assert chosen(sight) == ["b.jsonl"]
    assert look(source, after(sight, mark)).span is None


def test_a_late_file_with_an_old_time_is_found_by_list(tmp_path: Path) -> None:
    """`mv` and `rsync -t` bring files whose time lies before the newest that was read."""
    put(tmp_path / "a.jsonl", age=60)
    source = files(tmp_path)
    mark = after(look(source))
    put(tmp_path / "old.jsonl", age=86400 * 365)
    assert chosen(look(source, mark)) == ["old.jsonl"]


def test_an_empty_folder_is_nothing_new(tmp_path: Path) -> None:
    """And starts no Spark."""
    assert look(files(tmp_path)) == Sight(None, expected_rows=0, expected_bytes=0)


def test_a_missing_folder_is_unreadable_and_never_nothing_new(tmp_path: Path) -> None:
    """A mount that is gone stops the run."""
    with pytest.raises(SourceUnreadable):
        look(files(tmp_path / "gone"))


def test_a_single_file_is_a_source_too(tmp_path: Path) -> None:
    """Its mark stands for the folder it lies in."""
    path = put(tmp_path / "a.jsonl")
    sight = look(files(path))
    assert chosen(sight) == ["a.jsonl"]
    assert look(files(path), after(sight)).span is None


def test_a_rewritten_file_stops_the_run(tmp_path: Path) -> None:
    """Its old rows are in the sinks already: a person has to choose."""
    path = put(tmp_path / "a.jsonl", "abc")
    source = files(tmp_path)
    mark = after(look(source))
    put(tmp_path / "a.jsonl", "abcdef", age=60)
    with pytest.raises(SourceRewritten) as caught:
        look(source, mark)
    assert caught.value.what == f"{path} was 3 bytes when it was read and has 6 bytes now"
    assert caught.value.exit_code == 5


def test_a_file_rewritten_with_the_same_size_is_noticed_by_its_time(tmp_path: Path) -> None:
    """One digit for another changes no size."""
    put(tmp_path / "a.jsonl", "abc", age=60)
    source = files(tmp_path)
    mark = after(look(source))
    put(tmp_path / "a.jsonl", "xyz", age=50)
    with pytest.raises(SourceRewritten, match="written anew"):
        look(source, mark)


def test_a_rewritten_file_is_read_again_where_the_user_says_so(tmp_path: Path) -> None:
    """Once: the mark then knows the new size."""
    put(tmp_path / "a.jsonl", "abc")
    source = files(tmp_path, on_rewritten="reread")
    mark = after(look(source))
    put(tmp_path / "a.jsonl", "abcdef", age=60)
    sight = look(source, mark)
    assert chosen(sight) == ["a.jsonl"]
    assert look(source, after(sight, mark)).span is None


def test_a_young_file_is_held_back_and_the_others_are_not(tmp_path: Path) -> None:
    """It may still be written; half of it must not be taken for all of it."""
    put(tmp_path / "old.jsonl", age=60)
    young = put(tmp_path / "young.jsonl", age=2)
    sight = look(files(tmp_path, settle="5s"))
    assert chosen(sight) == ["old.jsonl"]
    assert (sight.held_back, sight.settles_in_seconds) == (1, 3.0)
    assert sight.held_reason is not None
    assert young in sight.held_reason


def test_a_file_exactly_as_old_as_settle_is_read(tmp_path: Path) -> None:
    """A run that waited for `settles_in_seconds` must not have to wait again."""
    put(tmp_path / "a.jsonl", age=5)
    assert look(files(tmp_path, settle=5)).held_back == 0


def test_settle_zero_reads_at_once(tmp_path: Path) -> None:
    """For folders into which files are moved whole."""
    put(tmp_path / "a.jsonl", age=0)
    assert chosen(look(files(tmp_path, settle=0))) == ["a.jsonl"]


def test_a_file_from_the_future_is_held_back_but_nobody_waits_for_it(tmp_path: Path) -> None:
    """Its time may be years away: it is counted and named, and the run goes on."""
    put(tmp_path / "a.jsonl", age=-86400)
    sight = look(files(tmp_path))
    assert (sight.span, sight.held_back, sight.settles_in_seconds) == (None, 1, None)


def test_a_known_file_that_is_being_rewritten_is_judged_when_it_has_settled(tmp_path: Path) -> None:
    """Until then nobody can say what it is."""
    put(tmp_path / "a.jsonl", "abc")
    source = files(tmp_path)
    mark = after(look(source))
    put(tmp_path / "a.jsonl", "abcd", age=1)
    assert look(source, mark).held_back == 1


def test_a_glob_chooses_among_the_files(tmp_path: Path) -> None:
    """And is part of the fingerprint, since another glob is another source."""
    put(tmp_path / "a.jsonl")
    put(tmp_path / "b.txt")
    source = files(tmp_path, glob="*.jsonl")
    assert chosen(look(source)) == ["a.jsonl"]
    assert source.fingerprint(no_session) == f"files {tmp_path} (jsonl, by list, only *.jsonl)"


def test_max_rows_takes_whole_files_in_order_of_time(tmp_path: Path) -> None:
    """Two files of two rows fit into four rows, the third waits for the next batch."""
    put(tmp_path / "c.jsonl", "{}\n{}\n", age=30)
    put(tmp_path / "b.jsonl", "{}\n{}\n", age=20)
    put(tmp_path / "a.jsonl", "{}\n{}\n", age=10)
    source = files(tmp_path)
    first = look(source, max_rows=5)
    assert chosen(first) == ["c.jsonl", "b.jsonl"]
    assert chosen(look(source, after(first), max_rows=5)) == ["a.jsonl"]


def test_max_rows_takes_at_least_one_file(tmp_path: Path) -> None:
    """A file larger than the bound would otherwise never be read."""
    put(tmp_path / "a.jsonl", "{}\n{}\n{}\n")
    assert chosen(look(files(tmp_path), max_rows=1)) == ["a.jsonl"]


def test_the_rows_of_parquet_files_are_told_before_they_are_read(tmp_path: Path) -> None:
    """The footers are cheap; lines of text are not counted for a plan."""
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    os.utime(tmp_path / "a.parquet", (NOW - 60, NOW - 60))
    assert look(files(tmp_path, format="parquet")).expected_rows == 3


def test_from_takes_files_modified_then_or_later(tmp_path: Path) -> None:
    """Inclusive, by modification time; NOW is 2027-01-15 08:00 UTC."""
    put(tmp_path / "before.jsonl", age=3600 + 0.000001)
    put(tmp_path / "at.jsonl", age=3600)
    put(tmp_path / "later.jsonl", age=60)
    assert chosen(look(files(tmp_path), start="2027-01-15T07:00:00Z")) == ["at.jsonl", "later.jsonl"]


def test_files_before_from_count_as_read(tmp_path: Path) -> None:
    """Otherwise the next run, without --from, would bring them after all."""
    put(tmp_path / "before.jsonl", age=7200)
    put(tmp_path / "later.jsonl", age=60)
    source = files(tmp_path)
    mark = after(look(source, start="2027-01-15T07:00:00Z"))
    assert look(source, mark).span is None


def test_from_reads_known_files_again(tmp_path: Path) -> None:
    """It is how a user goes back to a place they know."""
    put(tmp_path / "a.jsonl", age=60)
    source = files(tmp_path)
    mark = after(look(source))
    assert chosen(look(source, mark, start="2027-01-15")) == ["a.jsonl"]


def test_a_from_that_is_no_time_is_refused(tmp_path: Path) -> None:
    """Exit 2: an argument is wrong."""
    put(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="--from yesterday"):
        look(files(tmp_path), start="yesterday")


def test_by_modified_keeps_one_time_and_the_files_of_the_lag(tmp_path: Path) -> None:
    """A folder with a million files then has a small mark."""
    put(tmp_path / "old.jsonl", "abc", age=86400)
    new = put(tmp_path / "new.jsonl", "abcd", age=60)
    sight = look(files(tmp_path, by="modified"))
    assert chosen(sight) == ["old.jsonl", "new.jsonl"]
    moment = FileMoment((NOW - 60) * SECOND, new)
    assert after(sight) == FileModifiedTimeHWM("files", moment, directory=str(tmp_path))
    assert sight.extras == {"seen": {new: [4, (NOW - 60) * SECOND]}}


def test_by_modified_finds_what_is_newer_and_nothing_twice(tmp_path: Path) -> None:
    """Files within the lag are listed again, and known by their paths."""
    put(tmp_path / "a.jsonl", age=100)
    source = files(tmp_path, by="modified")
    first = look(source)
    put(tmp_path / "b.jsonl", age=60)
    second = look(source, after(first), extras=first.extras)
    third = look(source, after(second, after(first)), extras=second.extras)
    assert (chosen(second), third.span) == (["b.jsonl"], None)


def test_by_modified_finds_a_late_file_within_the_lag(tmp_path: Path) -> None:
    """It arrived with an older time than the mark; the mark stays where it is."""
    put(tmp_path / "a.jsonl", age=60)
    source = files(tmp_path, by="modified", lag="1h")
    first = look(source)
    put(tmp_path / "late.jsonl", age=1800)
    second = look(source, after(first), extras=first.extras)
    assert chosen(second) == ["late.jsonl"]
    assert after(second, after(first)) == after(first)
    assert look(source, after(first), extras=second.extras).span is None


def test_by_modified_leaves_out_a_late_file_beyond_the_lag(tmp_path: Path) -> None:
    """That is the price of a small mark, and why `by: list` is the default."""
    put(tmp_path / "a.jsonl", age=60)
    source = files(tmp_path, by="modified", lag="10m")
    first = look(source)
    put(tmp_path / "late.jsonl", age=1800)
    assert look(source, after(first), extras=first.extras).span is None


def test_by_modified_tells_files_of_one_instant_apart(tmp_path: Path) -> None:
    """Cut by max_rows in the middle of an instant, nothing is lost."""
    put(tmp_path / "a.jsonl", "{}\n", age=60)
    put(tmp_path / "b.jsonl", "{}\n", age=60)
    source = files(tmp_path, by="modified", lag=0)
    first = look(source, max_rows=1)
    second = look(source, after(first), max_rows=1, extras=first.extras)
    assert (chosen(first), chosen(second)) == (["a.jsonl"], ["b.jsonl"])


def test_by_modified_notices_a_rewritten_file_of_the_lag(tmp_path: Path) -> None:
    """Beyond the lag a rewritten file is simply a newer one."""
    put(tmp_path / "a.jsonl", "abc", age=60)
    source = files(tmp_path, by="modified")
    first = look(source)
    put(tmp_path / "a.jsonl", "abcdef", age=30)
    with pytest.raises(SourceRewritten, match="3 bytes"):
        look(source, after(first), extras=first.extras)


def test_by_modified_goes_on_from_a_mark_that_somebody_set(tmp_path: Path) -> None:
    """With nothing remembered, files at or below the mark count as read, also within the lag."""
    put(tmp_path / "below.jsonl", age=120)
    put(tmp_path / "above.jsonl", age=60)
    mark = FileModifiedTimeHWM("files", FileMoment((NOW - 100) * SECOND), directory=str(tmp_path))
    assert chosen(look(files(tmp_path, by="modified"), mark)) == ["above.jsonl"]


def test_by_modified_takes_from_too(tmp_path: Path) -> None:
    """The mark never goes back, but the rows are read again."""
    put(tmp_path / "a.jsonl", age=7200)
    put(tmp_path / "b.jsonl", age=60)
    source = files(tmp_path, by="modified")
    first = look(source)
    assert chosen(look(source, after(first), start="2027-01-15T07:00:00", extras=first.extras)) == ["b.jsonl"]


def test_a_span_is_the_same_after_it_was_stored(tmp_path: Path) -> None:
    """After a crash the stored span is read, with the very same files."""
    put(tmp_path / "a.jsonl")
    span = look(files(tmp_path, by="modified")).span
    assert span is not None
    assert files_of(Span.deserialize(span.serialize())) == files_of(span)


def test_the_fingerprint_says_where_and_how(tmp_path: Path) -> None:
    """Words that a person can compare; never with a login."""
    assert files(tmp_path).fingerprint(no_session) == f"files {tmp_path} (jsonl, by list)"
    remote = files("s3://key:secret@bucket/in", format="csv", by="modified")
    assert remote.fingerprint(no_session) == "files s3://bucket/in (csv, by modified)"


def test_files_never_change_and_can_explain_a_failure() -> None:
    """The step asks for both: no spool is needed, and a malformed line is named."""
    assert isinstance(Files("in"), Immutable)
    assert isinstance(Files("in"), Explaining)


def test_a_file_that_spark_does_not_see_on_its_own_machine_is_named(tmp_path: Path) -> None:
    """A driver and its executors, or a Connect server, are elsewhere; on this machine Spark's own words are right."""
    put(tmp_path / "a.jsonl")
    source = files(tmp_path)
    span = source.look(None, Request(), no_session).span
    assert span is not None
    error = RuntimeError(f"[PATH_NOT_FOUND] Path does not exist: file:{tmp_path}/a.jsonl.")
    elsewhere, here = (
        cast("Any", SimpleNamespace(conf={"spark.master": m})) for m in ("spark://head:7077", "local[2]")
    )
    explained = source.explain(error, elsewhere, span)
    assert isinstance(explained, SourceUnreadable)
    assert f"does not see {tmp_path}/a.jsonl" in explained.message
    assert source.explain(error, here, span) is None
    assert source.explain(RuntimeError("the disk is full"), elsewhere, span) is None


@pytest.mark.parametrize("wrong", [{"format": "xml"}, {"by": "name"}, {"on_rewritten": "skip"}, {"malformed": "drop"}])
def test_a_word_nobody_knows_is_refused_with_the_known_ones(wrong: dict[str, Any]) -> None:
    """At once, and not when the first file comes."""
    with pytest.raises(UnknownKind) as caught:
        Files("in", **wrong)
    assert caught.value.known


@pytest.mark.parametrize("wrong", [{"settle": "soon"}, {"lag": "1 week"}])
def test_a_duration_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    """With the name of the field."""
    with pytest.raises(ConfigError):
        Files("in", **wrong)
