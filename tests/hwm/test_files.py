"""Marks on files: every file that was read, or the last one in the order of modification."""

from __future__ import annotations

import gc
import weakref
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from typing import ClassVar

import pytest

from floodmark.errors import MarkInvalid
from floodmark.hwm import FileListHWM, FileModifiedTimeHWM, FileMoment, FileStat, Itemised, deserialize

NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
NOON_NS = 1_704_110_400_000_000_000


@pytest.mark.parametrize(
    "given", ["/d/a", ["/d/a"], ["/d/a", "/d/a"], {"/d/a"}, PurePosixPath("/d/a"), ("/d//a", "/d/./a")]
)
def test_one_path_or_many_each_once(given: object) -> None:
    """The same file named twice is one item."""
    assert list(FileListHWM("f", given, directory="/d").value) == ["/d/a"]


@pytest.mark.parametrize("directory", ["/d", "/d/", PurePosixPath("/d"), "/x/../d"])
def test_a_directory_has_one_spelling(directory: str) -> None:
    """So that two marks on it can be compared."""
    assert FileListHWM("f", directory=directory).entity == "/d"


@pytest.mark.parametrize("path", ["a", "./a", "d/a", "../d/a", "", "s3a:a", 5, b"/d/a", None])
def test_a_relative_path_is_refused(path: object) -> None:
    """Which file it is would depend on where the process runs."""
    with pytest.raises(MarkInvalid):
        FileListHWM("f", [path])


@pytest.mark.parametrize("path", ["/e/a", "/d/../e/a", "/da", "/d", "/d/x/../../e", "/../d/a", "s3a://d/a", "/d/.."])
def test_a_path_outside_the_directory_is_refused(path: str) -> None:
    """Also one that leaves it by `..`."""
    with pytest.raises(MarkInvalid):
        FileListHWM("f", path, directory="/d")


@pytest.mark.parametrize(
    ("directory", "path"),
    [
        ("s3a://b/in", "s3a://b/in/a"),
        ("s3a://b", "s3a://b/a"),
        ("file:///in/", "file:///in/a"),
        ("hdfs://h:8020/x", "hdfs://h:8020/x/a"),
    ],
)
def test_paths_may_have_a_scheme(directory: str, path: str) -> None:
    """Object stores and HDFS are directories too."""
    assert list(FileListHWM("f", path, directory=directory).value) == [path]


def test_a_double_slash_in_an_object_store_is_another_file() -> None:
    """Taking both for one would leave one of them unread."""
    assert len(FileListHWM("f", ["s3a://b/x/a", "s3a://b/x//a"]).value) == 2


def test_a_bucket_may_not_be_left_by_dots() -> None:
    """The rule is the same behind a scheme."""
    with pytest.raises(MarkInvalid):
        FileListHWM("f", "s3a://b/in/../out/a", directory="s3a://b/in")


def test_a_rewritten_file_is_not_covered() -> None:
    """Size or time differ: what was read is no longer what is there."""
    mark = FileListHWM("f", {"/d/a": (10, 1)}, directory="/d")
    assert mark.covers({"/d/a": (10, 1)})
    assert not mark.covers({"/d/a": (11, 1)})
    assert not mark.covers({"/d/a": (10, 2)})
    assert mark.update({"/d/a": (11, 2)}).value == {"/d/a": FileStat(11, 2)}


def test_where_a_size_is_not_known_the_path_decides() -> None:
    """A mark taken over from another system has only paths, and its files are not read again."""
    bare = FileListHWM("f", "/d/a")
    assert bare.covers({"/d/a": (10, 1)})
    assert not bare.covers("/d/b")
    assert bare.update({"/d/a": (10, 1)}).value == {"/d/a": (10, 1)}
    assert bare.update({"/d/a": (10, 1)}).update("/d/a").value == {"/d/a": (10, 1)}


def test_known_files_give_the_same_mark() -> None:
    """Nothing new was read."""
    mark = FileListHWM("f", {"/d/a": (10, 1)})
    assert mark.update({"/d/a": (10, 1)}) is mark
    assert mark.update([]) is mark


@pytest.mark.parametrize("stat", [(1,), (1, 2, 3), "12", (1.5, 2), (None, 1), {"size": 1}])
def test_a_wrong_size_or_time_is_refused(stat: object) -> None:
    """A file's state is two whole numbers."""
    with pytest.raises(MarkInvalid):
        FileListHWM("f", {"/d/a": stat})


def test_one_file_with_two_states_is_refused() -> None:
    """Nobody can say which of them was read."""
    with pytest.raises(MarkInvalid):
        FileListHWM("f", {"/d/a": (1, 1), "/d/./a": (2, 2)})


def test_plus_and_minus_add_and_remove_files() -> None:
    """And leave the first mark alone."""
    mark = FileListHWM("f", "/d/a")
    assert set((mark + "/d/b").value) == {"/d/a", "/d/b"}
    assert (mark - "/d/a").value == {}
    assert mark - "/d/b" is mark
    assert set(mark.value) == {"/d/a"}


def test_a_list_that_holds_all_of_another_is_higher() -> None:
    """Lists that each have a file of their own have no order."""
    one, two, other = FileListHWM("f", "/a"), FileListHWM("f", ["/a", "/b"]), FileListHWM("f", "/c")
    assert one < two
    assert not one <= other
    assert not one >= other


