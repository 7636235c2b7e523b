"""JSON files as streams: one array in, read in bounded key_ranges; one array out, whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from floodmark.errors import ConfigError, SourceRegressed, SourceRewritten, SourceUnreadable
from floodmark.hwm import ColumnIntHWM
from floodmark.mill import JsonFileMessageBroker
from floodmark.mill.brokers import json_array
from floodmark.mill.brokers.files import ArrayReader, JsonArray, JsonParts, index_of, rows_of
from floodmark.sinks.contract import POSITION
from floodmark.sources.contract import Request
from tests.mill.cases import Joined, L, R
from tests.sinks.batches import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRICKY = [{"k": 1, "t": 'a "quoted" } , {'}, {"k": 2, "t": "ü€𝄞 \\ ]"}, {"k": 3, "n": {"a": [1, {"b": []}]}}]


def no_session() -> SparkSession:
    raise AssertionError("a look needs no Spark")


def written(folder: Path, text: str) -> Path:
    path = folder / "in.json"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("layout", [None, 2])
def test_an_array_is_read_object_by_object(
    piece: int, layout: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is laid out, and wherever a piece of the file ends: in a word, in a character of several bytes."""
    monkeypatch.setattr(json_array, "PIECE_BYTES", piece)
    path = written(tmp_path, json.dumps(TRICKY, indent=layout, ensure_ascii=False))
    assert read_from(path) == TRICKY


def read_from(path: Path, **place: int) -> list[object]:
    return [json.loads(text) for piece in ArrayReader(path, **place).pieces() for text in piece]


