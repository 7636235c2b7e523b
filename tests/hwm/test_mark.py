"""What holds for every kind: immutable, equal by all but time, refused by name, stored exactly."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest

from floodmark.errors import ConfigError, MarkFieldUnknown, MarkInvalid, MarkKindMismatch, UnknownKind
from floodmark.hwm import (
    HWM,
    ColumnDateHWM,
    ColumnDateTimeHWM,
    ColumnDecimalHWM,
    ColumnIntHWM,
    ColumnTextHWM,
    CompositeHWM,
    FileListHWM,
    FileModifiedTimeHWM,
    FileMoment,
    KeyValueHWM,
    KeyValueIntHWM,
    OrderedHWM,
    Span,
    VersionHWM,
    deserialize,
    digest,
    register,
)

EARLY = datetime(2024, 1, 1, tzinfo=timezone.utc)
LATE = datetime(2024, 1, 2, tzinfo=timezone.utc)

LOW_AND_HIGH: list[tuple[HWM[Any], object]] = [
    (ColumnIntHWM("a", 1, modified_time=EARLY), 2**60),
    (ColumnDecimalHWM("a", "1.5", modified_time=EARLY), "1.6"),
    (ColumnDateHWM("a", "2024-01-01", modified_time=EARLY), "2024-01-02"),
    (ColumnDateTimeHWM("a", "2024-01-01T00:00:00.000001Z", modified_time=EARLY), "2024-01-01T00:00:00.000002Z"),
    (ColumnTextHWM("a", "a", modified_time=EARLY), "b"),
    (CompositeHWM("a", (1, "x"), modified_time=EARLY), (1, "y")),
    (KeyValueIntHWM("a", {0: 1}, modified_time=EARLY), {0: 2}),
    (FileListHWM("a", "/d/a", modified_time=EARLY), {"/d/b": (1, 2**60)}),
    (FileModifiedTimeHWM("a", FileMoment(1, "/d/a"), modified_time=EARLY), FileMoment(2, "/d/a")),
    (VersionHWM("a", 0, modified_time=EARLY), 1),
]
every_kind = pytest.mark.parametrize(("mark", "higher"), LOW_AND_HIGH, ids=lambda one: getattr(one, "kind", ""))


@every_kind
def test_an_update_gives_a_new_mark_and_leaves_the_old_one(mark: HWM[Any], higher: object) -> None:
    """A failed run can be tried again with the mark it started from."""
    before = mark.serialize()
    raised = mark.update(higher, now=LATE)
    assert raised > mark
    assert raised.modified_time == LATE
    assert mark.serialize() == before


@every_kind
def test_a_lower_value_gives_the_same_mark(mark: HWM[Any], higher: object) -> None:
    """Its `modified_time` says when it last rose."""
    raised = mark.update(higher, now=LATE)
    assert raised.update(mark.value) is raised
    assert raised.update(higher) is raised


@every_kind
def test_set_value_may_lower(mark: HWM[Any], higher: object) -> None:
    """It is what a person uses to read again."""
    assert mark.update(higher).set_value(mark.value) == mark


@every_kind
def test_reset_gives_the_empty_mark(mark: HWM[Any], higher: object) -> None:
    """Every value lies above it."""
    empty = mark.update(higher).reset()
    assert empty < mark
    assert not empty.covers(mark.value)
    assert empty.update(mark.value) == mark


@every_kind
def test_a_mark_covers_itself_and_nothing_higher(mark: HWM[Any], higher: object) -> None:
    """At or below the mark is read; above it is not."""
    assert mark.covers(mark.value)
    assert not mark.covers(higher)
    assert mark.update(higher).covers(mark.value)


@every_kind
def test_what_is_stored_as_json_reads_back_equal(mark: HWM[Any], higher: object) -> None:
    """With its time, through text, and when it is empty."""
    raised = mark.update(higher)
    back = deserialize(json.loads(json.dumps(raised.serialize())))
    assert back == raised
    assert back.modified_time == raised.modified_time
    assert deserialize(json.loads(json.dumps(mark.reset().serialize()))) == mark.reset()
    assert type(mark).deserialize(mark.serialize()) == mark


@every_kind
def test_a_mark_cannot_be_changed(mark: HWM[Any], higher: object) -> None:
    """Neither by a field nor through its value."""
    with pytest.raises(FrozenInstanceError):
        mark.value = higher  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del mark.name
    with pytest.raises((TypeError, AttributeError)):
        mark.value["x"] = 1


@every_kind
def test_marks_are_copied_and_pickled_whole(mark: HWM[Any], higher: object) -> None:
    """They travel to other processes."""
    assert pickle.loads(pickle.dumps(mark)) == mark  # noqa: S301
    assert copy.deepcopy(mark) == mark
    assert mark.copy() == mark
    assert mark.copy({"description": "x"}).description == "x"
    assert replace(mark, name="other").name == "other"


@every_kind
def test_an_unknown_field_is_refused_by_name(mark: HWM[Any], higher: object) -> None:
    """A misspelt field is not silently dropped."""
    with pytest.raises(MarkFieldUnknown) as caught:
        type(mark)(name="a", value=mark.value, nme="b")
    assert caught.value.field == "nme"
    assert "name" in caught.value.known


@every_kind
def test_equality_looks_at_all_but_the_time(mark: HWM[Any], higher: object) -> None:
    """And the hash agrees with it."""
    later = replace(mark, modified_time=LATE)
    assert later == mark
    assert hash(later) == hash(mark)
    assert replace(mark, description="x") != mark
    assert replace(mark, expression="x") != mark
    assert replace(mark, name="b") != mark
    assert mark.update(higher) != mark
    assert mark != mark.value


def test_a_map_that_is_a_value_cannot_be_changed_from_outside() -> None:
    """The mark keeps its own copy of what it was given."""
    offsets = {0: 1}
    mark = KeyValueIntHWM("k", offsets)
    offsets[0] = 99
    assert mark.value == {0: 1}
    assert mark.value == {0: 1}
    assert hash(mark.value) == hash(KeyValueIntHWM("k", {0: 1}).value)
    with pytest.raises(AttributeError):
        mark.value._entries = {}


@pytest.mark.parametrize(
    ("low", "high", "lower"),
    [(1, 2, True), (2, 2, False), (3, 2, False), (None, 1, True), (None, None, False), (1, None, False)],
)
def test_marks_of_one_name_are_ordered(low: int | None, high: int | None, lower: bool) -> None:
    """An empty mark lies below every other."""
    assert (ColumnIntHWM("a", low) < ColumnIntHWM("a", high)) is lower
    assert (ColumnIntHWM("a", high) > ColumnIntHWM("a", low)) is lower


def test_marks_of_another_name_are_unequal_and_have_no_order() -> None:
    """They say how far two different things were read."""
    left, right = ColumnIntHWM("a", 1), ColumnIntHWM("b", 1)
    assert left != right
    with pytest.raises(MarkKindMismatch) as caught:
        _ = left < right
    assert (caught.value.left, caught.value.right) == (left, right)


@pytest.mark.parametrize(
    "other", [ColumnIntHWM("a", 1, entity="t"), VersionHWM("a", 1), KeyValueIntHWM("a", {0: 1}), ColumnIntHWM("b", 1)]
)
def test_marks_of_another_kind_or_entity_have_no_order(other: HWM[Any]) -> None:
    """Both marks are in the error."""
    mark = ColumnIntHWM("a", 1)
    with pytest.raises(MarkKindMismatch) as caught:
        _ = mark >= other
    assert caught.value.left is mark
    assert caught.value.right is other


def test_no_value_is_neither_read_nor_unread() -> None:
    """A row whose cursor is NULL must not pass for one that was delivered."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", 1).covers(None)


