"""Tables as streams: no offset tells what is new in them, and a mark passes all that a look found, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from floodmark.hwm import HWM, Span, VersionHWM
from floodmark.mill.brokers import Inlet, Outlet
from floodmark.mill.declaration import declare
from floodmark.mill.inputs import as_looked_at
from floodmark.mill.join_tree import Stream, name_of
from floodmark.sources.contract import Reading, Request, Session, Sight
from tests.mill.cases import L, R
from tests.mill.nested_loop import Match, calls
from tests.mill.offline import OfflineMill
from tests.mill.test_planning import JOIN, pair


@dataclass
class ListTable:
    """A table that has had so many appends; what a span reads, its end says."""

    stream: Stream
    appends: list[list[Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return name_of(self.stream)

    def fingerprint(self, session: Session) -> str:
        return f"table {self.name}"

    def look(self, mark: HWM[Any] | None, request: Request, session: Session) -> Sight:
        first, latest = version_of(mark), len(self.appends)
        return Sight(Span(mark, VersionHWM(self.name, latest)) if latest > first else None)

    def read(self, spark: object, span: Span) -> Reading:
        raise AssertionError("nothing here reads with Spark")

    def rows(self, span: Span | None) -> list[tuple[int, int, Any]]:
        """In the order of their keys, each with an offset that only tells it from the others."""
        if span is None:
            return []
        every = [each for own in self.appends[version_of(span.after) : version_of(span.upto)] for each in own]
        return [(0, sum(each.name.encode()), each) for each in sorted(every, key=lambda each: each.k)]


def version_of(mark: HWM[Any] | None) -> int:
    return int(mark.value or 0) if mark is not None else 0


@dataclass(frozen=True)
class TableBroker:
    """Tables in memory."""

    streams: Mapping[Stream, ListTable]
    ends: Literal["with_source", "by_message"]

    def inlet(self, stream: Stream) -> Inlet:
        return Inlet(self.streams[stream], ends=self.ends, is_ordered=False)

    def outlet(self, stream: Stream) -> Outlet:
        raise AssertionError("output is what the test collects")


class TableMill(OfflineMill):
    """A turn reads what its source makes of the span."""

    def joined(self, spans: Mapping[str, Span]) -> list[list[Match]]:
        streams: dict[Stream, list[list[Any]]] = {}
        for stream in self.declared.tree.nodes:
            span = spans.get(name_of(stream))
            rows = self.broker.streams[stream].rows(as_looked_at(span)) if span is not None else []
            streams[stream] = [[row[2] for row in rows if span is not None and self.is_within(stream, row, span)]]
        return calls(self.declared.tree, streams)


def mill_of(ends: Literal["with_source", "by_message"]) -> tuple[TableMill, ListTable, ListTable]:
    left, right = ListTable(L), ListTable(R)
    broker: Any = TableBroker({L: left, R: right}, ends)
    return TableMill(declare(pair, join_tree=JOIN), broker), left, right


def pairs_of(mill: OfflineMill) -> list[tuple[str, list[str]]]:
    return [(call[0].element.name, [each.element.name for each in call[0].partners[0]]) for call in mill.calls]


def test_a_table_that_goes_on_is_read_again_only_when_it_has_grown() -> None:
    """Its mark stands still while rows are needed, and that is no work."""
    mill, left, right = mill_of("by_message")
    left.appends.append([L(1, "a"), L(2, "b")])
    right.appends.append([R(2, "d"), R(1, "c")])
    assert [mill.turn() for _ in range(3)] == [True, False, False]
    assert pairs_of(mill) == [("a", ["c"])]
    left.appends.append([L(3, "e")])
    right.appends.append([R(3, "f")])
    assert [mill.turn() for _ in range(3)] == [True, False, False]
    assert pairs_of(mill) == [("a", ["c"]), ("b", ["d"])]


def test_the_rows_of_the_next_run_may_have_lower_keys() -> None:
    """They are all that a look found, in the order of their keys; the rows of the run before are behind the mark."""
    mill, left, right = mill_of("with_source")
    left.appends.append([L(1, "a"), L(5, "b")])
    right.appends.append([R(1, "c"), R(5, "d")])
    assert mill.turn()
    left.appends.append([L(2, "e"), L(5, "f")])
    right.appends.append([R(5, "g"), R(2, "h")])
    assert mill.turn()
    assert pairs_of(mill) == [("a", ["c"]), ("b", ["d"]), ("e", ["h"]), ("f", ["g"])]


def test_rows_behind_an_end_that_the_function_returned_are_read_by_the_next_run() -> None:
    """The mark stays before all of them: what was given out is known by its key."""
    mill, left, right = mill_of("with_source")
    left.appends.append([L(1, "a"), L(2, "b"), L(3, "c")])
    right.appends.append([R(key, str(key)) for key in (1, 2, 3)])
    mill.enders = {"b"}
    assert [mill.turn() for _ in range(3)] == [True, True, False]
    assert (pairs_of(mill), mill.ends) == ([("a", ["1"]), ("b", ["2"]), ("c", ["3"])], 2)


def test_a_span_whose_mark_is_kept_is_read_to_its_own_end() -> None:
    """Many a source reads as far as the span's end says, where the mark of before stands then."""
    mill, left, right = mill_of("by_message")
    left.appends, right.appends = [[L(1, "a")], [L(2, "b"), L(3, "c")]], [[R(1, "x")], [R(2, "y"), R(3, "z")]]
    intent = mill.intend()
    assert intent is not None
    assert [version_of(span.upto) for span in intent.spans.values()] == [0, 0]
    assert [version_of(as_looked_at(Span.deserialize(span.serialize())).upto) for span in intent.spans.values()] == [
        2,
        2,
    ]
