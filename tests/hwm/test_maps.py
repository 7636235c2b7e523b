"""Marks that are maps, where each key rises on its own: offsets of partitions, versions of tables."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from floodmark.errors import MarkInvalid
from floodmark.hwm import KeyValueIntHWM, TableVersionsHWM, deserialize

WRONG = [{1: 1.5}, {1: 1.0}, {1.5: 1}, {1: None}, {None: 1}, {"p": 1}, {1: "x"}, {True: 1}, {1: True}, {"0": 1, 0: 2}]


def run_etl_process(hwm: KeyValueIntHWM, new_batch_data: dict[int, int]) -> KeyValueIntHWM:
    """What the seed's example leaves to its reader."""
    return hwm.update(new_batch_data)


def test_the_example_of_the_seed_runs_with_its_one_changed_line() -> None:
    """Marks are values, so the process gives the new one back."""
    initial_offsets = {
        0: 100,
        1: 150,
        2: 200,
    }
    hwm = KeyValueIntHWM(name="topic_offsets", value=initial_offsets)

    hwm = run_etl_process(hwm, {0: 110, 1: 155})

    assert hwm.value == {0: 110, 1: 155, 2: 200}


@pytest.mark.parametrize(
    ("start", "new", "value"),
    [
        ({0: 100, 1: 150, 2: 200}, {0: 110, 1: 155}, {0: 110, 1: 155, 2: 200}),
        ({1: 100, 2: 150}, {3: 200, 2: 180, 1: 50}, {1: 100, 2: 180, 3: 200}),
        ({}, {0: 1}, {0: 1}),
        ({0: 5}, {}, {0: 5}),
        ({0: 5}, {"0": "6"}, {0: 6}),
    ],
)
def test_each_key_rises_on_its_own(start: dict[int, int], new: dict[object, object], value: dict[int, int]) -> None:
    """The higher value of a key wins, a key that is not named stays, a new one is added."""
    assert KeyValueIntHWM("k", start).update(new).value == value


@pytest.mark.parametrize("new", [{1: 100}, {1: 99}, {}])
def test_an_update_that_raises_no_key_gives_the_same_mark(new: dict[int, int]) -> None:
    """Nothing moved, so `modified_time` did not either."""
    mark = KeyValueIntHWM("k", {1: 100}, modified_time=datetime(2024, 1, 1, tzinfo=timezone.utc))
    assert mark.update(new) is mark


@pytest.mark.parametrize("given", [{"0": "100"}, {0: 100}, {" 0 ": " 100 "}, '{"0": 100}'])
def test_keys_and_values_in_text_become_ints(given: object) -> None:
    """JSON has only text keys."""
    assert KeyValueIntHWM("k", given).value == {0: 100}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_entry_is_refused_with_its_key_and_value(wrong: dict[Any, Any]) -> None:
    """The constructor says which entry of a hundred partitions it was."""
    with pytest.raises(MarkInvalid) as caught:
        KeyValueIntHWM("k", wrong)
    assert caught.value.value == dict([list(wrong.items())[-1]])


@pytest.mark.parametrize("wrong", [*WRONG, None, 5, "abc", [1], '{"0": 1, "0": 2}', '{"0": 1.5}', '{"0"'])
def test_an_update_refuses_what_the_constructor_refuses(wrong: object) -> None:
    """150.9 is not cut to 150 on the way in."""
    with pytest.raises(MarkInvalid):
        KeyValueIntHWM("k", wrong)
    with pytest.raises(MarkInvalid):
        KeyValueIntHWM("k", {1: 1}).update(wrong)


def test_a_mark_without_a_value_is_an_empty_map() -> None:
    """No partition was read."""
    assert KeyValueIntHWM("k").value == {}
    assert KeyValueIntHWM("k", {0: 1}).reset() == KeyValueIntHWM("k")


def test_set_value_may_lower_and_drop_keys() -> None:
    """A person put the mark there."""
    assert KeyValueIntHWM("k", {0: 110, 1: 5}).set_value({0: 100}).value == {0: 100}


@pytest.mark.parametrize(
    ("position", "covered"), [({0: 110}, True), ({0: 111}, False), ({0: 1, 1: 0}, False), ({}, True)]
)
def test_a_map_covers_positions_at_or_below_its_own(position: dict[int, int], covered: bool) -> None:
    """A key that the mark does not have was never read."""
    assert KeyValueIntHWM("k", {0: 110}).covers(position) == covered


def test_marks_that_are_ahead_of_each_other_are_neither_lower_nor_higher() -> None:
    """One is ahead in partition 0, the other in partition 1."""
    left, right = KeyValueIntHWM("k", {0: 2, 1: 1}), KeyValueIntHWM("k", {0: 1, 1: 2})
    assert not left <= right
    assert not left >= right
    assert KeyValueIntHWM("k", {0: 1}) < left


def test_the_topic_is_the_entity() -> None:
    """The alias says it in the words of Kafka."""
    assert KeyValueIntHWM("k", topic="orders") == KeyValueIntHWM("k", entity="orders")


def test_offsets_are_shown_with_text_keys_in_order() -> None:
    """And exactly, where a number is too large for a float."""
    assert KeyValueIntHWM("k", {2: 2**60, 0: 110}).show() == {"0": 110, "2": "1152921504606846976"}


def test_every_table_rises_on_its_own() -> None:
    """A lower version changes nothing, a table that is not named stays."""
    mark = TableVersionsHWM("inputs", {"usage": 5, "prices": 0}).update({"usage": 4, "prices": 2, "skus": 0})
    assert mark.value == {"usage": 5, "prices": 2, "skus": 0}
    assert mark.show() == {"prices": 2, "skus": 0, "usage": 5}


def test_versions_cover_what_no_table_exceeds() -> None:
    """Version 0 is a version: a table that is missing is not covered."""
    mark = TableVersionsHWM("inputs", {"usage": 5})
    assert mark.covers({"usage": 5})
    assert not mark.covers({"usage": 6})
    assert not mark.covers({"skus": 0})


def test_versions_survive_a_store() -> None:
    """Also without any table."""
    assert deserialize(TableVersionsHWM("inputs", {"usage": 5}).serialize()).value == {"usage": 5}
    assert TableVersionsHWM("inputs", '{"usage": 5}').value == {"usage": 5}
    assert deserialize(TableVersionsHWM("inputs").serialize()).value == {}


@pytest.mark.parametrize("value", [{"usage": -1}, {"usage": 1.5}, {"usage": None}, {1: 1}, [1], "usage"])
def test_what_is_no_map_of_versions_is_refused(value: object) -> None:
    """None is not version 0."""
    with pytest.raises(MarkInvalid):
        TableVersionsHWM("inputs", value)