@pytest.mark.parametrize(
    "given", [ColumnIntHWM("a", source="t"), VersionHWM("a", source="t"), ColumnTextHWM("a", source="t")]
)
def test_the_table_is_the_entity(given: HWM[Any]) -> None:
    """The alias says it in the words of a database."""
    assert given.entity == "t"


def test_an_alias_of_another_kind_is_an_unknown_field() -> None:
    """A column has no topic."""
    with pytest.raises(MarkFieldUnknown):
        ColumnIntHWM("a", topic="t")


def test_an_entity_given_twice_must_be_the_same() -> None:
    """Otherwise nobody knows what the mark is on."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", source="t", entity="u")


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_mark_needs_a_name(name: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """It is what a store finds it by."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM(name, 1)


def test_modified_time_is_utc() -> None:
    """A time in another zone is converted."""
    local = datetime(2024, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert ColumnIntHWM("a", modified_time=local).modified_time.isoformat() == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "moment", [EARLY.replace(tzinfo=None), "2024-01-01T00:00:00", "0001-01-01T00:00:00+05:00", "now", 5]
)
def test_a_modified_time_that_is_no_instant_is_refused(moment: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """It would depend on the zone of the process."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM("a", modified_time=moment)


def test_a_new_mark_was_modified_now() -> None:
    """Where nobody says otherwise."""
    assert datetime.now(timezone.utc) - ColumnIntHWM("a").modified_time < timedelta(seconds=10)


def test_a_class_refuses_a_stored_mark_of_another_type() -> None:
    """A date is not an int, even if its value could be read as one."""
    with pytest.raises(MarkInvalid):
        ColumnIntHWM.deserialize({"type": "column_date", "name": "a", "value": None})


def test_a_family_accepts_its_members() -> None:
    """The generic base deserialises every kind of its own."""
    mark = KeyValueIntHWM("k", {0: 1})
    assert KeyValueHWM.deserialize(mark.serialize()) == mark
    with pytest.raises(MarkInvalid):
        KeyValueHWM.deserialize(ColumnIntHWM("a", 1).serialize())


@pytest.mark.parametrize("stored", [{}, {"type": "column_int", "name": "a"}, {"name": "a", "value": 1}, ["column_int"]])
def test_a_damaged_mark_is_never_taken_for_an_empty_one(stored: Any) -> None:  # noqa: ANN401 - wrong on purpose
    """Otherwise everything would be read again."""
    with pytest.raises(MarkInvalid):
        deserialize(stored)


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    """Perhaps the module that registers it was not imported."""
    with pytest.raises(UnknownKind) as caught:
        deserialize({"type": "column_money", "name": "a", "value": 1})
    assert caught.value.kind == "column_money"
    assert "column_int" in caught.value.known


@register
class LevelHWM(OrderedHWM[str]):
    """A kind of a user's own: low, mid, high."""

    kind: ClassVar[str] = "test_level"
    levels: ClassVar[tuple[str, ...]] = ("low", "mid", "high")

    def read(self, value: object) -> str:
        """One of the levels."""
        if value not in self.levels:
            raise MarkInvalid(self.kind, value, reason="not a level")
        return str(value)

    def at_or_below(self, low: str, high: str) -> bool:
        """By their place, not by their letters."""
        return self.levels.index(low) <= self.levels.index(high)


def test_a_kind_of_ones_own_is_registered_with_one_decorator() -> None:
    """It updates, compares and is stored like the others."""
    mark = LevelHWM("l", "mid")
    assert mark.update("low") is mark
    assert mark.update("high").value == "high"
    assert deserialize(json.loads(json.dumps(mark.serialize()))) == mark


def test_a_wire_type_cannot_be_taken_over() -> None:
    """Stored marks of the first kind would be read as the second."""
    with pytest.raises(ConfigError):
        register(type("Mine", (ColumnIntHWM,), {"kind": "version"}))


def test_a_kind_needs_a_wire_type() -> None:
    """Otherwise it could not be stored."""
    with pytest.raises(ConfigError):
        register(type("Nameless", (OrderedHWM,), {}))


def test_a_span_reads_back_and_its_digest_ignores_the_time() -> None:
    """The same rows have the same digest, whenever they were planned."""
    span = Span(ColumnIntHWM("a", 1), ColumnIntHWM("a", 2), {"files": ["x"]})
    later = Span(ColumnIntHWM("a", 1, modified_time=EARLY), ColumnIntHWM("a", 2, modified_time=LATE), {"files": ["x"]})
    further = Span(ColumnIntHWM("a", 1), ColumnIntHWM("a", 3), {"files": ["x"]})
    assert Span.deserialize(json.loads(json.dumps(span.serialize()))) == span
    assert digest({"s": span}) == digest({"s": later})
    assert digest({"s": span}) != digest({"s": further})


def test_importing_marks_imports_neither_spark_nor_pydantic() -> None:
    """The command line answers without a JVM, and at once."""
    program = (
        "import sys, floodmark.hwm; print(sorted({'pyspark', 'pydantic', 'py4j', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