def test_a_file_list_is_its_head_and_its_items() -> None:
    """A store keeps the added items alone and puts the mark together again."""
    mark = FileListHWM("f", {"/d/a": (10, NOON_NS + 1), "/d/b": None}, directory="/d", modified_time=NOON)
    assert isinstance(mark, Itemised)
    assert mark.items() == {"/d/a": [10, NOON_NS + 1], "/d/b": None}
    head = mark.with_items({})
    assert head.value == {}
    rebuilt = head.with_items(mark.items())
    assert rebuilt == mark
    assert rebuilt.modified_time == NOON


def test_a_list_knows_what_it_has_beyond_an_older_one() -> None:
    """Also where it was not made from that one: what was added, what changed, and whether something is missing."""
    older = FileListHWM("f", {"/d/a": (10, 1), "/d/b": None})
    grown = older.update({"/d/b": (5, 2), "/d/c": (7, 3)})
    same = FileListHWM("f", {"/d/a": (10, 1), "/d/b": (5, 2), "/d/c": (7, 3)})
    assert (grown.count(), same.items_since(grown)) == (3, {})
    assert grown.items_since(older) == same.items_since(older) == {"/d/b": [5, 2], "/d/c": [7, 3]}
    assert older.items_since(grown) is None
    assert (grown - "/d/c").items_since(grown) is None


def test_a_list_that_grew_does_not_keep_the_older_one() -> None:
    """A loop adds some files for ever: it would keep every list that it ever had."""
    older = FileListHWM("f", {"/d/a": (10, 1)})
    grown, older_value = older.update({"/d/b": (5, 2)}), weakref.ref(older.value)
    del older
    gc.collect()
    assert (older_value(), grown.count()) == (None, 2)


def test_a_short_list_is_shown_and_a_long_one_is_counted() -> None:
    """Twenty paths can be read; of more, the number and the newest."""
    many = {f"/d/{n:02}": (1, 100 - n) for n in range(21)}
    assert FileListHWM("f", ["/d/b", "/d/a"]).show() == ["/d/a", "/d/b"]
    assert FileListHWM("f", many).show() == {"files": 21, "newest": "/d/00"}


class CountingHWM(FileListHWM):
    """Counts the files it validates."""

    checked: ClassVar[list[object]] = []

    def _stat(self, path: object, stat: object) -> FileStat | None:
        self.checked.append(path)
        return super()._stat(path, stat)


def test_one_new_file_beside_a_hundred_thousand_known_is_one_check() -> None:
    """Known files are valid already, and are not validated again."""
    mark = CountingHWM("f", {f"/d/{n}": (n, n) for n in range(100_000)}, directory="/d")
    CountingHWM.checked.clear()
    assert len(mark.update({"/d/new": (1, 1)}).value) == 100_001
    assert CountingHWM.checked == ["/d/new"]


@pytest.mark.parametrize(
    "given",
    [
        NOON,
        NOON.astimezone(timezone(timedelta(hours=-8))),
        "2024-01-01T12:00:00Z",
        "2024-01-01T04:00:00-08:00",
        "2024-01-01 12:00:00",
        1_704_110_400,
        1_704_110_400.0,
        Decimal(1704110400),
        FileMoment(NOON_NS),
    ],
)
def test_a_modification_time_in_any_spelling_is_an_instant(given: object) -> None:
    """Without a zone it is UTC, whatever the zone of the process is."""
    mark = FileModifiedTimeHWM("m", given)
    assert mark.value == FileMoment(NOON_NS, None)
    assert mark.value.modified == NOON


@pytest.mark.parametrize(
    "given", ["wtf", "", True, [], ["2024-01-01"], NOON_NS, float("nan"), ("wtf", "/a"), (NOON, "a"), (NOON, 5)]
)
def test_what_is_no_modification_time_is_refused(given: object) -> None:
    """Nanoseconds given as seconds are outside the calendar, and so are found out."""
    with pytest.raises(MarkInvalid):
        FileModifiedTimeHWM("m", given)


def test_files_of_one_instant_are_told_apart_by_their_path() -> None:
    """A file written in the same nanosecond as the last one read is not lost."""
    mark = FileModifiedTimeHWM("m", (NOON, "/d/b"), directory="/d")
    assert mark.covers((NOON, "/d/a"))
    assert not mark.covers((NOON, "/d/c"))
    assert not mark.covers(FileMoment(NOON_NS + 1, "/d/a"))


def test_a_time_alone_covers_every_file_of_that_time() -> None:
    """Everything up to noon includes noon."""
    assert FileModifiedTimeHWM("m", NOON).covers((NOON, "/d/z"))
    assert not FileModifiedTimeHWM("m", (NOON, "/d/z")).covers(NOON)


def test_nanoseconds_survive_the_store() -> None:
    """A mark cut to microseconds would lie below its own file, which would be read again at every run."""
    mark = FileModifiedTimeHWM("m", FileMoment(NOON_NS + 123_456_789, "/d/a"), directory="/d")
    assert mark.serialize()["value"] == ["2024-01-01 12:00:00.123456789+00", "/d/a"]
    assert deserialize(mark.serialize()) == mark
    assert mark.set_value('["2024-01-01 12:00:00.123456789+00", "/d/a"]') is mark


def test_a_modification_time_outside_its_directory_is_refused() -> None:
    """The path obeys the same rules as in a list."""
    with pytest.raises(MarkInvalid):
        FileModifiedTimeHWM("m", (NOON, "/e/a"), directory="/d")


def test_a_modification_time_moves_by_a_timedelta() -> None:
    """For a window that is looked at again."""
    assert (FileModifiedTimeHWM("m", (NOON, "/a")) - timedelta(hours=1)).value == FileMoment(
        NOON_NS - 3_600_000_000_000
    )
