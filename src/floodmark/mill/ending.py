"""The end of a stream that a process function returned: the output stops there, and so do the marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from floodmark.hwm import Json, Span
from floodmark.mill.brokers import VALUE, Cuttable
from floodmark.mill.eos import MARKER
from floodmark.mill.feeds import DETAIL, is_in_runs, levels_in, windows_in
from floodmark.mill.horizon import NOTHING, Level, past
from floodmark.mill.milling import ENDS, NEXT
from floodmark.mill.remembering import level_to_json
from floodmark.sinks.contract import POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from floodmark.mill.planning import Planner
    from floodmark.stores.record import Intent


END_TEXT = f'{{"{MARKER}": true}}'


@dataclass(frozen=True)
class Returned:
    """Where a function ended the stream: the element that it was given, and the offset behind it."""

    place: Mapping[str, Any]
    next: int

    @property
    def partition(self) -> int:
        return int(self.place["partition"])


def first_end(rows: DataFrame) -> Returned | None:
    """The first end among a turn's output, in master order."""
    from pyspark.sql import functions as F

    found = rows.where(ENDS).agg(F.min(F.struct(POSITION, NEXT)).alias("first")).collect()[0]["first"]
    return Returned(found[POSITION].asDict(), found[NEXT]) if found else None


def only_before(rows: DataFrame, end: Returned) -> DataFrame:
    """The output that stands before the end."""
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType for field in rows.schema[POSITION].dataType.fields}  # type: ignore[attr-defined]
    place = F.struct(*(F.lit(value).cast(kinds[name]).alias(name) for name, value in end.place.items()))
    return rows.where(F.col(POSITION) < place).where(~F.col(ENDS))


def with_end(rows: DataFrame) -> DataFrame:
    """The rows and, behind all of them, one that stands for the end."""
    from pyspark.sql import functions as F

    fields = rows.schema[POSITION].dataType.fields  # type: ignore[attr-defined]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields[1:]]
    end = rows.sparkSession.range(1).select(
        F.lit(END_TEXT).alias(VALUE),
        F.struct(F.lit(1).alias("last"), *nulls).alias(POSITION),
        F.lit(True).alias(ENDS),
    )
    return rows.unionByName(end, allowMissingColumns=True)


def cut_at(end: Returned, intent: Intent, planner: Planner) -> Intent:
    """The intent whose master stops behind the element that ended it; what is joined to it stays where it was."""
    root = planner.root.name
    spans = {name: _stayed(planner, name, span) for name, span in intent.spans.items()}
    spans[root] = _stopped(planner, root, intent.spans[root], end)
    remember = intent.extras.get("remember")
    kept: dict[str, Json] = dict(remember) if isinstance(remember, dict) else {}
    own = kept.get(root)
    done = level_to_json(_done(planner, spans[root], end))
    has_rest = _has_rest(spans[root], end, planner)
    ended: dict[str, Json] = {"stopped": True, "done": done, "ended": {}, "has_rest": has_rest}
    kept[root] = {**(own if isinstance(own, dict) else {}), **ended}
    return replace(intent, spans=spans, extras={**intent.extras, "remember": kept})


def _has_rest(span: Span, end: Returned, planner: Planner) -> bool:
    """Whether elements that were read stand behind the end; with several partitions that is assumed."""
    source = planner.feeds[planner.root.name].inlet.source
    if not isinstance(source, Cuttable):
        return False
    return any(upto > (end.next if n == end.partition else first) for n, (first, upto) in source.lanes(span).items())


def _done(planner: Planner, span: Span, end: Returned) -> Level:
    if not planner.feeds[planner.root.name].keys or is_in_runs(span):
        return NOTHING
    if windows_in(span) is not None:
        return levels_in(span)[0]
    if planner.has_window:
        return past(end.place["k0"])
    return (0, end.place["k0"], end.partition, end.next)


def _stayed(planner: Planner, name: str, span: Span) -> Span:
    """Another stream keeps its mark: what of it is still needed was planned for more than is given out now."""
    source = planner.feeds[name].inlet.source
    if not isinstance(source, Cuttable):
        return replace(span, upto=span.after or span.upto.reset())
    ranges = source.lanes(span)
    return source.cut(
        span, reads={n: upto for n, (_, upto) in ranges.items()}, passes={n: first for n, (first, _) in ranges.items()}
    )


def _stopped(planner: Planner, name: str, span: Span, end: Returned) -> Span:
    """The master's mark: behind the element, and in partitions that come later in the order before everything."""
    feed = planner.feeds[name]
    if not isinstance(feed.inlet.source, Cuttable):
        return span
    ranges, windows = feed.inlet.source.lanes(span), windows_in(span)
    if windows is not None:
        passes = _behind(windows[: end.place["k0"] + 1], ranges)
    elif feed.keys and not is_in_runs(span):
        passes = {number: first for number, (first, _) in ranges.items()}
    else:
        passes = {number: _upto(number, bounds, end) for number, bounds in ranges.items()}
    cut = feed.inlet.source.cut(span, reads={n: upto for n, (_, upto) in ranges.items()}, passes=passes)
    return replace(cut, detail={**cut.detail, DETAIL: span.detail.get(DETAIL)})


def _behind(windows: Sequence[Any], ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offsets behind these windows, as they are stored."""
    passes = {number: first for number, (first, _) in ranges.items()}
    return passes | {number: upto for window in windows for number, _, upto in window}


def _upto(number: int, bounds: tuple[int, int], end: Returned) -> int:
    first, upto = bounds
    return end.next if number == end.partition else upto if number < end.partition else first
