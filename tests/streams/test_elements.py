"""What became of records whose elements wait together."""

from __future__ import annotations

from floodmark.streams.elements import Element, PassedElement, RecordId, RecordTracker

FIRST, SECOND = RecordId("t", 0, 1), RecordId("t", 0, 2)


def test_a_record_is_not_settled_while_one_that_waits_in_the_same_element_is_on_its_way() -> None:
    """What was made of both is kept in one act: a part of it alone would be taken for the whole."""
    tracker, on_its_way = RecordTracker(), Element("b", (SECOND,))
    tracker.touch((FIRST, SECOND))
    tracker.pass_on(PassedElement(3, "both", (FIRST, SECOND), "map"))
    tracker.pass_on(PassedElement(4, "a", (FIRST,), "map"))
    tracker.hold(on_its_way)
    assert (tracker.settle(), tracker.take_passed()) == ([], [])
    tracker.let_go((on_its_way,))
    assert sorted(each.record for each in tracker.settle()) == [FIRST, SECOND]
    assert [each.value for each in tracker.take_passed()] == ["both", "a"]