@pytest.mark.parametrize("characters", [1, 60, 1 << 20])
@pytest.mark.parametrize("objects", [1, 2, 50_000])
def test_reading_can_begin_at_every_part(
    characters: int, objects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that tasks share a file; whether its objects can be read together, or have to be gone through one by one."""
    monkeypatch.setattr(json_array, "PART_CHARACTERS", characters)
    monkeypatch.setattr(json_array, "PART_OBJECTS", objects)
    monkeypatch.setattr(json_array, "PIECE_BYTES", 16)
    many = [*TRICKY, *({"k": number} for number in range(20)), *TRICKY]
    path = written(tmp_path, json.dumps(many, ensure_ascii=False))
    parts = list(ArrayReader(path).parts())
    assert [part.index for part in parts] == [sum(part.count for part in parts[:n]) for n in range(len(parts))]
    assert sum(part.count for part in parts) == len(many)
    for part in parts:
        assert read_from(path, index=part.index, byte=part.byte) == many[part.index :]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "element 0 cannot be read: the array is not closed"),
        ("{}", "it is no JSON array"),
        ("[", "element 0 cannot be read: the array is not closed"),
        ("[1]", "element 0 cannot be read: it is no object"),
        ('[{"a": 1}', "element 1 cannot be read: the array is not closed"),
        ('[{"a": 1},]', "element 1 cannot be read: it is no object"),
        ('[{"a": 1} {"a": 2}]', "element 1 cannot be read: it is no object"),
        ('[{"a": 1}, {"a": }]', "element 1 cannot be read: it is no JSON"),
        ('[{"a": "x', "element 0 cannot be read: it is no JSON: Unterminated"),
    ],
)
def test_what_is_no_array_of_objects_is_refused_with_the_element(text: str, reason: str, tmp_path: Path) -> None:
    """A file that was cut off must not pass for a shorter one."""
    with pytest.raises(SourceUnreadable, match=reason):
        list(ArrayReader(written(tmp_path, text)).parts())


def test_an_empty_array_is_a_stream_without_elements(tmp_path: Path) -> None:
    """With a byte-order mark, too."""
    assert list(ArrayReader(written(tmp_path, "\ufeff [ ] ")).parts()) == []
    assert JsonArray(written(tmp_path, "[]"), "L").look(None, Request(), no_session).span is None


def test_a_look_counts_what_lies_above_the_mark(tmp_path: Path) -> None:
    """The mark is the number of elements that were passed."""
    source = JsonArray(written(tmp_path, json.dumps(TRICKY)), "L")
    span = source.look(ColumnIntHWM("L", 1), Request(), no_session).span
    assert span is not None
    assert source.offsets(span) == {0: (1, 3)}
    assert source.look(ColumnIntHWM("L", 3), Request(), no_session).span is None
    bounded = source.look(None, Request(max_rows=2), no_session).span
    assert bounded is not None
    assert source.offsets(bounded) == {0: (0, 2)}


def test_a_span_can_be_cut_between_what_is_read_and_what_is_passed(tmp_path: Path) -> None:
    """What was read and is still needed stays above the mark."""
    source = JsonArray(written(tmp_path, json.dumps(TRICKY)), "L")
    span = source.look(None, Request(), no_session).span
    assert span is not None
    cut = source.cut(span, reads={0: 2}, passes={0: 1})
    assert (cut.upto.value, source.offsets(cut)) == (1, {0: (0, 2)})


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    """A look with nothing new is one stat, also in another process."""
    source = JsonArray(written(tmp_path, "[" * 20), "L")
    found = source.path.stat()
    known = {"file": [found.st_size, found.st_mtime_ns, 7]}
    assert source.look(ColumnIntHWM("L", 7), Request(extras=known), no_session).span is None


def test_a_file_with_fewer_elements_than_were_read_stops_the_run(tmp_path: Path) -> None:
    """It is another file: going on would skip its first elements."""
    with pytest.raises(SourceRegressed, match="7 elements"):
        JsonArray(written(tmp_path, "[{}]"), "L").look(ColumnIntHWM("L", 7), Request(), no_session)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Never taken for an empty stream."""
    with pytest.raises(SourceUnreadable, match=r"gone\.json cannot be read: No such file"):
        JsonArray(tmp_path / "gone.json", "L").look(None, Request(), no_session)


def test_a_part_gives_only_the_elements_of_the_span(tmp_path: Path) -> None:
    """With their numbers as offsets, in bounded key_ranges."""
    path = written(tmp_path, json.dumps([{"k": number} for number in range(10)]))
    found = path.stat()
    [part] = index_of(path, found.st_size, found.st_mtime_ns).parts
    [rows] = rows_of(path, part, 4, 6)
    assert rows.to_pylist() == [
        {"partition": 0, "offset": 4, "value": '{"k": 4}'},
        {"partition": 0, "offset": 5, "value": '{"k": 5}'},
    ]


def test_a_broker_names_the_class_that_it_does_not_know(tmp_path: Path) -> None:
    """And those that it does."""
    broker = JsonFileMessageBroker({L: tmp_path / "l.json"})
    with pytest.raises(ConfigError, match=r"JsonFileMessageBroker has no place for R.*there are: L"):
        broker.inlet(R)
    with pytest.raises(ConfigError, match="no place for Joined"):
        broker.outlet(Joined)


def turn(spark: SparkSession, sink: JsonParts, number: int, *places: int) -> None:
    """What one turn writes: elements that say their place, in no order."""
    rows = [(json.dumps({"p": place}), place) for place in places]
    sink.write(spark.createDataFrame(rows, f"value string, {POSITION} int").repartition(3), batch(number))


@pytest.mark.spark
def test_the_output_appears_whole_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """Parts of several turns, each sorted by position, one array at the end; doing it again changes nothing."""
    sink = JsonParts(tmp_path / "out.json", "Joined")
    turn(spark, sink, 1, 3, 1, 2)
    turn(spark, sink, 2, 5, 4)
    turn(spark, sink, 2, 5, 4)
    assert not sink.path.exists()
    sink.publish()
    sink.publish()
    assert sink.path.read_text() == '[{"p": 1}, {"p": 2}, {"p": 3}, {"p": 4}, {"p": 5}]'


@pytest.mark.spark
def test_a_span_is_read_as_it_was_planned_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """A file that was written again in between would give other elements for the same numbers."""
    source = JsonArray(written(tmp_path, json.dumps(TRICKY, ensure_ascii=False)), "L")
    span = source.look(ColumnIntHWM("L", 1), Request(), lambda: spark).span
    assert span is not None
    rows = source.read(spark, span).rows.orderBy("offset").collect()
    assert [(row.offset, json.loads(row.value)) for row in rows] == [(1, TRICKY[1]), (2, TRICKY[2])]
    written(tmp_path, json.dumps(TRICKY, indent=1))
    with pytest.raises(SourceRewritten, match="written again"):
        source.read(spark, span)


def test_an_output_without_elements_is_an_empty_array(tmp_path: Path) -> None:
    """An input without matches is no error."""
    sink = JsonParts(tmp_path / "new" / "out.json", "Joined")
    sink.publish()
    assert sink.path.read_text() == "[]"
