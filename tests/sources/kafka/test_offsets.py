"""The mark of a source over several topics."""

from __future__ import annotations

import pytest

from floodmark.errors import MarkInvalid
from floodmark.hwm import KeyValueIntHWM, TopicOffsetsHWM, deserialize


def test_every_partition_of_every_topic_rises_on_its_own() -> None:
    """The higher offset wins, and what an update does not name stays."""
    mark = TopicOffsetsHWM("kafka", {"a": {0: 5, 1: 7}, "b": {0: 1}})
    raised = mark.update({"a": {0: 6, 1: 3}, "c": {0: 2}})
    assert raised.value == {"a": {0: 6, 1: 7}, "b": {0: 1}, "c": {0: 2}}
    assert mark.value == {"a": {0: 5, 1: 7}, "b": {0: 1}}


def test_an_update_that_is_reached_gives_the_same_mark() -> None:
    """Nothing changed, so nothing is written."""
    mark = TopicOffsetsHWM("kafka", {"a": {0: 5}})
    assert mark.update({"a": {0: 4}}) is mark


def test_the_mark_survives_its_stored_form() -> None:
    """Stores keep JSON, whose keys are text."""
    mark = TopicOffsetsHWM("kafka", {"a": {0: 2**60}}, topics="a,b")
    assert deserialize(mark.serialize()) == mark
    assert mark.show() == {"a": {"0": str(2**60)}}


def test_a_person_may_write_it_as_json() -> None:
    """`floodmark marks set` takes text."""
    assert TopicOffsetsHWM("kafka").set_value('{"a": {"0": 5}}').value == {"a": {0: 5}}


@pytest.mark.parametrize("value", [5, {"a": 5}, {0: {0: 1}}, {"a": {0: "x"}}, "{"])
def test_what_is_no_map_of_offsets_is_refused(value: object) -> None:
    """A damaged mark is never taken for an empty one."""
    with pytest.raises(MarkInvalid):
        TopicOffsetsHWM("kafka", value)


def test_each_topic_has_a_mark_of_its_own_within() -> None:
    """Of the same kind as that of a source with one topic; a topic that was added has nothing yet."""
    mark = TopicOffsetsHWM("kafka", {"a": {0: 5}, "b": {0: 1}}).update({"a": {1: 7}})
    assert (mark.of("a"), mark.of("new")) == (KeyValueIntHWM("a", {0: 5, 1: 7}), KeyValueIntHWM("new"))
